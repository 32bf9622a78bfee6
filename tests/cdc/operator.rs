//! The built `ratchet run` at work on shipped topologies.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::connect::Converter;
use crate::kafka::{self, Port};
use crate::schema_registry::Server as Registry;
use crate::until::within;

/// What the CLI promises for SIGTERM.
const STOP_WAIT: Duration = Duration::from_secs(25);

/// So that a kill is noticed within seconds.
const SOON: &str = ", consumer.session.timeout.ms: 3000, producer.transaction.timeout.ms: 5000";

/// A job, running or not. Killed when dropped.
pub struct Operator {
    topology: PathBuf,
    /// Run beside it.
    further: Vec<PathBuf>,
    /// The address of the database that they end in.
    database: Option<String>,
    folder: PathBuf,
    port: Port,
    child: Option<Child>,
}

impl Operator {
    /// Starts a topology from `topologies/`, which reads what this converter writes.
    pub fn start(name: &str, converter: Converter, brokers: &str) -> Operator {
        let mut operator = match converter {
            Converter::Json { .. } => Operator::new(name, shipped(name), brokers),
            Converter::Avro => {
                let text = fs::read_to_string(shipped(name)).expect("it is shipped");
                let mut operator = Operator::new(&format!("{name}-avro"), PathBuf::new(), brokers);
                operator.write(&converter.topology(&text));
                operator
            }
        };
        operator.restart();
        operator
    }

    /// Starts the topology in `text`, in a folder of this name.
    pub fn of(folder: &str, text: &str, brokers: &str) -> Operator {
        let mut operator = Operator::new(folder, PathBuf::new(), brokers);
        operator.write(text);
        operator.restart();
        operator
    }

    /// Starts the topologies in `texts`, which end in this database, in a folder of this name.
    pub fn ending_in(database: &str, folder: &str, texts: &[String], brokers: &str) -> Operator {
        let mut operator = Operator::with(folder, PathBuf::new(), brokers, SOON);
        operator.database = Some(database.to_owned());
        operator.write(&texts[0]);
        for (number, text) in texts.iter().enumerate().skip(1) {
            let file = operator.folder.join(format!("topology-{number}.yaml"));
            fs::write(&file, text).expect("the run's folder is writable");
            operator.further.push(file);
        }
        operator.restart();
        operator
    }

    /// Makes this its topology from the next start on.
    pub fn write(&mut self, text: &str) {
        self.topology = self.folder.join("topology.yaml");
        fs::write(&self.topology, text).expect("the run's folder is writable");
    }

    fn new(name: &str, topology: PathBuf, brokers: &str) -> Operator {
        Operator::with(name, topology, brokers, "")
    }

    fn with(name: &str, topology: PathBuf, brokers: &str, settings: &str) -> Operator {
        let port = Port::free();
        let data_path = if kafka::is_on_the_wire() { "auto" } else { "librdkafka" };
        let folder = kafka::run_folder().join(format!("ratchet-{name}"));
        fs::create_dir_all(&folder).expect("the run's folder is writable");
        let config = format!(
            "cluster: kafka\n\
             data_path: {data_path}\n\
             kafka: {{bootstrap.servers: \"{brokers}\"{settings}}}\n\
             state_dir: \"{}\"\n\
             http: \"127.0.0.1:{port}\"\n\
             topics: {{create: internal, replication_factor: 1, min_insync_replicas: 1}}\n\
             lanes: 1\n",
            folder.join("state").display()
        );
        fs::write(folder.join("config.yaml"), config).expect("the run's folder is writable");
        Operator { topology, further: Vec::new(), database: None, folder, port, child: None }
    }

    /// Restarts it after [`Operator::stop`].
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log: File =
            OpenOptions::new().create(true).append(true).open(self.log()).expect("the run's folder is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.arg("run").arg("--config").arg(self.folder.join("config.yaml")).arg(&self.topology);
        command.args(&self.further);
        // Variables with this prefix are settings; those of the tests must not reach the operator.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
            command.env_remove(name);
        }
        if fs::read_to_string(&self.topology).is_ok_and(|text| text.contains("_format: avro")) {
            command.env("RATCHET_SCHEMA_REGISTRY__URL", Registry::shared().url());
        }
        command.envs(self.database.as_ref().map(|url| ("DATABASE_URL", url)));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("an open file")).stderr(log);
        self.child = Some(kafka::spawn(command).expect("the built program starts"));
    }

    fn log(&self) -> PathBuf {
        self.folder.join("ratchet.log")
    }

    /// Waits until `/readyz` returns 200.
    pub fn await_ready(&mut self) {
        within(STOP_WAIT, "ratchet to be ready", || {
            self.assert_running();
            let mut stream = TcpStream::connect(self.port.address()).ok()?;
            write!(stream, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
            let mut response = String::new();
            stream.read_to_string(&mut response).ok()?;
            response.contains(" 200 ").then_some(())
        });
    }

    /// Waits until it ends without a signal.
    pub fn await_exit(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it was started");
        within(STOP_WAIT, "ratchet to end", || child.try_wait().expect("it is our child"))
    }

    /// Fails the test if it has ended.
    pub fn assert_running(&mut self) {
        let ended = self.child.as_mut().expect("it was started").try_wait().expect("it is our child");
        assert!(ended.is_none(), "ratchet has ended: {ended:?}, see {}", self.log().display());
    }

    /// Stops it by SIGTERM, which has to end it cleanly and in time.
    pub fn stop(&mut self) {
        let mut child = self.child.take().expect("it was started");
        kafka::signal(&child, libc::SIGTERM);
        let status = within(STOP_WAIT, &format!("ratchet to stop, see {}", self.log().display()), || {
            child.try_wait().expect("it is our child")
        });
        assert!(status.success(), "ratchet did not stop cleanly: {status}, see {}", self.log().display());
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it was started");
        child.kill().expect("it is our child");
        child.wait().expect("it was killed");
    }

    /// Kills it, and removes its state.
    pub fn kill_and_wipe(&mut self) {
        self.kill();
        fs::remove_dir_all(self.folder.join("state")).expect("it has a state");
    }

    /// Everything that it has logged.
    pub fn printed(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

/// The file of a topology in `topologies/`.
pub fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("topologies/{name}.yaml"))
}

impl Drop for Operator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.printed();
            let lines: Vec<&str> = said.lines().collect();
            let tail = &lines[lines.len().saturating_sub(15)..];
            eprintln!("--- ratchet's log, {}:\n{}", self.log().display(), tail.join("\n"));
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
