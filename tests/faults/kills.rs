//! Goal: instances that are killed, wherever they are, or frozen and woken up too late change nothing in the output,
//! and their work continues.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::job::{Job, SESSION_TIMEOUT, TRANSACTION_TIMEOUT};
use crate::operator::Options;
use crate::report::Report;
use crate::stage::{PARTITIONS, RECOVERY_MAX, Stage};
use crate::until::{DEADLINE, within};

/// One of two instances is killed at any time, every other time within a transaction; now and then its disk is lost,
/// too.
pub fn at_random(report: &mut Report) {
    const ROUNDS: u64 = 12;
    let mut stage = Stage::set(Job::new("sigkill", PARTITIONS), 2);
    for round in 0..ROUNDS {
        let pause = stage.random.duration(Duration::ZERO, Duration::from_millis(1200));
        sleep(pause);
        let victim = stage.random.below(2) as usize;
        if round % 2 == 0 {
            stage.operators[victim].freeze_in_transaction(&stage.job);
        }
        stage.kill(victim, round % 4 == 3);
        let since = Instant::now();
        report.injected(1);
        stage.restart(victim);
        stage.recover(report, since, RECOVERY_MAX);
    }
    stage.finish(report);
}

/// One instance is killed at a point, at a later passing each round; if `wiped`, on an empty disk each time, so that it
/// rebuilds its store.
fn at_point(report: &mut Report, theme: &str, point: &str, wiped: bool) {
    let mut stage = Stage::set(Job::new(theme, PARTITIONS), 1);
    for round in 1..=report.rounds(5) {
        stage.kill(0, wiped);
        let at = if wiped { format!("{point}:1") } else { format!("{point}:{round}") };
        stage.restart_with(0, &Options { crash_at: Some(&at), ..Options::default() });
        stage.operators[0].await_crash();
        let since = Instant::now();
        report.injected(1);
        stage.restart(0);
        stage.recover(report, since, RECOVERY_MAX);
    }
    stage.finish(report);
}

pub fn after_the_sends(report: &mut Report) {
    at_point(report, "after-sends", "after_sends", false);
}

pub fn after_the_commit(report: &mut Report) {
    at_point(report, "after-commit", "after_commit", false);
}

pub fn during_the_stores_write(report: &mut Report) {
    at_point(report, "store-write", "during_store_write", false);
}

pub fn during_the_restore(report: &mut Report) {
    at_point(report, "restore", "during_restore", true);
}

/// One of two instances freezes within a transaction until the other has its partitions, and wakes up.
pub fn zombies(report: &mut Report) {
    const ROUNDS: usize = 4;
    let mut stage = Stage::set(Job::new("zombies", PARTITIONS), 2);
    for round in 0..ROUNDS {
        await_owners(&stage, 2);
        let zombie = round % 2;
        stage.operators[zombie].freeze_in_transaction(&stage.job);
        let since = Instant::now();
        report.injected(1);
        stage.recover(report, since, RECOVERY_MAX);
        // Not at once: the zombie's knowledge has to be well out of date.
        sleep(SESSION_TIMEOUT);
        stage.operators[zombie].thaw();
        await_owners(&stage, 2);
        stage.operators[zombie].assert_running();
    }
    stage.finish(report);
}

/// The broker aborts a transaction that is open for too long while its owner is still a member of the group.
pub fn transaction_timeouts(report: &mut Report) {
    const ROUNDS: usize = 4;
    let mut job = Job::new("timeouts", PARTITIONS);
    job.properties.insert("consumer.session.timeout.ms".to_owned(), "45000".to_owned());
    let mut stage = Stage::set(job, 1);
    for _ in 0..ROUNDS {
        stage.operators[0].freeze_in_transaction(&stage.job);
        within(TRANSACTION_TIMEOUT * 3, "the broker to end the transaction", || {
            (!stage.job.has_stuck_transaction()).then_some(())
        });
        report.injected(1);
        stage.operators[0].thaw();
        stage.recover(report, Instant::now(), RECOVERY_MAX);
        stage.operators[0].assert_running();
    }
    stage.finish(report);
}

/// Waits until this many instances share the partitions.
fn await_owners(stage: &Stage, count: usize) {
    within(DEADLINE, &format!("{count} instances to share the partitions"), || {
        let owners: Vec<String> = stage.job.owners().into_iter().collect::<Option<_>>()?;
        // Owners are transactional ids: up to the last dot they are the instance's.
        let instances: BTreeSet<&str> = owners.iter().filter_map(|owner| Some(owner.rsplit_once('.')?.0)).collect();
        (instances.len() == count).then_some(())
    });
}
