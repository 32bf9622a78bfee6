//! What is fuzzed: the rooms that read bytes which others have written. Those of the package `ratchet` are taken by
//! their files, so that fuzzing needs neither RocksDB nor librdkafka.

#![allow(missing_docs, dead_code, reason = "the rooms are documented, and used as a whole, in their own crate")]

pub use ratchet_core::{capture, dedup, encodings, format, record, sabotage, schemas, words, yaml};

#[path = "../../crates/cluster/src/cluster/kafka/unpack/frames.rs"]
pub mod frames;
#[path = "../../src/topology/mod.rs"]
pub mod topology;
#[path = "../../crates/cluster/src/cluster/kafka/wire/connection/request.rs"]
pub mod connection;
#[path = "../../crates/cluster/src/cluster/kafka/wire/headers.rs"]
pub mod headers;
#[path = "../../crates/cluster/src/cluster/kafka/wire/messages/mod.rs"]
pub mod messages;
#[path = "../../crates/cluster/src/cluster/kafka/wire/primitives.rs"]
pub mod primitives;
#[path = "../../crates/cluster/src/cluster/kafka/wire/records/mod.rs"]
pub mod records;

#[path = "../../src/effect/call/mod.rs"]
pub mod effect_call;
#[path = "../../src/postgres/url.rs"]
mod postgres_url;
#[path = "../../src/postgres/verb.rs"]
pub mod postgres_verb;
#[path = "../../src/redis/address.rs"]
mod redis_address;

/// What topologies ask of the room `redis`.
pub mod redis {
    pub use crate::redis_address::{Address, check_url};
}

/// What topologies ask of the room `effect`.
pub mod effect {
    pub use crate::effect_call as call;
}

/// What topologies ask of the room `postgres`.
pub mod postgres {
    pub use crate::postgres_verb::{VERBS, check_verb as check_sql};

    pub fn check_url(url: &str) -> Result<(), String> {
        crate::postgres_url::Target::read(url).map(drop).map_err(|error| error.to_string())
    }
}

pub mod world;
