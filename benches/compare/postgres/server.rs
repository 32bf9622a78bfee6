//! The database server of a run, and a database for each turn.

use std::fs;
use std::process::Stdio;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use crate::failure::{Context as _, Failure, Outcome};
use crate::kafka::Port;
use crate::server::{Home, Server as Process, program};
use crate::usage::Usage;

const PACKAGE: &str = "on Debian and Ubuntu the package postgresql";
const FOLDERS: [&str; 1] = ["/usr/lib/postgresql/*/bin"];
/// What differs from PostgreSQL's defaults, for everybody. What makes a commit durable stays as it is: fsync,
/// synchronous_commit and full_page_writes are on.
pub const SETTINGS: [&str; 4] =
    ["shared_buffers=512MB", "min_wal_size=2GB", "max_wal_size=8GB", "checkpoint_timeout=30min"];

/// A running server; dropping it kills it and removes its folder.
pub struct Server {
    // In this order: the process ends before its folder is removed.
    _process: Process,
    pid: u32,
    port: Port,
    _home: Home,
}

impl Server {
    /// Starts one with an empty folder.
    pub fn start() -> Outcome<Server> {
        // Named like those of the tests, which remove what a killed run has left.
        let home = Home::new(&format!("ratchet-postgres-{}-", std::process::id()), &["postgres", "nobody"]);
        let (data, port) = (home.folder().join("data"), Port::free());
        let mut initdb = home.command(&program("initdb", &FOLDERS, PACKAGE));
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
        home.prepare(initdb);
        let mut server = home.command(&program("postgres", &FOLDERS, PACKAGE));
        server.arg("-D").arg(&data).arg("-k").arg(home.folder()).arg("-p").arg(port.to_string());
        for setting in ["listen_addresses=127.0.0.1"].into_iter().chain(SETTINGS) {
            server.args(["-c", setting]);
        }
        let mut probe = home.command(&program("psql", &FOLDERS, PACKAGE));
        probe.args(["-X", "-U", "postgres", "-d", "postgres", "-c", "select 1", "-h"]).arg(home.folder());
        probe.arg("-p").arg(port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start("postgres", server, || probe.status().is_ok_and(|status| status.success()));
        let noted = fs::read_to_string(data.join("postmaster.pid"))?;
        let pid = noted.lines().next().unwrap_or_default().parse().context("postmaster.pid")?;
        Ok(Server { _process: process, pid, port, _home: home })
    }

    /// What the server has used so far, with all its sessions.
    pub fn usage(&self) -> Usage {
        Usage::of(self.pid)
    }

    /// `PostgreSQL 15.1`
    pub fn version(&self) -> Outcome<String> {
        let session = Session::open(&self.url("postgres"))?;
        let row = session.wait(session.client.query_one("show server_version", &[]))?;
        let version: &str = row.try_get(0)?;
        Ok(format!("PostgreSQL {}", version.split(' ').next().unwrap_or_default()))
    }

    /// A database with what this SQL creates. Nothing of an earlier one is left to be written to disk.
    pub fn database(&self, name: &str, create: &str) -> Outcome<Database> {
        let admin = Session::open(&self.url("postgres"))?;
        admin.run(&format!("create database \"{name}\""))?;
        let url = self.url(name);
        let session = Session::open(&url)?;
        session.run(create)?;
        session.run("checkpoint")?;
        let jdbc_url = format!("jdbc:postgresql://127.0.0.1:{}/{name}", self.port);
        Ok(Database { name: name.to_owned(), url, jdbc_url, session, admin })
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

/// A turn's own database. Dropping it drops it on the server.
pub struct Database {
    name: String,
    pub url: String,
    pub jdbc_url: String,
    session: Session,
    admin: Session,
}

impl Database {
    /// A session of the harness.
    pub fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let dropped = self.admin.run(&format!("drop database \"{}\" with (force)", self.name));
        if let Err(failure) = dropped {
            eprintln!("{} stays: {failure}", self.name);
        }
    }
}

/// A session, with what drives it.
pub struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    pub fn open(url: &str) -> Outcome<Session> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, Failure>(client)
        })?;
        Ok(Session { runtime, client })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for an answer.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Outcome<T> {
        Ok(self.runtime.block_on(work)?)
    }

    pub fn run(&self, sql: &str) -> Outcome<()> {
        self.wait(self.client.batch_execute(sql)).context(sql)
    }

    /// The only number of a query.
    pub fn number(&self, sql: &str) -> Outcome<i64> {
        Ok(self.wait(self.client.query_one(sql, &[])).context(sql)?.try_get(0)?)
    }
}
