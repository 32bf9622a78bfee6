//! Deliberate changes that the judge must know about: the input no longer shows what was written to it, or what was
//! to be read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::input;
use crate::judge::Ruling;
use crate::kafka::{Broker, Isolation, Partition, Record, Time};
use crate::provider::Act;

type Records = Vec<(i64, Record)>;

/// What was done to the input, by partition, and to stores.
#[derive(Default)]
pub(super) struct Ledger {
    /// Records that were removed.
    removed: BTreeMap<i32, Records>,
    /// Records that have vanished from between others.
    vanished: BTreeMap<i32, Records>,
    /// Offsets that a reset has skipped.
    skipped: BTreeMap<i32, Range<i64>>,
    /// The outcome when the input was recreated.
    closed: Option<Closed>,
    /// How much the provider had done when the input was recreated.
    acts: Option<usize>,
    /// Whether the input gained partitions.
    grown: bool,
    /// When all stores were wiped for the first time; nothing was written since. `None` again after the second time.
    pub wiped_at: Option<Time>,
}

/// The outcome at the point when nothing more may follow.
struct Closed {
    ruling: Ruling,
    /// The partitions from which anything was processed.
    processed: BTreeMap<i32, Processed>,
}

/// A partition's outcome.
struct Processed {
    output: Records,
    /// The end of its changelog.
    changelog_end: i64,
}

/// The records that a read_committed reader sees.
fn visible(broker: &Broker, partition: &Partition) -> Records {
    let mut records = Vec::new();
    if let Some(log) = broker.topics.log(partition) {
        let take = |offset, record: &Record| records.push((offset, record.clone()));
        log.read(log.start(), Isolation::Committed, usize::MAX, take).expect("a log's start can be read");
    }
    records
}

impl Ledger {
    /// Removes a partition's records below `upto`, and remembers them; returns their number.
    pub fn remove(&mut self, broker: &mut Broker, number: i32, upto: i64) -> usize {
        let partition = Partition::new(input::INPUT, number);
        let going = visible(broker, &partition).into_iter().take_while(|(offset, _)| *offset < upto);
        let removed = self.removed.entry(number).or_default();
        let before = removed.len();
        removed.extend(going);
        let log = broker.topics.log_mut(&partition).expect("the input stays");
        log.delete_before(upto).expect("it is not beyond the end");
        removed.len() - before
    }

    /// Compacts a partition up to its last records, and remembers those that go; returns their offsets.
    pub fn compact(&mut self, broker: &mut Broker, number: i32, (rest, now): (u64, Time)) -> Vec<i64> {
        let partition = Partition::new(input::INPUT, number);
        let before = visible(broker, &partition);
        let log = broker.topics.log_mut(&partition).expect("the input stays");
        log.compact(log.end() - rest as i64, now, Time::MAX / 2);
        let there: BTreeSet<i64> = visible(broker, &partition).into_iter().map(|(offset, _)| offset).collect();
        let gone: Records = before.into_iter().filter(|(offset, _)| !there.contains(offset)).collect();
        let offsets = gone.iter().map(|(offset, _)| *offset).collect();
        self.vanished.entry(number).or_default().extend(gone);
        offsets
    }

    /// Notes that a partition's records in `offsets` are not to be read.
    pub fn skip(&mut self, number: i32, offsets: Range<i64>) {
        self.skipped.insert(number, offsets);
    }

    /// Notes that nothing more may be forwarded from these partitions.
    pub fn close(&mut self, broker: &Broker, processed: &[i32], ruling: Ruling) {
        let of = |number: &i32| {
            let output = visible(broker, &Partition::new(input::OUTPUT, *number));
            let changelog = broker.topics.log(&Partition::new(input::CHANGELOG, *number));
            (*number, Processed { output, changelog_end: changelog.map_or(0, |log| log.end()) })
        };
        self.closed = Some(Closed { ruling, processed: processed.iter().map(of).collect() });
    }

    /// Notes that the input gained partitions: nobody may read it any more.
    pub fn grow(&mut self) {
        self.grown = true;
    }

    /// Checks that, if the input gained partitions, each of the original `partitions` was stopped: its task, or every
    /// task of the instance that would own it, at its start.
    pub fn check_stopped(&self, partitions: i32, is_stopped: impl Fn(&Partition) -> bool, ruling: &mut Ruling) {
        for number in (0..partitions).filter(|_| self.grown) {
            let partition = Partition::new(input::INPUT, number);
            if !is_stopped(&partition) {
                let expected = "its task refused, as the input was given more partitions";
                ruling.report(3, &partition, None, expected, "no refusal");
            }
        }
    }

    /// Whether there is nothing left to wait for but the end of the time.
    pub fn has_grown(&self) -> bool {
        self.grown
    }

    /// Checks that, if the input was recreated, its tasks were refused.
    pub fn check_refused(&self, was_refused: impl Fn(&Partition) -> bool, ruling: &mut Ruling) {
        for number in self.closed.iter().flat_map(|closed| closed.processed.keys()) {
            let partition = Partition::new(input::INPUT, *number);
            if !was_refused(&partition) {
                ruling.report(3, &partition, None, "its task refused, as the input was recreated", "no refusal");
            }
        }
    }

    /// Notes what a provider has done, as the input is recreated.
    pub fn note_acts(&mut self, acts: &[Act]) {
        self.acts = Some(acts.len());
    }

    /// Checks that, if the input was recreated, nothing was called for since, of partitions that had been read.
    pub fn check_acts(&self, acts: &[Act], ruling: &mut Ruling) {
        let Some(before) = self.acts else { return };
        for number in self.closed.iter().flat_map(|closed| closed.processed.keys()) {
            let begins = format!(r#"{{"id":"{number}-"#);
            if let Some(act) = acts[before..].iter().find(|act| act.asked.starts_with(begins.as_bytes())) {
                let partition = Partition::new(input::INPUT, *number);
                ruling.report(13, &partition, None, "no call, as the input was recreated", format!("{act:?}"));
            }
        }
    }

    /// Judges: by `judge` on the original input, or by the earlier outcome if the input was recreated.
    pub fn judge(&self, broker: &mut Broker, judge: impl FnOnce(&Broker) -> Ruling) -> Ruling {
        if let Some(closed) = &self.closed {
            return closed.judge(broker);
        }
        let touched = self.removed.keys().chain(self.vanished.keys()).chain(self.skipped.keys());
        let touched: Vec<i32> = touched.copied().collect();
        for number in touched {
            let partition = Partition::new(input::INPUT, number);
            let removed = self.removed.get(&number).into_iter().flatten().cloned();
            // A partition that was changed in both ways is restored twice: after the first time its start is 0.
            let first = broker.topics.log(&partition).map_or(0, |log| log.start());
            let mut records: Records = removed.filter(|(offset, _)| *offset < first).collect();
            records.extend(visible(broker, &partition));
            let mut records: BTreeMap<i64, Record> = records.into_iter().collect();
            records.extend(self.vanished.get(&number).into_iter().flatten().cloned());
            let mut records: Records = records.into_iter().collect();
            if let Some(skipped) = self.skipped.get(&number) {
                records.retain(|(offset, _)| !skipped.contains(offset));
            }
            broker.topics.log_mut(&partition).expect("the input stays").replace(records);
        }
        judge(broker)
    }
}

impl Closed {
    /// The violations up to then, and anything forwarded although nothing may follow.
    fn judge(&self, broker: &Broker) -> Ruling {
        let mut ruling = self.ruling.clone();
        for (number, processed) in &self.processed {
            let output = Partition::new(input::OUTPUT, *number);
            let found = visible(broker, &output);
            if found != processed.output {
                let expected = format!("{} records, as the input was recreated", processed.output.len());
                ruling.report(1, &output, None, expected, format!("{}", found.len()));
            }
            let changelog = Partition::new(input::CHANGELOG, *number);
            let records = visible(broker, &changelog);
            if let Some((offset, _)) = records.iter().find(|(offset, _)| *offset >= processed.changelog_end) {
                let expected = format!("nothing from {} on, as the input was recreated", processed.changelog_end);
                ruling.report(6, &changelog, *offset, expected, "a record");
            }
        }
        ruling
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{Protocol, Settings};

    fn record(text: &str) -> Record {
        Record { value: Some(text.as_bytes().into()), ..Record::default() }
    }

    fn broker() -> Broker {
        let mut broker = Broker::new(Protocol::V1);
        let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20, stamps: false };
        for topic in [input::INPUT, input::OUTPUT, input::CHANGELOG] {
            broker.topics.create(topic, 1, settings).unwrap();
        }
        let log = broker.topics.log_mut(&Partition::new(input::INPUT, 0)).unwrap();
        log.append(["a", "b", "c", "d", "e"].map(record));
        broker
    }

    fn shown(ledger: &Ledger, broker: &mut Broker) -> Vec<i64> {
        let mut seen = Vec::new();
        let judge = |broker: &Broker| {
            seen = visible(broker, &Partition::new(input::INPUT, 0)).into_iter().map(|(offset, _)| offset).collect();
            Ruling::default()
        };
        assert_eq!(ledger.judge(broker, judge).messages(), Vec::<String>::new());
        seen
    }

    #[test]
    fn removed_records_are_judged_and_skipped_ones_are_not() {
        let (mut broker, mut ledger) = (broker(), Ledger::default());
        assert_eq!(ledger.remove(&mut broker, 0, 1), 1);
        assert_eq!(ledger.remove(&mut broker, 0, 3), 2);
        assert_eq!(shown(&ledger, &mut broker), [0, 1, 2, 3, 4]);
        ledger.skip(0, 2..4);
        assert_eq!(shown(&ledger, &mut broker), [0, 1, 4]);
    }

    #[test]
    fn output_after_the_input_was_recreated_is_caught() {
        let (mut broker, mut ledger) = (broker(), Ledger::default());
        let mut earlier = Ruling::default();
        earlier.report(1, &Partition::new(input::OUTPUT, 0), None, "this", "that");
        ledger.close(&broker, &[0], earlier);
        let never = |_: &Broker| -> Ruling { panic!("the new input must not be judged") };
        assert_eq!(ledger.judge(&mut broker, never).messages().len(), 1);
        broker.topics.log_mut(&Partition::new(input::OUTPUT, 0)).unwrap().append([record("new")]);
        assert_eq!(ledger.judge(&mut broker, never).messages().len(), 2);
    }

    #[test]
    fn changelog_growing_after_the_input_was_recreated_is_caught() {
        let (mut broker, mut ledger) = (broker(), Ledger::default());
        let changelog = Partition::new(input::CHANGELOG, 0);
        broker.topics.log_mut(&changelog).unwrap().append([record("old")]);
        ledger.close(&broker, &[0], Ruling::default());
        let never = |_: &Broker| -> Ruling { panic!("the new input must not be judged") };
        assert_eq!(ledger.judge(&mut broker, never).messages(), Vec::<String>::new());
        broker.topics.log_mut(&changelog).unwrap().append([record("new")]);
        let violations = ledger.judge(&mut broker, never).violations;
        assert_eq!(violations.iter().map(|violation| violation.invariant).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn tasks_of_a_grown_input_must_be_stopped() {
        let violations = |ledger: &Ledger, stopped: i32| {
            let mut ruling = Ruling::default();
            ledger.check_stopped(2, |partition| partition.number < stopped, &mut ruling);
            ruling.violations.iter().map(|violation| violation.invariant).collect::<Vec<_>>()
        };
        let mut ledger = Ledger::default();
        assert_eq!(violations(&ledger, 0), Vec::<u8>::new(), "it has what it had");
        ledger.grow();
        assert_eq!(violations(&ledger, 2), Vec::<u8>::new());
        assert_eq!(violations(&ledger, 1), [3]);
    }

    #[test]
    fn tasks_of_a_recreated_input_must_be_refused() {
        let (broker, mut ledger) = (broker(), Ledger::default());
        let violations = |ledger: &Ledger, was_refused: bool| {
            let mut ruling = Ruling::default();
            ledger.check_refused(|_| was_refused, &mut ruling);
            ruling.violations.iter().map(|violation| violation.invariant).collect::<Vec<_>>()
        };
        assert_eq!(violations(&ledger, false), Vec::<u8>::new(), "nothing was recreated");
        ledger.close(&broker, &[0], Ruling::default());
        assert_eq!(violations(&ledger, true), Vec::<u8>::new());
        assert_eq!(violations(&ledger, false), [3]);
    }
}
