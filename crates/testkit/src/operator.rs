//! The built binary at work: started, killed, frozen, stopped, and observed from outside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::built;
use crate::job::Job;
use crate::kafka;
use crate::screen::Terminal;
use crate::until::{DEADLINE, within};

/// What the CLI promises for SIGTERM.
const STOP_WAIT: Duration = Duration::from_secs(25);

/// How an operator is started.
#[derive(Default)]
pub struct Options<'a> {
    /// `RATCHET_CRASH_AT`: the point at which it is killed or frozen, and on which pass.
    pub crash_at: Option<&'a str>,
    /// Further environment variables.
    pub env: Vec<(&'a str, String)>,
    /// A shell command that runs first, as root in the operator's own user and mount namespace.
    pub mount: Option<String>,
    /// Another setting `data_path` than the tests', and whether lanes are on the wire with it.
    pub data_path: Option<(&'a str, bool)>,
    /// A program of one's own, in place of `ratchet run`.
    pub program: Option<PathBuf>,
    /// The files of further topologies.
    pub further: Vec<PathBuf>,
    /// Receives standard error instead of a file.
    pub terminal: Option<&'a Terminal>,
}

/// A running `ratchet run`. Killed when dropped.
pub struct Operator {
    label: String,
    child: Child,
    ended: Option<ExitStatus>,
    log: PathBuf,
    state_dir: PathBuf,
    is_on_the_wire: bool,
}

impl Operator {
    /// Starts the job's topology with the state folder of this label.
    pub fn start(job: &Job, label: &str) -> Operator {
        Operator::start_with(job, label, &Options::default())
    }

    pub fn start_with(job: &Job, label: &str, options: &Options<'_>) -> Operator {
        Operator::start_in(job, label, &job.path(&format!("state-{label}")), options)
    }

    pub fn start_in(job: &Job, label: &str, state_dir: &Path, options: &Options<'_>) -> Operator {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let log = job.path(&format!("{label}-{number}.log"));
        let stderr = File::create(&log).expect("the job's folder is writable");
        let stdout = File::create(log.with_extension("out")).expect("the job's folder is writable");
        let built = built::ratchet();
        let ratchet = options.program.as_deref().unwrap_or(&built);
        let mut command = match &options.mount {
            None => Command::new(ratchet),
            Some(mount) => {
                let mut unshare = Command::new("unshare");
                unshare.args([
                    "--user",
                    "--map-root-user",
                    "--mount",
                    "sh",
                    "-c",
                    &format!("{mount} && exec \"$0\" \"$@\""),
                ]);
                unshare.arg(ratchet);
                unshare
            }
        };
        if options.program.is_none() {
            command.arg("run");
        }
        command.arg("--config").arg(job.write_config(label, state_dir)).arg(job.write_topology());
        command.args(&options.further);
        // Variables with this prefix are settings; those of the tests must not reach the operator.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
            command.env_remove(name);
        }
        if let Some(point) = options.crash_at {
            command.env("RATCHET_CRASH_AT", point);
        }
        if let Some((setting, _)) = options.data_path {
            command.env("RATCHET_DATA_PATH", setting);
        }
        command.envs(options.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(stdout);
        command.stderr(options.terminal.map_or_else(|| stderr.into(), Terminal::stdio));
        let child = kafka::spawn(command).unwrap_or_else(|e| panic!("cannot start {}: {e}", ratchet.display()));
        let is_on_the_wire = options.data_path.map_or_else(kafka::is_on_the_wire, |(_, is_on_the_wire)| is_on_the_wire);
        Operator { label: label.to_owned(), child, ended: None, log, state_dir: state_dir.to_owned(), is_on_the_wire }
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The process id. With `Options::mount` too: the shell is replaced by the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The peak of the process's resident memory so far.
    pub fn memory_peak_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel counts it");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        kib * 1024
    }

    /// The time that the process has spent on processors.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let (_, fields) = stat.rsplit_once(") ").expect("the name is in brackets");
        let ticks: u64 = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum();
        // SAFETY: a plain system call.
        ticks as f64 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
    }

    /// Lets the process allocate this many bytes on top of what it has now; beyond that, allocations fail. The kernel
    /// counts private writable memory, stacks included, used or not.
    pub fn limit_further_memory(&self, bytes: u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("the kernel counts it");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        let most = kib * 1024 + bytes;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the limit is read, and nothing is written.
        let result = unsafe { libc::prlimit(self.child.id() as i32, libc::RLIMIT_DATA, &limit, std::ptr::null_mut()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Kills it as a power cut would (SIGKILL).
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// Kills it and removes its state folder.
    pub fn kill_and_wipe(&mut self) {
        self.kill();
        kafka::remove_folder(&self.state_dir);
    }

    /// Stops it by SIGTERM, which has to end it cleanly and in time.
    #[track_caller]
    pub fn stop(&mut self) {
        self.terminate();
        let status = self.await_exit(STOP_WAIT);
        assert!(status.success(), "{} did not stop cleanly: {status}; {}", self.label, self.tail());
        self.assert_data_path();
    }

    /// Sends SIGTERM and does not wait.
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Waits until it has frozen at the point that its drill names.
    pub fn await_frozen(&self) {
        within(DEADLINE, &format!("{} to freeze", self.label), || kafka::is_stopped(self.pid() as i32).then_some(()));
    }

    /// Freezes it in the middle of a transaction: tries until one is open. The job has to be under load.
    pub fn freeze_in_transaction(&self, job: &Job) {
        within(DEADLINE, &format!("{} to be caught in a transaction", self.label), || {
            self.frozen_in_transaction(job).then_some(())
        });
    }

    /// Freezes the operator at a time when none of its transactions is open. The requests that it sent before get a moment
    /// to arrive.
    pub fn freeze_between_transactions(&self, job: &Job) {
        const MOMENT: Duration = Duration::from_millis(150);
        let is_open = || [&job.output, &job.changelog()].into_iter().any(|topic| job.kafka.has_open_transaction(topic));
        within(DEADLINE, &format!("{} to be caught between two transactions", self.label), || {
            self.freeze();
            sleep(MOMENT);
            if is_open() {
                self.thaw();
                return None;
            }
            Some(())
        });
    }

    /// Freezes one of them in the middle of a transaction, whichever is working: the group chooses who owns what of a
    /// topic.
    pub fn freeze_one_in_transaction(operators: &[Self], job: &Job) {
        within(DEADLINE, "one of them to be caught in a transaction", || {
            operators.iter().any(|operator| operator.frozen_in_transaction(job)).then_some(())
        });
    }

    /// Freezes it briefly: it stays frozen if a transaction on the output is open then.
    fn frozen_in_transaction(&self, job: &Job) -> bool {
        self.freeze();
        let caught = job.has_stuck_transaction();
        if !caught {
            self.thaw();
        }
        caught
    }

    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        assert!(self.ended.is_none(), "{} has ended", self.label);
        kafka::signal(&self.child, signal);
    }

    pub fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("it is our child");
        }
        self.ended.is_none()
    }

    /// Fails the test if the process has ended.
    #[track_caller]
    pub fn assert_running(&mut self) {
        assert!(self.is_running(), "{} has ended: {:?}; {}", self.label, self.ended, self.tail());
    }

    /// Waits until the process ends without further signals.
    #[track_caller]
    pub fn await_exit(&mut self, deadline: Duration) -> ExitStatus {
        within(deadline, &format!("{} to end, see {}", self.label, self.log.display()), || {
            (!self.is_running()).then_some(())
        });
        self.ended.expect("it has just ended")
    }

    /// Waits until the process has died at its kill point.
    #[track_caller]
    pub fn await_crash(&mut self) {
        let status = self.await_exit(DEADLINE);
        assert!(
            status.signal().is_some(),
            "{} should have died at its kill point, but: {status}; {}",
            self.label,
            self.tail()
        );
    }

    /// What it has logged so far, one object for each line.
    pub fn log(&self) -> Vec<Value> {
        let text = fs::read(&self.log).expect("the log was created");
        // A line that is still being written does not count.
        let text = String::from_utf8_lossy(&text);
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))).collect()
    }

    /// The input partitions that it has now, of a single topic, by what it has logged.
    pub fn partitions(&self) -> Vec<i32> {
        let mut all = Vec::new();
        for line in self.log() {
            let listed = line["partitions"].as_str().unwrap_or_default().split(' ');
            let listed = listed.filter_map(|one| one.rsplit(':').next()?.parse().ok()).collect::<Vec<i32>>();
            match line["message"].as_str() {
                Some("partitions assigned") => all.extend(listed),
                Some("partitions revoked" | "partitions lost") => all.retain(|one| !listed.contains(one)),
                _ => {}
            }
        }
        all
    }

    /// All that it has printed so far.
    pub fn printed(&self) -> String {
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        read(&self.log) + &read(&self.log.with_extension("out"))
    }

    /// Waits for a line with all these words.
    #[track_caller]
    pub fn await_line(&self, words: &[&str], deadline: Duration) -> Value {
        within(deadline, &format!("a line with {words:?} in {}", self.log.display()), || {
            self.log().into_iter().find(|line| {
                let text = line.to_string().to_lowercase();
                words.iter().all(|word| text.contains(&word.to_lowercase()))
            })
        })
    }

    /// Waits for a line of level ERROR with all these words.
    #[track_caller]
    pub fn await_error(&self, words: &[&str]) -> Value {
        let mut all = vec!["\"ERROR\""];
        all.extend(words);
        self.await_line(&all, DEADLINE)
    }

    /// The address of its HTTP server.
    pub fn address(&self) -> String {
        let line = self.await_line(&["/metrics", "\"address\""], DEADLINE);
        line["address"].as_str().unwrap_or_else(|| panic!("no address in {line}")).to_owned()
    }

    /// Fetches a page: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        let address = self.address();
        let mut stream = TcpStream::connect(&address).unwrap_or_else(|e| panic!("{}, {address}: {e}", self.label));
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("a request");
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap_or_else(|e| panic!("{}, {address}{path}: {e}", self.label));
        let (head, body) =
            response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response from {address}{path}"));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_else(|| panic!("no status in {head}")), body.to_owned())
    }

    /// All series of `/metrics`, as `name{labels}` and value.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200, "{body}");
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap_or(f64::NAN)))
            .collect()
    }

    /// The sum of a metric's series whose labels contain all of `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let series = self.metrics();
        let of_name = series.iter().filter(|(series, _)| series.split('{').next() == Some(name));
        of_name.filter(|(series, _)| labels.iter().all(|label| series.contains(label))).map(|(_, value)| value).sum()
    }

    /// Waits until `/readyz` reports it: joined, and no store is being restored for the first time.
    #[track_caller]
    pub fn await_ready(&mut self, deadline: Duration) {
        within(deadline, &format!("{} to be ready, see {}", self.label, self.log.display()), || {
            self.assert_running();
            (self.get("/readyz").0 == 200).then_some(())
        });
        self.assert_data_path();
    }

    /// Fails the test if its lanes read and write by another data path than they are to use. One that has logged to a
    /// terminal does not say here.
    #[track_caller]
    fn assert_data_path(&self) {
        let said = self.printed();
        let is_on_the_wire = said.contains("records are read and written on the wire");
        assert!(
            said.is_empty() || is_on_the_wire == self.is_on_the_wire,
            "{} is on the wire: {is_on_the_wire}; {}",
            self.label,
            self.tail()
        );
    }

    /// The last lines of its log, for a failed assertion.
    pub fn tail(&self) -> String {
        let said = self.printed();
        let lines: Vec<&str> = said.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.is_running();
            let state = self.ended.map_or("was running".to_owned(), |status| format!("had ended: {status}"));
            eprintln!("--- {} {state} and said, {}", self.label, self.tail());
        }
        self.kill();
    }
}
