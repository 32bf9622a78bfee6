//! The records that call: each one is an order of its own, and its request has three fields of it.

use std::io::Write as _;

use serde::{Deserialize, Serialize};

use crate::generate::{Generated, PARTITIONS};

/// A record's size.
pub const VALUE_BYTES: usize = 160;
/// The header of keys.
pub const KEY_HEADER: &str = "Idempotency-Key";

/// An order.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Order {
    pub id: u64,
    pub amount: u64,
    /// When the record was due at the input, on the harness's clock.
    pub due_us: u64,
}

/// What is asked of the provider, and what it answers.
#[derive(Serialize)]
struct Charge {
    order: u64,
    amount: u64,
    due_us: u64,
}

impl Order {
    /// The order with this number.
    pub fn new(id: u64, due_us: u64) -> Order {
        Order { id, amount: 1 + id % 10_000, due_us }
    }

    /// Appends the record's value.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (from, Order { id, amount, due_us }) = (out.len(), self);
        // Writing to a vector never fails.
        let _ = write!(out, r#"{{"id":{id},"operation":"charge","amount":{amount},"due_us":{due_us},"note":""#);
        out.resize(out.len().max(from + VALUE_BYTES - 2), b'x');
        out.extend_from_slice(b"\"}");
    }

    /// The request's body, as ratchet makes it of the same record.
    pub fn body(&self) -> Vec<u8> {
        let Order { id, amount, due_us } = *self;
        serde_json::to_vec(&Charge { order: id, amount, due_us }).unwrap_or_default()
    }
}

/// Puts order `id` into a record.
pub fn make(id: u64, record: &mut Generated) {
    record.key.clear();
    record.value.clear();
    (record.partition, record.fresh) = ((id % PARTITIONS as u64) as i32, true);
    let _ = write!(record.key, "{id}");
    Order::new(id, 0).write(&mut record.value);
}

/// ratchet's topology, with these lines of the sink besides.
pub fn topology(name: &str, input: &str, output: &str, url: &str, lines: &[&str]) -> String {
    let more: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    format!(
        "name: {name}\ninput: {{topics: [{input}], key_format: bytes, value_format: json}}\nidentity: value.id\n\
         partitioned_by_identity: true\nsink:\n  http:\n    url: {url}\n    \
         body: {{json: {{order: value.id, amount: value.amount, due_us: value.due_us}}}}\n    \
         result: {{topic: {output}}}\n    \
         idempotency_key: {{header: {KEY_HEADER}, honoured_for: 24h}}\n{more}"
    )
}
