//! A first judge: what readers of committed records see in the output is what the model makes of the committed part
//! of the input.

use std::sync::Arc;

use ratchet::dedup::{Action, Model, Rules};
use ratchet::record::{Headers, Record as Read};

use crate::input::{GROUP, INPUT, OUTPUT};
use crate::kafka::{Broker, Isolation, Partition, Record};
use crate::world::WALL_MS;

/// Whether everything was read, and nothing is pending.
pub fn is_drained(broker: &Broker, partitions: i32) -> bool {
    !broker.coordinator.has_markers()
        && (0..partitions).all(|number| {
            let input = Partition::new(INPUT, number);
            let end = broker.topics.log(&input).map_or(0, |log| log.end());
            let committed = broker.groups.committed(GROUP, &input, true);
            committed.is_ok_and(|committed| committed.is_some_and(|committed| committed.offset == end) || end == 0)
        })
}

fn records(broker: &Broker, partition: &Partition) -> Vec<(i64, Record)> {
    let mut records = Vec::new();
    if let Some(log) = broker.topics.log(partition) {
        let _ = log.read(log.start(), Isolation::Committed, usize::MAX, |offset, record| {
            records.push((offset, record.clone()))
        });
    }
    records
}

/// What the model forwards of a partition below `end`.
fn expected(rules: &Arc<Rules>, input: &[(i64, Record)], end: i64) -> Vec<Record> {
    let mut model = Model::new(rules.clone());
    let forwards = |(offset, record): &(i64, Record)| {
        let read = Read {
            topic: INPUT,
            partition: 0,
            offset: *offset,
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: Headers::from_bytes(&record.headers),
        };
        (model.judge(&read, WALL_MS + 3_600_000).action == Action::Forward).then(|| record.clone())
    };
    input.iter().take_while(|(offset, _)| *offset < end).filter_map(forwards).collect()
}

/// What is wrong, in words.
pub fn judge(broker: &Broker, rules: &Arc<Rules>, partitions: i32) -> Vec<String> {
    let mut wrong = Vec::new();
    for number in 0..partitions {
        let input = Partition::new(INPUT, number);
        let end = match broker.groups.committed(GROUP, &input, true) {
            Ok(committed) => committed.map_or(0, |committed| committed.offset),
            Err(code) => {
                wrong.push(format!("{input:?}: {code:?}"));
                continue;
            }
        };
        let expected = expected(rules, &records(broker, &input), end);
        let output: Vec<Record> =
            records(broker, &Partition::new(OUTPUT, number)).into_iter().map(|(_, record)| record).collect();
        if output != expected {
            let same = output.iter().zip(&expected).take_while(|(found, meant)| found == meant).count();
            let text = |record: Option<&Record>| {
                record.and_then(|record| record.value.as_ref()).map(|value| String::from_utf8_lossy(value).into_owned())
            };
            wrong.push(format!(
                "{input:?} up to {end}: {} records were forwarded, {} should have been; the {same}th is {:?}, not {:?}",
                output.len(),
                expected.len(),
                text(output.get(same)),
                text(expected.get(same)),
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{Committed, Protocol, Settings};

    fn record(version: u64) -> Record {
        let value = format!(r#"{{"id":"a","version":{version}}}"#);
        Record { timestamp: Some(WALL_MS), value: Some(value.as_bytes().into()), ..Record::default() }
    }

    /// A cluster on which versions 1, 2, 2 and 3 were read up to `end`, and `forwarded` came out.
    fn judged(end: i64, forwarded: &[u64]) -> Vec<String> {
        let mut broker = Broker::new(Protocol::V1);
        let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20 };
        for (topic, versions) in [(INPUT, &[1, 2, 2, 3][..]), (OUTPUT, forwarded)] {
            broker.topics.create(topic, 1, settings).unwrap();
            broker.topics.log_mut(&Partition::new(topic, 0)).unwrap().append(versions.iter().map(|at| record(*at)));
        }
        let committed = Committed { offset: end, metadata: String::new() };
        broker.commit_offsets(&GROUP.into(), ("", -1), &[(Partition::new(INPUT, 0), committed)]).unwrap();
        judge(&broker, &crate::rules(), 1)
    }

    #[test]
    fn what_is_right_is_right() {
        assert_eq!(judged(4, &[1, 2, 3]), Vec::<String>::new());
        assert_eq!(judged(1, &[1]), Vec::<String>::new());
        assert_eq!(judged(0, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_is_lost_or_comes_twice_or_too_early_is_seen() {
        for (end, forwarded) in [(4, &[1, 3][..]), (4, &[1, 2, 2, 3]), (4, &[2, 1, 3]), (3, &[1, 2, 3]), (4, &[])] {
            assert_eq!(judged(end, forwarded).len(), 1, "{end} {forwarded:?}");
        }
    }
}
