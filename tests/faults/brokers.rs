//! Goal: with topics on three brokers, one of them may die, freeze or restart at any time: leaders and coordinators
//! move, the work goes on while it is away, and nothing is lost or repeated.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::report::Report;
use crate::stage::{BROKER_RECOVERY_MAX, Stage};
use crate::three::{Three, lock};

const ROUNDS: usize = 4;
/// For how long the load goes on with a broker away.
const AWAY: Duration = Duration::from_secs(3);
/// The broker that is the controller.
const CONTROLLER: usize = 0;

/// Takes the second and the third broker away in turns, and brings them back. While one is away, all partitions have
/// to go on.
fn in_turns(report: &mut Report, theme: &str, leave: fn(&mut Three, usize), come_back: fn(&mut Three, usize)) {
    let mut three = lock();
    let mut stage = Stage::set(three.job(theme), 2);
    for round in 0..ROUNDS {
        three.await_in_sync(&stage.job);
        let leaders = stage.job.kafka.leaders(&stage.job.output);
        let which = 1 + round % 2;
        leave(&mut three, which);
        report.injected(1);
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        println!("{theme}: leaders of the output {leaders:?}, then {:?}", stage.job.kafka.leaders(&stage.job.output));
        sleep(AWAY);
        come_back(&mut three, which);
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    three.await_in_sync(&stage.job);
    stage.finish(report);
}

pub fn killed(report: &mut Report) {
    in_turns(report, "broker-kill", |three, n| three.brokers[n].kill(), |three, n| three.brokers[n].restart());
}

pub fn frozen(report: &mut Report) {
    in_turns(report, "broker-freeze", |three, n| three.brokers[n].freeze(), |three, n| three.brokers[n].thaw());
}

/// In good order: it hands its leaders over before it goes, and gets them back.
pub fn restarted(report: &mut Report) {
    in_turns(report, "broker-restart", |three, n| three.brokers[n].stop(), |three, n| three.brokers[n].restart());
}

/// Frozen for less than it takes to be given up: no leader moves, and everything that it leads stands still.
pub fn stalled(report: &mut Report) {
    let three = lock();
    let mut stage = Stage::set(three.job("broker-stall"), 2);
    for round in 0..2 * ROUNDS {
        three.await_in_sync(&stage.job);
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
pub fn the_controller_killed(report: &mut Report) {
    let mut three = lock();
    let mut stage = Stage::set(three.job("controller-kill"), 2);
    for _ in 0..ROUNDS / 2 {
        three.await_in_sync(&stage.job);
        three.brokers[CONTROLLER].kill();
        report.injected(1);
        sleep(AWAY);
        three.brokers[CONTROLLER].restart();
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    three.await_in_sync(&stage.job);
    stage.finish(report);
}

/// One after the other, all at once: brokers are killed and instances with them.
pub fn killed_with_an_instance(report: &mut Report) {
    let mut three = lock();
    let mut stage = Stage::set(three.job("both-killed"), 2);
    for round in 0..ROUNDS {
        three.await_in_sync(&stage.job);
        let (broker, instance) = (1 + round % 2, round % 2);
        three.brokers[broker].kill();
        stage.operators[instance].kill();
        report.injected(1);
        stage.restart(instance);
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        three.brokers[broker].restart();
    }
    three.await_in_sync(&stage.job);
    stage.finish(report);
}
