//! Broken records, as bad senders send them.

use crate::cluster::Fresh;
use crate::load::{Random, now_ms, thing};

/// A record of partition 0 with this value.
pub fn raw(value: impl Into<Vec<u8>>) -> Fresh {
    Fresh::new(0, "raw", value).at(now_ms())
}

/// One of each kind; each has to be dead-lettered.
pub fn broken_records() -> Vec<Fresh> {
    let depth = 10_000;
    vec![
        raw("{\"id\":\"cut\",\"version\""),
        raw("no JSON at all"),
        raw(""),
        raw("{\"version\":1}"),
        raw("{\"id\":null,\"version\":1}"),
        raw("{\"id\":{\"a\":1},\"version\":1}"),
        raw("[1,2,3]"),
        raw("{\"id\":\"x\",\"version\":\"newest\"}"),
        raw("{\"id\":\"x\",\"version\":1.5}"),
        raw("{\"id\":\"x\",\"version\":true}"),
        raw(b"{\"id\":\"\xff\xfe\",\"version\":1}".to_vec()),
        raw("[".repeat(depth) + &"]".repeat(depth)),
        raw(format!("{{\"id\":\"{}\",\"version\":1}}", "x".repeat(70_000))),
        raw(format!("{{\"id\":\"x\",\"version\":{}}}", "9".repeat(301))),
        Fresh { value: None, ..raw("") },
        Fresh { key: None, value: None, ..raw("") },
        thing(0, "from-the-future", 1).at(now_ms() + 400 * 86_400_000),
    ]
}

/// Text that does not compress.
pub fn noise(bytes: usize) -> String {
    let mut random = Random::seeded("noise");
    (0..bytes).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}
