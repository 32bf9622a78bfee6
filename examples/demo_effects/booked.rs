//! A charge that is sent three times and booked in PostgreSQL once, though ratchet is killed at the worst moment: after
//! the database has committed, before Kafka has. All numbers shown are read from the topics and the tables.

use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use super::Outcome;
use super::site::{Job, Operator, POLL_INTERVAL, STEP_TIME_MAX, Site};

const JOB: Job = Job {
    name: "charges",
    topology: include_str!("../../topologies/samples/charges.yaml"),
    topic: "charges",
    // Records that are read at once and end a transaction.
    batch: 1_000,
    example: None,
};
/// How many charges there are.
const CHARGES: u64 = 20_000;
/// The transaction of the database that is the killed operator's last.
const LAST_TRANSACTION: u64 = 5;
const CUSTOMERS: u64 = 8;
const DEPOSIT_CENTS: i64 = 100_000_000;
const CREATE: &str = "
    create table charges (charge text not null, customer text not null, cents bigint not null);
    create table balances (customer text primary key, cents bigint not null);";

/// Tells it; an error if anybody was charged twice, or not at all.
pub fn tell() -> Outcome<()> {
    let started = Instant::now();
    let mut bank = Bank::open()?;
    let site = Site::make(&JOB)?;
    println!(
        "A topic of {CHARGES} charges. The job books each of them in PostgreSQL: a row, and the customer's balance."
    );
    site.append(&(1..=CHARGES).map(charge).collect::<Vec<_>>())?;

    println!("\n1  The job is killed (SIGKILL) when the database has committed, and Kafka has not");
    site.run(Some(&format!("after_sink:{LAST_TRANSACTION}")), &[], &[])?.die(&site)?;
    let (booked, offset) = (bank.number("select count(*) from charges")?, site.group_offset()?);
    let last = format!("c-{booked:05}");
    println!(
        "   PostgreSQL: {booked} rows. Kafka: the group is at offset {offset}, so {} rows are unknown to it",
        booked - offset
    );
    site.remove_state()?;
    println!("   its state folder is removed");

    println!("\n2  {last}, in the database's last transaction, is sent again, and again: nobody answered its client");
    let again = u64::try_from(booked)?;
    site.append(&[charge(again), charge(again)])?;

    println!("\n3  The job is started again, with nothing but the topics and the database");
    let sent = i64::try_from(CHARGES)? + 2;
    let mut operator = site.run(None, &[], &[])?;
    bank.wait_until(&mut operator, &site, "select coalesce(min(next_offset), 0) from ratchet.position", sent)?;
    operator.stop();
    operator.end(&site)?;
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
            if Instant::now() > deadline || !operator.is_running()? {
                return Err(format!("the operator did not get to the end, see {}", site.keep_log()?.display()).into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}
