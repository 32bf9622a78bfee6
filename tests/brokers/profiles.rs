//! The brokers: what each lacks or refuses, and what has to come of it.

/// What has to come of a cell.
#[derive(Clone, Copy, Debug)]
pub enum Comes {
    /// All records are forwarded; the log says this.
    Forwarded(&'static str),
    /// The topology is refused, with these words.
    Refused(&'static [&'static str]),
    /// The instance is not ready in the end, and the log has these words.
    NotReady(&'static [&'static str]),
}

use Comes::{Forwarded, NotReady, Refused};

/// A broker.
pub struct Profile {
    pub name: &'static str,
    /// The highest version of a request that it offers, -1 for none.
    pub most: &'static [(i16, i16)],
    /// The error with which each of these requests fails.
    pub refuse: &'static [(i16, i16)],
    /// How far a record in the middle of the input is ahead of the present.
    pub ahead: &'static str,
    /// With `data_path: auto`.
    pub comes: Comes,
    /// With `data_path: librdkafka`, if that differs.
    pub by_librdkafka: Option<Comes>,
    /// With `data_path: wire`, where that is tried too.
    pub on_wire: Option<Comes>,
}

const WHOLE: Profile =
    Profile { name: "", most: &[], refuse: &[], ahead: "0s", comes: Forwarded(""), by_librdkafka: None, on_wire: None };

/// One that lacks these requests, and is refused by these words on any data path.
const fn lacking(name: &'static str, most: &'static [(i16, i16)], words: &'static [&'static str]) -> Profile {
    Profile { name, most, comes: Refused(words), ..WHOLE }
}

const UNKNOWN: i16 = -1;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
const TRANSACTIONS: &str = "transactions, without which nothing is exactly once";

pub const PROFILES: &[Profile] = &[
    Profile { name: "everything", ..WHOLE },
    // WarpStream says that it does not have this one.
    Profile {
        name: "no OffsetForLeaderEpoch",
        most: &[(23, -1)],
        comes: Forwarded("lacks OffsetForLeaderEpoch"),
        ..WHOLE
    },
    lacking("no transactions", &[(22, -1), (24, -1), (25, -1), (26, -1), (28, -1)], &["InitProducerId", TRANSACTIONS]),
    lacking("no InitProducerId", &[(22, -1)], &["InitProducerId", TRANSACTIONS]),
    lacking("no AddPartitionsToTxn", &[(24, -1)], &["AddPartitionsToTxn", TRANSACTIONS]),
    lacking("no AddOffsetsToTxn", &[(25, -1)], &["AddOffsetsToTxn", TRANSACTIONS]),
    lacking("no EndTxn", &[(26, -1)], &["EndTxn", TRANSACTIONS]),
    lacking("TxnOffsetCommit without generations", &[(28, 2)], &["TxnOffsetCommit", "versions 0 to 2 offered"]),
    lacking("OffsetFetch without stability", &[(9, 6)], &["OffsetFetch", "no transaction is pending"]),
    lacking("no topic ids", &[(3, 9)], &["Metadata", "topic ids"]),
    lacking("no Metadata", &[(3, -1)], &["Metadata"]),
    lacking("no groups", &[(11, -1), (14, -1), (12, -1), (13, -1)], &["JoinGroup", "groups"]),
    lacking("no FindCoordinator", &[(10, -1)], &["FindCoordinator"]),
    lacking("no Fetch", &[(1, -1)], &["Fetch", "reading"]),
    lacking("no Produce", &[(0, -1)], &["Produce", "writing"]),
    lacking("no ListOffsets", &[(2, -1)], &["ListOffsets", "reading"]),
    lacking("no DescribeConfigs", &[(32, -1)], &["DescribeConfigs", "settings of topics"]),
    // The wire speaks version 11 of Fetch, and versions 8 to 11 of Produce.
    Profile {
        name: "Fetch up to 10",
        most: &[(1, 10)],
        comes: Forwarded("by librdkafka, since"),
        by_librdkafka: Some(Forwarded("")),
        on_wire: Some(Refused(&["Fetch", "version 11 needed"])),
        ..WHOLE
    },
    Profile {
        name: "Produce up to 7",
        most: &[(0, 7)],
        comes: Forwarded("by librdkafka, since"),
        by_librdkafka: Some(Forwarded("")),
        on_wire: Some(Refused(&["Produce", "versions 8 to 11 needed"])),
        ..WHOLE
    },
    Profile {
        name: "InitProducerId up to 2",
        most: &[(22, 2)],
        comes: Forwarded("by librdkafka, since"),
        by_librdkafka: Some(Forwarded("")),
        on_wire: Some(Refused(&["InitProducerId", "versions 3 to 4 needed"])),
        ..WHOLE
    },
    // Transactions of the second version are announced, and the request that ends one is not there.
    Profile { name: "EndTxn up to 4", most: &[(26, 4)], on_wire: Some(Forwarded("")), ..WHOLE },
    // Redpanda says so.
    Profile {
        name: "ListOffsets up to 4, a record of the future",
        most: &[(2, 4)],
        ahead: "5h",
        comes: Forwarded("lacks ListOffsets (versions 0 to 4 offered, version 7 wanted)"),
        ..WHOLE
    },
    Profile { name: "a record of the future", ahead: "5h", ..WHOLE },
    Profile { name: "no DescribeGroups", most: &[(15, -1)], comes: Forwarded("lacks DescribeGroups"), ..WHOLE },
    lacking("no CreateTopics", &[(19, -1)], &["cannot be created", "create it by hand"]),
    // What is offered and always refused.
    refusing("InitProducerId refused", &[(22, COORDINATOR_NOT_AVAILABLE)], &["lane restarts"]),
    refusing("AddPartitionsToTxn refused", &[(24, COORDINATOR_NOT_AVAILABLE)], &["transaction aborted"]),
    refusing("TxnOffsetCommit refused", &[(28, COORDINATOR_NOT_AVAILABLE)], &["transaction aborted"]),
    refusing("EndTxn refused", &[(26, COORDINATOR_NOT_AVAILABLE)], &["transaction aborted"]),
    refusing("Produce refused", &[(0, NOT_ENOUGH_REPLICAS)], &["transaction aborted"]),
    refusing("Fetch refused", &[(1, UNKNOWN)], &["no open transaction precedes it, but no records arrive"]),
    refusing("OffsetFetch refused", &[(9, COORDINATOR_NOT_AVAILABLE)], &["cannot start yet"]),
];

/// One that fails each of these requests: the instance is not ready, and its log has these words.
const fn refusing(name: &'static str, refuse: &'static [(i16, i16)], words: &'static [&'static str]) -> Profile {
    Profile { name, refuse, comes: NotReady(words), ..WHOLE }
}
