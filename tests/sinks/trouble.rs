//! Goal: a database that is in trouble for long holds the work up and loses none of it. What the trouble is, is said
//! once, and so is its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use crate::checker::Fate;
use crate::database::{Admin, Server};
use crate::disk::Disk;
use crate::load::{Feed, Load, Random, thing};
use crate::operator::Operator;
use crate::sinks::shop::Shop;
use crate::until::{DEADLINE, within};

/// After a long trouble tasks try again every ten seconds.
const RECOVERY: Duration = Duration::from_secs(90);
/// What is said at each try is only logged for those who look for more.
const DETAILED: &str = "log: {format: json, level: debug}";

/// How often a line with these words was logged at this level.
fn count(operator: &Operator, level: &str, words: &[&str]) -> usize {
    let is_it =
        |line: &serde_json::Value| line["level"] == level && words.iter().all(|word| line.to_string().contains(word));
    operator.log().iter().filter(|line| is_it(line)).count()
}

fn await_held(operator: &Operator) {
    within(DEADLINE, "the metric to say that the sink holds", || {
        (operator.metric("ratchet_sink_held", &[]) > 0.0).then_some(())
    });
}

#[test]
fn missing_table_is_said_once_and_holds_the_work() {
    const PARTITIONS: i32 = 4;
    let mut shop = Shop::new("no-table", PARTITIONS);
    shop.job.worker.push(DETAILED.to_owned());
    shop.database.run("alter table applied rename to elsewhere");
    let all = |ids: std::ops::Range<usize>| {
        (0..PARTITIONS).flat_map(move |partition| ids.clone().map(move |id| thing(partition, &format!("o-{id}"), 1)))
    };
    shop.job.send(all(0..20));
    let mut operator = Operator::start(&shop.job, "a");
    let words = ["transaction aborted", "\\\"applied\\\" does not exist (42P01)"];
    operator.await_error(&[words[0], "applied", "trying again"]);
    within(DEADLINE, "more tries", || (count(&operator, "DEBUG", &words) >= 8).then_some(()));
    await_held(&operator);
    within(DEADLINE, "the lag to grow", || (operator.metric("ratchet_lag_seconds", &[]) > 1.0).then_some(()));
    // A claim in between is no end of it.
    let lowest = (0..20).map(|_| operator.metric("ratchet_sink_held", &[]) as i64).min();
    assert_eq!(lowest, Some(1));
    assert_eq!((count(&operator, "ERROR", &words), count(&operator, "INFO", &["works again"])), (1, 0));
    shop.database.run("alter table elsewhere rename to applied");
    let found = shop.check(RECOVERY);
    assert_eq!(found.count(Fate::Forwarded), 20 * PARTITIONS as usize);
    operator.await_line(&["\"INFO\"", "the sink works again"], DEADLINE);
    assert_eq!(operator.metric("ratchet_sink_held", &[]), 0.0);
    // What comes back is said again.
    shop.database.run("alter table applied rename to elsewhere");
    shop.job.send(all(20..30));
    within(DEADLINE, "the second time", || (count(&operator, "ERROR", &words) == 2).then_some(()));
    shop.database.run("alter table elsewhere rename to applied");
    shop.check(RECOVERY);
    operator.stop();
}

#[test]
fn database_that_is_not_there_from_the_start_is_said() {
    let shop = Shop::new("unreached", 2);
    shop.reach_by(1);
    shop.job.send((0..20).map(|id| thing(0, &format!("o-{id}"), 1)));
    let mut operator = Operator::start(&shop.job, "a");
    let words = ["not claimed yet", "cannot connect"];
    operator.await_line(&["\"WARN\"", words[0], words[1]], DEADLINE);
    await_held(&operator);
    assert_eq!(count(&operator, "WARN", &words), 1);
    operator.stop();
    shop.reach(&shop.database.url);
    let mut operator = Operator::start(&shop.job, "a");
    shop.check(DEADLINE);
    operator.stop();
}

/// A server with everything below this folder of it on a disk that can be filled.
fn on_a_disk(name: &str, folder: &str) -> (Server, Disk) {
    let mut disk = None;
    let server = Server::start_with(name, &["autovacuum=off"], |home| {
        let home = home.canonicalize().expect("it exists");
        disk.insert(Disk::of(&home, &home.join(folder))).variables()
    });
    (server, disk.expect("it was made"))
}

#[test]
fn full_disk_of_the_database_holds_the_work_and_loses_none() {
    let (server, disk) = on_a_disk("full", "data/base");
    let shop = Shop::on("full-disk", 2, &server, server.port.number());
    let feed = Feed::start(&shop.job, Load::new(Random::seeded("full disk"), 2, 300), 500);
    let mut operator = Operator::start(&shop.job, "a");
    shop.job.await_progress(&[0; 2], DEADLINE);
    disk.fill(true);
    operator.await_line(&["\"WARN\"", "transaction aborted", "No space left on device", "53100"], DEADLINE);
    await_held(&operator);
    std::thread::sleep(Duration::from_secs(3));
    let of_disk =
        |line: &serde_json::Value| line["reason"].as_str().filter(|said| said.contains("53100")).map(str::to_owned);
    let said: Vec<String> = operator.log().iter().filter_map(of_disk).collect();
    let once: BTreeSet<&String> = said.iter().collect();
    assert_eq!(once.len(), said.len(), "once for each file that cannot grow: {said:?}");
    assert_eq!(count(&operator, "ERROR", &[]), 0);
    let before = shop.job.committed();
    disk.fill(false);
    shop.job.await_progress(&before, RECOVERY);
    operator.await_line(&["\"INFO\"", "the sink works again"], DEADLINE);
    feed.stop();
    shop.check(RECOVERY).assert_each_fate();
    assert_eq!(operator.metric("ratchet_sink_held", &[]), 0.0);
    operator.stop();
}

/// Where its log has no room, the server goes down and does not come back by itself.
#[test]
fn server_that_goes_down_for_want_of_room_loses_nothing() {
    let (mut server, disk) = on_a_disk("full-log", "data");
    let shop = Shop::on("full-log", 2, &server, server.port.number());
    let feed = Feed::start(&shop.job, Load::new(Random::seeded("full log"), 2, 300), 300);
    let mut operator = Operator::start(&shop.job, "a");
    shop.job.await_progress(&[0; 2], DEADLINE);
    let admin = shop.database.session();
    disk.fill(true);
    within(DEADLINE, "the server to go down", || {
        let run = |sql| admin.wait(admin.client().batch_execute(sql));
        // What they say does not matter.
        let _ = (run("select pg_switch_wal()"), run("checkpoint"));
        admin.client().is_closed().then_some(())
    });
    // Said where it is met first: at a commit, or at a claim.
    operator.await_line(&["\"WARN\"", "cannot connect"], DEADLINE);
    await_held(&operator);
    disk.fill(false);
    let before = shop.job.committed();
    server.kill_and_restart();
    shop.job.await_progress(&before, RECOVERY);
    feed.stop();
    shop.check(RECOVERY).assert_each_fate();
    operator.stop();
}

/// Another program that changes the same rows all the time, several in each transaction, at REPEATABLE READ.
struct Rival {
    stop: Arc<AtomicBool>,
    /// How often it had to give way.
    failures: Arc<AtomicU64>,
    /// Returns how many rows it has changed.
    thread: Option<JoinHandle<u64>>,
}

impl Rival {
    fn start(url: &str) -> Rival {
        let (stop, failures) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, failed, url) = (Arc::clone(&stop), Arc::clone(&failures), url.to_owned());
        let thread = spawn(move || {
            let admin = Admin::connect(&url);
            // It never finds a deadlock itself: the other one has to give way.
            admin.run("set deadlock_timeout = '60s'");
            let mut changed = 0;
            while !stopped.load(Ordering::Relaxed) {
                admin.run("begin isolation level repeatable read");
                let ids = admin.rows("select id from latest order by random() limit 4");
                let update = |id: &String| {
                    let sql =
                        format!("update latest set touched = touched + 1 where id = '{id}'; select pg_sleep(0.005)");
                    admin.wait(admin.client().batch_execute(&sql))
                };
                let done = ids.iter().try_for_each(update);
                match done.and_then(|()| admin.wait(admin.client().batch_execute("select 1; commit"))) {
                    Ok(()) => changed += ids.len() as u64,
                    Err(error) => {
                        assert_eq!(error.code().map(|code| code.code()), Some("40001"), "{error}");
                        failed.fetch_add(1, Ordering::Relaxed);
                        admin.run("rollback");
                    }
                }
            }
            changed
        });
        Rival { stop, failures, thread: Some(thread) }
    }

    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("it fails by conflicts alone")
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn writers_in_conflict_lose_nothing_of_each_other() {
    let shop = Shop::new("conflicts", 2);
    shop.database.run(&format!(
        "alter table latest add touched int not null default 0;
         alter database {} set default_transaction_isolation = 'serializable'",
        shop.database.name
    ));
    let mut load = Load::new(Random::seeded("conflicts"), 2, 12);
    // Ten of them are refused, but for those that are duplicates or stale.
    shop.job.send(load.records(1_000));
    let mut operator = Operator::start(&shop.job, "a");
    shop.check(DEADLINE);
    let rival = Rival::start(&shop.database.url);
    let feed = Feed::start(&shop.job, load, 200);
    // The one fails by a row that has changed since its snapshot, the other one by a deadlock.
    operator.await_line(&["transaction aborted", "40P01"], DEADLINE);
    within(DEADLINE, "serialization failures", || (rival.failures.load(Ordering::Relaxed) >= 10).then_some(()));
    let changed = rival.stop();
    feed.stop();
    shop.check(RECOVERY).assert_each_fate();
    assert!(changed > 0, "both get on");
    assert_eq!(shop.database.value("select sum(touched) from latest"), changed.to_string());
    assert_eq!(count(&operator, "WARN", &["40001"]), 0, "at READ COMMITTED there is none");
    operator.stop();
}
