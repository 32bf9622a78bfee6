//! What happens to instances and brokers: each kind once in a round, in random order, with pauses between.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::plan::{INSTANCES_MAX, INSTANCES_MIN, Plan};
use crate::replicated;
use crate::stage::Stage;
use crate::watch::Watch;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// All instances but the first are restarted, one after the other (SIGTERM).
    RollingRestart,
    /// An instance is killed (SIGKILL) and restarted.
    Kill,
    /// The same, with the loss of its state folder.
    KillAndWipe,
    /// Some instances are added.
    ScaleUp,
    /// Some instances are removed (SIGTERM).
    ScaleDown,
    /// A broker is restarted cleanly.
    BrokerRestart,
    /// A broker is killed (SIGKILL) and restarted.
    BrokerKill,
}

impl Trouble {
    pub const ALL: [Trouble; 7] = [
        Trouble::RollingRestart,
        Trouble::Kill,
        Trouble::KillAndWipe,
        Trouble::ScaleUp,
        Trouble::ScaleDown,
        Trouble::BrokerRestart,
        Trouble::BrokerKill,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Trouble::RollingRestart => "rolling restarts (SIGTERM, one instance after the other)",
            Trouble::Kill => "instances killed (SIGKILL)",
            Trouble::KillAndWipe => "instances killed with the loss of their state folder",
            Trouble::ScaleUp => "instances added",
            Trouble::ScaleDown => "instances removed (SIGTERM)",
            Trouble::BrokerRestart => "brokers restarted (SIGTERM)",
            Trouble::BrokerKill => "brokers killed (SIGKILL)",
        }
    }
}

/// How often each kind happened.
#[derive(Clone, Debug, Default)]
pub struct Events {
    pub count: BTreeMap<Trouble, usize>,
    /// Processes that were stopped by SIGTERM, all of them cleanly, and the longest time that took.
    pub stopped: usize,
    pub stop_longest: Duration,
    /// Complete rounds.
    pub rounds: usize,
}

/// Between two troubles.
const PAUSE_MIN: Duration = Duration::from_secs(3);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// How long something that was killed stays away.
const AWAY_MAX: Duration = Duration::from_secs(6);

/// Makes trouble until the time is over, for at least one complete round: a fault that never happened proves nothing.
pub fn make(stage: &mut Stage, plan: &Plan, watch: &Watch) -> Events {
    let start = Instant::now();
    let mut events = Events::default();
    while start.elapsed() < plan.duration {
        for trouble in shuffled(stage) {
            if events.rounds > 0 && start.elapsed() >= plan.duration {
                break;
            }
            let pause = stage.random.duration(PAUSE_MIN, PAUSE_MAX);
            sleep(pause);
            watch.assert_well();
            stage.assert_running();
            println!("{:>7.0?} {}", start.elapsed(), trouble.name());
            if inflict(stage, trouble, &mut events) {
                *events.count.entry(trouble).or_default() += 1;
            }
        }
        events.rounds += 1;
    }
    replicated::await_in_sync(&stage.job);
    watch.assert_well();
    stage.assert_running();
    events
}

/// All kinds in random order.
fn shuffled(stage: &mut Stage) -> Vec<Trouble> {
    let mut order = Trouble::ALL.to_vec();
    for last in (1..order.len()).rev() {
        order.swap(last, stage.random.below(last as u64 + 1) as usize);
    }
    order
}

/// Makes it happen; returns false if the number of instances is already at its limit.
fn inflict(stage: &mut Stage, trouble: Trouble, events: &mut Events) -> bool {
    let count = stage.at_work().len();
    match trouble {
        Trouble::RollingRestart => {
            for which in stage.at_work().into_iter().skip(1) {
                stop(stage, which, events);
                stage.start(which);
                stage.await_ready(which);
            }
        }
        Trouble::Kill | Trouble::KillAndWipe => {
            let which = stage.victim();
            stage.kill(which, trouble == Trouble::KillAndWipe);
            sleep(stage.random.duration(Duration::ZERO, AWAY_MAX));
            stage.start(which);
        }
        Trouble::ScaleUp if count < INSTANCES_MAX => {
            // Several at once, to cause a crowd of joins.
            let added = 1 + stage.random.below((INSTANCES_MAX - count) as u64);
            (0..added).for_each(|_| stage.add());
        }
        Trouble::ScaleDown if count > INSTANCES_MIN => {
            for _ in 0..1 + stage.random.below((count - INSTANCES_MIN) as u64) {
                let which = stage.victim();
                stop(stage, which, events);
            }
        }
        Trouble::ScaleUp | Trouble::ScaleDown => return false,
        Trouble::BrokerRestart | Trouble::BrokerKill => {
            replicated::await_in_sync(&stage.job);
            let which = stage.random.below(stage.brokers.len() as u64) as usize;
            if trouble == Trouble::BrokerRestart {
                stage.brokers[which].stop();
            } else {
                stage.brokers[which].kill();
            }
            sleep(stage.random.duration(Duration::ZERO, AWAY_MAX));
            stage.brokers[which].restart();
        }
    }
    true
}

fn stop(stage: &mut Stage, which: usize, events: &mut Events) {
    let took = stage.stop(which);
    events.stopped += 1;
    events.stop_longest = events.stop_longest.max(took);
}
