//! Goal: an instance that freezes within a step's transaction, and has lost its partition when it wakes up, does nothing
//! twice: the step's key is in the transaction of the one that has done it.

use std::time::{Duration, Instant};

use crate::database::Database;
use crate::handlers::work::{RECOVERY, Work};
use crate::until::{DEADLINE, within};

/// How long the server keeps a transaction of a session that is silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Whether a session waits for a lock.
const IS_LOCKED: &str = "select count(*) > 0 from pg_stat_activity where datname = current_database() \
    and wait_event_type = 'Lock' and query like 'update account%'";
/// Whether a transaction is open, and the server waits for what comes next.
const IS_OPEN: &str = "select count(*) = 1 from pg_stat_activity where datname = current_database() \
    and state = 'idle in transaction' and query like 'update account%'";
const BALANCES: &str = "select (select sum(balance) from account), (select count(*) from outbox), \
    (select count(*) from ratchet.step where result is not null)";

/// Transfers of which one freezes within its transaction, and the first instance with it.
fn frozen(database: &Database) -> (Work, crate::operator::Operator) {
    database.run("create table account (id text primary key, balance bigint not null)");
    database.run(
        "create table outbox (id uuid primary key, aggregatetype text, aggregateid text, type text, payload text)",
    );
    database.run("insert into account values ('a', 0), ('b', 0)");
    let work = Work::of("outbox", &["on_in_doubt: dead_letter"], vec![("DATABASE_URL", database.url.clone())]);
    let first = work.start("a", None);
    work.send([transfer(0, "b")]);
    work.ends();
    let holder = database.session();
    holder.run("begin; select from account where id = 'a' for update");
    work.send([transfer(2, "a")]);
    within(DEADLINE, IS_LOCKED, || (database.value(IS_LOCKED) == "t").then_some(()));
    first.freeze();
    holder.run("rollback");
    within(DEADLINE, IS_OPEN, || (database.value(IS_OPEN) == "t").then_some(()));
    (work, first)
}

fn transfer(id: usize, account: &str) -> (usize, String) {
    (id, format!("{{\"id\":\"o-{id}\",\"account\":\"{account}\",\"amount\":5}}"))
}

#[track_caller]
fn assert_transferred_once(database: &Database, work: &Work) {
    let ends = work.ends();
    assert_eq!(database.rows(BALANCES), ["10|2|2"], "{ends:?}");
    for id in ["o-0", "o-2"] {
        assert_eq!((ends[id].results.len(), ends[id].letters.len()), (1, 0), "{id}: {ends:?}");
    }
}

/// The server gives the frozen one's transaction up, the heir does the step, and the frozen one is refused.
#[test]
fn frozen_owner_is_refused_once_another_has_gone_on() {
    let database = Database::new();
    let (work, mut first) = frozen(&database);
    let since = Instant::now();
    let mut heir = work.start("b", None);
    assert_transferred_once(&database, &work);
    // It had to wait for the row of the step's key, which the frozen one's transaction has written.
    assert!(since.elapsed() > SILENCE_MAX - Duration::from_secs(2), "the heir did not wait: {:?}", since.elapsed());
    first.thaw();
    within(RECOVERY, "it to notice what it has lost", || {
        (first.metric("ratchet_rebalances_total", &[]) >= 2.0).then_some(())
    });
    assert_transferred_once(&database, &work);
    first.assert_running();
    // Both go on.
    work.send([(4, "{\"id\":\"o-4\",\"account\":\"b\",\"amount\":0}".to_owned())]);
    assert_eq!(work.ends()["o-4"].results.len(), 1);
    assert_eq!(database.rows(BALANCES), ["10|3|3"]);
    first.stop();
    heir.stop();
}

/// The frozen one wakes up while its transaction is still open: it may commit that, but the step is done once, and the heir
/// is told what it came to.
#[test]
fn frozen_owner_that_wakes_up_in_time_has_done_the_step_for_its_heir() {
    let database = Database::new();
    let (work, mut first) = frozen(&database);
    let mut heir = work.start("b", None);
    let is_waiting = "select count(*) = 1 from pg_stat_activity where datname = current_database() \
        and wait_event_type = 'Lock' and query like 'insert into \"ratchet\".step%'";
    within(SILENCE_MAX, is_waiting, || (database.value(is_waiting) == "t").then_some(()));
    assert_eq!(database.value(IS_OPEN), "t", "it wakes up too late: the server has given it up");
    first.thaw();
    assert_transferred_once(&database, &work);
    first.assert_running();
    first.stop();
    heir.stop();
}
