//! What real connectors wrote, in `tests/data/cdc-real`, topic by topic. Goal: as for the corpus; here a connector was
//! killed, its offsets were deleted, and snapshots of every kind came mid-stream.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::corpus::golden::{self, Golden};
use crate::corpus::shapes::Raw;
use crate::task::Given;

const CAPTURES: [&str; 2] = ["postgres", "mariadb"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cdc-real")
}

/// The records of `CAPTURE/TOPIC`: those of the topic in the capture, which is in the form of `kcat -J`.
fn records(path: &str) -> Vec<Raw> {
    let (capture, topic) = path.split_once('/').expect("CAPTURE/TOPIC");
    let text = fs::read_to_string(folder().join(format!("{capture}.jsonl"))).expect(capture);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("kcat writes JSON"));
    let bytes = |field: &Value| field.as_str().map(|text| text.as_bytes().to_vec());
    lines
        .filter(|line| line["topic"] == topic)
        .map(|line| Raw { key: bytes(&line["key"]), value: bytes(&line["payload"]) })
        .collect()
}

/// The topics of a capture.
fn topics(capture: &str) -> Vec<String> {
    let text = fs::read_to_string(folder().join(format!("{capture}.jsonl"))).expect(capture);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("kcat writes JSON"));
    let mut topics: Vec<_> = lines.filter_map(|line| line["topic"].as_str().map(str::to_owned)).collect();
    topics.sort();
    topics.dedup();
    topics
}

/// Every topic of every capture: its name, a topology, and its records.
pub fn histories() -> Vec<(String, String, Vec<Given>)> {
    let of = |path: String| {
        let given = Golden::given(&folder().join(format!("golden/{path}.txt")), &path, &records);
        given.into_iter().map(move |(topology, records)| (path.clone(), topology, records))
    };
    let paths =
        |capture: &str| topics(capture).into_iter().map(|topic| format!("{capture}/{topic}")).collect::<Vec<_>>();
    CAPTURES.into_iter().flat_map(paths).flat_map(of).collect()
}

/// Each topic of both captures is judged as its golden file says.
#[test]
fn every_topic_is_judged_as_its_golden_file_says() {
    let mut problems = Vec::new();
    for capture in CAPTURES {
        let topics = topics(capture);
        assert_eq!(topics.len(), 3, "{capture}");
        for topic in topics {
            let path = format!("{capture}/{topic}");
            let golden = folder().join(format!("golden/{path}.txt"));
            problems.push((path.clone(), Golden::check(&golden, &path, &records)));
        }
    }
    golden::assert_right(problems);
}
