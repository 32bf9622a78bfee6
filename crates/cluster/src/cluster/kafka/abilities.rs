//! What ratchet needs of brokers, and what it can do without: a table of requests, and the judgement of what brokers
//! offer.
//!
//! Membership, administration and takeovers are librdkafka's on either data path, so its versions are needed in any case.
//!
//! Invariant: a request is offered only if all brokers that have answered offer it: any of them may lead, or coordinate.
//!
//! **Failure**: none. A missing request is named with the broker that does not offer it; the reason is not known.

use std::ops::RangeInclusive;

use super::client::{Offer, Offers};
use super::path::DataPath;
use super::wire::brokers::{METADATA, METADATA_VERSIONS};
use super::wire::connection::Versions;
use super::wire::messages::{fetch, produce};
use crate::cluster::{Abilities, Without};

/// A request, the versions of it that do, and what they are for.
struct Need {
    name: &'static str,
    key: i16,
    /// The versions that librdkafka speaks and that say what is needed.
    librdkafka: RangeInclusive<i16>,
    /// Those of the wire, where it makes the request itself.
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
            Self::TopicIds => "ids of topics, by which a topic is noticed that was created anew",
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
const IDS_FROM: i16 = 10;

/// All that is needed. Without one of these a lane would wait for ever, or promise what it does not keep.
const NEEDS: &[Need] = &[
    need("Metadata", METADATA, IDS_FROM..=13, Some(IDS_FROM..=*METADATA_VERSIONS.end()), Purpose::TopicIds),
    need("DescribeConfigs", 32, 0..=1, None, Purpose::Topics),
    need("Fetch", fetch::API_KEY, 4..=16, Some(fetch::VERSION..=fetch::VERSION), Purpose::Reading),
    // Up to the last stable offset from version 2 on.
    need("ListOffsets", 2, 2..=7, None, Purpose::Reading),
    need("Produce", produce::API_KEY, 3..=10, Some(produce::VERSIONS), Purpose::Writing),
    // Of transactional ids from version 1 on.
    need("FindCoordinator", 10, 1..=2, Some(1..=3), Purpose::Group),
    need("JoinGroup", 11, 0..=5, None, Purpose::Group),
    need("SyncGroup", 14, 0..=3, None, Purpose::Group),
    need("Heartbeat", 12, 0..=3, None, Purpose::Group),
    need("LeaveGroup", 13, 0..=1, None, Purpose::Group),
    // Version 7 added the flag that asks for stable offsets alone (KIP-447).
    need("OffsetFetch", 9, 7..=9, None, Purpose::Stable),
    // Version 3 lets a producer raise its epoch (KIP-360); librdkafka gets a new id instead.
    need("InitProducerId", 22, 0..=4, Some(3..=4), Purpose::Transactions),
    need("AddPartitionsToTxn", 24, 0..=0, Some(0..=3), Purpose::Transactions),
    need("AddOffsetsToTxn", 25, 0..=0, Some(0..=3), Purpose::Transactions),
    need("EndTxn", 26, 0..=1, Some(0..=4), Purpose::Transactions),
    // The generation is part of it from version 3 on (KIP-447).
    need("TxnOffsetCommit", 28, 3..=3, Some(3..=4), Purpose::Fenced),
];

/// On the wire, and by librdkafka.
const LEADER_EPOCHS: [(i16, RangeInclusive<i16>); 2] = [(23, 2..=4), (23, 2..=2)];
const LATEST_TIME: (i16, RangeInclusive<i16>) = (2, 7..=7);
const DESCRIBE_GROUPS: (i16, RangeInclusive<i16>) = (15, 0..=4);
const CREATE_TOPICS: (i16, RangeInclusive<i16>) = (19, 0..=4);
const END_TXN_V2: (i16, RangeInclusive<i16>) = (26, 5..=5);

/// What the brokers offer, and who reads and writes with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// The value for others.
    pub abilities: Abilities,
    /// Whether lanes are on the wire.
    pub is_on_the_wire: bool,
    /// Whether brokers name the latest timestamp of a partition (KIP-734).
    pub tells_time: bool,
    /// Whether they describe groups.
    pub describes_groups: bool,
}

/// Judges what brokers offer. Lanes would be on the wire as far as properties go, or not, by this setting.
pub(super) fn judge(offers: &Offers, path: DataPath, allows_wire: bool) -> Judgement {
    let may_use_wire = allows_wire && path != DataPath::Librdkafka;
    let of_wire = lacking(offers, true);
    let is_on_the_wire = may_use_wire && (path == DataPath::Wire || of_wire.is_empty());
    let of_librdkafka = lacking(offers, false);
    let mut lacking = if is_on_the_wire { of_wire.clone() } else { of_librdkafka.clone() };
    if !lacking.is_empty() && is_on_the_wire && of_librdkafka.is_empty() {
        let last = lacking.len() - 1;
        lacking[last].push_str("; with `data_path: auto`, librdkafka would read and write");
    }
    let data_path = match (is_on_the_wire, may_use_wire) {
        (true, _) => "on the wire".to_owned(),
        (false, true) => format!("by librdkafka, since {}", of_wire.join("; ")),
        (false, false) => "by librdkafka".to_owned(),
    };
    let [on_wire, by_librdkafka] = &LEADER_EPOCHS;
    let leader_epochs = if is_on_the_wire { on_wire } else { by_librdkafka };
    let (tells_time, describes_groups) = (does(offers, &LATEST_TIME), does(offers, &DESCRIBE_GROUPS));
    let has_v2 = does(offers, &END_TXN_V2)
        && offers.all.iter().all(|offer| offer.versions.feature("transaction.version").is_some_and(|level| level >= 2));
    let can = [
        (true, "transactions"),
        (has_v2, "transactions of the second version"),
        (does(offers, leader_epochs), "leader epochs"),
        (tells_time, "latest timestamps"),
        (describes_groups, "descriptions of groups"),
        (does(offers, &CREATE_TOPICS), "creation of topics"),
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

/// What is done without. Leader epochs are compared by this request.
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
        (&CREATE_TOPICS, "CreateTopics", "topics that are missing have to be created by hand"),
    ];
    let missing = all.into_iter().filter(|(wanted, ..)| !does(offers, wanted));
    missing.map(|(wanted, what, so)| Without { what: missing_at(offers, wanted, what), so }).collect()
}

/// What all brokers have to offer and some do not, one text for each purpose.
fn lacking(offers: &Offers, on_the_wire: bool) -> Vec<String> {
    let mut found: Vec<(Purpose, &str, Vec<String>)> = Vec::new();
    for need in NEEDS {
        let of_wire = need.wire.as_ref().filter(|_| on_the_wire);
        // Where both make the request, both have to find a version.
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

fn does(offers: &Offers, (key, range): &(i16, RangeInclusive<i16>)) -> bool {
    offers.all.iter().all(|offer| offer.versions.pick(*key, range.clone()).is_some())
}

/// The first broker that does not offer it.
fn missing_at(offers: &Offers, (key, range): &(i16, RangeInclusive<i16>), what: &str) -> String {
    let lacks = |offer: &&Offer| offer.versions.pick(*key, range.clone()).is_none();
    let Some(offer) = offers.all.iter().find(lacks) else { return what.to_owned() };
    let offered = offered(&offer.versions, *key);
    format!("the broker at {} lacks {what} ({offered}, {} wanted)", offer.broker, versions(range))
}

/// What a broker offers of a request.
fn offered(offers: &Versions, key: i16) -> String {
    offers.of(key).map_or_else(|| "not offered".to_owned(), |range| format!("{} offered", versions(&range)))
}

fn versions(range: &RangeInclusive<i16>) -> String {
    match (range.start(), range.end()) {
        (least, most) if least == most => format!("version {least}"),
        (least, most) => format!("versions {least} to {most}"),
    }
}

#[cfg(test)]
mod tests;
