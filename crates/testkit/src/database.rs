//! A real PostgreSQL that all tests of this binary share, and a database for each of them.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::kafka::{self, Port};
use crate::server::{Home, Server as Process, program};
use crate::until::{DEADLINE, within};

const PACKAGE: &str = "on Debian and Ubuntu the package postgresql";
const FOLDERS: [&str; 1] = ["/usr/lib/postgresql/*/bin"];
/// The role that has to say a password, and the password.
pub const GUARDED: (&str, &str) = ("guarded", "s3cret pass/word");
const HOST_RULES: &str = "local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
hostssl all certified 127.0.0.1/32 cert
host all certified 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
";

/// A running server.
pub struct Server {
    pub port: Port,
    name: String,
    settings: Vec<String>,
    environment: Vec<(&'static str, String)>,
    // In this order: the process ends before its folder is removed.
    process: Option<Process>,
    home: Home,
}

impl Server {
    /// Starts one with these settings beside the usual ones.
    pub fn start(name: &str, settings: &[&str]) -> Server {
        Server::start_with(name, settings, |_| Vec::new())
    }

    /// The same with environment variables, which may depend on its folder. Its data is in `data` there.
    pub fn start_with(
        name: &str,
        settings: &[&str],
        environment: impl FnOnce(&Path) -> Vec<(&'static str, String)>,
    ) -> Server {
        remove_abandoned();
        let home = Home::new(&prefix(std::process::id()), &["postgres", "nobody"]);
        let data = home.folder().join("data");
        let mut initdb = home.command(&program("initdb", &FOLDERS, PACKAGE));
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        home.prepare(initdb);
        fs::write(data.join("pg_hba.conf"), HOST_RULES).expect("the data folder is writable");
        certificates(&home);
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let (name, environment) = (name.to_owned(), environment(home.folder()));
        let mut server = Server { port: Port::free(), name, settings, environment, process: None, home };
        server.process = Some(server.run());
        server
    }

    /// Runs the server on its folder.
    fn run(&self) -> Process {
        let (home, port) = (&self.home, &self.port);
        let mut server = home.command(&program("postgres", &FOLDERS, PACKAGE));
        server.envs(self.environment.iter().map(|(name, value)| (name, value)));
        server.arg("-D").arg(home.folder().join("data")).arg("-k").arg(home.folder()).arg("-p").arg(port.to_string());
        let usual = [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "max_connections=200",
            "deadlock_timeout=200ms",
            "ssl=on",
            "ssl_cert_file=../server.pem",
            "ssl_key_file=../server.key",
            "ssl_ca_file=../ca.pem",
        ];
        for setting in usual.into_iter().chain(self.settings.iter().map(String::as_str)) {
            server.args(["-c", setting]);
        }
        let mut probe = home.command(&program("psql", &FOLDERS, PACKAGE));
        probe.args(["-X", "-U", "postgres", "-d", "postgres", "-c", "select 1", "-h"]).arg(home.folder());
        probe.arg("-p").arg(port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        Process::start(&self.name, server, || probe.status().is_ok_and(|status| status.success()))
    }

    /// Kills the server and starts it again on what it has left.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Keeps a copy of everything, as a base backup would.
    pub fn keep_a_copy(&mut self) {
        self.kill();
        self.copy("data", "copy");
        self.process = Some(self.run());
    }

    /// Puts the copy in the place of everything, as if it had been restored.
    pub fn put_back_the_copy(&mut self) {
        self.kill();
        fs::remove_dir_all(self.home.folder().join("data")).expect("the folder is ours");
        self.copy("copy", "data");
        self.process = Some(self.run());
    }

    /// Starts it again after it was killed.
    pub fn start_again(&mut self) {
        self.process = Some(self.run());
    }

    /// Stops the server's process and those of its sessions until what is returned is dropped: the system still takes
    /// connections and what is sent over them.
    pub fn freeze(&self) -> Frozen {
        let frozen = Frozen { processes: self.processes() };
        frozen.signal(libc::SIGSTOP);
        frozen
    }

    /// All of the server's processes.
    fn processes(&self) -> Vec<i32> {
        let data = self.home.folder().join("data");
        let all = fs::read_dir("/proc").expect("processes are listed").flatten();
        let of_it = all.filter(|process| fs::read_link(process.path().join("cwd")).is_ok_and(|folder| folder == data));
        of_it.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
    }

    /// Kills the server's process, and those of its sessions end with it.
    pub fn kill(&mut self) {
        self.process = None;
        let data = self.home.folder().join("data");
        // They notice on their own that it is gone; a start before that is refused.
        within(DEADLINE, "the server's sessions to end", || self.processes().is_empty().then_some(()));
        // A server that has given up has removed it.
        if let Err(error) = fs::remove_file(data.join("postmaster.pid")) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }

    fn copy(&self, from: &str, to: &str) {
        let mut copy = self.home.command(Path::new("/bin/cp"));
        copy.arg("-a").arg(self.home.folder().join(from)).arg(self.home.folder().join(to));
        self.home.prepare(copy);
    }

    /// The file with the authority that the server's certificate, for `localhost`, is from.
    pub fn authority(&self) -> PathBuf {
        self.home.folder().join("ca.pem")
    }

    /// The files with the certificate and the key of a client: `certified` or `stranger`, from the server's authority, or
    /// `self`, from nobody's.
    pub fn client(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.home.folder().join(format!("{name}.pem")), self.home.folder().join(format!("{name}.key")))
    }

    /// The url of a database on this server.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

/// A server that is stopped.
pub struct Frozen {
    processes: Vec<i32>,
}

impl Frozen {
    fn signal(&self, signal: i32) {
        // One that has ended since they were listed is no matter.
        self.processes.iter().for_each(|process| drop(kafka::signal_by_number(*process, signal)));
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal(libc::SIGCONT);
    }
}

/// The server that tests share.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| {
        let server = Server::start("postgres", &[]);
        let admin = Admin::connect(&server.url("postgres", "postgres"));
        let (name, password) = GUARDED;
        admin.run(&format!(
            "create role {name} login password '{password}'; create role limited login; create role certified login"
        ));
        server
    })
}

/// A test's own database.
pub struct Database {
    pub name: String,
    pub url: String,
    admin: Admin,
}

impl Database {
    pub fn new() -> Database {
        Database::on(shared())
    }

    pub fn on(server: &Server) -> Database {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let _one_at_a_time = gate();
        Admin::connect(&server.url("postgres", "postgres")).run(&format!("create database {name}"));
        let url = server.url("postgres", &name);
        Database { admin: Admin::connect(&url), name, url }
    }

    /// With SQL that has been run.
    pub fn with(sql: &str) -> Database {
        let database = Database::new();
        database.run(sql);
        database
    }

    pub fn run(&self, sql: &str) {
        self.admin.run(sql);
    }

    /// A query's rows, a line for each, with `|` between the columns and `-` for null.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<String> {
        self.admin.rows(sql)
    }

    /// The only value of a query.
    #[track_caller]
    pub fn value(&self, sql: &str) -> String {
        let mut rows = self.rows(sql);
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.remove(0)
    }

    /// Another session of an administrator.
    pub fn session(&self) -> Admin {
        Admin::connect(&self.url)
    }
}

fn gate() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    GATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A session beside the driver's.
pub struct Admin {
    runtime: Runtime,
    client: Client,
}

impl Admin {
    pub fn connect(url: &str) -> Admin {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server accepts");
            tokio::spawn(connection);
            client
        });
        Admin { runtime, client }
    }

    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    #[track_caller]
    pub fn run(&self, sql: &str) {
        self.wait(self.client.batch_execute(sql)).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<String> {
        let messages = self.wait(self.client.simple_query(sql)).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let columns: Vec<_> = (0..row.len()).map(|column| row.get(column).unwrap_or("-")).collect();
                Some(columns.join("|"))
            }
            _ => None,
        };
        messages.iter().filter_map(row).collect()
    }
}

fn prefix(process: u32) -> String {
    format!("ratchet-postgres-{process}-")
}

/// Removes the folders of processes that are gone: what all tests share is never dropped.
fn remove_abandoned() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("ratchet-postgres-").and_then(|rest| rest.split('-').next());
        let is_gone = |process: &str| !Path::new("/proc").join(process).exists();
        if process.is_some_and(is_gone) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// An authority; certificates from it, for the server as `localhost` and for two clients; and one of a client's own.
fn certificates(home: &Home) {
    let openssl = program("openssl", &["/usr/bin"], "on Debian and Ubuntu the package openssl");
    let run = |arguments: &[&[&str]]| {
        let mut command = home.command(&openssl);
        command.args(arguments.concat());
        home.prepare(command);
    };
    let (key, days) = (["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"], ["-days", "2"]);
    let alone = |name: &str, subject: &str, more: &[&str]| {
        let (own_key, own) = (format!("{name}.key"), format!("{name}.pem"));
        run(&[&["req", "-x509", "-keyout", &own_key, "-out", &own, "-subj", subject], more, &key, &days]);
    };
    alone("ca", "/CN=authority", &["-addext", "keyUsage=critical,keyCertSign"]);
    alone("self", "/CN=certified", &[]);
    for (name, names) in [("server", "DNS:localhost"), ("certified", "DNS:certified"), ("stranger", "DNS:stranger")] {
        let [own_key, asked, own] = ["key", "csr", "pem"].map(|ending| format!("{name}.{ending}"));
        run(&[&["req", "-keyout", &own_key, "-out", &asked, "-subj", &format!("/CN={name}")], &key]);
        fs::write(home.folder().join("names"), format!("subjectAltName={names}\n")).expect("the folder is writable");
        let from = ["x509", "-req", "-in", &asked, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        run(&[&from, &["-extfile", "names", "-out", &own], &days]);
    }
}
