//! Goal: other clients of the same Kafka, instances of the same job that come and go and strangers that take what is
//! not theirs, delay the work for a bounded time and change nothing in the output.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::Fresh;
use crate::job::{Job, TRANSACTION_TIMEOUT};
use crate::report::Report;
use crate::stage::{PARTITIONS, RECOVERY_MAX, Stage};
use crate::until::{DEADLINE, within};

/// An instance comes or goes every 1.5 seconds, cleanly or not.
pub fn rebalance_storm(report: &mut Report) {
    const ROUNDS: usize = 14;
    const PAUSE: Duration = Duration::from_millis(1500);
    let mut stage = Stage::set(Job::new("storm", PARTITIONS), 2);
    stage.add();
    stage.add();
    for round in 0..ROUNDS {
        sleep(PAUSE);
        let guest = 2 + round % 2;
        if round % 4 < 2 {
            if round % 3 == 0 {
                stage.kill(guest, false);
            } else {
                stage.operators[guest].stop();
            }
        } else {
            stage.restart(guest);
        }
        report.injected(1);
    }
    let since = Instant::now();
    stage.recover(report, since, RECOVERY_MAX);
    // Restart those that have gone.
    for guest in [2, 3] {
        if !stage.operators[guest].is_running() {
            stage.restart(guest);
        }
    }
    stage.finish(report);
}

/// Another client initialises the transactional id of an owner at work; every other time it also writes under that id,
/// and dies.
pub fn stolen_ids(report: &mut Report) {
    let mut stage = Stage::set(Job::new("stolen", PARTITIONS), 2);
    for round in 0..report.rounds(6) {
        let victim = round % PARTITIONS as usize;
        let named = within(DEADLINE, "an owner to be named", || stage.job.owners()[victim].clone());
        let since = Instant::now();
        let thief = stage.job.kafka.transaction(&named, TRANSACTION_TIMEOUT);
        report.injected(1);
        if round % 2 == 0 {
            thief.abort();
        } else {
            // The robbed owner ends any transaction under the id that it gives up, so the thief may be too late.
            let record = Fresh::new(victim as i32, "stolen", "{\"id\":\"stolen\",\"version\":1}");
            thief.send_if_not_fenced(&stage.job.output, &record);
            thief.die();
        }
        stage.recover(report, since, RECOVERY_MAX);
        within(DEADLINE, "the owner to continue under another id", || {
            stage.job.owners()[victim].as_ref().is_some_and(|owner| *owner != named).then_some(())
        });
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    stage.finish(report);
}

/// A stranger's transaction is open on the changelog while stores are rebuilt from it; the restore waits for its end.
pub fn strangers_transaction(report: &mut Report) {
    const ROUNDS: usize = 4;
    const OPEN: Duration = Duration::from_secs(3);
    let mut stage = Stage::set(Job::new("stranger", PARTITIONS), 1);
    for round in 0..ROUNDS {
        stage.kill(0, true);
        let stranger = stage.job.kafka.transaction(&format!("{}-stranger-{round}", stage.job.name), DEADLINE);
        stranger.send(&stage.job.changelog(), (0..PARTITIONS).map(foreign));
        report.injected(1);
        let before = stage.committed();
        stage.restart(0);
        within(DEADLINE, "the tasks to be settling", || {
            (stage.operators[0].metric("ratchet_tasks", &["state=\"settling\""]) > 0.0).then_some(())
        });
        sleep(OPEN);
        assert_eq!(stage.committed(), before, "it continued before the changelog's end could be known");
        stranger.abort();
        stage.recover(report, Instant::now(), RECOVERY_MAX);
    }
    stage.finish(report);
}

/// An entry that no operator wrote.
fn foreign(partition: i32) -> Fresh {
    let key = [b"\x10\x04".as_slice(), b"\x05", b"never"].concat();
    Fresh { partition, key: Some(key), value: Some(vec![1; 14]), ..Fresh::default() }
}
