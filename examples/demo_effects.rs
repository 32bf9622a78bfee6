//! A charge that is sent three times and booked in PostgreSQL once, though ratchet is killed at the worst moment: after
//! the database has committed, before Kafka has.
//!
//! `make demo-effects` runs it, with a PostgreSQL that is gone afterwards; the topics are those of the embedded cluster.
//! The operator is `ratchet run` itself, as a child process. All numbers shown are read from the topics and the tables.
#![allow(clippy::disallowed_methods, reason = "the demo observes a process from outside: it has a clock and waits")]

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, Message, NewTopic};
use ratchet::record::{Headers, TopicPartition};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

const TOPOLOGY: &str = include_str!("../topologies/samples/charges.yaml");
const TOPIC: &str = "charges";
const GROUP: &str = "ratchet.charges";
/// How many charges there are.
const CHARGES: u64 = 20_000;
/// How many records are read at once and end a transaction.
const BATCH: u64 = 1_000;
/// The transaction of the database that is the killed operator's last.
const LAST_TRANSACTION: u64 = 5;
const CUSTOMERS: u64 = 8;
const DEPOSIT_CENTS: i64 = 100_000_000;
/// How long a step may take on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const CREATE: &str = "
    create table charges (charge text not null, customer text not null, cents bigint not null);
    create table balances (customer text primary key, cents bigint not null);";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() {
    if let Err(error) = tell() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn tell() -> Outcome<()> {
    let started = Instant::now();
    let mut bank = Bank::open()?;
    let site = Site::make()?;
    println!(
        "A topic of {CHARGES} charges. The job books each of them in PostgreSQL: a row, and the customer's balance."
    );
    site.append(&(1..=CHARGES).map(charge).collect::<Vec<_>>())?;

    println!("\n1  The job is killed (SIGKILL) when the database has committed, and Kafka has not");
    let killed = site.run(Some(LAST_TRANSACTION))?.end()?;
    if killed.signal() != Some(libc::SIGKILL) {
        return Err(format!("the operator ended with {killed}, see {}", site.keep_log()?.display()).into());
    }
    let (booked, offset) = (bank.number("select count(*) from charges")?, site.group_offset()?);
    let last = format!("c-{booked:05}");
    println!(
        "   PostgreSQL: {booked} rows. Kafka: the group is at offset {offset}, so {} rows are unknown to it",
        booked - offset
    );
    fs::remove_dir_all(site.state())?;
    println!("   its state folder is removed");

    println!("\n2  {last}, in the database's last transaction, is sent again, and again: nobody answered its client");
    let again = u64::try_from(booked)?;
    site.append(&[charge(again), charge(again)])?;

    println!("\n3  The job is started again, with nothing but the topics and the database");
    let sent = i64::try_from(CHARGES)? + 2;
    let mut operator = site.run(None)?;
    bank.wait_until(&mut operator, &site, "select coalesce(min(next_offset), 0) from ratchet.position", sent)?;
    operator.stop();
    let ended = operator.end()?;
    if !ended.success() {
        return Err(format!("the operator ended with {ended}, see {}", site.keep_log()?.display()).into());
    }
    println!("   PostgreSQL's own position: {sent}. Kafka: the group is at offset {}", site.group_offset()?);

    println!("\n4  Was anybody charged twice?");
    let rows = bank.number("select count(*) from charges")?;
    let distinct = bank.number("select count(distinct charge) from charges")?;
    let of_last = bank.number(&format!("select count(*) from charges where charge = '{last}'"))?;
    let charged = bank.number("select sum(cents)::bigint from charges")?;
    let taken = bank.number(&format!("select sum({DEPOSIT_CENTS} - cents)::bigint from balances"))?;
    println!(
        "   {sent} records, {rows} rows, {distinct} different charges; {last} was sent three times: {of_last} row"
    );
    println!("   charged: {}; taken from the balances: {}", money(charged), money(taken));
    let expected: i64 = (1..=CHARGES).map(cents).sum();
    if [rows, distinct, of_last, charged, taken] != [i64::try_from(CHARGES)?, rows, 1, expected, expected] {
        return Err(format!("the tables are wrong, see {}", site.keep_log()?.display()).into());
    }
    println!("\nEach charge once. {:.1} s in all.", started.elapsed().as_secs_f64());
    Ok(())
}

/// A charge: its identity and its record's value.
fn charge(number: u64) -> (String, String) {
    let id = format!("c-{number:05}");
    let customer = number % CUSTOMERS;
    (id.clone(), format!(r#"{{"charge":"{id}","customer":"customer {customer}","cents":{}}}"#, cents(number)))
}

fn cents(number: u64) -> i64 {
    i64::try_from(number % 9_900 + 100).unwrap_or(100)
}

fn money(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// The database, in which the charges are booked.
struct Bank {
    runtime: Runtime,
    client: Client,
}

impl Bank {
    /// Connects to `DATABASE_URL` and creates the tables.
    fn open() -> Outcome<Bank> {
        let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set: run `make demo-effects`")?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&url, NoTls))?;
        runtime.spawn(connection);
        runtime.block_on(client.batch_execute(CREATE))?;
        let deposits =
            "insert into balances select 'customer ' || n, $1::bigint from generate_series(0, $2::bigint - 1) n";
        runtime.block_on(client.execute(deposits, &[&DEPOSIT_CENTS, &i64::try_from(CUSTOMERS)?]))?;
        Ok(Bank { runtime, client })
    }

    fn number(&mut self, query: &str) -> Outcome<i64> {
        Ok(self.runtime.block_on(self.client.query_one(query, &[]))?.try_get(0)?)
    }

    /// Waits until the query's number is `wanted`, as long as the operator runs.
    fn wait_until(&mut self, operator: &mut Operator, site: &Site, query: &str, wanted: i64) -> Outcome<()> {
        let deadline = Instant::now() + STEP_TIME_MAX;
        while self.number(query)? < wanted {
            if Instant::now() > deadline || operator.0.try_wait()?.is_some() {
                return Err(format!("the operator did not get to the end, see {}", site.keep_log()?.display()).into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// A folder with the topics, the stores, the topology and the configuration.
struct Site {
    folder: TempDir,
}

impl Site {
    fn make() -> Outcome<Site> {
        let folder = tempfile::Builder::new().prefix("ratchet-demo-effects-").tempdir()?;
        let site = Site { folder };
        fs::write(site.path("charges.yaml"), TOPOLOGY)?;
        let config = format!(
            "cluster: embedded\n\
             embedded: {{dir: {}, partitions: 1}}\n\
             state_dir: {}\n\
             commit: {{records: {BATCH}}}\n\
             http: 127.0.0.1:0\n\
             topics: {{create: all, replication_factor: 1, min_insync_replicas: 1}}\n\
             log: {{format: json, level: info}}\n",
            site.path("topics").display(),
            site.state().display(),
        );
        fs::write(site.path("ratchet.yaml"), config)?;
        let settings = &[];
        site.open()?.create_topic(&NewTopic { name: TOPIC, partition_count: 1, replication_factor: 1, settings })?;
        Ok(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The cluster, which only one process can have open.
    fn open(&self) -> Outcome<Embedded> {
        Ok(Embedded::open(&self.path("topics"), 1)?)
    }

    fn append(&self, charges: &[(String, String)]) -> Outcome<()> {
        let messages = charges.iter().map(|(id, value)| Message {
            topic: TOPIC,
            partition: 0,
            key: Some(id.as_bytes()),
            value: Some(value.as_bytes()),
            headers: Headers::default(),
            timestamp: None,
        });
        self.open()?.append(TOPIC, 0, &messages.collect::<Vec<_>>())?;
        Ok(())
    }

    /// How far the group has come, as the topics have it.
    fn group_offset(&self) -> Outcome<i64> {
        let committed = self.open()?.committed(GROUP, &[TopicPartition::new(TOPIC, 0)], Duration::ZERO)?;
        Ok(committed.first().and_then(Option::as_ref).map_or(0, |committed| committed.offset))
    }

    /// Starts `ratchet run`; it dies when this transaction of the database is committed.
    fn run(&self, last_transaction: Option<u64>) -> Outcome<Operator> {
        let program = program()?;
        let log = File::options().create(true).append(true).open(self.path("log.jsonl"))?;
        let mut command = Command::new(&program);
        command.arg("run").arg("--config").arg(self.path("ratchet.yaml")).arg(self.path("charges.yaml"));
        // Settings from the environment would override the demo's own.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RATCHET_")) {
            command.env_remove(name);
        }
        if let Some(count) = last_transaction {
            command.env("RATCHET_CRASH_AT", format!("after_sink:{count}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        Ok(Operator(child))
    }

    /// Keeps the log beyond the end of the demo.
    fn keep_log(&self) -> Outcome<PathBuf> {
        let kept = std::env::temp_dir().join(format!("ratchet-demo-effects-{}.jsonl", std::process::id()));
        fs::copy(self.path("log.jsonl"), &kept)?;
        Ok(kept)
    }
}

/// The program, which `make demo-effects` has built: Cargo puts examples into a folder beside it.
fn program() -> Outcome<PathBuf> {
    let example = std::env::current_exe()?;
    let program = example.parent().and_then(Path::parent).map(|folder| folder.join("ratchet"));
    program.filter(|path| path.is_file()).ok_or_else(|| "ratchet is not built: run `make demo-effects`".into())
}

/// `ratchet run`; killed when dropped.
struct Operator(Child);

impl Operator {
    /// Asks it to stop (SIGTERM).
    fn stop(&self) {
        if let Ok(pid) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: `kill` takes plain numbers; the child was not waited for yet, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
    }

    /// Waits until it has ended.
    fn end(&mut self) -> Outcome<ExitStatus> {
        let deadline = Instant::now() + STEP_TIME_MAX;
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None if Instant::now() > deadline => return Err("the operator does not end".into()),
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
