//! The built `ratchet run` at work on a topology as it is shipped.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::kafka;
use crate::until::within;

/// What the CLI promises for SIGTERM.
const STOP_WAIT: Duration = Duration::from_secs(25);

/// A job, running or not. Dropped, it is killed.
pub struct Operator {
    topology: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
}

impl Operator {
    /// Starts a topology of `topologies/`.
    pub fn start(name: &str, brokers: &str) -> Operator {
        let topology = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("topologies/{name}.yaml"));
        let folder = kafka::run_folder().join(format!("ratchet-{name}"));
        fs::create_dir_all(&folder).expect("the run's folder is writable");
        let config = format!(
            "cluster: kafka\n\
             kafka: {{bootstrap.servers: \"{brokers}\"}}\n\
             state_dir: \"{}\"\n\
             http: \"127.0.0.1:0\"\n\
             topics: {{create: internal, replication_factor: 1, min_insync_replicas: 1}}\n\
             lanes: 1\n",
            folder.join("state").display()
        );
        fs::write(folder.join("config.yaml"), config).expect("the run's folder is writable");
        let mut operator = Operator { topology, folder, child: None };
        operator.restart();
        operator
    }

    /// Starts it again after [`Operator::stop`].
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log: File =
            OpenOptions::new().create(true).append(true).open(self.log()).expect("the run's folder is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.arg("run").arg("--config").arg(self.folder.join("config.yaml")).arg(&self.topology);
        // Variables of this prefix are settings; the tests' own are none of the operator's business.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("an open file")).stderr(log);
        self.child = Some(kafka::spawn(command).expect("the built program starts"));
    }

    /// From the next start on, a snapshot's read replaces an older change: the topology with its preset written
    /// out, and one line more.
    pub fn read_by_version(&mut self) {
        let expanded = Command::new(env!("CARGO_BIN_EXE_ratchet"))
            .args(["check", "--expand"])
            .arg(&self.topology)
            .output()
            .expect("the built program starts");
        let text = String::from_utf8(expanded.stdout).expect("a topology is text");
        let switched = text.replacen("\nkinds:\n", "\nkinds:\n  reads: by_version\n", 1);
        assert!(expanded.status.success() && switched != text, "no kinds to be switched in:\n{text}");
        self.topology = self.folder.join("by-version.yaml");
        fs::write(&self.topology, switched).expect("the run's folder is writable");
    }

    fn log(&self) -> PathBuf {
        self.folder.join("ratchet.log")
    }

    /// Fails the test if it has ended.
    pub fn assert_running(&mut self) {
        let ended = self.child.as_mut().expect("it was started").try_wait().expect("it is our child");
        assert!(ended.is_none(), "ratchet has ended: {ended:?}, see {}", self.log().display());
    }

    /// Asks it to stop (SIGTERM), which it has to do cleanly and in time.
    pub fn stop(&mut self) {
        let mut child = self.child.take().expect("it was started");
        kafka::signal(&child, libc::SIGTERM);
        let status = within(STOP_WAIT, &format!("ratchet to stop, see {}", self.log().display()), || {
            child.try_wait().expect("it is our child")
        });
        assert!(status.success(), "ratchet did not stop cleanly: {status}, see {}", self.log().display());
    }

    /// Everything that it has logged.
    pub fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.said();
            let lines: Vec<&str> = said.lines().collect();
            let tail = &lines[lines.len().saturating_sub(15)..];
            eprintln!("--- ratchet said, {}:\n{}", self.log().display(), tail.join("\n"));
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
