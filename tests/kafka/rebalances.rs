//! Goal: partitions change hands, in good order and behind their owner's back, without a duplicate or a
//! loss, and without stopping those that stay where they are.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::checker::check;
use crate::job::{Job, SESSION_TIMEOUT};
use crate::load::{Feed, Load, Random, now_ms, thing};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};

/// For how long a partition that nobody takes away may stand still while others are moved.
const STANDSTILL_MAX: Duration = Duration::from_millis(2500);

/// The owner of each partition, as it was named at its start: one whose transaction failed goes on under another id, and
/// is still the same.
fn each_owner(job: &Job) -> Vec<Option<String>> {
    let named = |owner: String| owner.rsplit_once("-r").map_or(owner.clone(), |(named, _)| named.to_owned());
    job.owners().into_iter().map(|owner| owner.map(named)).collect()
}

/// The distinct owners of all partitions, if each has one.
fn owners(job: &Job) -> Option<BTreeSet<String>> {
    each_owner(job).into_iter().collect()
}

/// Watches the committed offsets until `done`; returns for each partition how long it stood still at most.
fn watch(job: &Job, what: &str, mut done: impl FnMut() -> bool) -> Vec<Duration> {
    let group = job.kafka.group(&job.group());
    let committed = |p: usize| group.committed(&job.input, p as i32).map_or(0, |(offset, _)| offset);
    let mut last: Vec<(i64, Instant)> =
        (0..job.partitions() as usize).map(|p| (committed(p), Instant::now())).collect();
    let mut longest = vec![Duration::ZERO; last.len()];
    within(DEADLINE, what, || {
        for (p, last) in last.iter_mut().enumerate() {
            let now = committed(p);
            longest[p] = longest[p].max(last.1.elapsed());
            if now > last.0 {
                *last = (now, Instant::now());
            }
        }
        done().then_some(())
    });
    longest
}

/// How often a partition was taken away from one of these, in good order or not.
fn taken_away(operators: &[&Operator], job: &Job, partition: usize) -> usize {
    let partition = format!("{}:{partition}", job.input);
    let lines = operators.iter().flat_map(|operator| operator.log());
    let named = lines.filter_map(|line| {
        let message = line["message"].as_str()?;
        ["partitions revoked", "partitions lost"].contains(&message).then(|| line["partitions"].to_string())
    });
    named.filter(|named| named.trim_matches('"').split(' ').any(|named| named == partition)).count()
}

/// Those that stayed were never taken away while `event` happened, and went on.
fn assert_others_went_on(
    (before, after): (&[Option<String>], &[Option<String>]),
    (taken_before, taken_after): (&[usize], &[usize]),
    longest: &[Duration],
    event: &str,
) {
    let stayed: Vec<usize> = (0..before.len()).filter(|&p| before[p] == after[p]).collect();
    println!("{event}: {stayed:?} stayed, the longest standstills were {longest:?}");
    assert!(
        !stayed.is_empty() && stayed.len() < before.len(),
        "{event}: nothing moved, or everything: {before:?}, {after:?}"
    );
    for p in stayed {
        assert_eq!(taken_before[p], taken_after[p], "{event}: partition {p}, which stayed, was taken away meanwhile");
        assert!(longest[p] < STANDSTILL_MAX, "{event}: partition {p}, which stayed, stood still for {:?}", longest[p]);
    }
}

#[test]
fn a_third_instance_joins_under_load_and_one_leaves() {
    let job = Job::new("joins", 4);
    let feed = Feed::start(&job, Load::new(Random::seeded("joins"), 4, 2000), 1500);
    let (mut a, mut b) = (Operator::start(&job, "a"), Operator::start(&job, "b"));
    within(DEADLINE, "two owners", || (owners(&job)?.len() == 2).then_some(()));
    let taken = |operators: &[&Operator]| -> Vec<usize> { (0..4).map(|p| taken_away(operators, &job, p)).collect() };

    let (before, taken_before) = (each_owner(&job), taken(&[&a, &b]));
    let mut c = Operator::start(&job, "c");
    let longest = watch(&job, "a third owner", || owners(&job).is_some_and(|owners| owners.len() == 3));
    let (joined, taken_joined) = (each_owner(&job), taken(&[&a, &b, &c]));
    assert_others_went_on((&before, &joined), (&taken_before, &taken_joined), &longest, "one joined");
    job.await_progress(&job.committed(), DEADLINE);

    let leaving = Instant::now();
    a.terminate();
    let longest =
        watch(&job, "two owners again", || owners(&job).is_some_and(|owners| owners.len() == 2) && !a.is_running());
    println!("the hand-over after SIGTERM took {:?}", leaving.elapsed());
    let taken_left = taken(&[&a, &b, &c]);
    assert_others_went_on((&joined, &each_owner(&job)), (&taken_joined, &taken_left), &longest, "one left");
    job.await_progress(&job.committed(), DEADLINE);

    feed.stop();
    job.await_drained(DEADLINE);
    b.stop();
    c.stop();
    // Transactions that a rebalance has overtaken are nobody's trouble: their lanes abort them and go on.
    for operator in [&a, &b, &c] {
        let told = operator.log().into_iter().filter(|line| line["level"] == "WARN");
        let told: Vec<_> = told.filter(|line| line["message"].to_string().contains("ILLEGAL_GENERATION")).collect();
        assert!(told.is_empty(), "{told:#?}");
    }
    check(&job, &[a.state_dir(), b.state_dir(), c.state_dir()]).assert_lively();
}

#[test]
fn a_frozen_instance_is_fenced_and_comes_back_without_harm() {
    let job = Job::new("frozen", 4);
    let feed = Feed::start(&job, Load::new(Random::seeded("frozen"), 4, 2000), 1500);
    let (mut frozen, mut other) = (Operator::start(&job, "frozen"), Operator::start(&job, "other"));
    within(DEADLINE, "two owners", || (owners(&job)?.len() == 2).then_some(()));

    // Before: frozen, it may be taken over at any moment.
    let before = each_owner(&job);
    frozen.freeze_in_transaction(&job);
    // The one whose commits still come is the other one.
    within(DEADLINE, "the other one to take over", || (owners(&job)?.len() == 1).then_some(()));
    let heirs = owners(&job).expect("each partition has an owner");
    assert!(
        before.iter().flatten().any(|owner| !heirs.contains(owner)),
        "nothing was taken over: {before:?}, {heirs:?}"
    );
    job.await_progress(&job.committed(), DEADLINE);

    frozen.thaw();
    within(DEADLINE, "the thawed one to work again", || (owners(&job)?.difference(&heirs).count() == 1).then_some(()));
    job.await_progress(&job.committed(), DEADLINE);
    frozen.assert_running();
    feed.stop();
    job.await_drained(DEADLINE);
    frozen.stop();
    other.stop();
    check(&job, &[frozen.state_dir(), other.state_dir()]).assert_lively();
}

/// Two operators with a partition each, and partitions are added to what they read. All of it stops on both, nothing
/// more comes out, and who starts afterwards says why.
fn partitions_are_added(job: &Job, heard_by: &str) {
    let (mut a, mut b) = (Operator::start(job, "a"), Operator::start(job, "b"));
    within(DEADLINE, "two owners", || {
        job.send([thing(0, "x", now_ms()), thing(1, "y", now_ms())]);
        (owners(job)?.len() == 2).then_some(())
    });
    job.await_drained(DEADLINE);
    job.kafka.add_partitions(&job.output, 4);
    let before = Instant::now();
    job.kafka.add_partitions(&job.input, 4);
    let words = ["task stopped", "had 2 partitions and has", "new name", "new output topic"];
    for partition in 0..2 {
        let task = format!("\"{}:{partition}\"", job.input);
        within(DEADLINE, &format!("{task} to stop"), || {
            let lines = [&a, &b].into_iter().flat_map(Operator::log).map(|line| line.to_string());
            let mut lines = lines.filter(|line| line.contains(&task));
            lines.any(|line| words.iter().all(|word| line.contains(word))).then_some(())
        });
    }
    println!("both tasks had stopped {:?} after partitions were added, {heard_by}", before.elapsed());
    let (read, committed) = (job.output().len(), job.committed());
    job.send((0..4).flat_map(|partition| [thing(partition, "moved", now_ms())]));
    // What was stopped is finished and left: nothing can follow.
    for operator in [&mut a, &mut b] {
        operator.assert_running();
        assert!(operator.metric("ratchet_tasks", &["failed"]) > 0.0, "{}", operator.tail());
        operator.terminate();
        assert_eq!(operator.await_exit(DEADLINE).code(), Some(1), "{}", operator.tail());
    }
    assert_eq!((job.output().len(), job.committed()), (read, committed), "something came out afterwards");
    let mut again = Operator::start(job, "a");
    again.await_error(&["topology refused", "must be equal", "partitions were added", "new name", "new output topic"]);
    assert_eq!(again.await_exit(DEADLINE).code(), Some(1));
    // Somebody tries to help it along.
    job.kafka.add_partitions(&job.changelog(), 4);
    let again = Operator::start(job, "a");
    again.await_error(&["task stopped", "had 2 partitions and has 4", "new name"]);
}

#[test]
fn partitions_that_are_added_to_a_changelog_by_hand_stop_the_whole_topology() {
    let job = Job::new("grown-changelog", 2);
    let mut operator = Operator::start(&job, "a");
    job.send([thing(0, "x", now_ms()), thing(1, "y", now_ms())]);
    job.await_drained(DEADLINE);
    job.kafka.add_partitions(&job.changelog(), 3);
    let words = ["added to it by hand", "ratchet changelog rebuild", "new name"];
    for partition in 0..2 {
        let task = format!("{}:{partition}", job.input);
        operator.await_error(&["task stopped", &task, "had 2 partitions and has 3", words[0], words[1], words[2]]);
    }
    operator.terminate();
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(1), "{}", operator.tail());
    let mut again = Operator::start(&job, "a");
    again.await_error(&["topology refused", "must be equal", words[0], words[1], words[2]]);
    assert_eq!(again.await_exit(DEADLINE).code(), Some(1));
}

#[test]
fn partitions_that_are_added_stop_all_tasks_of_their_topic_on_every_instance() {
    // Clients hear of it in minutes by default: it is the look at the topics that sees it.
    partitions_are_added(&Job::new("grown", 2), "by the look at the topics");
}

#[test]
fn partitions_that_are_added_and_assigned_stop_all_tasks_of_their_topic_on_every_instance() {
    let mut job = Job::new("grown-assigned", 2);
    job.properties.insert("consumer.topic.metadata.refresh.interval.ms".to_owned(), "100".to_owned());
    partitions_are_added(&job, "by a rebalance");
}

#[test]
fn a_stale_owners_sweeper_removes_nothing() {
    const THINGS: usize = 100_000;
    let job = Job::new("sweeper", 1).with_retention(Duration::from_secs(600));
    let old = now_ms() - 3_600_000;
    job.send((0..THINGS).map(|id| thing(0, &format!("thing-{id}"), 1).at(old)));
    let mut stale = Operator::start(&job, "stale");
    job.await_drained(DEADLINE);
    stale.stop();
    // From the clock's record on everything has expired: the sweeper begins, and is frozen in a transaction of its own.
    let options = Options { crash_at: Some("after_sends:5:freeze"), ..Options::default() };
    let mut stale = Operator::start_with(&job, "stale", &options);
    job.send([thing(0, "clock", 1)]);
    stale.await_frozen();
    let swept = job.kafka.read_visible(&job.changelog())[&0].iter().filter(|record| record.value.is_none()).count();
    println!("frozen after {swept} tombstones");
    assert!((1..THINGS).contains(&swept), "it was not the sweeper that was frozen: nothing is proven");

    // The new owner hears of all things again. What the stale one still wants to remove is remembered anew.
    let mut heir = Operator::start(&job, "heir");
    job.send((0..THINGS).map(|id| thing(0, &format!("thing-{id}"), 2)));
    job.await_drained(DEADLINE + SESSION_TIMEOUT);
    stale.thaw();
    stale.await_line(&["partitions lost"], DEADLINE);
    job.send((0..THINGS).map(|id| thing(0, &format!("thing-{id}"), 2)));
    job.await_drained(DEADLINE);
    stale.stop();
    heir.stop();
    let found = check(&job, &[stale.state_dir(), heir.state_dir()]);
    assert_eq!(found.count(crate::checker::Fate::Forwarded), 2 * THINGS + 1, "{found:?}");
    assert_eq!(found.count(crate::checker::Fate::Duplicate), THINGS, "{found:?}");
}
