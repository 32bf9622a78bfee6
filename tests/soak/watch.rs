//! Observes everything from outside, on its own thread: how much of the input is processed, what the processes and
//! their disks take. It tolerates brokers that are away: what it cannot see now, it sees the next time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::plan::{PARTITIONS, Plan};
use crate::stage::Stage;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// Between two lines of progress.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Timeout of a request to a broker.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a partition with records to read may make no progress, whatever happens: a broker's failure, a session, a
/// transaction and a restore, one after the other on a busy machine. Beyond that, it hangs.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

/// A process at work.
#[derive(Clone, Debug)]
pub struct Watched {
    /// 0 is the one that is never harmed.
    pub instance: usize,
    pub pid: u32,
}

/// The processes at work.
#[derive(Clone, Default)]
pub struct Processes(Arc<Mutex<Vec<Watched>>>, Arc<AtomicUsize>);

impl Processes {
    pub fn add(&self, watched: Watched) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.lock().expect("nobody panics with it").push(watched);
    }

    pub fn remove(&self, instance: usize) {
        self.0.lock().expect("nobody panics with it").retain(|watched| watched.instance != instance);
    }

    fn all(&self) -> Vec<Watched> {
        self.0.lock().expect("nobody panics with it").clone()
    }

    /// How many processes were ever started.
    pub fn started(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }
}

/// A process's use of resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub memory_bytes: u64,
    pub threads: u64,
    pub files: u64,
}

/// One look.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: Duration,
    /// Records in the input, and how many of them are processed.
    pub written: i64,
    pub processed: i64,
    pub instances: usize,
    /// Of the instance that is never harmed.
    pub first: Usage,
    /// The most that any instance takes.
    pub memory_most: u64,
    /// All state folders together.
    pub disk_bytes: u64,
}

impl Sample {
    pub fn lag(&self) -> i64 {
        (self.written - self.processed).max(0)
    }
}

/// Everything that was observed.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub samples: Vec<Sample>,
    /// The longest time that a partition with records to read made no progress.
    pub standstill: Duration,
    /// How many processes were ever started.
    pub started: usize,
}

/// The observing thread.
pub struct Watch {
    stop: Arc<AtomicBool>,
    hanging: Arc<Mutex<Option<String>>>,
    thread: JoinHandle<Seen>,
}

/// Starts to observe.
pub fn begin(stage: &Stage, plan: &Plan) -> Watch {
    let (stop, hanging) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let mut observer = Observer {
        input: Topic::new(stage.job.kafka.brokers(), &stage.job.group(), &stage.job.input),
        processes: stage.processes.clone(),
        folder: stage.job.path(""),
        begun: Instant::now(),
        duration: plan.duration,
        moved: [Instant::now(); PARTITIONS as usize],
        seen: Seen::default(),
        hanging: Arc::clone(&hanging),
    };
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut reported = Instant::now();
        while !stopped.load(Ordering::Relaxed) {
            observer.look();
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                observer.report();
            }
            sleep(LOOK);
        }
        observer.seen.started = observer.processes.started();
        observer.seen
    });
    Watch { stop, hanging, thread }
}

impl Watch {
    /// Fails if a partition has made no progress for too long.
    #[track_caller]
    pub fn assert_well(&self) {
        let hanging = self.hanging.lock().expect("nobody panics with it").clone();
        assert_eq!(hanging, None, "something hangs");
    }

    /// Stops observing.
    pub fn end(self) -> Seen {
        self.assert_well();
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watch has not failed")
    }
}

struct Observer {
    input: Topic,
    processes: Processes,
    folder: PathBuf,
    begun: Instant,
    duration: Duration,
    /// When each partition last made progress, or had nothing to read.
    moved: [Instant; PARTITIONS as usize],
    seen: Seen,
    hanging: Arc<Mutex<Option<String>>>,
}

impl Observer {
    fn look(&mut self) {
        self.input.look();
        for partition in 0..PARTITIONS as usize {
            let (moved, is_drained) = self.input.has_moved(partition);
            if moved || is_drained {
                self.moved[partition] = Instant::now();
            }
            let still = self.moved[partition].elapsed();
            self.seen.standstill = self.seen.standstill.max(still);
            if still > STANDSTILL_MAX {
                let at = self.input.committed[partition];
                let words = format!("partition {partition} has made no progress at {at} for {still:.0?}");
                self.hanging.lock().expect("nobody panics with it").get_or_insert(words);
            }
        }
        let all = self.processes.all();
        let usages: Vec<(usize, Usage)> = all.iter().filter_map(|w| Some((w.instance, usage(w.pid)?))).collect();
        let first = usages.iter().find(|(instance, _)| *instance == 0).map(|(_, usage)| *usage);
        let sample = Sample {
            at: self.begun.elapsed(),
            written: self.input.ends.iter().sum(),
            processed: self.input.committed.iter().sum(),
            instances: all.len(),
            first: first.unwrap_or_default(),
            memory_most: usages.iter().map(|(_, usage)| usage.memory_bytes).max().unwrap_or(0),
            disk_bytes: state_folders(&self.folder).iter().map(|folder| disk_bytes(folder)).sum(),
        };
        if first.is_some() {
            self.seen.samples.push(sample);
        }
    }

    fn report(&self) {
        let Some(sample) = self.seen.samples.last() else { return };
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "{:>7.0?} of {:.0?}: {} written, {} processed, {} behind; {} instances, memory {} MiB (most {}), {} \
             threads, {} files; state {} MiB; longest standstill {:.1?}",
            sample.at,
            self.duration,
            sample.written,
            sample.processed,
            sample.lag(),
            sample.instances,
            mib(sample.first.memory_bytes),
            mib(sample.memory_most),
            sample.first.threads,
            sample.first.files,
            mib(sample.disk_bytes),
            self.seen.standstill,
        );
    }
}

/// The input's ends and the group's offsets, as last seen.
struct Topic {
    name: String,
    client: BaseConsumer,
    ends: Vec<i64>,
    /// Whether the end was seen at the last look.
    seen: Vec<bool>,
    committed: Vec<i64>,
    before: Vec<i64>,
}

impl Topic {
    fn new(brokers: &str, group: &str, name: &str) -> Topic {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("group.id", group).set("log_level", "3");
        config.set("isolation.level", "read_uncommitted").set("enable.auto.commit", "false");
        config.set("reconnect.backoff.max.ms", "500").set("topic.metadata.refresh.interval.ms", "2000");
        let none = vec![0; PARTITIONS as usize];
        let client = config.create().expect("a consumer");
        let seen = vec![false; PARTITIONS as usize];
        Topic { name: name.to_owned(), client, ends: none.clone(), seen, committed: none.clone(), before: none }
    }

    fn look(&mut self) {
        self.before.clone_from(&self.committed);
        let mut list = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            list.add_partition(&self.name, partition);
            let end = self.client.fetch_watermarks(&self.name, partition, REQUEST_TIMEOUT);
            self.seen[partition as usize] = end.is_ok();
            match end {
                Ok((_, end)) => self.ends[partition as usize] = end,
                // A client that reads nothing keeps to a dead leader until it refreshes its metadata.
                Err(_) => drop(self.client.fetch_metadata(Some(&self.name), REQUEST_TIMEOUT)),
            }
        }
        let Ok(list) = self.client.committed_offsets(list, REQUEST_TIMEOUT) else { return };
        for element in list.elements() {
            if let (Ok(()), Offset::Offset(offset)) = (element.error(), element.offset()) {
                self.committed[element.partition() as usize] = offset;
            }
        }
    }

    /// Whether a partition made progress since the last look, and whether nothing is left to read in it.
    fn has_moved(&self, partition: usize) -> (bool, bool) {
        let committed = self.committed[partition];
        (committed != self.before[partition], self.seen[partition] && committed >= self.ends[partition])
    }
}

/// What a process takes at present; `None` if it has ended.
fn usage(pid: u32) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some(Usage { memory_bytes: number("VmRSS:")? * 1024, threads: number("Threads:")?, files })
}

fn state_folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("state-"))).collect()
}

/// What a folder takes on the disk. Files come and go meanwhile.
fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
