//! What the driver costs beside a bare loop of the same statements; run by hand:
//! `cargo test --release --test postgres speed -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::database::Database;
use crate::postgres::task::{Task, each, session, settings};

const INSERT: &str = "insert into t (v) values ($1)";
const RUNS: usize = 5;
const RUN: Duration = Duration::from_secs(3);

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Records/s of `commit`, which commits so many at once.
fn rate(records: usize, mut commit: impl FnMut()) -> f64 {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < RUN {
        commit();
        count += records;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "measures; needs a machine of its own"]
fn speed_beside_a_bare_loop() {
    for records in [1, 10, 100, 1_000] {
        let (mut driver, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            driver.push(driver_rate(records));
            bare.push(bare_rate(records));
        }
        let (driver, bare) = (median(driver), median(bare));
        println!("{records} records a transaction: driver {driver:.0}/s, bare loop {bare:.0}/s, {:.2}", driver / bare);
    }
}

fn driver_rate(records: usize) -> f64 {
    let database = Database::with("create table t (id bigserial primary key, v int not null)");
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    let values: Vec<_> = (0..records).map(|number| number.to_string()).collect();
    let effects = each(&values.iter().map(String::as_str).collect::<Vec<_>>());
    rate(records, || drop(task.commit(&mut *session, &effects).expect("it commits")))
}

fn bare_rate(records: usize) -> f64 {
    let database = Database::with("create table t (id bigserial primary key, v int not null)");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.expect("it accepts");
        tokio::spawn(connection);
        client
    });
    let insert = runtime.block_on(client.prepare(INSERT)).expect("it is right");
    let values: Vec<i32> = (0..records as i32).collect();
    rate(records, || {
        runtime.block_on(async {
            let all = values.iter().map(|value| client.execute_raw(&insert, [value]));
            let (begin, all, commit) =
                (client.batch_execute("begin"), try_join_all(all), client.batch_execute("commit"));
            let (begun, done, committed) = tokio::join!(begin, all, commit);
            begun.and(done.map(drop)).and(committed).expect("it commits");
        });
    })
}
