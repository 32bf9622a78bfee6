//! What is read: things and their versions, so that some are new, some come again and some are late.

use crate::kafka::{Record, Time};
use crate::random::Random;
use crate::world::WALL_MS;

/// The topology that most seeds run.
pub const TOPOLOGY: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
output: {topic: orders.unique}
";
/// The same, where what is remembered expires within a seed.
pub const EXPIRING: &str = "\
name: shop
input: {topics: [orders], value_format: json}
identity: [value.id]
version: {of: value.version, as: integer}
retention: 3s
output: {topic: orders.unique}
";
pub const INPUT: &str = "orders";
pub const OUTPUT: &str = "orders.unique";
pub const CHANGELOG: &str = "ratchet.shop.orders.changelog";
/// Producer ids of the input's transactions begin here.
pub const FIRST_PRODUCER: i64 = 500_000;
pub const GROUP: &str = "ratchet.shop";

/// One record more.
pub fn record(random: &mut Random, partition: i32, sent: u64, now: Time) -> Record {
    let id = format!("{partition}-{}", random.below(12));
    // Versions rise with what was sent, and fall behind now and then.
    let version = (sent + random.below(6)).saturating_sub(random.below(12));
    let value = format!(r#"{{"id":"{id}","version":{version},"sent":{sent}}}"#);
    Record {
        timestamp: Some(WALL_MS + (now / crate::kafka::MS) as i64),
        key: Some(id.as_bytes().into()),
        value: Some(value.as_bytes().into()),
        ..Record::default()
    }
}
