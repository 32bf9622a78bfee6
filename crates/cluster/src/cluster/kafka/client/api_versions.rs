//! Asks brokers which requests they support: all brokers in the cluster's metadata, or, without metadata, the one that
//! was reached first.
//!
//! **Failure**: a query that fails is repeated, with the connection's backoff, until the deadline; a broker that has
//! not responded by then is listed as silent. If no bootstrap address can be reached, the result is `None` at once: the
//! caller repeats the query later.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::wire::brokers::{Brokers, METADATA, METADATA_VERSIONS, Purpose};
use super::super::wire::connection::Versions;
use super::client_settings::ClientSettings;

/// How long to wait for the responses of all brokers: a run that cannot start has to say so within ten seconds.
const RESPONSE_MAX: Duration = Duration::from_secs(4);

/// The requests that one broker offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The broker's address.
    pub broker: String,
    /// The requests and their versions.
    pub versions: Versions,
}

/// The offers of a cluster's brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// The offers of the brokers that have responded; at least one.
    pub all: Vec<Offer>,
    /// The addresses of the brokers that have not responded.
    pub silent: Vec<String>,
}

/// Asks all brokers of the cluster; `None` if none has responded.
pub fn query_api_versions(client: &ClientSettings) -> Option<Offers> {
    let (mut network, mut brokers) = client.open();
    let deadline = network.now() + RESPONSE_MAX;
    // The offer of the broker that was reached first, and the offers of the brokers in the metadata.
    let (mut first_offer, mut offers_by_node) = (None, BTreeMap::new());
    loop {
        let now = network.now();
        if first_offer.is_none()
            && let Some(node) = brokers.any_node(now)
        {
            first_offer = offer(&mut brokers, node, now);
            if first_offer.as_ref().is_some_and(|first| first.versions.pick(METADATA, METADATA_VERSIONS).is_some()) {
                brokers.request_metadata_now(now);
            }
        }
        let nodes = brokers.nodes();
        for node in &nodes {
            if !offers_by_node.contains_key(node)
                && let Some(offer) = offer(&mut brokers, *node, now)
            {
                offers_by_node.insert(*node, offer);
            }
        }
        let is_over = match &first_offer {
            // The broker supports no usable version of the request for metadata, so no other broker can be discovered.
            Some(first) if first.versions.pick(METADATA, METADATA_VERSIONS).is_none() => true,
            Some(_) => !nodes.is_empty() && nodes.iter().all(|node| offers_by_node.contains_key(node)),
            None => brokers.bootstrap().all(|node| brokers.is_failing(node, Purpose::Control)),
        };
        if is_over || now >= deadline {
            break;
        }
        network.drive(&mut brokers, deadline.saturating_duration_since(now));
    }
    let silent = brokers.nodes().into_iter().filter(|node| !offers_by_node.contains_key(node));
    let silent = silent.filter_map(|node| brokers.address(node)).map(ToString::to_string).collect();
    // The bootstrap address may belong to any of the brokers, so its offer counts only if there is no other offer.
    let all: Vec<Offer> = if offers_by_node.is_empty() {
        first_offer.into_iter().collect()
    } else {
        offers_by_node.into_values().collect()
    };
    (!all.is_empty()).then_some(Offers { all, silent })
}

/// The offer of a broker; `None` until it is connected.
fn offer(brokers: &mut Brokers, node: i32, now: Instant) -> Option<Offer> {
    let versions = brokers.ensure_ready(node, Purpose::Control, now)?.clone();
    Some(Offer { broker: brokers.address(node)?.to_string(), versions })
}

#[cfg(test)]
mod tests;
