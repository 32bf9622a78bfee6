//! A job under load: its operators, its feed, and the time that recoveries take.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::checker::{Found, Records, check, check_against};
use crate::cluster::Group;
use crate::job::Job;
use crate::load::{Feed, Load, Random};
use crate::operator::{Operator, Options};
use crate::report::Report;
use crate::until::within;

/// Partitions of every scenario's input.
pub const PARTITIONS: i32 = 4;
/// Records written a second, over all partitions.
pub const RECORDS_PER_SECOND: u64 = 1000;
/// How many things the load is about: each comes up often, as a duplicate, older or newer.
const IDENTITIES: usize = 2000;
/// Nothing is measured before all partitions are at work.
const START_MAX: Duration = Duration::from_secs(180);
/// How long a recovery may take after an instance's fault: the session timeout, the transaction timeout and a restore,
/// on a busy machine.
pub const RECOVERY_MAX: Duration = Duration::from_secs(50);
/// How long it may take after a broker's fault: a killed broker recovers its logs first, and a coordinator may wait 30
/// s for a frozen broker's response. Less than the minute that librdkafka would wait for that on its own.
pub const BROKER_RECOVERY_MAX: Duration = Duration::from_secs(55);
/// How long it may take to process everything once nothing more is written.
const DRAIN_MAX: Duration = Duration::from_secs(90);

/// The operators' names; each has its own state folder.
const LABELS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A job under load.
pub struct Stage {
    pub job: Job,
    pub operators: Vec<Operator>,
    pub random: Random,
    feed: Option<Feed>,
    group: Group,
}

impl Stage {
    /// Starts the load and this many instances, and waits until every partition is at work.
    pub fn set(job: Job, instances: usize) -> Stage {
        let random = Random::seeded(&job.name);
        let feed = Some(feed(&job, &random));
        let group = job.kafka.group(&job.group());
        let mut stage = Stage { job, operators: Vec::new(), random, feed, group };
        for _ in 0..instances {
            stage.add();
        }
        if instances > 0 {
            stage.await_beyond(&[0; PARTITIONS as usize], START_MAX);
        }
        stage
    }

    /// Starts one more instance.
    pub fn add(&mut self) {
        self.operators.push(Operator::start(&self.job, LABELS[self.operators.len()]));
    }

    /// Restarts an instance on its state folder. It must have ended.
    pub fn restart(&mut self, which: usize) {
        self.restart_with(which, &Options::default());
    }

    pub fn restart_with(&mut self, which: usize, options: &Options<'_>) {
        self.operators[which] = Operator::start_with(&self.job, LABELS[which], options);
    }

    /// Kills an instance that is at work, and removes its state folder if `with_its_disk`.
    #[track_caller]
    pub fn kill(&mut self, which: usize, with_its_disk: bool) {
        let operator = &mut self.operators[which];
        assert_sound(operator);
        if with_its_disk {
            operator.kill_and_wipe();
        } else {
            operator.kill();
        }
    }

    /// The committed offsets, 0 where there is none.
    pub fn committed(&self) -> Vec<i64> {
        (0..PARTITIONS).map(|p| self.group.committed(&self.job.input, p).map_or(0, |(offset, _)| offset)).collect()
    }

    /// Waits until each partition is beyond these offsets.
    #[track_caller]
    pub fn await_beyond(&self, before: &[i64], deadline: Duration) {
        let mut seen = Vec::new();
        within(deadline, &format!("{} to progress from {before:?} on each partition", self.job.name), || {
            seen = self.committed();
            seen.iter().zip(before).all(|(now, before)| now > before).then_some(())
        });
    }

    /// Waits until each partition has made progress from here, and reports how long that took since `since`.
    #[track_caller]
    pub fn recover(&self, report: &mut Report, since: Instant, deadline: Duration) {
        let before = self.committed();
        self.await_beyond(&before, deadline);
        report.recovered(since.elapsed());
    }

    /// Ends the load.
    pub fn end_load(&mut self) -> u64 {
        self.feed.take().map_or(0, Feed::stop)
    }

    /// Ends the load, waits until everything is processed, and stops the instances.
    pub fn drain(&mut self, report: &mut Report) {
        let written = self.end_load();
        let since = Instant::now();
        self.job.await_drained(DRAIN_MAX);
        report.drained(since.elapsed());
        println!("{}: {written} records", self.job.name);
        for operator in &mut self.operators {
            assert_sound(operator);
            operator.stop();
        }
    }

    /// Ends everything like [`Stage::drain`], and has everything judged.
    pub fn finish(mut self, report: &mut Report) -> Found {
        report.assert_injected();
        self.drain(report);
        let found = check(&self.job, &self.state_dirs());
        found.assert_each_fate();
        report.judged(&found);
        self.clear();
        found
    }

    /// The same if the input has lost records; `kept` has them.
    pub fn finish_against(mut self, report: &mut Report, kept: &mut Records) {
        report.assert_injected();
        self.drain(report);
        keep(&self.job, kept);
        let found = check_against(&self.job, kept, &self.state_dirs());
        found.assert_each_fate();
        report.judged(&found);
        self.clear();
    }

    /// Deletes the topics once all is judged: those of some fifty jobs would burden the brokers.
    pub fn clear(self) {
        let Job { kafka, input, output, .. } = &self.job;
        for topic in [input, output, &self.job.changelog(), &self.job.dead_letter()] {
            if kafka.partitions(topic).is_some() {
                kafka.delete(topic);
            }
        }
    }

    pub fn state_dirs(&self) -> Vec<&Path> {
        self.operators.iter().map(Operator::state_dir).collect()
    }
}

/// Fails if an instance has ended, or one of its threads has panicked.
#[track_caller]
pub fn assert_sound(operator: &mut Operator) {
    operator.assert_running();
    assert!(!operator.printed().contains("panicked"), "{}", operator.tail());
}

fn feed(job: &Job, random: &Random) -> Feed {
    Feed::start(job, Load::new(random.clone(), PARTITIONS, IDENTITIES), RECORDS_PER_SECOND)
}

/// Adds the records that the input has gained since the last call.
pub fn keep(job: &Job, kept: &mut Records) {
    for (partition, records) in job.kafka.read_visible(&job.input) {
        let known = kept.entry(partition).or_default();
        let next = known.last().map_or(0, |last| last.offset + 1);
        known.extend(records.into_iter().filter(|record| record.offset >= next));
    }
}
