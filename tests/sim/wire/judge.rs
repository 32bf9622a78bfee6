//! Judges what the fetcher hands on, by what was written and lost.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::client::records::RawRecord;
use super::kafka::Log;
use super::speech::batch::Rec;
use crate::record::TopicPartition;

/// A record that was written.
#[derive(Debug)]
struct Birth {
    partition: TopicPartition,
    offset: i64,
    /// The epoch of the leader.
    epoch: i32,
    /// How many logs had been cut before.
    cuts: usize,
    producer: Option<i64>,
    is_committed: bool,
    record: Rec,
}

/// What was read of a partition since it was started.
#[derive(Debug, Default)]
struct Run {
    start: i64,
    /// How many logs had been cut before.
    cuts: usize,
    position: i64,
    /// Up to where offsets were passed, and in which epoch the last of them.
    passed: Option<(i64, i32)>,
    read: Vec<(i64, u64)>,
    /// How many logs had been cut when the partition lost something that was read.
    lost: Option<usize>,
    /// Nobody can notice any more what the cuts up to this one took.
    unnoticeable: usize,
}

/// How many logs had been cut with this one, where it was, and in which leader's epoch what was lost had ended.
type Cut = (usize, i64, i32);

/// The judge.
#[derive(Debug, Default)]
pub struct Judge {
    births: Vec<Birth>,
    /// The records of open transactions, by partition and producer.
    open: HashMap<(TopicPartition, i64), Vec<u64>>,
    /// How many logs were cut, and the cuts of each.
    cuts: usize,
    cut_at: BTreeMap<TopicPartition, Vec<Cut>>,
    runs: BTreeMap<TopicPartition, Run>,
    /// How often a loss could not be noticed.
    pub unnoticed: usize,
}

impl Judge {
    /// A record is written.
    pub fn bear(&mut self, to: &TopicPartition, offset: i64, producer: Option<i64>, epoch: i32, size: usize) -> Rec {
        let number = self.births.len() as u64;
        let mut value = number.to_be_bytes().to_vec();
        value.resize(8 + size, number as u8);
        let headers =
            if number.is_multiple_of(3) { vec![(b"n".to_vec(), Some(vec![number as u8]))] } else { Vec::new() };
        let key = (!number.is_multiple_of(5)).then(|| format!("key-{}", number % 7).into_bytes());
        let record = Rec { offset, timestamp: 1_000 + number as i64, key, value: Some(value), headers };
        let is_committed = producer.is_none();
        if let Some(producer) = producer {
            self.open.entry((to.clone(), producer)).or_default().push(number);
        }
        let birth = Birth {
            partition: to.clone(),
            offset,
            epoch,
            cuts: self.cuts,
            producer,
            is_committed,
            record: record.clone(),
        };
        self.births.push(birth);
        record
    }

    /// A transaction's marker is written to a partition.
    pub fn end(&mut self, partition: &TopicPartition, producer: i64, commits: bool) {
        for number in self.open.remove(&(partition.clone(), producer)).unwrap_or_default() {
            self.births[number as usize].is_committed |= commits;
        }
    }

    /// A partition loses everything from `at` on, which was written in epochs up to this one.
    pub fn cut(&mut self, partition: &TopicPartition, at: i64, epoch: i32) {
        self.cuts += 1;
        self.cut_at.entry(partition.clone()).or_default().push((self.cuts, at, epoch));
        let births = &self.births;
        for ((of, _), numbers) in &mut self.open {
            if of == partition {
                numbers.retain(|number| births[*number as usize].offset < at);
            }
        }
        let cuts = self.cuts;
        if let Some(run) = self.runs.get_mut(partition)
            && run.read.iter().any(|(offset, _)| *offset >= at)
        {
            run.lost.get_or_insert(cuts);
        }
    }

    /// Whether a partition ever lost something below an offset.
    pub fn was_cut_below(&self, partition: &TopicPartition, offset: i64) -> bool {
        self.cut_at.get(partition).is_some_and(|cuts| cuts.iter().any(|(_, at, _)| *at < offset))
    }

    /// Reading begins; `log` still holds what was to be read before, but for what was lost and may not have been
    /// noticed.
    pub fn start(&mut self, partition: &TopicPartition, offset: i64, log: &Log) -> Result<(), String> {
        // Where it has read what was lost, it did not read what came in its place, and had not noticed yet.
        if let Some(run) = self.runs.get(partition).filter(|run| run.lost.is_none()) {
            self.compare(partition, log, self.intact_to(partition, run).min(run.position))?;
        }
        let run = Run { start: offset, position: offset, cuts: self.cuts, ..Run::default() };
        self.runs.insert(partition.clone(), run);
        Ok(())
    }

    /// Up to where a partition has lost nothing that was to be read.
    fn intact_to(&self, partition: &TopicPartition, run: &Run) -> i64 {
        let concerns = |(cuts, at, _): &&Cut| *cuts > run.unnoticeable && (*cuts > run.cuts || *at >= run.start);
        let cuts = self.cut_at.get(partition).into_iter().flatten().filter(concerns);
        cuts.map(|(_, at, _)| *at).min().unwrap_or(i64::MAX)
    }

    /// Reading goes on from where it was.
    pub fn resume(&mut self, partition: &TopicPartition, position: i64) -> Result<(), String> {
        self.moved(partition, position)
    }

    /// A record is handed on.
    pub fn heed(&mut self, partition: &TopicPartition, record: &RawRecord<'_>, epoch: i32) -> Result<(), String> {
        let at = format!("{partition} at {}", record.offset);
        let number = record.value.and_then(|value| value.first_chunk::<8>()).map(|number| u64::from_be_bytes(*number));
        let number = number.ok_or_else(|| format!("{at}: what nobody wrote"))?;
        let birth = self.births.get(number as usize).ok_or_else(|| format!("{at}: what nobody wrote"))?;
        if birth.partition != *partition || birth.offset != record.offset {
            return Err(format!("{at}: the record of {} at {}", birth.partition, birth.offset));
        }
        let headers = record.headers().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect();
        let read = Rec {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers,
        };
        if read != birth.record {
            return Err(format!("{at}: {read:?} instead of {:?}", birth.record));
        }
        if epoch != birth.epoch {
            return Err(format!("{at}: epoch {epoch} instead of {}", birth.epoch));
        }
        if !birth.is_committed {
            return Err(format!("{at}: a record of producer {:?} that was not committed", birth.producer));
        }
        let run = self.runs.get_mut(partition).ok_or_else(|| format!("{at}: the partition is not read"))?;
        if record.offset < run.position {
            return Err(format!("{at}: after the position {}", run.position));
        }
        if run.lost.is_some_and(|cuts| birth.cuts >= cuts) {
            return Err(format!("{at}: written after the partition lost what was read of it, which was not noticed"));
        }
        // From what was buffered when the partition lost it.
        let lost = self.cut_at.get(partition).into_iter().flatten().filter(|(cuts, ..)| *cuts > run.unnoticeable);
        let lost =
            lost.filter(|(cuts, at, _)| birth.cuts < *cuts && record.offset >= *at).map(|(cuts, ..)| *cuts).min();
        run.lost = run.lost.or(lost);
        run.read.push((record.offset, number));
        run.position = record.offset + 1;
        Ok(())
    }

    /// These offsets are passed, in this leader's epoch; the records among them come next. `log` is the partition's as it
    /// is now.
    pub fn heed_passed(
        &mut self,
        partition: &TopicPartition,
        offsets: Range<i64>,
        epoch: i32,
        log: &Log,
    ) -> Result<(), String> {
        let Some(run) = self.runs.get_mut(partition) else { return Ok(()) };
        let (passed, last) = run.passed.unwrap_or((run.start, -1));
        if offsets.start != passed || offsets.is_empty() || epoch < last {
            return Err(format!("{partition}: {offsets:?} passed in epoch {epoch} after {passed} in epoch {last}"));
        }
        // What comes from a leader that came with the loss, or later, could have been asked of it.
        let cuts = self.cut_at.get(partition).into_iter().flatten().filter(|(.., last)| *last < epoch);
        let latest = cuts.map(|(cuts, ..)| *cuts).max();
        if run.passed.is_some()
            && run.lost.is_some_and(|lost| latest >= Some(lost))
            && log.could_hide(last, passed, epoch)
        {
            // It counts as if reading began here.
            run.unnoticeable = latest.unwrap_or(run.unnoticeable);
            (run.start, run.lost) = (passed, None);
            run.read.clear();
            self.unnoticed += 1;
        }
        run.passed = Some((offsets.end, epoch));
        // Where all that was lost had been aborted, none of it is handed on; a leader that was replaced and does not know
        // it may still return it.
        let lost = self.cut_at.get(partition).into_iter().flatten().filter(|(cuts, ..)| *cuts > run.unnoticeable);
        let lost =
            lost.filter(|(_, at, last)| offsets.end > *at && (0..=*last).contains(&epoch)).map(|(cuts, ..)| *cuts);
        run.lost = run.lost.into_iter().chain(lost).min();
        Ok(())
    }

    /// Whether something that was read is lost, and will still be noticed by asking a leader of this epoch.
    pub fn has_lost(&self, partition: &TopicPartition, log: &Log, epoch: i32) -> bool {
        let Some(run) = self.runs.get(partition).filter(|run| run.lost.is_some()) else { return false };
        let (position, last) = run.passed.unwrap_or((run.start, -1));
        !log.could_hide(last, position, epoch)
    }

    /// The position is here after something was handed on: all that it has passed was said to be passed.
    pub fn passed(&mut self, partition: &TopicPartition, position: i64) -> Result<(), String> {
        self.moved(partition, position)?;
        let Some(run) = self.runs.get(partition) else { return Ok(()) };
        let (passed, _) = run.passed.unwrap_or((run.start, -1));
        if position != passed {
            return Err(format!(
                "{partition}: the position is {position}, but only up to {passed} was said to be passed"
            ));
        }
        Ok(())
    }

    /// The position is here.
    fn moved(&mut self, partition: &TopicPartition, position: i64) -> Result<(), String> {
        let Some(run) = self.runs.get_mut(partition) else { return Ok(()) };
        if position < run.position {
            return Err(format!("{partition}: the position went back from {} to {position}", run.position));
        }
        run.position = position;
        Ok(())
    }

    /// Everything was read to the end: nothing committed that the log still holds was left out, unless what stood in its
    /// place was read, and nobody could notice that.
    pub fn close(&self, partition: &TopicPartition, log: &Log) -> Result<(), String> {
        let lost = self.runs.get(partition).filter(|run| run.lost.is_some());
        self.compare(partition, log, lost.map_or(i64::MAX, |run| self.intact_to(partition, run)))
    }

    /// Nothing committed below `end` that the log still holds was left out.
    fn compare(&self, partition: &TopicPartition, log: &Log, end: i64) -> Result<(), String> {
        let Some(run) = self.runs.get(partition) else { return Ok(()) };
        let mut read = run.read.iter().map(|(offset, _)| *offset).peekable();
        let committed = log.fates().into_iter().filter(|(.., is_committed)| *is_committed == Some(true));
        for (at, ..) in committed.filter(|(offset, ..)| (run.start..end).contains(offset)) {
            while read.next_if(|offset| *offset < at).is_some() {}
            if read.peek() != Some(&at) {
                let (start, position) = (run.start, run.position);
                return Err(format!("{partition} at {at}: not handed on from {start} to {position}"));
            }
        }
        Ok(())
    }
}
