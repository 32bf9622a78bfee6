//! Jobs with a gate, and what came out of them.

use std::collections::BTreeMap;

use crate::cluster::Stored;
use crate::job::Job;
use crate::redis_server::Server;

/// A job whose topology has a gate.
pub fn gated(theme: &str, partitions: i32, server: &Server, more: &str) -> Job {
    let job = Job::new(theme, partitions);
    with_gate(job, &server.url(""), more)
}

/// The same with a gate at this url, and with these further settings of it.
pub fn with_gate(mut job: Job, url: &str, more: &str) -> Job {
    job.topology.push(format!("gate: {{redis: {{url: '{url}'{more}}}}}"));
    job
}

/// How often each thing came out, by identity and version.
pub fn counted(outputs: impl IntoIterator<Item = Stored>) -> BTreeMap<(String, i64), usize> {
    let mut counts = BTreeMap::new();
    for record in outputs {
        let value: serde_json::Value =
            serde_json::from_slice(record.value.as_deref().expect("no null is sent")).expect("JSON is sent");
        let id = value["id"].as_str().expect("each thing has an id").to_owned();
        *counts.entry((id, value["version"].as_i64().expect("and a version"))).or_default() += 1;
    }
    counts
}

/// Asserts that exactly these many things came out, each once.
#[track_caller]
pub fn assert_each_once(counts: &BTreeMap<(String, i64), usize>, things: usize) {
    let more: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(more.is_empty(), "came out more than once: {more:?}");
    assert_eq!(counts.len(), things, "different things came out");
}
