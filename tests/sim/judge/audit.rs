//! The audit topic explains drops: it has a record for each, which says what was dropped and why, and is part of the
//! transaction that dropped it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kafka::Partition;

use super::{Case, Ruling, Seen, runs, show};

/// Why a record that was already processed is dropped when it comes again, however often it does.
const REPLAYED: (&str, &str) = ("duplicate", "replayed");

/// The explanation of a drop.
struct Explained {
    partition: Partition,
    verdict: String,
    reason: String,
    seen: Seen,
}

/// The records of the audit topic, to be matched one by one.
#[derive(Default)]
pub struct Explanations {
    topic: Option<&'static str>,
    /// By the partition and offset that they name; replayed records are kept apart.
    by_place: BTreeMap<(i32, i64), Explained>,
    replayed: Vec<(i32, i64, Explained)>,
}

impl Explanations {
    pub fn read(case: &Case<'_>, ruling: &mut Ruling) -> Self {
        let Some(topic) = case.rules.audit else { return Self::default() };
        let mut read = Self { topic: Some(topic), ..Self::default() };
        let count = case.broker.topics.get(topic).map_or(0, |topic| topic.logs.len() as i32);
        for partition in (0..count).map(|number| Partition::new(topic, number)) {
            for seen in case.committed(&partition) {
                read.add(case, &partition, seen, ruling);
            }
        }
        read
    }

    fn add(&mut self, case: &Case<'_>, partition: &Partition, seen: Seen, ruling: &mut Ruling) {
        let offset = seen.offset;
        let value: Value =
            seen.record.value.as_deref().and_then(|v| serde_json::from_slice(v).ok()).unwrap_or_default();
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let named = (text("topic"), value["partition"].as_i64(), value["offset"].as_i64());
        let said = text("verdict").zip(text("reason"));
        let ((Some(from), Some(of), Some(at)), Some((verdict, reason))) = (named, said) else {
            return ruling.report(
                3,
                partition,
                offset,
                "the name of a record and why it was dropped",
                show(&seen.record),
            );
        };
        if from != case.rules.input {
            return ruling.report(3, partition, offset, format!("drops from {}", case.rules.input), from);
        }
        let is_replay = (&*verdict, &*reason) == REPLAYED;
        let explained = Explained { partition: partition.clone(), verdict, reason, seen };
        if is_replay {
            ruling.see("the drop of a record processed before was explained");
            self.replayed.push((of as i32, at, explained));
        } else if self.by_place.insert((of as i32, at), explained).is_some() {
            ruling.report(2, partition, offset, "one explanation for a drop", format!("another for {of}:{at}"));
        }
    }

    /// Whether a drop is explained by this reason.
    pub fn has(&self, number: i32, offset: i64, reason: &str) -> bool {
        self.by_place.get(&(number, offset)).is_some_and(|explained| explained.reason == reason)
    }

    /// A drop must have this explanation, written by its transaction's producer.
    pub fn take(
        &mut self,
        number: i32,
        source: &Seen,
        ((verdict, reason), producer): ((&str, &str), Option<i64>),
        ruling: &mut Ruling,
    ) {
        let Some(topic) = self.topic else { return };
        let Some(found) = self.by_place.remove(&(number, source.offset)) else {
            let expected = format!("input offset {} explained: {verdict}, {reason}", source.offset);
            return ruling.report(3, &Partition::new(topic, number), None, expected, "none");
        };
        ruling.see("a drop was explained");
        let (at, Explained { partition, seen, .. }) = (found.seen.offset, &found);
        if (&*found.verdict, &*found.reason) != (verdict, reason) {
            let said = format!("{}, {}", found.verdict, found.reason);
            ruling.report(1, partition, at, format!("input offset {}: {verdict}, {reason}", source.offset), said);
        }
        if (&seen.record.key, seen.record.timestamp) != (&source.record.key, source.record.timestamp) {
            ruling.report(1, partition, at, format!("key and time of {}", show(&source.record)), show(&seen.record));
        }
        if seen.producer.is_none() || seen.producer != producer {
            let expected = format!("the drop of input offset {} explained by producer {producer:?}", source.offset);
            ruling.report(4, partition, at, expected, format!("{:?}", seen.producer));
        }
    }

    /// Records explained as processed before were.
    pub fn check_replayed(&mut self, number: i32, done: &[(i64, i64)], ruling: &mut Ruling) {
        for (of, at, Explained { partition, seen, .. }) in &self.replayed {
            if *of == number && !runs::contains(done, *at) {
                ruling.report(1, partition, seen.offset, "records that were processed before", format!("{of}:{at}"));
            }
        }
    }

    /// A partition's drops cannot be judged.
    pub fn forgive(&mut self, number: i32) {
        self.by_place.retain(|(of, _), _| *of != number);
    }

    /// There are no other explanations.
    pub fn end(self, ruling: &mut Ruling) {
        for ((number, offset), Explained { partition, verdict, reason, seen }) in self.by_place {
            let found = format!("{number}:{offset}, {verdict}, {reason}");
            ruling.report(1, &partition, seen.offset, "no explanation of a record that was not dropped", found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{Bytes, Record};

    const TOPIC: &str = "shop.audit";

    fn seen(offset: i64) -> Seen {
        let key = Some(Bytes::from(b"{}".as_slice()));
        Seen { offset, producer: Some(7), record: Record { key, timestamp: Some(1), ..Record::default() } }
    }

    fn explained((verdict, reason): (&str, &str)) -> Explained {
        let (verdict, reason) = (verdict.to_owned(), reason.to_owned());
        Explained { partition: Partition::new(TOPIC, 0), verdict, reason, seen: seen(3) }
    }

    /// The broken invariants if the drop of offset 5 was explained as `said`, after `look`.
    fn broken(said: Option<(&str, &str)>, look: impl FnOnce(&mut Explanations, &mut Ruling)) -> Vec<u8> {
        let by_place = said.map(|said| ((0, 5), explained(said))).into_iter().collect();
        let mut explanations = Explanations { topic: Some(TOPIC), by_place, replayed: Vec::new() };
        let mut ruling = Ruling::default();
        look(&mut explanations, &mut ruling);
        explanations.end(&mut ruling);
        ruling.violations.into_iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn each_drop_is_explained_once_by_its_own_transaction() {
        let stale = ("stale", "version_older");
        let take = |producer| {
            move |all: &mut Explanations, ruling: &mut Ruling| all.take(0, &seen(5), (stale, Some(producer)), ruling)
        };
        assert_eq!(broken(Some(stale), take(7)), Vec::<u8>::new());
        assert_eq!(broken(None, take(7)), [3]);
        assert_eq!(broken(Some(("stale", "snapshot_read")), take(7)), [1]);
        assert_eq!(broken(Some(stale), take(8)), [4]);
        assert_eq!(broken(Some(stale), |_, _| ()), [1]);
    }

    #[test]
    fn replayed_records_must_have_been_processed_before() {
        let check = |done: &'static [(i64, i64)]| {
            broken(None, move |all, ruling| {
                all.replayed.push((0, 5, explained(REPLAYED)));
                all.check_replayed(0, done, ruling);
            })
        };
        assert_eq!(check(&[(0, 6)]), Vec::<u8>::new());
        assert_eq!(check(&[(0, 5)]), [1]);
    }
}
