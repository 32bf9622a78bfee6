//! Three brokers and their controller, a job with its instances, and its feed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::job::Job;
use crate::kafka::Broker;
use crate::load::{Feed, Load, Random};
use crate::operator::Operator;
use crate::plan::{IDENTITIES, INSTANCES_MIN, MEMORY_BYTES, PARTITIONS, Plan};
use crate::replicated::{self, PROPERTIES};
use crate::until::DEADLINE;
use crate::watch::{Processes, Watched};

/// How long the first instances may take until each partition is at work.
const START_MAX: Duration = Duration::from_secs(180);
/// How long it may take to process what is left after the last record.
const DRAIN_MAX: Duration = Duration::from_secs(180);

/// Replicas are answered after 30 ms, not at each write: three brokers spent most of the machine's processors on that.
const FETCHES: &[(&str, &str)] = &[("replica.fetch.min.bytes", "1048576"), ("replica.fetch.wait.max.ms", "30")];

/// An instance: its name, which is also its state folder's, and its process while it runs.
pub struct Instance {
    label: String,
    pub operator: Option<Operator>,
}

/// The whole setup.
pub struct Stage {
    pub job: Job,
    /// Stays as it is: production clusters have several.
    _controller: Broker,
    pub brokers: Vec<Broker>,
    pub instances: Vec<Instance>,
    pub random: Random,
    /// The processes at work, for the watch.
    pub processes: Processes,
    feed: Option<Feed>,
    /// Lines of level ERROR that ended operators have logged.
    errors: usize,
}

impl Stage {
    /// Starts everything and waits until it is at work.
    pub fn set(plan: &Plan) -> Stage {
        let properties = [PROPERTIES, FETCHES].concat();
        let controller = Broker::start_controller(&properties);
        let brokers: Vec<Broker> = [2, 3, 4].map(|number| controller.join_as(number, &properties)).into();
        let bootstrap: Vec<String> = brokers.iter().map(Broker::bootstrap).collect();
        let mut job = replicated::job(&bootstrap, "soak", PARTITIONS);
        job.worker.push(format!("memory: {}MiB", MEMORY_BYTES >> 20));
        job.worker.push("lanes: 2".to_owned());
        let random = Random::seeded(&job.name);
        let feed = Some(Feed::start(&job, Load::new(random.clone(), PARTITIONS, IDENTITIES), plan.rate));
        let processes = Processes::default();
        let mut stage =
            Stage { job, _controller: controller, brokers, instances: Vec::new(), random, processes, feed, errors: 0 };
        for _ in 0..INSTANCES_MIN + 1 {
            stage.add();
        }
        stage.job.await_progress(&[0; PARTITIONS as usize], START_MAX);
        stage
    }

    /// Starts the first instance that is not at work, or a new one if all are.
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
        self.processes.add(Watched { instance: which, pid: operator.pid() });
        instance.operator = Some(operator);
    }

    /// The instances at work.
    pub fn at_work(&self) -> Vec<usize> {
        (0..self.instances.len()).filter(|&which| self.instances[which].operator.is_some()).collect()
    }

    /// An instance at work that may be harmed: any but the first.
    pub fn victim(&mut self) -> usize {
        let all = self.at_work();
        all[1 + self.random.below(all.len() as u64 - 1) as usize]
    }

    /// Stops an instance, which has to end cleanly; returns how long that took.
    pub fn stop(&mut self, which: usize) -> Duration {
        let mut operator = self.take(which);
        let since = Instant::now();
        operator.stop();
        self.count_errors(&operator);
        since.elapsed()
    }

    /// Kills an instance, and removes its state folder if `with_its_disk`.
    pub fn kill(&mut self, which: usize, with_its_disk: bool) {
        let mut operator = self.take(which);
        if with_its_disk {
            operator.kill_and_wipe()
        } else {
            operator.kill()
        }
        self.count_errors(&operator);
    }

    /// Waits until an instance has joined and has restored its partitions.
    pub fn await_ready(&mut self, which: usize) {
        self.instances[which].operator.as_mut().expect("it was started").await_ready(DEADLINE);
    }

    fn take(&mut self, which: usize) -> Operator {
        self.processes.remove(which);
        let mut operator = self.instances[which].operator.take().expect("it runs");
        operator.assert_running();
        operator
    }

    /// Fails if an instance has ended.
    pub fn assert_running(&mut self) {
        self.instances.iter_mut().filter_map(|i| i.operator.as_mut()).for_each(Operator::assert_running);
    }

    /// Ends the load, waits until all is processed, and stops everything; returns how much was written and how long
    /// draining took from the last record on.
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

    /// How many lines of level ERROR all logs have.
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
