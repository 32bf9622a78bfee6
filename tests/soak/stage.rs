//! Three brokers, a job with instances of it, and what feeds it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::job::Job;
use crate::kafka::Broker;
use crate::load::{Feed, Load, Random};
use crate::operator::Operator;
use crate::plan::{IDENTITIES, INSTANCES_MIN, MEMORY_BYTES, PARTITIONS, Plan};
use crate::replicated::{self, PROPERTIES};
use crate::until::DEADLINE;
use crate::watch::{Roll, Watched};

/// For how long the first instances may take until each partition is at work.
const START_MAX: Duration = Duration::from_secs(180);
/// For how long what is left may take after the last record.
const DRAIN_MAX: Duration = Duration::from_secs(180);

/// An instance: its name, which is its state folder's too, and its process while it runs.
pub struct Instance {
    label: String,
    pub operator: Option<Operator>,
}

/// All that there is.
pub struct Stage {
    pub job: Job,
    pub brokers: Vec<Broker>,
    pub instances: Vec<Instance>,
    pub random: Random,
    /// The processes at work, for the watch.
    pub roll: Roll,
    feed: Option<Feed>,
    /// What ended operators have said at level ERROR.
    errors: usize,
}

impl Stage {
    /// Starts everything and waits until it is at work.
    pub fn set(plan: &Plan) -> Stage {
        let first = Broker::start_with(PROPERTIES);
        let others = [2, 3].map(|number| first.join_as(number, PROPERTIES));
        let mut brokers = vec![first];
        brokers.extend(others);
        let bootstrap: Vec<String> = brokers.iter().map(Broker::bootstrap).collect();
        let mut job = replicated::job(&bootstrap, "soak", PARTITIONS);
        job.worker.push(format!("memory: {}MiB", MEMORY_BYTES >> 20));
        job.worker.push("lanes: 2".to_owned());
        let random = Random::seeded(&job.name);
        let feed = Some(Feed::start(&job, Load::new(random.clone(), PARTITIONS, IDENTITIES), plan.rate));
        let roll = Roll::default();
        let mut stage = Stage { job, brokers, instances: Vec::new(), random, roll, feed, errors: 0 };
        for _ in 0..INSTANCES_MIN + 1 {
            stage.add();
        }
        stage.job.await_progress(&[0; PARTITIONS as usize], START_MAX);
        stage
    }

    /// Starts the first instance that is not at work, a new one where all are.
    pub fn add(&mut self) {
        let which = self.instances.iter().position(|instance| instance.operator.is_none());
        let which = which.unwrap_or_else(|| {
            self.instances.push(Instance { label: format!("instance-{}", self.instances.len()), operator: None });
            self.instances.len() - 1
        });
        self.start(which);
    }

    /// Starts an instance that has ended.
    pub fn start(&mut self, which: usize) {
        let instance = &mut self.instances[which];
        assert!(instance.operator.is_none(), "{} runs", instance.label);
        let operator = Operator::start(&self.job, &instance.label);
        self.roll.enter(Watched { instance: which, pid: operator.pid() });
        instance.operator = Some(operator);
    }

    /// Those at work.
    pub fn at_work(&self) -> Vec<usize> {
        (0..self.instances.len()).filter(|&which| self.instances[which].operator.is_some()).collect()
    }

    /// One at work that may be harmed: any but the first.
    pub fn victim(&mut self) -> usize {
        let all = self.at_work();
        all[1 + self.random.below(all.len() as u64 - 1) as usize]
    }

    /// Asks an instance to stop, which it has to do in good order; says how long it took.
    pub fn stop(&mut self, which: usize) -> Duration {
        let mut operator = self.take(which);
        let since = Instant::now();
        operator.stop();
        self.count_errors(&operator);
        since.elapsed()
    }

    /// Kills an instance, with its state folder if so asked.
    pub fn kill(&mut self, which: usize, with_its_disk: bool) {
        let mut operator = self.take(which);
        if with_its_disk {
            operator.kill_and_wipe()
        } else {
            operator.kill()
        }
        self.count_errors(&operator);
    }

    /// Waits until an instance has joined and has restored what it was given.
    pub fn await_ready(&mut self, which: usize) {
        self.instances[which].operator.as_mut().expect("it was started").await_ready(DEADLINE);
    }

    fn take(&mut self, which: usize) -> Operator {
        self.roll.strike(which);
        let mut operator = self.instances[which].operator.take().expect("it runs");
        operator.assert_running();
        operator
    }

    /// Fails if an instance has ended by itself.
    pub fn assert_running(&mut self) {
        self.instances.iter_mut().filter_map(|i| i.operator.as_mut()).for_each(Operator::assert_running);
    }

    /// Ends the load, waits until all is processed, and stops everything; says how much was written and how long it
    /// took from the last record on.
    pub fn drain(&mut self) -> (u64, Duration) {
        let written = self.feed.take().map_or(0, Feed::stop);
        let since = Instant::now();
        self.job.await_drained(DRAIN_MAX);
        let drained = since.elapsed();
        for which in self.at_work() {
            self.stop(which);
        }
        (written, drained)
    }

    pub fn state_dirs(&self) -> Vec<PathBuf> {
        self.instances.iter().map(|instance| self.job.path(&format!("state-{}", instance.label))).collect()
    }

    /// Lines of level ERROR in all logs.
    pub fn errors_logged(&self) -> usize {
        self.errors
    }

    fn count_errors(&mut self, operator: &Operator) {
        let lines = operator.log();
        let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
        errors.iter().take(3).for_each(|line| println!("logged: {line}"));
        self.errors += errors.len();
    }
}
