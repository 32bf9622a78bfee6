//! Random input, from a seed, with duplicates, late versions and the odd broken record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::cluster::Fresh;
use crate::job::Job;
pub use crate::random::Random;

/// Generates records. An identity stays on its partition.
pub struct Load {
    random: Random,
    partitions: i32,
    /// The greatest version of each identity so far.
    versions: Vec<i64>,
    made: u64,
}

impl Load {
    pub fn new(random: Random, partitions: i32, identities: usize) -> Load {
        Load { random, partitions, versions: vec![0; identities], made: 0 }
    }

    pub fn record(&mut self) -> Fresh {
        self.made += 1;
        let which = self.random.below(self.versions.len() as u64) as usize;
        let latest = self.versions[which];
        let version = match self.random.below(10) {
            // An earlier version, or one that never was.
            0 | 1 if latest > 0 => self.random.below(latest as u64) as i64,
            2 | 3 if latest > 0 => latest,
            _ => latest + 1 + self.random.below(3) as i64,
        };
        self.versions[which] = latest.max(version);
        let id = format!("thing-{which}");
        let partition = which as i32 % self.partitions;
        let value = match self.random.below(300) {
            0 => format!("{{\"id\":\"{id}\",\"version\":"),
            1 => format!("{{\"version\":{version}}}"),
            _ => format!("{{\"note\":\"number {}\",\"version\":{version},\"id\":\"{id}\"}}", self.made),
        };
        let late_ms = self.random.below(2000) as i64;
        let mut record = Fresh::new(partition, &id, value).at(now_ms() - late_ms);
        if self.random.once_in(50) {
            record.key = None;
        }
        if self.random.once_in(4) {
            record = record.header("made", self.made.to_string().as_bytes());
        }
        record
    }

    pub fn records(&mut self, count: usize) -> Vec<Fresh> {
        (0..count).map(|_| self.record()).collect()
    }
}

/// Writes a load in the background until it is stopped.
pub struct Feed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Feed {
    /// Writes about `per_second` records to the job's input.
    pub fn start(job: &Job, mut load: Load, per_second: u64) -> Feed {
        const TICK: Duration = Duration::from_millis(10);
        let stop = Arc::new(AtomicBool::new(false));
        // The input is judged as it is stored, so a record written late or twice is a record like any other. An
        // idempotent producer may lose its sequence when a broker restarts, which is fatal for it.
        // A broker answers one request of a connection at a time: batches that are small and many cost more than the job.
        let writer = job.kafka.writer_with(&[("enable.idempotence", "false"), ("linger.ms", "50")]);
        let (input, stopped) = (job.input.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut written = 0;
            while !stopped.load(Ordering::Relaxed) {
                let due = start.elapsed().as_millis() as u64 * per_second / 1000;
                while written < due {
                    writer.send(&input, &load.record());
                    written += 1;
                }
                writer.poll();
                sleep(TICK);
            }
            writer.flush();
            written
        });
        Feed { stop, thread: Some(thread) }
    }

    /// Stops, waits until everything is written, and returns the number of records.
    pub fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("a feed is stopped once");
        thread.join().expect("the feed writes without errors")
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as i64
}

/// One version of a thing.
pub fn thing(partition: i32, id: &str, version: i64) -> Fresh {
    Fresh::new(partition, id, format!("{{\"id\":\"{id}\",\"version\":{version}}}")).at(now_ms())
}

/// The same version of many things.
pub fn things(partition: i32, ids: std::ops::Range<usize>, version: i64) -> impl Iterator<Item = Fresh> {
    ids.map(move |id| thing(partition, &format!("thing-{id}"), version))
}
