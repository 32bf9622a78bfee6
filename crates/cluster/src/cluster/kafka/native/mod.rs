//! librdkafka's C objects, each owned by a Rust value that destroys it: with `unpack`, the only layer that handles
//! raw pointers. rust-rdkafka's own clients are not used, since they acknowledge rebalances inside a callback
//! and flush in steps of 100 ms.
//!
//! - `conf`, `client`, `queue`, `topic`, `list`, `event`, `batch`: its objects; `conversions`: strings and times for C
//! - `consuming`, `producing`, `admin`: a client's calls
//! - `attempts`, `listener`, `log`: what librdkafka calls
//! - `failure`: its errors; `trouble`, `explaining`: what explains that there was no response
//!
//! Invariants: a [`Client`] is destroyed after every queue, topic and message that came from it (they
//! hold an `Arc` of it). librdkafka's handles may be used from any thread.
//!
//! **Failure**: C errors become [`Failure`](super::errors::Failure)s; nothing here interprets them.

mod admin;
mod attempts;
mod batch;
mod client;
mod conf;
mod consuming;
mod conversions;
mod event;
mod explaining;
mod failure;
mod list;
mod listener;
mod log;
mod producing;
mod queue;
mod topic;
mod trouble;

pub(super) use admin::{
    ANSWER_DEADLINE, Group, create_or_validate, describe_group, group_offsets, latest_time, list_topics, outline,
    settings,
};
pub use batch::Batch;
pub(super) use batch::Incoming;
pub(super) use client::Client;
#[cfg(test)]
pub(super) use conf::Conf;
pub use conf::takes;
pub(super) use consuming::{Consuming, GroupMetadata, NO_OFFSET};
pub(super) use conversions::c_string;
pub(super) use event::{Signal, Undelivered};
pub(super) use list::{Element, List};
pub(super) use listener::Listener;
pub(super) use producing::Batch as SendBatch;
pub(super) use queue::Queue;
pub(super) use topic::Topic;
