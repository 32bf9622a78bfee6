//! Goal: whenever an instance or the database dies, freezes or loses an answer, each effect happens once.

use std::thread::sleep;
use std::time::Duration;

use crate::database::{Admin, Server};
use crate::load::{Feed, Load, Random};
use crate::operator::{Operator, Options};
use crate::postgres::proxy::Proxy;
use crate::sinks::shop::Shop;
use crate::until::{DEADLINE, within};

/// A kill is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(90);

#[test]
fn two_instances_and_their_database_die_again_and_again() {
    let mut random = Random::seeded("sink kills");
    let mut server = Server::start("instances", &[]);
    let proxy = Proxy::start(server.port.number());
    let shop = Shop::on("deaths", 4, &server, proxy.port);
    let feed = Feed::start(&shop.job, Load::new(random.clone(), 4, 2000), 1000);
    let labels = ["a", "b"];
    let mut operators = labels.map(|label| Operator::start(&shop.job, label));
    shop.job.await_progress(&[0; 4], DEADLINE);
    let mut lost = 0;
    for round in 0..6 {
        let before = shop.job.committed();
        match round {
            1 | 4 => server.kill_and_restart(),
            _ => {
                let victim = random.below(2) as usize;
                // A lost answer just before: the heir finds the row ahead.
                proxy.lose_the_answer_to(b"; commit");
                within(DEADLINE, "an answer to be lost", || proxy.has_lost().then_some(()));
                lost += 1;
                if random.once_in(2) {
                    operators[victim].kill_and_wipe();
                } else {
                    operators[victim].kill();
                }
                operators[victim] = Operator::start(&shop.job, labels[victim]);
            }
        }
        shop.job.await_progress(&before, RECOVERY);
        sleep(random.duration(Duration::ZERO, Duration::from_millis(800)));
    }
    let written = feed.stop();
    let found = shop.check(RECOVERY);
    println!("{lost} answers lost, {written} records: {found:?}");
    found.assert_each_fate();
    operators.iter_mut().for_each(Operator::stop);
}

/// An operator dies or freezes at a point of its commit, under load.
fn at(point: &str, frozen: bool) {
    let shop = Shop::new(if frozen { "frozen" } else { "dead" }, 2);
    let mut load = Load::new(Random::seeded(point), 2, 300);
    shop.job.send(load.records(1000));
    let feed = Feed::start(&shop.job, load, 300);
    let crash_at = if frozen { format!("{point}:freeze") } else { point.to_owned() };
    let options = Options { crash_at: Some(&crash_at), ..Options::default() };
    let mut first = Operator::start_with(&shop.job, "a", &options);
    if frozen {
        first.await_frozen()
    } else {
        first.await_crash()
    }
    let before = shop.job.committed();
    let mut second = Operator::start(&shop.job, "b");
    shop.job.await_progress(&before, RECOVERY);
    if frozen {
        first.thaw();
        sleep(Duration::from_secs(2));
        first.assert_running();
    }
    feed.stop();
    shop.check(RECOVERY);
    second.stop();
    if frozen {
        first.stop();
    }
}

#[test]
fn instance_dies_between_the_two_commits() {
    at("after_sink:3", false);
}

#[test]
fn instance_freezes_between_the_two_commits_and_wakes_up_after_its_partitions_have_moved() {
    at("after_sink:3", true);
}

#[test]
fn instance_dies_before_its_store_is_written() {
    at("after_commit:3", false);
}

#[test]
fn instance_dies_when_everything_is_sent() {
    at("after_sends:3", false);
}

#[test]
fn older_copy_of_the_database_is_noticed() {
    let mut server = Server::start("backup", &[]);
    let shop = Shop::on("backup", 1, &server, server.port.number());
    let mut load = Load::new(Random::seeded("backup"), 1, 100);
    shop.job.send(load.records(300));
    let mut operator = Operator::start(&shop.job, "a");
    shop.check(DEADLINE);
    server.keep_a_copy();
    shop.job.send(load.records(300));
    shop.check(DEADLINE);
    server.put_back_the_copy();
    // The next transaction finds its row changed.
    shop.job.send(load.records(10));
    operator.await_error(&["sink_behind", "older"]);
    operator.kill();
    // A start finds the same, and does nothing.
    let count = || Admin::connect(&shop.database.url).rows("select count(*) from applied");
    let rows = count();
    let operator = Operator::start(&shop.job, "a");
    operator.await_error(&["sink_behind"]);
    assert_eq!(count(), rows);
}

/// Each row is looked at once a minute.
const LOOKED_AT_MAX: Duration = Duration::from_secs(80);

#[test]
fn rows_are_looked_at_while_nothing_happens() {
    let mut server = Server::start("idle", &[]);
    let older = Shop::on("idle-older", 1, &server, server.port.number());
    let changed = Shop::new("idle-changed", 1);
    let mut load = Load::new(Random::seeded("idle"), 1, 100);
    let shops = [&older, &changed];
    shops.iter().for_each(|shop| shop.job.send(load.records(300)));
    let [first, mut second] = shops.map(|shop| Operator::start(&shop.job, "a"));
    shops.iter().for_each(|shop| drop(shop.check(DEADLINE)));
    server.keep_a_copy();
    older.job.send(load.records(300));
    older.check(DEADLINE);
    server.put_back_the_copy();
    // Somebody claims the other one's row, and is gone.
    let row = "update ratchet.position set epoch = epoch + 1 returning epoch + 1";
    let claimed = changed.database.value(row);
    let ends = changed.job.committed();
    // Nothing is sent.
    first.await_line(&["\"ERROR\"", "sink_behind", "older"], LOOKED_AT_MAX);
    second.await_line(&["row has changed without this task"], LOOKED_AT_MAX);
    within(DEADLINE, "the row to be claimed again", || {
        (changed.database.value("select epoch from ratchet.position") == claimed).then_some(())
    });
    assert_eq!(changed.job.committed(), ends);
    changed.job.send(load.records(100));
    changed.check(DEADLINE);
    second.stop();
}
