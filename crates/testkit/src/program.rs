//! `ratchet proxy`, the built program, as a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::built;
use crate::kafka;

/// How long anything may take on a busy machine.
pub const WAIT: Duration = Duration::from_secs(60);

/// A folder with a proxy's store and its file.
pub struct Room {
    folder: TempDir,
}

/// Where a proxy remembers requests; a server by its address.
#[derive(Clone, Debug)]
pub enum Keeps {
    Embedded,
    Postgres(String),
    Redis(String),
}

impl Keeps {
    /// As a file has it. The address stands in the environment.
    fn yaml(&self) -> &'static str {
        match self {
            Keeps::Embedded => "{embedded: {dir: requests}}",
            Keeps::Postgres(_) => "{postgres: {url: '${env:STORE_URL}'}}",
            Keeps::Redis(_) => "{redis: {url: '${env:STORE_URL}'}}",
        }
    }

    /// The server's address.
    pub fn url(&self) -> &str {
        match self {
            Keeps::Embedded => "",
            Keeps::Postgres(url) | Keeps::Redis(url) => url,
        }
    }
}

/// A running proxy; killed when dropped.
pub struct Proxy {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it serves metrics.
    pub metrics: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    /// Reads what it logs, until it ends.
    reading: Option<JoinHandle<()>>,
}

impl Room {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a proxy's file: in front of this service, with these lines beside what is the same for all.
    pub fn write(&self, upstream: &str, more: &str) -> PathBuf {
        self.write_with(&Keeps::Embedded, upstream, more)
    }

    fn write_with(&self, keeps: &Keeps, upstream: &str, more: &str) -> PathBuf {
        let (path, store) = (self.path().join("proxy.yaml"), keeps.yaml());
        let text = format!(
            "listen: 127.0.0.1:0\nupstream: {upstream}\nstore: {store}\nhttp: 127.0.0.1:0\n\
             log: {{format: json, level: 'info,ratchet=debug'}}\n{more}\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The program with these words, split at spaces, in this room.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(built::ratchet());
        command.current_dir(self.path()).args(words.split_whitespace());
        command
    }

    /// Starts a proxy in front of this service, and waits until it listens.
    #[track_caller]
    pub fn start(&self, upstream: &str, more: &str) -> Proxy {
        self.start_on(&Keeps::Embedded, upstream, more)
    }

    /// The same with another store.
    #[track_caller]
    pub fn start_on(&self, keeps: &Keeps, upstream: &str, more: &str) -> Proxy {
        Proxy::start(self.command_on(keeps, upstream, more))
    }

    /// What would start it, for an environment of its own.
    pub fn command_on(&self, keeps: &Keeps, upstream: &str, more: &str) -> Command {
        self.write_with(keeps, upstream, more);
        let mut command = self.command("proxy --config proxy.yaml");
        command.env("STORE_URL", keeps.url());
        command
    }
}

impl Proxy {
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        command.stderr(Stdio::piped()).stdin(Stdio::null());
        let mut child = kafka::spawn(command).unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, reading) = follow(&mut child, &log);
        let metrics = listening(&lines, "serving /metrics, /livez and /readyz", &log);
        let address = listening(&lines, "serving", &log);
        Self { child, address, metrics, log, reading: Some(reading) }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        kafka::signal(&self.child, signal);
    }

    /// Kills it as a crash does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How it has ended, if it has within so long. Then all that it has logged is there.
    pub fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < within {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.reading.take().into_iter().for_each(|reading| reading.join().unwrap());
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(child: &mut Child, log: &Arc<Mutex<Vec<String>>>) -> (Receiver<String>, JoinHandle<()>) {
    let (stderr, log) = (child.stderr.take().unwrap(), Arc::clone(log));
    let (tell, lines) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            log.lock().unwrap().push(line.clone());
            let _ = tell.send(line);
        }
    });
    (lines, reading)
}

/// The address in the line with this message, in JSON or, where a proxy is started by options alone, in words.
#[track_caller]
fn listening(lines: &Receiver<String>, message: &str, log: &Mutex<Vec<String>>) -> SocketAddr {
    let in_words = format!(": {message} address=");
    loop {
        let Ok(line) = lines.recv_timeout(WAIT) else { panic!("it does not listen: {:?}", log.lock().unwrap()) };
        let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) else {
            let Some((_, address)) = line.split_once(&in_words) else { continue };
            return address.split(' ').next().unwrap().parse().unwrap();
        };
        if line["message"] == message {
            return line["address"].as_str().unwrap().parse().unwrap();
        }
    }
}
