//! Goal: partitions change owners, in an orderly way and behind the owner's back, without a duplicate or a loss, and
//! without stopping the partitions that stay.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::checker::check;
use crate::job::{Job, SESSION_TIMEOUT};
use crate::load::{Feed, Load, Random, now_ms, thing};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};

/// How long a partition that stays may make no progress while others move.
const STANDSTILL_MAX: Duration = Duration::from_millis(2500);

/// The owner of each partition, by its first id: one whose transaction failed continues under another id, and is still
/// the same owner.
fn each_owner(job: &Job) -> Vec<Option<String>> {
    let named = |owner: String| owner.rsplit_once("-r").map_or(owner.clone(), |(named, _)| named.to_owned());
    job.owners().into_iter().map(|owner| owner.map(named)).collect()
}

/// The distinct owners of all partitions, if each has one.
fn owners(job: &Job) -> Option<BTreeSet<String>> {
    each_owner(job).into_iter().collect()
}

/// Watches the committed offsets until `done`; returns each partition's longest standstill.
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

/// How often a partition was taken away from one of these, by a revocation or a loss.
fn taken_away(operators: &[&Operator], job: &Job, partition: usize) -> usize {
    let partition = format!("{}:{partition}", job.input);
    let lines = operators.iter().flat_map(|operator| operator.log());
    let named = lines.filter_map(|line| {
        let message = line["message"].as_str()?;
        ["partitions revoked", "partitions lost"].contains(&message).then(|| line["partitions"].to_string())
    });
    named.filter(|named| named.trim_matches('"').split(' ').any(|named| named == partition)).count()
}

/// Partitions that stayed were never taken away during `event`, and made progress.
fn assert_others_progressed(
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
fn instance_joins_and_another_leaves_under_load() {
    let job = Job::new("joins", 4);
    let feed = Feed::start(&job, Load::new(Random::seeded("joins"), 4, 2000), 1500);
    let (mut a, mut b) = (Operator::start(&job, "a"), Operator::start(&job, "b"));
    within(DEADLINE, "two owners", || (owners(&job)?.len() == 2).then_some(()));
    let taken = |operators: &[&Operator]| -> Vec<usize> { (0..4).map(|p| taken_away(operators, &job, p)).collect() };

    let (before, taken_before) = (each_owner(&job), taken(&[&a, &b]));
    let mut c = Operator::start(&job, "c");
    let longest = watch(&job, "a third owner", || owners(&job).is_some_and(|owners| owners.len() == 3));
    let (joined, taken_joined) = (each_owner(&job), taken(&[&a, &b, &c]));
    assert_others_progressed((&before, &joined), (&taken_before, &taken_joined), &longest, "one joined");
    job.await_progress(&job.committed(), DEADLINE);

    let leaving = Instant::now();
    a.terminate();
    let longest =
        watch(&job, "two owners again", || owners(&job).is_some_and(|owners| owners.len() == 2) && !a.is_running());
    println!("the hand-over after SIGTERM took {:?}", leaving.elapsed());
    let taken_left = taken(&[&a, &b, &c]);
    assert_others_progressed((&joined, &each_owner(&job)), (&taken_joined, &taken_left), &longest, "one left");
    job.await_progress(&job.committed(), DEADLINE);

    feed.stop();
    job.await_drained(DEADLINE);
    b.stop();
    c.stop();
    // A transaction overtaken by a rebalance is not worth a warning: its lane aborts it and continues.
    for operator in [&a, &b, &c] {
        let warnings = operator.log().into_iter().filter(|line| line["level"] == "WARN");
        let warnings: Vec<_> =
            warnings.filter(|line| line["message"].to_string().contains("ILLEGAL_GENERATION")).collect();
        assert!(warnings.is_empty(), "{warnings:#?}");
    }
    check(&job, &[a.state_dir(), b.state_dir(), c.state_dir()]).assert_each_fate();
}

#[test]
fn frozen_instance_is_fenced_and_returns_without_harm() {
    let job = Job::new("frozen", 4);
    let feed = Feed::start(&job, Load::new(Random::seeded("frozen"), 4, 2000), 1500);
    let (mut frozen, mut other) = (Operator::start(&job, "frozen"), Operator::start(&job, "other"));
    within(DEADLINE, "two owners", || (owners(&job)?.len() == 2).then_some(()));

    // Before the freeze, after which it may be taken over at any moment.
    let before = each_owner(&job);
    frozen.freeze_in_transaction(&job);
    // Commits now come from the other one only.
    within(DEADLINE, "the other one to take over", || (owners(&job)?.len() == 1).then_some(()));
    let successors = owners(&job).expect("each partition has an owner");
    assert!(
        before.iter().flatten().any(|owner| !successors.contains(owner)),
        "nothing was taken over: {before:?}, {successors:?}"
    );
    job.await_progress(&job.committed(), DEADLINE);

    frozen.thaw();
    within(DEADLINE, "the thawed one to work again", || {
        (owners(&job)?.difference(&successors).count() == 1).then_some(())
    });
    job.await_progress(&job.committed(), DEADLINE);
    frozen.assert_running();
    feed.stop();
    job.await_drained(DEADLINE);
    frozen.stop();
    other.stop();
    check(&job, &[frozen.state_dir(), other.state_dir()]).assert_each_fate();
}

/// Adds partitions to the input of two operators with a partition each. Both tasks stop, nothing more is forwarded, and
/// an instance that starts afterwards says why.
fn partitions_are_added(job: &Job, noticed_by: &str) {
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
    println!("both tasks stopped {:?} after partitions were added, {noticed_by}", before.elapsed());
    let (read, committed) = (job.output().len(), job.committed());
    job.send((0..4).flat_map(|partition| [thing(partition, "moved", now_ms())]));
    // Once both have ended, nothing can follow.
    for operator in [&mut a, &mut b] {
        operator.assert_running();
        assert!(operator.metric("ratchet_tasks", &["failed"]) > 0.0, "{}", operator.tail());
        operator.terminate();
        assert_eq!(operator.await_exit(DEADLINE).code(), Some(2), "{}", operator.tail());
    }
    assert_eq!((job.output().len(), job.committed()), (read, committed), "something came out afterwards");
    let mut again = Operator::start(job, "a");
    again.await_error(&["topology refused", "must be equal", "partitions were added", "new name", "new output topic"]);
    assert_eq!(again.await_exit(DEADLINE).code(), Some(2));
    // Somebody adds partitions to the changelog too, to help.
    job.kafka.add_partitions(&job.changelog(), 4);
    let again = Operator::start(job, "a");
    again.await_error(&["task stopped", "had 2 partitions and has 4", "new name"]);
}

#[test]
fn partitions_added_to_a_changelog_stop_the_whole_topology() {
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
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(2), "{}", operator.tail());
    let mut again = Operator::start(&job, "a");
    again.await_error(&["topology refused", "must be equal", words[0], words[1], words[2]]);
    assert_eq!(again.await_exit(DEADLINE).code(), Some(2));
}

#[test]
fn partitions_added_to_an_input_stop_its_tasks_on_every_instance() {
    // By default clients notice in minutes: the topic check sees it first.
    partitions_are_added(&Job::new("grown", 2), "noticed by the topic check");
}

#[test]
fn partitions_added_and_assigned_stop_their_tasks_on_every_instance() {
    let mut job = Job::new("grown-assigned", 2);
    job.properties.insert("consumer.topic.metadata.refresh.interval.ms".to_owned(), "100".to_owned());
    partitions_are_added(&job, "noticed by a rebalance");
}

#[test]
fn stale_owners_sweeper_removes_nothing() {
    const THINGS: usize = 100_000;
    let job = Job::new("sweeper", 1).with_retention(Duration::from_secs(600));
    let old = now_ms() - 3_600_000;
    job.send((0..THINGS).map(|id| thing(0, &format!("thing-{id}"), 1).at(old)));
    let mut stale = Operator::start(&job, "stale");
    job.await_drained(DEADLINE);
    stale.stop();
    // With the clock record everything expires: the sweeper starts, and is frozen in a transaction of its own.
    let options = Options { crash_at: Some("after_sends:5:freeze"), ..Options::default() };
    let mut stale = Operator::start_with(&job, "stale", &options);
    job.send([thing(0, "clock", 1)]);
    stale.await_frozen();
    let swept = job.kafka.read_visible(&job.changelog())[&0].iter().filter(|record| record.value.is_none()).count();
    println!("frozen after {swept} tombstones");
    assert!((1..THINGS).contains(&swept), "the sweeper was not frozen at work: nothing is proven");

    // The new owner sees all things again: what the stale one still wants to remove is remembered once more.
    let mut successor = Operator::start(&job, "successor");
    job.send((0..THINGS).map(|id| thing(0, &format!("thing-{id}"), 2)));
    job.await_drained(DEADLINE + SESSION_TIMEOUT);
    stale.thaw();
    stale.await_line(&["partitions lost"], DEADLINE);
    job.send((0..THINGS).map(|id| thing(0, &format!("thing-{id}"), 2)));
    job.await_drained(DEADLINE);
    stale.stop();
    successor.stop();
    let found = check(&job, &[stale.state_dir(), successor.state_dir()]);
    assert_eq!(found.count(crate::checker::Fate::Forwarded), 2 * THINGS + 1, "{found:?}");
    assert_eq!(found.count(crate::checker::Fate::Duplicate), THINGS, "{found:?}");
}
