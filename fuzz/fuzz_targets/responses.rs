//! Responses to Fetch and Produce, whatever their bytes are, are read within their bounds or refused as a whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::messages::{fetch, produce};
use ratchet_fuzz::records::Batches;

fn fetched(body: &[u8]) {
    let Ok(response) = fetch::Response::read(body) else { return };
    let mut end = 0;
    for partition in response.partitions() {
        let range = partition.records_range();
        assert!(range.start >= end, "each part is there once");
        assert_eq!(&body[range.clone()], partition.records);
        assert_eq!(partition.aborted.iter().count(), partition.aborted.len());
        end = range.end;
        Batches::new(partition.records).for_each(drop);
    }
    assert!(end <= body.len());
    for shorter in [body.len() - 1, body.len() / 2] {
        assert!(fetch::Response::read(&body[..shorter]).is_err(), "a part of a response is none");
    }
}

fn produced(version: i16, body: &[u8]) {
    let Ok(response) = produce::Response::read(version, body) else { return };
    let record_errors: usize = response.partitions.iter().map(|partition| partition.record_errors.len()).sum();
    assert!(response.partitions.len() + record_errors <= body.len());
    assert!(response.partitions.iter().all(|partition| partition.leader.is_none() || version >= 9));
    assert!(produce::Response::read(version, &body[..body.len() - 1]).is_err(), "a part of a response is none");
}

fuzz_target!(|data: &[u8]| {
    let Some((version, body)) = data.split_first() else { return };
    match i16::from(*version) {
        version if produce::VERSIONS.contains(&version) => produced(version, body),
        _ => fetched(body),
    }
});
