//! The sample topic: changes of orders, from a service that delivers them at least once.
//!
//! The first events are those of `topologies/samples/orders.jsonl`, which ships with the project in the
//! envelope of `kcat -J`; if more are needed, the generator that wrote them continues. It is seeded, so
//! every run has the same events.
//!
//! An order goes through versions. About one delivery in five brings nothing new: the newest version
//! again (a duplicate), an older version again, or a version that was skipped and arrives after its successor
//! (both stale).

use serde::{Deserialize, Serialize};

use crate::format::key_hash;
use crate::record::HeaderBuf;

/// The topic that is read.
pub const INPUT: &str = "orders.changes";
/// The topic that the topology writes.
pub const OUTPUT: &str = "orders.latest";
/// Partitions of both.
pub const PARTITIONS: i32 = 4;
/// The header that every record has.
const HEADER: (&str, &str) = ("source", "shop");

const SAMPLE: &str = include_str!("../../../topologies/samples/orders.jsonl");
const SEED: u64 = 0x5eed_0ade_0001;
/// The first event's time: 2026-01-01T00:00:00Z.
const FIRST_MS: i64 = 1_767_225_600_000;
const BETWEEN_MS: i64 = 250;
/// How many orders are open at a time; a new one replaces the oldest.
const OPEN_ORDERS: u64 = 5_000;
/// An order ends at this version, or at the one after it.
const LAST_VERSION: u64 = 6;
const STATUSES: [&str; 7] = ["created", "paid", "packed", "handed_over", "in_transit", "delivered", "closed"];

/// One event, in the envelope of `kcat -J`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    topic: String,
    /// The partition it belongs to, by Kafka's default partitioner.
    pub partition: i32,
    offset: i64,
    tstype: String,
    /// Milliseconds since the epoch.
    pub ts: i64,
    headers: Vec<String>,
    /// The record's key.
    pub key: String,
    /// The record's value.
    pub payload: String,
}

impl Event {
    /// The headers: kcat lists names and values alternately.
    pub fn header_buf(&self) -> HeaderBuf {
        let mut headers = HeaderBuf::default();
        for pair in self.headers.chunks_exact(2) {
            headers.push(pair[0].as_bytes(), Some(pair[1].as_bytes()));
        }
        headers
    }
}

/// All events, endlessly: the sample's, then the generator's.
pub fn events() -> Result<impl Iterator<Item = Event>, serde_json::Error> {
    let shipped = SAMPLE.lines().map(serde_json::from_str).collect::<Result<Vec<Event>, _>>()?;
    let more = Generator::new().skip(shipped.len());
    Ok(shipped.into_iter().chain(more))
}

/// Generates events.
pub struct Generator {
    random: Random,
    number: i64,
    /// The open orders, the oldest first.
    orders: std::collections::VecDeque<Order>,
    next_order: u64,
    offsets: [i64; PARTITIONS as usize],
}

#[derive(Clone, Copy)]
struct Order {
    id: u64,
    /// Its newest version.
    newest: u64,
    /// A version that was skipped, if any.
    skipped: Option<u64>,
}

impl Generator {
    pub fn new() -> Self {
        Self {
            random: Random(SEED),
            number: 0,
            orders: std::collections::VecDeque::new(),
            next_order: 1,
            offsets: [0; PARTITIONS as usize],
        }
    }

    /// Which order changes to which version.
    fn change(&mut self) -> (u64, u64) {
        let open = self.orders.len() as u64;
        if open == 0 || self.random.below(100) < 12 {
            return self.begin_order();
        }
        let order = usize::try_from(self.random.below(open)).unwrap_or(0);
        let chance = self.random.below(100);
        let order = &mut self.orders[order];
        let version = match chance {
            0..12 => order.newest,
            12..20 => 1 + self.random.below(order.newest),
            20..50 if order.skipped.is_some() => order.skipped.take().unwrap_or(order.newest),
            _ if order.newest >= LAST_VERSION => return self.begin_order(),
            50..70 => {
                order.skipped = Some(order.newest + 1);
                order.newest += 2;
                order.newest
            }
            _ => {
                order.newest += 1;
                order.newest
            }
        };
        (order.id, version)
    }

    fn begin_order(&mut self) -> (u64, u64) {
        if self.orders.len() as u64 == OPEN_ORDERS {
            self.orders.pop_front();
        }
        let order = Order { id: self.next_order, newest: 1, skipped: None };
        self.orders.push_back(order);
        self.next_order += 1;
        (order.id, order.newest)
    }
}

impl Iterator for Generator {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let ts = FIRST_MS + self.number * BETWEEN_MS;
        self.number += 1;
        let (id, version) = self.change();
        let key = format!("order-{id}");
        let partition = i32::try_from(key_hash(key.as_bytes())).unwrap_or(0) % PARTITIONS;
        let offset = &mut self.offsets[usize::try_from(partition).unwrap_or(0)];
        let event = Event {
            topic: INPUT.to_owned(),
            partition,
            offset: *offset,
            tstype: "create".to_owned(),
            ts,
            headers: vec![HEADER.0.to_owned(), HEADER.1.to_owned()],
            payload: payload(id, version),
            key,
        };
        *offset += 1;
        Some(event)
    }
}

/// The value of an order's version: the same bytes whenever it is delivered.
fn payload(id: u64, version: u64) -> String {
    let mut of_order = Random(id);
    let customer = 1_000 + of_order.below(9_000);
    let cents = 500 + of_order.below(50_000) + version * of_order.below(100);
    let status = STATUSES[usize::try_from(version - 1).unwrap_or(usize::MAX).min(STATUSES.len() - 1)];
    format!(
        r#"{{"order_id":{id},"version":{version},"status":"{status}","customer":"c-{customer}","total":"{}.{:02}","currency":"EUR"}}"#,
        cents / 100,
        cents % 100
    )
}

/// SplitMix64, which gives the same numbers on every machine and in every release.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
