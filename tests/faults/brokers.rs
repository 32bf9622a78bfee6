//! Goal: with topics on three brokers, one of them may die, freeze or restart at any time: leaders and coordinators
//! move, the work continues meanwhile, and nothing is lost or repeated.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::load::thing;
use crate::replicated;
use crate::report::Report;
use crate::stage::{BROKER_RECOVERY_MAX, PARTITIONS, Stage};
use crate::three::{Three, lock};
use crate::until::{DEADLINE, within};

const ROUNDS: usize = 4;
/// How long the load continues with a broker away.
const AWAY: Duration = Duration::from_secs(3);
/// The broker that is the controller.
const CONTROLLER: usize = 0;

/// Takes the second and the third broker away in turn, and brings them back. Meanwhile all partitions have to make
/// progress, led by others.
fn in_turns(report: &mut Report, theme: &str, (leave, come_back): Way) {
    let mut three = lock();
    let mut stage = Stage::set(three.job(theme), 2);
    for round in 0..ROUNDS {
        replicated::await_in_sync(&stage.job);
        let leaders = stage.job.kafka.leaders(&stage.job.output);
        let which = 1 + round % 2;
        let since = Instant::now();
        leave(&mut three, which);
        report.injected(1);
        stage.recover(report, since, BROKER_RECOVERY_MAX);
        let others = within(BROKER_RECOVERY_MAX, "others to lead the departed broker's partitions", || {
            let leaders = stage.job.kafka.leaders(&stage.job.output);
            let are_others = leaders.iter().all(|leader| *leader > 0 && *leader != number(which));
            (leaders.len() == PARTITIONS as usize && are_others).then_some(leaders)
        });
        println!("{theme}: leaders of the output {leaders:?}, then {others:?}");
        sleep(AWAY);
        come_back(&mut three, which);
        stage.await_beyond(&stage.committed(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    replicated::await_in_sync(&stage.job);
    stage.finish(report);
}

/// How a broker leaves, and how it comes back.
type Way = (fn(&mut Three, usize), fn(&mut Three, usize));

const KILLED: Way = (|three, n| three.brokers[n].kill(), |three, n| three.brokers[n].restart());
const FROZEN: Way = (|three, n| three.brokers[n].freeze(), |three, n| three.brokers[n].thaw());
/// Cleanly: it hands over its leaderships before it leaves, and gets them back.
const STOPPED: Way = (|three, n| three.brokers[n].stop(), |three, n| three.brokers[n].restart());
const WAYS: [Way; 3] = [KILLED, FROZEN, STOPPED];

/// A broker's id in Kafka.
fn number(which: usize) -> i32 {
    1 + which as i32
}

pub fn killed(report: &mut Report) {
    in_turns(report, "broker-kill", KILLED);
}

pub fn frozen(report: &mut Report) {
    in_turns(report, "broker-freeze", FROZEN);
}

pub fn restarted(report: &mut Report) {
    in_turns(report, "broker-restart", STOPPED);
}

/// Frozen for less than a broker's session: no leader moves, and the partitions it leads stand still.
pub fn stalled(report: &mut Report) {
    let three = lock();
    let mut stage = Stage::set(three.job("broker-stall"), 2);
    for round in 0..2 * ROUNDS {
        replicated::await_in_sync(&stage.job);
        let which = round % three.brokers.len();
        three.brokers[which].freeze();
        report.injected(1);
        sleep(Duration::from_millis(1500));
        three.brokers[which].thaw();
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    stage.finish(report);
}

/// Without the controller no leader can move: what the first broker leads waits for it.
pub fn controller_killed(report: &mut Report) {
    let mut three = lock();
    let mut stage = Stage::set(three.job("controller-kill"), 2);
    for _ in 0..ROUNDS / 2 {
        replicated::await_in_sync(&stage.job);
        three.brokers[CONTROLLER].kill();
        report.injected(1);
        sleep(AWAY);
        three.brokers[CONTROLLER].restart();
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    replicated::await_in_sync(&stage.job);
    stage.finish(report);
}

/// A broker, in each way, and an instance at once: partitions to take over may have no leader at first.
pub fn leaving_with_an_instance(report: &mut Report) {
    let mut three = lock();
    let mut stage = Stage::set(three.job("both-killed"), 2);
    for round in 0..2 * WAYS.len() {
        replicated::await_in_sync(&stage.job);
        let (broker, instance) = (1 + round % 2, round % 2);
        let (leave, come_back) = WAYS[round % WAYS.len()];
        let since = Instant::now();
        stage.kill(instance, false);
        leave(&mut three, broker);
        report.injected(1);
        stage.restart(instance);
        stage.recover(report, since, BROKER_RECOVERY_MAX);
        come_back(&mut three, broker);
    }
    replicated::await_in_sync(&stage.job);
    stage.finish(report);
}

/// While stores are rebuilt from the changelog, a broker that leads part of it leaves, in each way.
pub fn leaving_during_a_restore(report: &mut Report) {
    // So that there is something to restore.
    const THINGS: usize = 20_000;
    let mut three = lock();
    let job = three.job("restore-and-kill");
    job.send((0..THINGS).flat_map(|nth| (0..PARTITIONS).map(move |p| thing(p, &format!("kept-{nth}"), 1))));
    let mut stage = Stage::set(job, 1);
    stage.job.await_progress(&[THINGS as i64; PARTITIONS as usize], DEADLINE);
    for (leave, come_back) in WAYS.into_iter().cycle().take(2 * WAYS.len()) {
        replicated::await_in_sync(&stage.job);
        let changelog = stage.job.changelog();
        // Any but the controller: without that, no other could lead.
        let leader = within(DEADLINE, "the changelog to be led by a broker other than the controller", || {
            stage.job.kafka.leaders(&changelog).into_iter().find(|leader| *leader > number(CONTROLLER))
        });
        let which = (1..three.brokers.len()).find(|which| number(*which) == leader).expect("one of the three");
        stage.kill(0, true);
        stage.restart(0);
        stage.operators[0].await_line(&["restoring the store from the changelog"], DEADLINE);
        let since = Instant::now();
        leave(&mut three, which);
        report.injected(1);
        stage.recover(report, since, BROKER_RECOVERY_MAX);
        stage.operators[0].assert_running();
        come_back(&mut three, which);
    }
    replicated::await_in_sync(&stage.job);
    stage.finish(report);
}
