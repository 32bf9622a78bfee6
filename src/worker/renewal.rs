//! Secrets and certificates that are replaced during a run: the topologies are started again with the new ones.
//!
//! Watched are the files of `${file:...}` in the configuration and in topologies, and those that librdkafka reads only
//! when a client is made (`ssl.*.location`). A new start reads the configuration and the topologies again, as any start
//! does, and is otherwise the clean end and the start of an instance, in one process: transactions are finished,
//! partitions given back and taken again, stores kept.
//!
//! Invariants: a run goes on until its successor's inputs were read without a mistake; a request to stop always counts.
//!
//! **Failure**: files that cannot be used are named in one warning, and the run goes on with the former contents.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::error::Error;
use super::inputs::{Inputs, load};
use crate::config::{ClusterKind, Config};
use crate::tls;
use crate::topology::Loaded;
use crate::yaml::{Environment, Process};

/// How long a request to stop waits at most until it is passed on.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// Properties with a file that librdkafka reads when a client is made.
const FILES: [&str; 5] =
    ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location", "ssl.crl.location"];

/// When files are read, and when a run ends once they were replaced.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time between two readings. Contents count when two readings have found the same.
    pub interval: Duration,
    /// The longest time until the run ends after that; drawn, so that not all instances start again at once.
    pub spread: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), spread: Duration::from_secs(20) }
    }
}

/// The environment of this process, which notes the files that are substituted.
#[derive(Debug, Default)]
pub struct Noting(RefCell<Digests>);

/// Files, with digests of their contents.
type Digests = BTreeMap<PathBuf, u64>;

impl Environment for Noting {
    fn variable(&self, name: &str) -> Option<String> {
        Process.variable(name)
    }

    fn variables(&self) -> Vec<(String, String)> {
        Process.variables()
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        Process.read_file(path)
    }

    fn read_substituted(&self, path: &Path) -> io::Result<Vec<u8>> {
        // The digest first: a file that is replaced in between is read once more than needed, and never missed.
        self.0.borrow_mut().insert(path.to_owned(), digest_of(path));
        self.read_file(path)
    }

    fn cores(&self) -> usize {
        Process.cores()
    }
}

fn digest_of(path: &Path) -> u64 {
    tls::digest(&[path.to_owned()])
}

/// The files that a run depends on, as they were when its inputs were read.
#[derive(Clone, Debug, Default)]
pub struct Files(Digests);

impl Files {
    /// The files that were substituted, and those of Kafka's clients.
    fn of(noted: Noting, config: &Config) -> Self {
        let mut files = noted.0.into_inner();
        if config.cluster == ClusterKind::Kafka {
            let clients = [config.kafka.for_admin(), config.kafka.for_consumer(), config.kafka.for_producer()];
            let named = clients.iter().flat_map(|properties| FILES.iter().filter_map(|name| properties.get(*name)));
            files.extend(named.map(|path| (PathBuf::from(path), digest_of(path.as_ref()))));
        }
        Self(files)
    }

    /// The files whose contents differ now, with their digests.
    fn replaced(&self) -> Digests {
        let now = self.0.keys().map(|path| (path.clone(), digest_of(path)));
        now.filter(|(path, digest)| self.0[path] != *digest).collect()
    }
}

/// What a run is given.
pub struct Given {
    /// The topologies.
    pub topologies: Vec<Loaded>,
    /// The settings.
    pub config: Config,
    /// The files it depends on.
    pub files: Files,
}

impl Given {
    /// Reads topologies and configuration.
    ///
    /// # Errors
    /// As [`load`].
    pub fn read(inputs: &Inputs) -> Result<Self, Error> {
        let noting = Noting::default();
        let (topologies, config) = load(inputs, &noting)?;
        let files = Files::of(noting, &config);
        Ok(Self { topologies, config, files })
    }
}

/// Watches a run's files, and ends the run once others can take their place.
pub struct Watch {
    /// Ends the run: set with the request to stop, or when there is something to go on with.
    pub stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<Given>>,
    _until: Sender<()>,
}

impl Watch {
    /// Begins; `None` if there are no files to watch.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(inputs: &Inputs, files: &Files, requested: &Arc<AtomicBool>, pace: Pace) -> io::Result<Option<Self>> {
        if files.0.is_empty() {
            return Ok(None);
        }
        let stop = Arc::new(AtomicBool::new(requested.load(Ordering::SeqCst)));
        let (_until, ended) = channel();
        let watcher = Watcher {
            inputs: inputs.clone(),
            files: files.clone(),
            requested: Arc::clone(requested),
            stop: Arc::clone(&stop),
            pace,
            ended,
        };
        let thread = thread::Builder::new().name("secrets".to_owned()).spawn(move || watcher.watch())?;
        Ok(Some(Self { stop, thread, _until }))
    }

    /// What to go on with, once the run has ended; `None` if it has not ended for that, or is to stop.
    pub fn end(self) -> Option<Given> {
        let Self { thread, _until, .. } = self;
        drop(_until);
        thread.join().ok().flatten()
    }
}

struct Watcher {
    inputs: Inputs,
    files: Files,
    requested: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    pace: Pace,
    /// Closed when the run has ended.
    ended: Receiver<()>,
}

impl Watcher {
    fn watch(self) -> Option<Given> {
        let (mut before, mut refused) = (Digests::new(), Digests::new());
        loop {
            self.wait(self.pace.interval)?;
            let replaced = self.files.replaced();
            let is_settled = replaced == before;
            before = replaced;
            if before.is_empty() || !is_settled || before == refused {
                continue;
            }
            let names: Vec<String> = before.keys().map(|path| path.display().to_string()).collect();
            let files = names.join(", ");
            match Given::read(&self.inputs) {
                Ok(given) => {
                    tracing::info!(files, "files were replaced: the topologies are started again with their contents");
                    self.wait(self.pace.spread.mul_f64(rand::random()))?;
                    self.stop.store(true, Ordering::SeqCst);
                    return Some(given);
                }
                Err(error) => {
                    tracing::warn!(
                        files,
                        "files were replaced and cannot be used; the run goes on with their former contents: {error}"
                    );
                    refused = before.clone();
                }
            }
        }
    }

    /// Waits for this time; `None` if the run has ended or is to stop.
    fn wait(&self, time: Duration) -> Option<()> {
        let mut left = time;
        loop {
            if self.requested.load(Ordering::SeqCst) {
                self.stop.store(true, Ordering::SeqCst);
                return None;
            }
            let slice = left.min(STOP_WAIT);
            match self.ended.recv_timeout(slice) {
                Err(RecvTimeoutError::Timeout) => left -= slice,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
            }
            if left.is_zero() {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const PACE: Pace = Pace { interval: Duration::from_millis(20), spread: Duration::from_millis(20) };
    const LONG: Duration = Duration::from_secs(30);

    /// The inputs of a run whose Kafka password and certificates are in files.
    struct Job {
        folder: TempDir,
        inputs: Inputs,
    }

    impl Job {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let config = format!(
                "kafka: {{bootstrap.servers: 'a:1', security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, \
                 sasl.username: u, sasl.password: '${{file:{}}}'}}\nlanes: 1\n",
                path("password").display()
            );
            let topology = "name: t\ninput: {topics: [in]}\nidentity: key\noutput: {topic: out}\n";
            fs::write(path("password"), "first\n").unwrap();
            fs::write(path("config.yaml"), config).unwrap();
            fs::write(path("t.yaml"), topology).unwrap();
            let inputs = Inputs { topologies: vec![path("t.yaml")], config: Some(path("config.yaml")), sets: vec![] };
            Self { folder, inputs }
        }

        fn replace(&self, password: impl AsRef<[u8]>) {
            fs::write(self.folder.path().join("password"), password).unwrap();
        }

        fn watch(&self) -> (Watch, Arc<AtomicBool>) {
            let given = Given::read(&self.inputs).unwrap();
            assert_eq!(password(&given), "first");
            let requested = Arc::default();
            let watch = Watch::begin(&self.inputs, &given.files, &requested, PACE).unwrap();
            (watch.expect("there is a file to watch"), requested)
        }
    }

    fn password(given: &Given) -> String {
        given.config.kafka.for_admin()["sasl.password"].clone()
    }

    #[expect(clippy::disallowed_methods, reason = "the watch is a thread that waits by the clock")]
    fn await_stop(watch: &Watch, most: Duration) -> bool {
        let began = std::time::Instant::now();
        while !watch.stop.load(Ordering::SeqCst) {
            if began.elapsed() > most {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    #[test]
    fn run_ends_for_a_replaced_secret_and_goes_on_with_it() {
        let job = Job::new();
        let (watch, _) = job.watch();
        assert!(!await_stop(&watch, Duration::from_millis(200)));
        job.replace("second\n");
        assert!(await_stop(&watch, LONG));
        let next = watch.end().expect("there is something to go on with");
        assert_eq!((password(&next).as_str(), next.topologies.len()), ("second", 1));
        assert!(next.files.replaced().is_empty());
    }

    #[test]
    fn contents_that_cannot_be_used_leave_the_run_alone() {
        let job = Job::new();
        let (watch, _) = job.watch();
        job.replace(b"\xff");
        assert!(!await_stop(&watch, Duration::from_millis(300)));
        fs::remove_file(job.folder.path().join("password")).unwrap();
        assert!(!await_stop(&watch, Duration::from_millis(300)));
        job.replace("third");
        assert!(await_stop(&watch, LONG));
        assert_eq!(password(&watch.end().unwrap()), "third");
    }

    #[test]
    fn contents_that_come_back_are_no_reason_to_end() {
        let job = Job::new();
        let (watch, _) = job.watch();
        fs::remove_file(job.folder.path().join("password")).unwrap();
        job.replace("first\n");
        assert!(!await_stop(&watch, Duration::from_millis(300)));
        assert!(watch.end().is_none());
    }

    #[test]
    fn request_to_stop_ends_the_run_and_nothing_follows() {
        let job = Job::new();
        let (watch, requested) = job.watch();
        requested.store(true, Ordering::SeqCst);
        assert!(await_stop(&watch, LONG));
        job.replace("second");
        assert!(watch.end().is_none());
    }

    #[test]
    fn files_of_kafkas_clients_are_watched_and_a_run_without_files_is_not() {
        let job = Job::new();
        let path = |name: &str| job.folder.path().join(name);
        let set = |name: &str, value: &str| format!("kafka.{name}={value}");
        fs::write(path("ca.pem"), "a").unwrap();
        let mut config = Given::read(&job.inputs).unwrap().config;
        let ca = path("ca.pem").display().to_string();
        config.kafka.common.insert("ssl.ca.location".to_owned(), crate::yaml::Text::plain(&ca));
        let files = Files::of(Noting::default(), &config);
        assert!(files.replaced().is_empty());
        fs::write(path("ca.pem"), "b").unwrap();
        assert_eq!(files.replaced().into_keys().collect::<Vec<_>>(), [path("ca.pem")]);

        let sets = vec![set("bootstrap.servers", "a:1")];
        let inputs = Inputs { config: None, sets, ..job.inputs.clone() };
        let given = Given::read(&inputs).unwrap();
        assert!(Watch::begin(&inputs, &given.files, &Arc::default(), PACE).unwrap().is_none());
    }
}
