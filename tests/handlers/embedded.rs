//! A worker with a handler in this process, on topics in a folder.

use std::path::Path;

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, Message, NewTopic};
use ratchet::record::Headers;
use ratchet::{Record, StepError, Steps, Worker};

use crate::kafka;

/// Runs `function` for these records, one after the other. `http`: where its metrics are, or `off`.
pub fn worker<F>(theme: &str, http: &str, values: &[&str], function: F) -> Worker
where
    F: AsyncFn(&Record, &mut Steps) -> Result<(), StepError> + Send + Sync + 'static,
{
    let folder = kafka::run_folder().join(theme);
    std::fs::create_dir_all(&folder).expect("the run's folder is writable");
    let topology = "name: embedded\ninput: {topics: [in]}\nidentity: value.id\npartitioned_by_identity: true\n\
                    retention: 30d\nsink: {handler: {in_flight: 1, on_in_doubt: dead_letter, \
                    retry: {first: 10ms, max: 20ms, attempts: 3}}}\n";
    std::fs::write(folder.join("topology.yaml"), topology).expect("the run's folder is writable");
    let topics = folder.join("topics");
    let cluster = Embedded::open(&topics, 1).expect("nobody else has it");
    let topic = NewTopic { name: "in", partition_count: 1, replication_factor: 1, settings: &[] };
    cluster.create_topic(&topic).expect("a topic");
    let (topic, partition, key, headers, timestamp) = ("in", 0, None, Headers::default(), Some(1));
    let values = values.iter().map(|value| Some(value.as_bytes()));
    let messages: Vec<_> = values.map(|value| Message { topic, partition, key, value, headers, timestamp }).collect();
    cluster.append("in", 0, &messages).expect("the folder is writable");
    let set = |name: &str, path: &Path| format!("{name}={}", path.display());
    let worker = Worker::new().set("cluster=embedded").set(format!("http={http}")).set(set("embedded.dir", &topics));
    let worker = worker.set(set("state_dir", &folder.join("state"))).set("topics.create=all");
    worker.handler(folder.join("topology.yaml"), function)
}
