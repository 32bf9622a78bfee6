//! The input: things and their versions, some new, some repeated, some late. A few records are odd: their content
//! cannot be read, or cannot be sent.

use std::borrow::Cow;

use ratchet::record::HeaderBuf;

use crate::database::Kind;
use crate::kafka::{Bytes, Record, Time};
use crate::profile::Profile;
use crate::random::Random;
use crate::world::{POISON, POISONED_BYTES_MAX, WALL_MS};

mod calls;

pub use calls::{By, Calls, Ends, Shape};

/// What is read, and by which topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputKind {
    /// Things with versions, remembered for ever.
    #[default]
    Versions,
    /// Messages, remembered for a second, so that entries expire, are swept and come back.
    Messages,
    /// Things with versions that restart in each epoch.
    Epochs,
    /// Changes to a table's rows: deletes and their tombstones, snapshot reads, truncates. Drops are explained.
    Changes,
    /// Things with versions, into a database.
    Sunk,
    /// Messages, into a database.
    SunkMessages,
    /// Things with versions, into a database whose inbox all partitions share: each thing is in several of them.
    Shared,
    /// Things with versions, behind a gate: each thing is in several partitions. While it does not answer, records wait.
    Gated,
    /// The same, but then they go on unasked.
    GatedPass,
    /// Things with versions, into a database whose answers go to a topic.
    Returned,
    /// For a provider.
    Called(Calls),
}

impl InputKind {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [
            Self::Versions,
            Self::Messages,
            Self::Epochs,
            Self::Changes,
            Self::Sunk,
            Self::SunkMessages,
            Self::Shared,
            Self::Gated,
            Self::GatedPass,
            Self::Returned,
        ];
        others.into_iter().chain(Calls::USUAL.into_iter().chain(Calls::ODD).chain(Calls::HANDLED).map(Self::Called))
    }

    /// How its sink decides, if it ends in one.
    pub fn sink(self) -> Option<Kind> {
        match self {
            Self::Versions | Self::Messages | Self::Epochs | Self::Changes | Self::Called(_) => None,
            Self::Gated | Self::GatedPass => None,
            Self::Sunk | Self::SunkMessages => Some(Kind::Position),
            Self::Shared => Some(Kind::Inbox),
            Self::Returned => Some(Kind::Returning),
        }
    }

    /// How it calls, if it calls a provider.
    pub fn calls(self) -> Option<Calls> {
        match self {
            Self::Called(calls) => Some(calls),
            _ => None,
        }
    }

    /// Its topology.
    pub fn topology(self) -> Cow<'static, str> {
        match self {
            Self::Versions => TOPOLOGY.into(),
            Self::Messages => MESSAGES.into(),
            Self::Sunk => SUNK.into(),
            Self::SunkMessages => SUNK_MESSAGES.into(),
            Self::Shared => SHARED.into(),
            Self::Gated => format!("{TOPOLOGY}{GATE}}}}}\n").into(),
            Self::GatedPass => format!("{TOPOLOGY}{GATE}, on_unavailable: pass}}}}\n").into(),
            Self::Returned => RETURNED.into(),
            Self::Called(calls) => calls.topology().into(),
            Self::Epochs => EPOCHS.into(),
            Self::Changes => CHANGES.into(),
        }
    }
}

/// The topology of most seeds. In all of them, records that cannot be read or sent go to the dead letter topic, which
/// is the default.
pub const TOPOLOGY: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
contents: value.lot
output: {topic: orders.unique}
";
/// The simulated gate keeps no time.
const GATE: &str = "gate: {redis: {url: 'redis://simulated'";
const MESSAGES: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
retention: 1s
contents: value.lot
output: {topic: orders.unique}
";
/// Null values are forwarded here.
const EPOCHS: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
epoch: [value.epoch]
contents: value.lot
on_conflict: forward
output: {topic: orders.unique}
on_null_value: forward
";
/// The simulated database knows statements by their numbers: the first inserts, the second counts.
const SUNK: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
contents: value.lot
sink:
  postgres:
    url: postgres://simulated/shop
    statements:
      - {sql: 'insert into log values ($1, $2, $3, $4)', with: [value.id, value.version, value.sent, value.amount]}
      - {sql: 'update counts set count = count + 1 where bucket = $1', with: [value.bucket]}
";
const SUNK_MESSAGES: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
retention: 1s
contents: value.lot
sink:
  postgres:
    url: postgres://simulated/shop
    statements:
      - {sql: 'insert into log values ($1, $2, $3, $4)', with: [value.id, value.version, value.sent, value.amount]}
      - {sql: 'update counts set count = count + 1 where bucket = $1', with: [value.bucket]}
";
const SHARED: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
audit: {topic: shop.audit}
contents: value.lot
sink:
  postgres:
    url: postgres://simulated/shop
    statements:
      - {sql: 'insert into log values ($1, $2, $3, $4)', with: [value.id, value.version, value.sent, value.amount]}
      - {sql: 'update counts set count = count + 1 where bucket = $1', with: [value.bucket]}
    dedup: inbox
";
const RETURNED: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
audit: {topic: shop.audit}
contents: value.lot
sink:
  postgres:
    url: postgres://simulated/shop
    statements:
      - {sql: 'insert into log values ($1, $2, $3, $4) returning id, serial', with: [value.id, value.version, value.sent, value.amount], returns: true}
      - {sql: 'update counts set count = count + 1 where bucket = $1', with: [value.bucket]}
    result: {topic: shop.results}
";
const CHANGES: &str = "\
name: shop
input: {topics: [orders], key_format: json, value_format: json}
identity: [key.id]
version: {of: value.version, as: integer}
kinds: {of: value.op, delete: [d], read: [r], truncate: [t], table: [value.table]}
on_null_value: follow_delete
contents: value.lot
on_conflict: forward
output: {topic: orders.unique}
audit: {topic: shop.audit}
";
/// The topic for what statements return.
pub const RESULTS: &str = "shop.results";
/// How many records in a thousand the database refuses, and how many it refuses only as it commits.
const REFUSED_AMOUNTS: [u64; 2] = [15, 8];
pub const INPUT: &str = "orders";
pub const OUTPUT: &str = "orders.unique";
pub const CHANGELOG: &str = "ratchet.shop.orders.changelog";
pub const CONTROL: &str = "ratchet.shop.control";
/// How many things there are in each partition.
pub const THINGS: u64 = 12;
/// First producer id of the input's transactions.
pub const FIRST_PRODUCER: i64 = 500_000;
pub const GROUP: &str = "ratchet.shop";

/// Maximum size of a batch in the output: the default of the topic. Ordinary batches are far smaller.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Number of records in an epoch, about.
const EPOCH_RECORDS: u64 = 25;
/// How many records in a thousand come from a sender whose clock is ahead by `FUTURE_MS`: more than any clock here is
/// set.
const FROM_THE_FUTURE: u64 = 6;
const FUTURE_MS: i64 = 30 * 24 * 3_600_000;
/// How many records in a thousand have headers.
const WITH_HEADERS: u64 = 200;
/// How many have no key; no rule needs it.
const WITHOUT_KEY: u64 = 20;
/// Stands for the table where things are numbered.
const TABLE: u64 = 99;
/// How many changes are null values; some of those are a delete's tombstone.
const NULLS: u64 = 150;

/// What is odd about a record's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddity {
    /// It is null.
    Null,
    /// It is not JSON.
    Malformed,
    /// Its version, if it has one, is not a number.
    VersionMalformed,
    IdentityMissing,
    /// The output rejects it.
    TooLarge,
}

impl Oddity {
    /// Most records have none.
    fn drawn(random: &mut Random) -> Option<Self> {
        match random.below(1000) {
            0..4 => Some(Self::Null),
            4..8 => Some(Self::Malformed),
            8..12 => Some(Self::VersionMalformed),
            12..16 => Some(Self::IdentityMissing),
            16 => Some(Self::TooLarge),
            _ => None,
        }
    }
}

/// What a change does to a row, or to the whole table.
fn operation(random: &mut Random) -> &'static str {
    match random.below(1000) {
        0..10 => "t",
        10..260 => "d",
        260..360 => "r",
        _ => "u",
    }
}

/// Draws the next record.
#[expect(clippy::too_many_lines, reason = "one kind of record after the other")]
pub fn record(profile: &Profile, random: &mut Random, partition: i32, sent: u64, now: Time) -> Record {
    // From a separate generator, so that the rest of the input is the same with and without them.
    let mut separate = Random::new(random.clone().next());
    let oddity = Oddity::drawn(&mut separate).filter(|_| profile.odd_records);
    let shape = profile.input.calls().map(|calls| calls.shape);
    if profile.input == InputKind::Changes || shape == Some(Shape::Changes) {
        return change((oddity, shape.is_some()), random, &mut separate, (partition, sent, now));
    }
    let thing = random.below(THINGS);
    let is_shared = matches!(profile.input, InputKind::Shared | InputKind::Gated | InputKind::GatedPass);
    let id = if is_shared { format!("{thing}") } else { format!("{partition}-{thing}") };
    // Versions rise with the number of records sent, and sometimes fall behind.
    let version = (sent + random.below(6)).saturating_sub(random.below(12));
    let version = version / profile.coarse * profile.coarse;
    let mut timestamp = WALL_MS + (now / crate::kafka::MS) as i64;
    let identity = if oddity == Some(Oddity::IdentityMissing) { String::new() } else { format!(r#""id":"{id}","#) };
    let number = |version: u64| match oddity {
        Some(Oddity::VersionMalformed) => r#""x""#.to_owned(),
        _ => version.to_string(),
    };
    let fields = match profile.input {
        InputKind::Versions | InputKind::Gated | InputKind::GatedPass => {
            format!(r#""version":{},"#, number(version))
        }
        InputKind::Called(Calls { shape: Shape::Versions, .. }) => {
            let amount = asked(profile, &mut separate, (partition, thing, version));
            format!(r#""version":{},"amount":{amount},"#, number(version))
        }
        InputKind::Sunk | InputKind::Shared | InputKind::Returned => {
            format!(r#""version":{},"bucket":{},"amount":{},"#, number(version), thing % 3, amount(&mut separate))
        }
        InputKind::Messages | InputKind::SunkMessages | InputKind::Called(Calls { shape: Shape::Messages, .. }) => {
            // Some are late for their place, a few for the retention.
            let most = if random.permille(30) { 1500 } else { 300 };
            timestamp -= random.below(most) as i64;
            match profile.input {
                InputKind::Messages => String::new(),
                InputKind::Called(_) => format!(r#""amount":{},"#, same_amount((partition, thing, 0))),
                _ => format!(r#""bucket":{},"amount":{},"#, thing % 3, amount(&mut separate)),
            }
        }
        InputKind::Epochs | InputKind::Called(Calls { shape: Shape::Epochs, .. }) => {
            // Sometimes the last records of the previous epoch are delivered again, with versions that were high in
            // it.
            let late = u64::from(random.permille(100));
            let epoch = (sent / EPOCH_RECORDS).saturating_sub(late);
            let version = version.saturating_sub(epoch * EPOCH_RECORDS);
            let amount = match profile.input {
                InputKind::Epochs => String::new(),
                _ => {
                    let of = (partition, thing, (epoch << 32) + version);
                    format!(r#""amount":{},"#, asked(profile, &mut separate, of))
                }
            };
            format!(r#""epoch":{epoch},"version":{},{amount}"#, number(version))
        }
        InputKind::Changes | InputKind::Called(Calls { shape: Shape::Changes, .. }) => {
            unreachable!("changes are drawn separately")
        }
    };
    // A handler gets the whole value: each record of a thing and its version has the same.
    let is_handled = profile.input.calls().is_some_and(|calls| calls.by == By::Handler);
    let sent = if is_handled { 0 } else { sent };
    let lot = if profile.input.calls().is_none() { lot(&separate) } else { String::new() };
    let value = match oddity {
        Some(Oddity::Null) => None,
        Some(Oddity::Malformed) => Some("{".to_owned()),
        Some(Oddity::TooLarge) if !is_handled => {
            let text = "x".repeat(OUTPUT_BYTES_MAX);
            Some(format!(r#"{{{identity}{fields}{lot}"sent":{sent},"text":"{text}"}}"#))
        }
        _ => Some(format!(r#"{{{identity}{fields}{lot}"sent":{sent}}}"#)),
    };
    let key = (!profile.odd_records || !separate.permille(WITHOUT_KEY)).then_some(id);
    if profile.odd_records && separate.permille(FROM_THE_FUTURE) {
        timestamp += FUTURE_MS;
    }
    Record {
        timestamp: Some(timestamp),
        key: key.map(|key| key.as_bytes().into()),
        value: value.map(|value| value.as_bytes().into()),
        headers: if profile.odd_records { headers(&mut separate) } else { Bytes::default() },
    }
}

/// The amount of each record of a thing and its version: they ask for the same.
fn same_amount((partition, thing, version): (i32, u64, u64)) -> u64 {
    Random::new((thing << 32) ^ (version << 8) ^ partition as u64).below(1000)
}

/// The same, with exceptions if the profile has them: a request that is another one.
fn asked(profile: &Profile, random: &mut Random, of: (i32, u64, u64)) -> u64 {
    let is_other = profile.conflicts > 0 && random.permille(profile.conflicts);
    same_amount(of) + if is_other { 1000 } else { 0 }
}

/// Draws an amount that the database takes, or one that it refuses.
fn amount(random: &mut Random) -> i64 {
    let [refused, at_commit] = REFUSED_AMOUNTS;
    match random.below(1000) {
        drawn if drawn < refused => -1,
        drawn if drawn < refused + at_commit => -2,
        drawn => drawn as i64,
    }
}

/// Draws the next change: the key names its row, the value the table of a truncate. Those that call have an amount, the
/// same for each record of a row and its version.
fn change(
    (oddity, calls): (Option<Oddity>, bool),
    random: &mut Random,
    separate: &mut Random,
    at: (i32, u64, Time),
) -> Record {
    let (partition, sent, now) = at;
    let id = random.below(12);
    let version = (sent + random.below(6)).saturating_sub(random.below(12));
    let (operation, is_null) = (operation(separate), separate.permille(NULLS));
    let key = match (operation, oddity) {
        ("t", _) if !is_null => None,
        (_, Some(Oddity::IdentityMissing)) => Some("{}".to_owned()),
        _ => Some(format!(r#"{{"id":"{partition}-{id}"}}"#)),
    };
    // All partitions have the same table.
    let of = if operation == "t" { (0, TABLE, version) } else { (partition, id, version) };
    let amount = match calls {
        true => format!(r#""amount":{},"#, same_amount(of)),
        false => lot(separate),
    };
    let version = if oddity == Some(Oddity::VersionMalformed) { r#""x""#.to_owned() } else { version.to_string() };
    let text = if oddity == Some(Oddity::TooLarge) { "x".repeat(OUTPUT_BYTES_MAX) } else { String::new() };
    let value = match oddity {
        Some(Oddity::Malformed) => Some("{".to_owned()),
        _ if is_null || oddity == Some(Oddity::Null) => None,
        _ => Some(format!(
            r#"{{"op":"{operation}","table":"orders","version":{version},{amount}"sent":{sent},"text":"{text}"}}"#
        )),
    };
    Record {
        timestamp: Some(WALL_MS + (now / crate::kafka::MS) as i64),
        key: key.map(|key| key.as_bytes().into()),
        value: value.map(|value| value.as_bytes().into()),
        headers: headers(separate),
    }
}

/// Contents: few enough for repetitions, with an outlier now and then, so that an entry comes to know many.
fn lot(separate: &Random) -> String {
    // From a copy, so that the rest of the input is the same as without it.
    let mut random = Random::new(separate.clone().next());
    let lots = if random.permille(200) { 30 } else { 2 };
    format!(r#""lot":{},"#, random.below(lots))
}

/// Turns a record into one at which the engine panics, if its value is an ordinary one; returns whether it did.
pub fn poison(record: &mut Record) -> bool {
    let Some(value) = record.value.as_ref().filter(|value| value.len() < POISONED_BYTES_MAX && value.ends_with(b"}"))
    else {
        return false;
    };
    record.value = Some([&value[..value.len() - 1], POISON, b"}"].concat().as_slice().into());
    true
}

/// The headers of a record: none, one, or two with the same name, which Kafka allows.
fn headers(random: &mut Random) -> Bytes {
    let mut headers = HeaderBuf::default();
    if random.permille(WITH_HEADERS) {
        headers.push(b"trace", Some(random.next().to_be_bytes().as_slice()));
        if random.permille(500) {
            headers.push(b"trace", random.permille(500).then_some(b"".as_slice()));
        }
    }
    headers.as_headers().as_bytes().into()
}
