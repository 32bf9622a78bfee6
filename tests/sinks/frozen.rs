//! Goal: an instance that freezes within the database's transaction holds its heir up, and does nothing twice when it
//! wakes up: after the server has given it up, before that, or with its commit under way.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::Fresh;
use crate::load::{Load, Random};
use crate::operator::Operator;
use crate::sinks::shop::{Shop, is_refused};
use crate::until::{DEADLINE, within};

/// How long the server keeps a transaction of a session that is silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// With its row locked an instance cannot know that it may commit, and so does not.
const ROW: &str = "select from ratchet.position where partition = 0 for update";
/// With a table locked it has sent its commit.
const TABLE: &str = "lock table applied in share mode";
/// Whether a session has waited for a lock long enough for the instance to have sent everything.
const IS_LOCKED: &str = "select count(*) = 1 from pg_stat_activity where datname = current_database() \
    and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '500 ms'";
/// Whether a transaction is open, and the server waits for what comes next.
const IS_OPEN: &str =
    "select count(*) = 1 from pg_stat_activity where datname = current_database() and state = 'idle in transaction'";

/// An instance that is frozen, with its transaction open in the database, and its heir.
struct Frozen {
    shop: Shop,
    first: Operator,
    heir: Operator,
    /// What the group had committed of partition 0 when it froze.
    before: i64,
}

impl Frozen {
    /// Freezes the owner of partition 0 while it waits for what `lock` has locked, then unlocks that.
    fn at(theme: &str, lock: &str) -> Frozen {
        let mut shop = Shop::new(theme, 2);
        shop.job.worker.push("log: {format: json, level: debug}".to_owned());
        let mut load = Load::new(Random::seeded(theme), 2, 200);
        shop.job.send(load.records(400));
        // Both are at work before: the server's patience with the frozen one is short.
        let mut both = vec![Operator::start(&shop.job, "a"), Operator::start(&shop.job, "b")];
        within(DEADLINE, "each to have a partition", || {
            (both[0].partitions().len() == 1 && both[1].partitions().len() == 1).then_some(())
        });
        shop.check(DEADLINE);
        let owner = both.iter().position(|operator| operator.partitions().ends_with(&[0])).expect("one of them has it");
        let first = both.remove(owner);
        // It has its statements prepared: to prepare them waits for a lock of the table, too.
        shop.job.send(load.records(100));
        shop.check(DEADLINE);
        let holder = shop.database.session();
        holder.run(&format!("begin; {lock}"));
        let before = shop.job.committed()[0];
        // None that the database refuses: that would end the transaction, and unlock what it has locked.
        let are_good = |record: &Fresh| record.partition == 0 && !is_refused(&record.value);
        shop.job.send(load.records(400).into_iter().filter(are_good));
        await_true(&shop, IS_LOCKED);
        first.freeze();
        holder.run("rollback");
        Frozen { shop, first, heir: both.remove(0), before }
    }

    /// Waits until the heir has tried in vain to claim the row.
    fn await_claim_in_vain(&self) {
        self.heir.await_line(&["the sink's row is not claimed yet", "55P03"], DEADLINE);
        assert_eq!(self.shop.job.committed()[0], self.before);
    }

    fn await_progress(&self) {
        within(DEADLINE, "the heir to go on", || (self.shop.job.committed()[0] > self.before).then_some(()));
    }

    /// It wakes up and goes on, and the tables are as they should be.
    fn end(mut self) {
        self.first.thaw();
        self.shop.check(DEADLINE);
        sleep(Duration::from_secs(2));
        self.first.assert_running();
        self.heir.assert_running();
        self.shop.check(DEADLINE).assert_each_fate();
        self.first.stop();
        self.heir.stop();
    }
}

#[track_caller]
fn await_true(shop: &Shop, sql: &str) {
    within(DEADLINE, sql, || (shop.database.value(sql) == "t").then_some(()));
}

#[test]
fn zombie_that_the_server_has_given_up_writes_nothing() {
    let frozen = Frozen::at("given-up", ROW);
    await_true(&frozen.shop, IS_OPEN);
    let since = Instant::now();
    frozen.await_claim_in_vain();
    frozen.await_progress();
    assert!(since.elapsed() > SILENCE_MAX - Duration::from_secs(2), "the heir did not wait: {:?}", since.elapsed());
    frozen.shop.check(DEADLINE);
    frozen.end();
}

#[test]
fn zombie_that_wakes_up_before_its_heir_has_the_row_commits_once() {
    let frozen = Frozen::at("wakes-up", ROW);
    await_true(&frozen.shop, IS_OPEN);
    frozen.await_claim_in_vain();
    assert_eq!(frozen.shop.database.value(IS_OPEN), "t", "it wakes up too late: the server has given it up");
    frozen.end();
}

#[test]
fn zombie_whose_commit_is_under_way_commits_once() {
    let frozen = Frozen::at("under-way", TABLE);
    let sql = format!("select next_offset > {} from ratchet.position where partition = 0", frozen.before);
    await_true(&frozen.shop, &sql);
    frozen.heir.await_line(&["the sink has committed a transaction that Kafka has not"], DEADLINE);
    frozen.await_progress();
    frozen.end();
}
