//! A real Redis, with a port and a folder of its own: started, killed, frozen, and asked.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use ::redis::{Client, Cmd, Connection, FromRedisValue};
use tempfile::TempDir;

use crate::kafka::{self, Port};
use crate::server::program;
use crate::until::{DEADLINE, within};

const PACKAGE: &str = "on Debian and Ubuntu the package redis-server";

/// A server that keeps nothing on disk. Killed when dropped.
pub struct Server {
    pub port: Port,
    settings: Vec<String>,
    child: Option<Child>,
    folder: TempDir,
}

impl Server {
    /// Starts one with these settings beside the usual ones.
    pub fn start(settings: &[&str]) -> Server {
        let folder = tempfile::Builder::new().prefix("ratchet-redis-").tempdir().expect("a temporary folder");
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Server { port: Port::free(), settings, child: None, folder };
        server.restart();
        server
    }

    /// One that those tests share that leave it as it is.
    pub fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Server::start(&[]))
    }

    /// Starts it again, with nothing in it.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = Command::new(program("redis-server", &["/usr/bin", "/usr/local/bin"], PACKAGE));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--logfile", "log"]);
        command.args(["--port", &self.port.to_string()]);
        command.args(self.settings.iter().flat_map(|setting| setting.split(' ')));
        let child = kafka::spawn(command).expect("redis-server starts");
        self.child = Some(child);
        within(DEADLINE, &format!("redis to respond, see {}", self.log().display()), || {
            let pong = self.client("").get_connection().and_then(|mut it| ::redis::cmd("PING").exec(&mut it));
            // One that wants a password is up.
            (pong.is_ok() || pong.is_err_and(|error| error.code().is_some())).then_some(())
        });
    }

    fn log(&self) -> std::path::PathBuf {
        Path::new(self.folder.path()).join("log")
    }

    /// Kills it as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: i32) {
        kafka::signal(self.child.as_ref().expect("it runs"), signal);
    }

    /// Stops it: the system still takes connections and what is sent over them.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
    }

    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Its url; `user` is `user:password@`, `:password@`, or nothing.
    pub fn url(&self, user: &str) -> String {
        format!("redis://{user}127.0.0.1:{}/0", self.port)
    }

    fn client(&self, user: &str) -> Client {
        Client::open(self.url(user)).expect("a url")
    }

    pub fn connect(&self) -> Connection {
        self.client("").get_connection().expect("it runs")
    }

    /// What a command answers.
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        answer(command, &mut self.connect())
    }

    /// What it answers this user.
    #[allow(dead_code, reason = "most servers want no password")]
    pub fn ask_as<T: FromRedisValue>(&self, user: &str, command: &str) -> T {
        answer(command, &mut self.client(user).get_connection().expect("it runs"))
    }

    /// How many marks of a topology's it keeps.
    pub fn marks(&self, topology: &str) -> usize {
        let mut connection = self.connect();
        let keys: Vec<Vec<u8>> = Cmd::new().arg("KEYS").arg("rgate:*").query(&mut connection).expect("keys");
        let marks = keys.chunks(1_000).flat_map(|keys| {
            // One that is over meanwhile has none.
            let marks: Vec<Option<String>> = Cmd::new().arg("MGET").arg(keys).query(&mut connection).expect("marks");
            marks.into_iter().flatten().collect::<Vec<_>>()
        });
        let own = format!("{topology}/");
        marks.filter(|mark| mark.starts_with(&own)).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn answer<T: FromRedisValue>(command: &str, connection: &mut Connection) -> T {
    let mut asked = Cmd::new();
    for word in command.split(' ') {
        asked.arg(word);
    }
    asked.query(connection).unwrap_or_else(|error| panic!("{command}: {error}"))
}
