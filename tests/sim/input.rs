//! What is read: things and their versions, so that some are new, some come again and some are late. A few records are
//! odd: what is in them cannot be decided on, or not be written.

use ratchet::record::HeaderBuf;

use crate::kafka::{Bytes, Record, Time};
use crate::profile::Profile;
use crate::random::Random;
use crate::world::WALL_MS;

/// What is read, and by which topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Things with versions, remembered for ever.
    #[default]
    Versions,
    /// Messages, remembered for a second: so that entries expire, are swept and come again.
    Messages,
    /// Things with versions that begin again with each epoch.
    Epochs,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Versions, Self::Messages, Self::Epochs];

    /// Its topology.
    pub fn topology(self) -> &'static str {
        match self {
            Self::Versions => TOPOLOGY,
            Self::Messages => MESSAGES,
            Self::Epochs => EPOCHS,
        }
    }
}

/// The topology that most seeds run. What cannot be decided on, or not be sent, goes to the dead letter topic in all of
/// them, which is the default.
pub const TOPOLOGY: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
output: {topic: orders.unique}
";
const MESSAGES: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
retention: 1s
output: {topic: orders.unique}
";
/// Null values are passed on here.
const EPOCHS: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
epoch: [value.epoch]
output: {topic: orders.unique}
on_null_value: forward
";
pub const INPUT: &str = "orders";
pub const OUTPUT: &str = "orders.unique";
pub const CHANGELOG: &str = "ratchet.shop.orders.changelog";
/// Producer ids of the input's transactions begin here.
pub const FIRST_PRODUCER: i64 = 500_000;
pub const GROUP: &str = "ratchet.shop";

/// What a batch of the output may take: the default, with which it is created. No usual batch comes near it.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// How many records an epoch has, about.
const EPOCH_RECORDS: u64 = 25;
/// So many of a thousand records have headers.
const WITH_HEADERS: u64 = 200;
/// So many have no key, which nothing asks for.
const WITHOUT_KEY: u64 = 20;

/// What is odd about a record's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddity {
    /// There is none.
    Null,
    /// It is no JSON.
    Malformed,
    /// Its version, where it has one, is no number.
    VersionMalformed,
    IdentityMissing,
    /// The output refuses it.
    TooLarge,
}

impl Oddity {
    /// Most have none.
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

/// One record more.
pub fn record(profile: &Profile, random: &mut Random, partition: i32, sent: u64, now: Time) -> Record {
    // Drawn apart, so that all else that is drawn for the input is the same with them and without.
    let mut apart = Random::new(random.clone().next());
    let oddity = Oddity::drawn(&mut apart).filter(|_| profile.odd_records);
    let id = format!("{partition}-{}", random.below(12));
    // Versions rise with what was sent, and fall behind now and then.
    let version = (sent + random.below(6)).saturating_sub(random.below(12));
    let mut timestamp = WALL_MS + (now / crate::kafka::MS) as i64;
    let identity = if oddity == Some(Oddity::IdentityMissing) { String::new() } else { format!(r#""id":"{id}","#) };
    let number = |version: u64| match oddity {
        Some(Oddity::VersionMalformed) => r#""x""#.to_owned(),
        _ => version.to_string(),
    };
    let fields = match profile.input {
        Kind::Versions => format!(r#""version":{},"#, number(version)),
        Kind::Messages => {
            // Some are late for their place, a few for the retention.
            let most = if random.permille(30) { 1500 } else { 300 };
            timestamp -= random.below(most) as i64;
            String::new()
        }
        Kind::Epochs => {
            // The former epoch's last records are redelivered now and then, with what were high versions in it.
            let late = u64::from(random.permille(100));
            let epoch = (sent / EPOCH_RECORDS).saturating_sub(late);
            let version = version.saturating_sub(epoch * EPOCH_RECORDS);
            format!(r#""epoch":{epoch},"version":{},"#, number(version))
        }
    };
    let value = match oddity {
        Some(Oddity::Null) => None,
        Some(Oddity::Malformed) => Some("{".to_owned()),
        Some(Oddity::TooLarge) => {
            let text = "x".repeat(OUTPUT_BYTES_MAX);
            Some(format!(r#"{{{identity}{fields}"sent":{sent},"text":"{text}"}}"#))
        }
        _ => Some(format!(r#"{{{identity}{fields}"sent":{sent}}}"#)),
    };
    let key = (!profile.odd_records || !apart.permille(WITHOUT_KEY)).then_some(id);
    Record {
        timestamp: Some(timestamp),
        key: key.map(|key| key.as_bytes().into()),
        value: value.map(|value| value.as_bytes().into()),
        headers: if profile.odd_records { headers(&mut apart) } else { Bytes::default() },
    }
}

/// The headers of a record: none, one, or two of the same name, as Kafka allows.
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
