//! Goal: when a lagging replica becomes leader (`unclean.leader.election.enable`), the tail of the log is lost. If it
//! was the input's or the changelog's, the loss is noticed, even after as much has been written again, and refused.

use crate::checker::Records;
use crate::job::Job;
use crate::load::things;
use crate::operator::Operator;
use crate::replicated;
use crate::report::Report;
use crate::stage::assert_sound;
use crate::three::{Three, lock};
use crate::topics::judge;
use crate::until::{DEADLINE, within};

/// How often it is repeated, each time with its own topics and group.
const ROUNDS: usize = 2;
/// How many things both replicas have.
const KNOWN: usize = 500;
/// How many only the leader has, and which are lost with it.
const LOST: usize = 300;

/// The two brokers of the topic: the one that leads, and the one that lags.
const LEADER: usize = 1;
const LAGGARD: usize = 2;

/// The topic that loses its tail.
type Tail = fn(&Job) -> String;

/// When the task notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It is at work all the time.
    AtWork,
    /// It is at work, but frozen until more was written than was lost.
    Frozen,
    /// It restarts once more was written than was lost.
    Later,
    /// It restarts once more was written, and aborted, than was lost: as after a task that was killed before it
    /// noticed.
    Regrown,
}

/// Loses the tail of a topic, and waits for a refusal with these words; the output until then has to be right. Then
/// `obey` does what the words say.
fn lose(report: &mut Report, theme: &str, of: Tail, look: Look, words: &[&str], obey: fn(&mut Report, &Job, Records)) {
    for _ in 0..report.rounds(ROUNDS) {
        let mut three = lock();
        let mut job = three.job_without_topics(theme);
        // However long it is frozen, it has to wake up as a member.
        job.properties.insert("consumer.session.timeout.ms".to_owned(), "120000".to_owned());
        place(&job, &of(&job));
        let mut operator = Operator::start(&job, "a");
        job.send(things(0, 0..KNOWN, 1));
        job.await_drained(DEADLINE);
        let topic = of(&job);
        leave_behind(&mut three, &job, &topic);
        job.send(things(0, KNOWN..KNOWN + LOST, 1));
        job.await_drained(DEADLINE);
        let (mut read, end) = (job.kafka.read(&job.input), job.kafka.bounds(&topic, 0).end);
        match look {
            Look::AtWork => {}
            Look::Frozen => operator.freeze(),
            Look::Later | Look::Regrown => operator.stop(),
        }
        elect_the_laggard(&mut three, &job, &topic);
        let left = job.kafka.bounds(&topic, 0).end;
        assert!(left < end, "nothing was lost: {left} of {end}");
        println!("{theme}: {left} of {end} offsets are left");
        if look == Look::Regrown {
            let stranger = job.kafka.transaction(&format!("{}-stranger", job.name), DEADLINE);
            stranger.send(&topic, things(0, 0..3 * LOST, 1));
            stranger.abort();
            job.kafka.await_settled(&topic);
            assert!(job.kafka.bounds(&topic, 0).end > end, "it should have grown again");
        }
        // The input's loss is noticed without more records, the changelog's by the next transaction: a small one that
        // ends before the old end, or, if nobody looks in time, one that is larger than what was lost.
        let more = match look {
            Look::AtWork if topic == job.input => 0,
            Look::AtWork => LOST / 10,
            Look::Frozen | Look::Later => 3 * LOST,
            Look::Regrown => 0,
        };
        job.send(things(0, KNOWN + LOST..KNOWN + LOST + more, 1));
        match look {
            Look::AtWork => {}
            Look::Frozen => operator.thaw(),
            Look::Later | Look::Regrown => operator = Operator::start(&job, "a"),
        }
        operator.await_error(words);
        report.injected(1);
        assert_sound(&mut operator);
        operator.terminate();
        let status = operator.await_exit(DEADLINE);
        assert_eq!(status.code(), Some(2), "{status}; {}", operator.tail());
        if topic != job.input {
            let committed = job.committed()[0];
            read = job.kafka.read(&job.input);
            read.values_mut().for_each(|records| records.retain(|record| record.offset < committed));
        }
        judge(report, &job, &read);
        report.refused(words);
        obey(report, &job, read);
    }
}

/// Creates the topics: the one in question on two brokers, with unclean elections allowed.
fn place(job: &Job, topic: &str) {
    let mut settings = vec![("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    if topic == job.changelog() {
        settings.push(("cleanup.policy", "compact"));
    }
    job.kafka.create_led(topic, &[LEADER as i32 + 1, LAGGARD as i32 + 1], &settings);
    for other in [&job.input, &job.output].into_iter().filter(|other| *other != topic) {
        replicated::create(job, other, 1);
    }
}

/// Kills the follower, and waits until the leader is alone.
fn leave_behind(three: &mut Three, job: &Job, topic: &str) {
    replicated::await_in_sync(job);
    three.brokers[LAGGARD].kill();
    let alone = [LEADER as i32 + 1];
    within(DEADLINE, "the leader to be alone", || (job.kafka.in_sync(topic) == [alone]).then_some(()));
}

/// Kills the broker that has everything, and restarts the other.
fn elect_the_laggard(three: &mut Three, job: &Job, topic: &str) {
    three.brokers[LEADER].kill();
    three.brokers[LAGGARD].restart();
    let next = [LAGGARD as i32 + 1];
    within(DEADLINE, "the laggard to lead", || (job.kafka.leaders(topic) == next).then_some(()));
}

/// A new name would be another job.
fn start_under_a_new_name(_: &mut Report, _: &Job, _: Records) {}

/// Resets the group to the next offset to read. Records below it that were written since are lost; all others have to
/// come out.
fn accept_the_loss(report: &mut Report, job: &Job, mut read: Records) {
    let next = job.committed()[0];
    job.kafka.group(&job.group()).set(&job.input, 0, next, "");
    let mut operator = Operator::start(job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
    let left = job.kafka.read(&job.input).remove(&0).expect("it has one partition");
    read.entry(0).or_default().extend(left.into_iter().filter(|record| record.offset >= next));
    judge(report, job, &read);
}

const SHRUNK: &[&str] = &["beyond the input's end", "new name"];
const WRITTEN_OVER: &[&str] = &["does not hold any more what was read of it up to offset 800", "reset the group"];

pub fn of_the_input(report: &mut Report) {
    lose(report, "tail-at-work", |job| job.input.clone(), Look::AtWork, SHRUNK, start_under_a_new_name);
}

pub fn of_the_input_frozen(report: &mut Report) {
    lose(report, "tail-frozen", |job| job.input.clone(), Look::Frozen, WRITTEN_OVER, start_under_a_new_name);
}

pub fn of_the_input_later(report: &mut Report) {
    lose(report, "tail-later", |job| job.input.clone(), Look::Later, WRITTEN_OVER, accept_the_loss);
}

const CHANGELOG: &[&str] = &["changelog", "new name"];

pub fn of_the_changelog(report: &mut Report) {
    lose(report, "changelog-tail-at-work", Job::changelog, Look::AtWork, CHANGELOG, start_under_a_new_name);
}

pub fn of_the_changelog_frozen(report: &mut Report) {
    lose(report, "changelog-tail-frozen", Job::changelog, Look::Frozen, CHANGELOG, start_under_a_new_name);
}

pub fn of_the_changelog_later(report: &mut Report) {
    lose(report, "changelog-tail-later", Job::changelog, Look::Later, CHANGELOG, start_under_a_new_name);
}

pub fn of_the_changelog_regrown(report: &mut Report) {
    const WORDS: &[&str] = &["the position record at offset", "is gone", "new name"];
    lose(report, "changelog-tail-regrown", Job::changelog, Look::Regrown, WORDS, start_under_a_new_name);
}
