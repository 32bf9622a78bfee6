//! Secrets and certificates that are replaced during a run: the topologies are started again with the new ones.
//!
//! The watched files are those of `${file:...}` in the configuration and in topologies, and those that librdkafka reads
//! only when a client is created (`ssl.*.location`). A new start loads the configuration and the topologies again, as any
//! start does. Otherwise it is the clean end of an instance and the start of the next one, in one process: transactions are
//! finished, partitions released and claimed again, stores kept.
//!
//! Invariants: a run ends for a new start only after the new inputs were loaded without a mistake, and a client with the
//! new settings has reached the cluster; a request to stop is always passed on.
//!
//! **Failure**: if the new contents cannot be used, one warning says why, and the run continues. The files are read again
//! at each interval.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
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
use crate::topology::{Loaded, Mistake};
use crate::yaml::{Environment, Process};

/// The longest time until a request to stop is passed on.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// Properties that name a file, which librdkafka reads when a client is created.
const FILES: [&str; 5] =
    ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location", "ssl.crl.location"];

/// The times of a watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchTiming {
    /// The time between two readings. New contents are used after two readings have found them.
    pub interval: Duration,
    /// The longest time from then until the run ends. The time is random, so that not all instances start again at once.
    pub spread: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), spread: Duration::from_secs(20) }
    }
}

/// The environment of this process; it records the files that are substituted.
#[derive(Debug, Default)]
pub struct FileRecorder(RefCell<Digests>);

/// Files, with digests of their contents.
type Digests = BTreeMap<PathBuf, u64>;

impl Environment for FileRecorder {
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
        let bytes = self.read_file(path)?;
        // A pipe, for example, returns its contents only once, so it cannot be watched. Of a file that is read more than
        // once the first digest is kept: if the file was replaced in between, it differs from that digest later.
        if path.is_file() {
            self.0.borrow_mut().entry(path.to_owned()).or_insert_with(|| digest(Some(&bytes)));
        }
        Ok(bytes)
    }

    fn cores(&self) -> usize {
        Process.cores()
    }
}

/// A digest of a file's contents, or of those of the files in a folder; a file that cannot be read counts as missing.
fn digest_of(path: &Path) -> u64 {
    if path.is_dir() { tls::digest(&[path.to_owned()]) } else { digest(std::fs::read(path).ok().as_deref()) }
}

fn digest(contents: Option<&[u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

/// The files that a run depends on, as they were when its inputs were read.
#[derive(Clone, Debug, Default)]
pub struct Files(Digests);

impl Files {
    /// The substituted files, and those of Kafka's clients. A schema registry's certificates are read again for each
    /// connection, so they need no new start.
    fn of(recorder: FileRecorder, config: &Config) -> Self {
        let mut files = recorder.0.into_inner();
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

/// The inputs of a run, as loaded.
pub struct LoadedInputs {
    /// The topologies.
    pub topologies: Vec<Loaded>,
    /// The settings.
    pub config: Config,
    /// The files that the run depends on.
    pub files: Files,
}

impl LoadedInputs {
    /// Loads topologies and configuration.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(inputs: &Inputs) -> Result<Self, Error> {
        let recorder = FileRecorder::default();
        let (topologies, config) = load(inputs, &recorder)?;
        let files = Files::of(recorder, &config);
        Ok(Self { topologies, config, files })
    }

    /// The warnings about topologies and configuration.
    pub fn warnings(&self) -> impl Iterator<Item = &Mistake> {
        self.topologies.iter().flat_map(|loaded| &loaded.warnings).chain(&self.config.warnings)
    }
}

/// Whether a run can begin with these inputs.
pub type Probe = fn(&LoadedInputs) -> Result<(), String>;

/// Watches the files of a run, and ends the run once new contents can be used.
pub struct Watch {
    /// Ends the run: set when a stop is requested, or when the next inputs are loaded.
    pub stop: Arc<AtomicBool>,
    next_inputs: Receiver<LoadedInputs>,
    /// Passes on a request to stop, even while a file cannot be read.
    stopper: JoinHandle<()>,
    _until: [Sender<()>; 2],
}

impl Watch {
    /// Starts to watch; `None` if the run depends on no file.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn begin(
        inputs: &Inputs,
        files: &Files,
        requested: &Arc<AtomicBool>,
        (pace, probe): (WatchTiming, Probe),
    ) -> io::Result<Option<Self>> {
        if files.0.is_empty() {
            return Ok(None);
        }
        let stop = Arc::new(AtomicBool::new(requested.load(Ordering::SeqCst)));
        let (until_stopper, stopper_ends) = channel();
        let (until_watcher, ended) = channel();
        let (from, to) = (Arc::clone(requested), Arc::clone(&stop));
        let stopper = thread::Builder::new().name("stop".to_owned()).spawn(move || {
            while stopper_ends.recv_timeout(STOP_WAIT) == Err(RecvTimeoutError::Timeout) {
                if from.load(Ordering::SeqCst) {
                    return to.store(true, Ordering::SeqCst);
                }
            }
        })?;
        let (next_sender, next_inputs) = channel();
        let watcher = Watcher {
            inputs: inputs.clone(),
            files: files.clone(),
            stop: Arc::clone(&stop),
            pace,
            probe,
            next_sender,
            ended,
        };
        thread::Builder::new().name("secrets".to_owned()).spawn(move || watcher.watch())?;
        Ok(Some(Self { stop, next_inputs, stopper, _until: [until_stopper, until_watcher] }))
    }

    /// The inputs of the next run, once this one has ended; `None` if it has not ended for new contents.
    pub fn end(self) -> Option<LoadedInputs> {
        let Self { next_inputs, stopper, _until, .. } = self;
        drop(_until);
        let _ = stopper.join();
        // The watcher may still be reading a file; it ends after that.
        next_inputs.try_recv().ok()
    }
}

struct Watcher {
    inputs: Inputs,
    files: Files,
    stop: Arc<AtomicBool>,
    pace: WatchTiming,
    probe: Probe,
    next_sender: Sender<LoadedInputs>,
    /// Closed when the run has ended.
    ended: Receiver<()>,
}

impl Watcher {
    /// Checks the files until the run ends, or a stop is requested.
    fn watch(self) {
        let mut before = Digests::new();
        let mut reported = String::new();
        while self.wait(self.pace.interval) {
            let replaced = self.files.replaced();
            let is_settled = replaced == before;
            before = replaced;
            if before.is_empty() || !is_settled {
                continue;
            }
            let names: Vec<String> = before.keys().map(|path| path.display().to_string()).collect();
            let files = names.join(", ");
            match self.usable(&before) {
                Ok(None) => {}
                Ok(Some(loaded)) => {
                    tracing::info!(
                        files,
                        "files were replaced: the topologies end, and start again with the new contents"
                    );
                    // The send fails if the run has ended.
                    let _ = self.next_sender.send(loaded);
                    return self.stop.store(true, Ordering::SeqCst);
                }
                Err(reason) if reason != reported => {
                    tracing::warn!(
                        files,
                        "files were replaced, and the new contents cannot be used yet; the run continues with the former ones: {reason}"
                    );
                    reported = reason;
                }
                Err(_) => {}
            }
        }
    }

    /// Waits for the spread, then loads the inputs; `None` if the run ends, or a file has changed again.
    fn usable(&self, settled: &Digests) -> Result<Option<LoadedInputs>, String> {
        let check = || {
            let loaded = LoadedInputs::load(&self.inputs).map_err(|error| error.to_string())?;
            (self.probe)(&loaded).map(|()| loaded)
        };
        check()?;
        if !self.wait(self.pace.spread.mul_f64(rand::random())) {
            return Ok(None);
        }
        let loaded = check()?;
        let is_unchanged =
            |(path, digest): (&PathBuf, &u64)| loaded.files.0.get(path).is_none_or(|loaded| loaded == digest);
        Ok(settled.iter().all(is_unchanged).then_some(loaded))
    }

    /// Waits for this time; false if the run has ended, or a stop is requested.
    fn wait(&self, time: Duration) -> bool {
        self.ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) && !self.stop.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const PACE: WatchTiming = WatchTiming { interval: Duration::from_millis(20), spread: Duration::from_millis(20) };
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
            self.watch_with(|_| Ok(()))
        }

        fn watch_with(&self, probe: Probe) -> (Watch, Arc<AtomicBool>) {
            let loaded = LoadedInputs::load(&self.inputs).unwrap();
            assert_eq!(password(&loaded), "first");
            let requested = Arc::default();
            let watch = Watch::begin(&self.inputs, &loaded.files, &requested, (PACE, probe)).unwrap();
            (watch.expect("there is a file to watch"), requested)
        }
    }

    fn password(loaded: &LoadedInputs) -> String {
        loaded.config.kafka.for_admin()["sasl.password"].clone()
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
    fn run_ends_for_a_replaced_secret_and_the_next_one_has_it() {
        let job = Job::new();
        let (watch, _) = job.watch();
        assert!(!await_stop(&watch, Duration::from_millis(200)));
        job.replace("second\n");
        assert!(await_stop(&watch, LONG));
        let next = watch.end().expect("the inputs of the next run");
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
    fn contents_that_change_at_each_reading_are_not_used() {
        let job = Job::new();
        let (watch, _) = job.watch();
        let password_file = job.folder.path().join("password");
        fs::remove_file(&password_file).unwrap();
        std::os::unix::fs::symlink("/proc/sys/kernel/random/uuid", &password_file).unwrap();
        assert!(!await_stop(&watch, Duration::from_millis(300)));
        fs::remove_file(&password_file).unwrap();
        job.replace("whole");
        assert!(await_stop(&watch, LONG));
        assert_eq!(password(&watch.end().unwrap()), "whole");
    }

    #[test]
    fn contents_that_change_while_they_are_tried_are_not_used() {
        /// Puts the next contents in place of those that were loaded.
        fn replace_again(loaded: &LoadedInputs) -> Result<(), String> {
            let next = match password(loaded).as_str() {
                "first half" => "second half",
                "second half" => "third half",
                "third half" => "whole",
                _ => return Ok(()),
            };
            loaded.files.0.keys().try_for_each(|path| fs::write(path, next)).map_err(|error| error.to_string())
        }
        let job = Job::new();
        let (watch, _) = job.watch_with(replace_again);
        job.replace("first half");
        assert!(await_stop(&watch, LONG));
        assert_eq!(password(&watch.end().unwrap()), "whole");
    }

    #[test]
    fn new_contents_wait_until_a_mistake_in_another_input_is_corrected() {
        let job = Job::new();
        let topology = job.folder.path().join("t.yaml");
        let text = fs::read_to_string(&topology).unwrap();
        let (watch, _) = job.watch();
        fs::write(&topology, "name: [").unwrap();
        job.replace("second");
        assert!(!await_stop(&watch, Duration::from_millis(300)));
        fs::write(&topology, text).unwrap();
        assert!(await_stop(&watch, LONG));
        assert_eq!(password(&watch.end().unwrap()), "second");
    }

    #[test]
    fn contents_that_the_cluster_rejects_leave_the_run_alone() {
        let job = Job::new();
        let loaded = LoadedInputs::load(&job.inputs).unwrap();
        let probe = |loaded: &LoadedInputs| match password(loaded).as_str() {
            "accepted" => Ok(()),
            _ => Err("the login is rejected".to_owned()),
        };
        let watch = Watch::begin(&job.inputs, &loaded.files, &Arc::default(), (PACE, probe)).unwrap().unwrap();
        job.replace("too early");
        assert!(!await_stop(&watch, Duration::from_millis(300)));
        job.replace("accepted");
        assert!(await_stop(&watch, LONG));
        assert_eq!(password(&watch.end().unwrap()), "accepted");
    }

    #[test]
    fn request_to_stop_ends_the_run_without_another_one() {
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
        let mut config = LoadedInputs::load(&job.inputs).unwrap().config;
        let ca = path("ca.pem").display().to_string();
        config.kafka.common.insert("ssl.ca.location".to_owned(), crate::yaml::Text::plain(&ca));
        let files = Files::of(FileRecorder::default(), &config);
        assert!(files.replaced().is_empty());
        fs::write(path("ca.pem"), "b").unwrap();
        assert_eq!(files.replaced().into_keys().collect::<Vec<_>>(), [path("ca.pem")]);

        let sets = vec![set("bootstrap.servers", "a:1")];
        let inputs = Inputs { config: None, sets, ..job.inputs.clone() };
        let loaded = LoadedInputs::load(&inputs).unwrap();
        assert!(Watch::begin(&inputs, &loaded.files, &Arc::default(), (PACE, |_| Ok(()))).unwrap().is_none());
    }
}
