//! What is read: things and their versions, so that some are new, some come again and some are late.

use crate::kafka::{Record, Time};
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

/// The topology that most seeds run.
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
const EPOCHS: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
epoch: [value.epoch]
output: {topic: orders.unique}
";
pub const INPUT: &str = "orders";
pub const OUTPUT: &str = "orders.unique";
pub const CHANGELOG: &str = "ratchet.shop.orders.changelog";
/// Producer ids of the input's transactions begin here.
pub const FIRST_PRODUCER: i64 = 500_000;
pub const GROUP: &str = "ratchet.shop";

/// How many records an epoch has, about.
const EPOCH_RECORDS: u64 = 25;

/// One record more.
pub fn record(kind: Kind, random: &mut Random, partition: i32, sent: u64, now: Time) -> Record {
    let id = format!("{partition}-{}", random.below(12));
    // Versions rise with what was sent, and fall behind now and then.
    let version = (sent + random.below(6)).saturating_sub(random.below(12));
    let mut timestamp = WALL_MS + (now / crate::kafka::MS) as i64;
    let value = match kind {
        Kind::Versions => format!(r#"{{"id":"{id}","version":{version},"sent":{sent}}}"#),
        Kind::Messages => {
            // Some are late for their place, a few for the retention.
            let most = if random.permille(30) { 1500 } else { 300 };
            timestamp -= random.below(most) as i64;
            format!(r#"{{"id":"{id}","sent":{sent}}}"#)
        }
        Kind::Epochs => {
            // The former epoch's last records are redelivered now and then, with what were high versions in it.
            let late = u64::from(random.permille(100));
            let epoch = (sent / EPOCH_RECORDS).saturating_sub(late);
            let version = version.saturating_sub(epoch * EPOCH_RECORDS);
            format!(r#"{{"id":"{id}","epoch":{epoch},"version":{version},"sent":{sent}}}"#)
        }
    };
    Record {
        timestamp: Some(timestamp),
        key: Some(id.as_bytes().into()),
        value: Some(value.as_bytes().into()),
        ..Record::default()
    }
}
