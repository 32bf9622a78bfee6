//! The requests that ratchet needs from brokers, those it can do without, and the judgement of the versions that
//! brokers offer.
//!
//! librdkafka handles membership, administration and takeovers on either data path, so its versions are always needed.
//!
//! Invariant: a request counts as offered only if all brokers that responded offer it: any of them may become a leader
//! or a coordinator.
//!
//! **Failure**: none. A missing request is reported with the broker that does not offer it, without a reason.

use std::ops::RangeInclusive;

use super::client::{Offer, Offers};
use super::path::DataPath;
use super::wire::brokers::{METADATA, METADATA_VERSIONS};
use super::wire::connection::Versions;
use super::wire::messages::{fetch, produce};
use crate::cluster::{Abilities, Without};

/// A request that ratchet needs, the versions that are sufficient, and what the request is for.
struct Need {
    name: &'static str,
    key: i16,
    /// The sufficient versions that librdkafka supports.
    librdkafka: RangeInclusive<i16>,
    /// The sufficient versions that the wire supports, if it sends the request itself.
    wire: Option<RangeInclusive<i16>>,
    purpose: Purpose,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    TopicIds,
    Topics,
    Reading,
    Writing,
    Group,
    Stable,
    Transactions,
    Fenced,
}

impl Purpose {
    const fn words(self) -> &'static str {
        match self {
            Self::TopicIds => "topic ids, which reveal that a topic was recreated",
            Self::Topics => "the settings of topics",
            Self::Reading => "reading",
            Self::Writing => "writing",
            Self::Group => "groups, whose members share the partitions",
            Self::Stable => "offsets on which no transaction is pending, which a takeover waits for",
            Self::Transactions => "transactions, without which nothing is exactly once",
            Self::Fenced => "offsets in transactions that a group's generation fences",
        }
    }
}

const fn need(
    name: &'static str,
    key: i16,
    librdkafka: RangeInclusive<i16>,
    wire: Option<RangeInclusive<i16>>,
    purpose: Purpose,
) -> Need {
    Need { name, key, librdkafka, wire, purpose }
}

/// Metadata names topics' ids from this version on.
const TOPIC_IDS_VERSION: i16 = 10;

/// All requests that are needed. Without one of them, a lane would wait for ever or break a guarantee.
const NEEDS: &[Need] = &[
    need(
        "Metadata",
        METADATA,
        TOPIC_IDS_VERSION..=13,
        Some(TOPIC_IDS_VERSION..=*METADATA_VERSIONS.end()),
        Purpose::TopicIds,
    ),
    need("DescribeConfigs", 32, 0..=1, None, Purpose::Topics),
    need("Fetch", fetch::API_KEY, 4..=16, Some(fetch::VERSION..=fetch::VERSION), Purpose::Reading),
    // Since version 2 it can return the last stable offset.
    need("ListOffsets", 2, 2..=7, None, Purpose::Reading),
    need("Produce", produce::API_KEY, 3..=10, Some(produce::VERSIONS), Purpose::Writing),
    // Since version 1 it can look up the coordinator of a transactional id.
    need("FindCoordinator", 10, 1..=2, Some(1..=3), Purpose::Group),
    need("JoinGroup", 11, 0..=5, None, Purpose::Group),
    need("SyncGroup", 14, 0..=3, None, Purpose::Group),
    need("Heartbeat", 12, 0..=3, None, Purpose::Group),
    need("LeaveGroup", 13, 0..=1, None, Purpose::Group),
    // Version 7 added the flag that requests stable offsets only (KIP-447).
    need("OffsetFetch", 9, 7..=9, None, Purpose::Stable),
    // Version 3 lets a producer raise its epoch (KIP-360); librdkafka gets a new id instead.
    need("InitProducerId", 22, 0..=4, Some(3..=4), Purpose::Transactions),
    need("AddPartitionsToTxn", 24, 0..=0, Some(0..=3), Purpose::Transactions),
    need("AddOffsetsToTxn", 25, 0..=0, Some(0..=3), Purpose::Transactions),
    need("EndTxn", 26, 0..=1, Some(0..=4), Purpose::Transactions),
    // Since version 3 it contains the group's generation (KIP-447).
    need("TxnOffsetCommit", 28, 3..=3, Some(3..=4), Purpose::Fenced),
];

/// The request that compares leader epochs: its versions on the wire, and in librdkafka.
const LEADER_EPOCHS: [(i16, RangeInclusive<i16>); 2] = [(23, 2..=4), (23, 2..=2)];
const LATEST_TIME: (i16, RangeInclusive<i16>) = (2, 7..=7);
const DESCRIBE_GROUPS: (i16, RangeInclusive<i16>) = (15, 0..=4);
const CREATE_TOPICS: (i16, RangeInclusive<i16>) = (19, 0..=4);
const END_TXN_V2: (i16, RangeInclusive<i16>) = (26, 5..=5);

/// What the brokers are able to do, and which client reads and writes with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// The part that is reported outside of this module.
    pub abilities: Abilities,
    /// Whether lanes are on the wire.
    pub is_on_the_wire: bool,
    /// Whether brokers name the latest timestamp of a partition (KIP-734).
    pub tells_time: bool,
    /// Whether they describe groups.
    pub describes_groups: bool,
}

/// Judges the versions that brokers offer. `path` is the configured data path; `allows_wire` says whether the
/// properties allow the wire.
pub(super) fn judge(offers: &Offers, path: DataPath, allows_wire: bool) -> Judgement {
    let may_use_wire = allows_wire && path != DataPath::Librdkafka;
    let wire_lacks = lacking_requests(offers, true);
    let is_on_the_wire = may_use_wire && (path == DataPath::Wire || wire_lacks.is_empty());
    let librdkafka_lacks = lacking_requests(offers, false);
    let mut lacking = if is_on_the_wire { wire_lacks.clone() } else { librdkafka_lacks.clone() };
    if !lacking.is_empty() && is_on_the_wire && librdkafka_lacks.is_empty() {
        let last = lacking.len() - 1;
        lacking[last].push_str("; with `data_path: auto`, librdkafka would read and write");
    }
    let data_path = match (is_on_the_wire, may_use_wire) {
        (true, _) => "on the wire".to_owned(),
        (false, true) => format!("by librdkafka, since {}", wire_lacks.join("; ")),
        (false, false) => "by librdkafka".to_owned(),
    };
    let [on_wire, by_librdkafka] = &LEADER_EPOCHS;
    let leader_epochs = if is_on_the_wire { on_wire } else { by_librdkafka };
    let (tells_time, describes_groups) = (all_support(offers, &LATEST_TIME), all_support(offers, &DESCRIBE_GROUPS));
    let has_v2 = all_support(offers, &END_TXN_V2)
        && offers.all.iter().all(|offer| offer.versions.feature("transaction.version").is_some_and(|level| level >= 2));
    let can = [
        (true, "transactions"),
        (has_v2, "transactions of the second version"),
        (all_support(offers, leader_epochs), "leader epochs"),
        (tells_time, "latest timestamps"),
        (describes_groups, "descriptions of groups"),
        (all_support(offers, &CREATE_TOPICS), "creation of topics"),
    ];
    let can = can.into_iter().filter(|(does, _)| *does && lacking.is_empty()).map(|(_, what)| what).collect();
    let abilities = Abilities {
        asked: offers.all.len(),
        silent: offers.silent.clone(),
        data_path,
        can,
        without: without(offers, leader_epochs),
        lacking,
    };
    Judgement { abilities, is_on_the_wire, tells_time, describes_groups }
}

/// The missing requests that ratchet can do without, each with the consequence. `leader_epochs` is the request that
/// compares leader epochs.
fn without(offers: &Offers, leader_epochs: &(i16, RangeInclusive<i16>)) -> Vec<Without> {
    let all = [
        (
            leader_epochs,
            "OffsetForLeaderEpoch",
            "if an input loses its newest records when its leader changes, reading goes on and nothing says so",
        ),
        (&LATEST_TIME, "ListOffsets", "Kafka's time is that of the last transaction's marker in the changelog"),
        (
            &DESCRIBE_GROUPS,
            "DescribeGroups",
            "the rights to a group and its members are not known before a lane joins it",
        ),
        (&CREATE_TOPICS, "CreateTopics", "missing topics have to be created manually"),
    ];
    let missing = all.into_iter().filter(|(wanted, ..)| !all_support(offers, wanted));
    missing.map(|(wanted, what, so)| Without { what: missing_at(offers, wanted, what), so }).collect()
}

/// The needed requests that some broker does not offer, one text for each broker and purpose.
fn lacking_requests(offers: &Offers, on_the_wire: bool) -> Vec<String> {
    let mut found: Vec<(Purpose, &str, Vec<String>)> = Vec::new();
    for need in NEEDS {
        let of_wire = need.wire.as_ref().filter(|_| on_the_wire);
        // If both the wire and librdkafka send the request, each needs a version.
        for range in of_wire.into_iter().chain([&need.librdkafka]) {
            let Some(offer) = offers.all.iter().find(|offer| offer.versions.pick(need.key, range.clone()).is_none())
            else {
                continue;
            };
            let what = format!("{} ({}, {} needed)", need.name, offered(&offer.versions, need.key), versions(range));
            match found.iter_mut().find(|(purpose, broker, _)| *purpose == need.purpose && *broker == offer.broker) {
                Some((.., all)) => all.push(what),
                None => found.push((need.purpose, &offer.broker, vec![what])),
            }
            break;
        }
    }
    let words = |(purpose, broker, all): (Purpose, &str, Vec<String>)| {
        format!("the broker at {broker} lacks {} for {}", all.join(", "), purpose.words())
    };
    found.into_iter().map(words).collect()
}

fn all_support(offers: &Offers, (key, range): &(i16, RangeInclusive<i16>)) -> bool {
    offers.all.iter().all(|offer| offer.versions.pick(*key, range.clone()).is_some())
}

/// A text about the first broker that does not offer the request `what`.
fn missing_at(offers: &Offers, (key, range): &(i16, RangeInclusive<i16>), what: &str) -> String {
    let lacks = |offer: &&Offer| offer.versions.pick(*key, range.clone()).is_none();
    let Some(offer) = offers.all.iter().find(lacks) else { return what.to_owned() };
    let offered = offered(&offer.versions, *key);
    format!("the broker at {} lacks {what} ({offered}, {} wanted)", offer.broker, versions(range))
}

/// The versions of a request that a broker offers, as text.
fn offered(offers: &Versions, key: i16) -> String {
    offers.range_of(key).map_or_else(|| "not offered".to_owned(), |range| format!("{} offered", versions(&range)))
}

fn versions(range: &RangeInclusive<i16>) -> String {
    match (range.start(), range.end()) {
        (least, most) if least == most => format!("version {least}"),
        (least, most) => format!("versions {least} to {most}"),
    }
}

#[cfg(test)]
mod tests;
