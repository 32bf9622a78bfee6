//! Asks brokers which requests they know: all brokers in the metadata, or the one that was reached if there is no
//! metadata.
//!
//! **Failure**: a broker that fails is asked again, with its connection's back-off, as long as there is time; one that
//! does not answer in time is listed as silent. If none of the bootstrap addresses can be reached, the result is `None`
//! at once: the caller asks again when the cluster has come up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::wire::brokers::{Brokers, METADATA, METADATA_VERSIONS, Use};
use super::super::wire::connection::Versions;
use super::connecting::ClientSettings;

/// How long all brokers together may take: a run that they keep from starting says so within ten seconds.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// What one broker offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its address.
    pub broker: String,
    /// The requests that it knows.
    pub versions: Versions,
}

/// What brokers offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// The brokers that have answered; at least one.
    pub all: Vec<Offer>,
    /// The addresses of the brokers that have not.
    pub silent: Vec<String>,
}

/// Asks all brokers of the cluster; `None` if none has answered.
pub fn ask(client: &ClientSettings) -> Option<Offers> {
    let (mut network, mut brokers) = client.open();
    let until = network.now() + ANSWER_MAX;
    let (mut first, mut heard) = (None, BTreeMap::new());
    loop {
        let now = network.now();
        if first.is_none()
            && let Some(node) = brokers.any(now)
        {
            first = offer(&mut brokers, node, now);
            if first.as_ref().is_some_and(|first| first.versions.pick(METADATA, METADATA_VERSIONS).is_some()) {
                brokers.ask_for_nodes(now);
            }
        }
        let nodes = brokers.nodes();
        for node in &nodes {
            if !heard.contains_key(node)
                && let Some(offer) = offer(&mut brokers, *node, now)
            {
                heard.insert(*node, offer);
            }
        }
        let is_over = match &first {
            Some(first) if first.versions.pick(METADATA, METADATA_VERSIONS).is_none() => true,
            Some(_) => !nodes.is_empty() && nodes.iter().all(|node| heard.contains_key(node)),
            None => brokers.bootstrap().all(|node| brokers.is_failing(node, Use::Control)),
        };
        if is_over || now >= until {
            break;
        }
        network.drive(&mut brokers, until.saturating_duration_since(now));
    }
    let silent = brokers.nodes().into_iter().filter(|node| !heard.contains_key(node));
    let silent = silent.filter_map(|node| brokers.address(node)).map(ToString::to_string).collect();
    // The bootstrap address may belong to any of the brokers, so its offer counts only if there is no other.
    let all: Vec<Offer> = if heard.is_empty() { first.into_iter().collect() } else { heard.into_values().collect() };
    (!all.is_empty()).then_some(Offers { all, silent })
}

/// What a broker offers, once it is connected.
fn offer(brokers: &mut Brokers, node: i32, now: Instant) -> Option<Offer> {
    let versions = brokers.ready(node, Use::Control, now)?.clone();
    Some(Offer { broker: brokers.address(node)?.to_string(), versions })
}

#[cfg(test)]
mod tests;
