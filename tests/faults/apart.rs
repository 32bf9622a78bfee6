//! Goal: brokers that cannot reach each other or the controller, while clients still reach all of them, do no harm: a
//! leader or coordinator that was replaced without noticing accepts nothing that counts, and its responses mislead
//! nobody. When brokers reach each other again, the work continues.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::Kafka;
use crate::links::{CONTROLLER, Links};
use crate::replicated::{self, REPLICAS};
use crate::report::Report;
use crate::stage::{BROKER_RECOVERY_MAX, Stage};
use crate::three::apart;
use crate::until::{DEADLINE, within};

const ROUNDS: u32 = 4;
/// How long the cut lasts once it shows: longer than the sessions of members and brokers, and than transactions.
const LASTS: Duration = Duration::from_secs(6);

/// Cuts links under load, waits until the controller's broker reports that it `is_felt` in the output, and mends them.
/// What the other brokers report may be out of date.
fn through(report: &mut Report, theme: &str, cut: fn(&Links, u32), is_felt: fn(&Kafka, &str, u32) -> bool) {
    let (three, links) = apart();
    let controller = Kafka::at(&three.brokers[0].bootstrap());
    let mut stage = Stage::set(three.job(theme), 2);
    for round in 0..ROUNDS {
        replicated::await_in_sync(&stage.job);
        // The brokers other than the controller take turns.
        let number = CONTROLLER + 1 + round % 2;
        cut(&links, number);
        within(DEADLINE, "the cut to be felt", || is_felt(&controller, &stage.job.output, number).then_some(()));
        report.injected(1);
        sleep(LASTS);
        links.mend();
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    replicated::await_in_sync(&stage.job);
    stage.finish(report);
}

/// A broker loses the others and the controller. Others lead its partitions, and it does not notice.
pub fn broker_alone(report: &mut Report) {
    let cut = |links: &Links, number: u32| {
        (1..=3).filter(|other| *other != number).for_each(|other| links.cut(number, other));
        links.cut_from_controller(number);
    };
    through(report, "alone", cut, |controller, topic, number| {
        let leaders = controller.leaders(topic);
        !leaders.is_empty() && !leaders.contains(&(number as i32))
    });
}

/// Whether any partition's leader has lost replicas.
fn is_out_of_sync(controller: &Kafka, topic: &str, _: u32) -> bool {
    controller.in_sync(topic).iter().any(|in_sync| in_sync.len() < REPLICAS as usize)
}

/// Two brokers lose each other while both reach the controller: each drops out of the other's ISRs.
pub fn two_brokers_apart(report: &mut Report) {
    through(report, "two-apart", |links, _| links.cut(2, 3), is_out_of_sync);
}

/// The controller loses both others: nobody else can become leader, and one replica alone is too few.
pub fn controller_alone(report: &mut Report) {
    let cut = |links: &Links, _| {
        for number in [2, 3] {
            links.cut(CONTROLLER, number);
            links.cut_from_controller(number);
        }
    };
    through(report, "controller-alone", cut, is_out_of_sync);
}
