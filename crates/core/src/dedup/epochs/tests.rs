//! Goal: of two scopes' versions the right one is newer, whatever is redelivered from either side, and what is kept
//! stays within its bounds.

use super::*;
use crate::dedup::tests::rules;
use crate::dedup::{Candidate, Decision, Kind, Known, Progress, Reason, Rules, Verdict, decide};
use crate::format::EntryRef;

/// A task with one entry per identity, fed by hand.
struct Task {
    rules: Rules,
    progress: Progress,
    entries: std::collections::HashMap<&'static str, Vec<u8>>,
}

impl Task {
    fn new() -> Self {
        Self { rules: rules(&["value.k"], Some("value.v")), progress: Progress::default(), entries: Default::default() }
    }

    /// Judges a record of `key` with a version in `scope`, or in none (`-`).
    fn judge(&mut self, offset: i64, key: &'static str, scope: &str, version: u8) -> Decision {
        let version = [0x81, version];
        let candidate = Candidate {
            version: Some(&version),
            scope: (scope != "-").then_some(scope.as_bytes()),
            kind: Kind::Change,
            timestamp: None,
            key_hash: None,
            offset,
            contents: None,
        };
        let before = self.entries.get(key).cloned();
        let entry = before.as_deref().map(|bytes| EntryRef::decode(bytes).unwrap());
        let decision = decide(&self.rules, &self.progress, &candidate, Known { entry, table: None });
        if let (Some(scope), Some(version)) = (candidate.scope, candidate.version) {
            self.progress.epochs.note(decision.step, scope, version, offset).unwrap();
        }
        let mut bytes = Vec::new();
        if decision.encode_entry(&candidate, entry, &mut bytes) {
            self.entries.insert(key, bytes);
        }
        decision
    }
}

/// Judges records written as `offset key scope version reason`, with `!` after the expected reason if the epoch
/// changes.
fn judge(story: &str) -> Task {
    let mut task = Task::new();
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&'static str> = line.split_whitespace().map(|word| &*word.to_owned().leak()).collect();
        let [offset, key, scope, version, expected] = words[..] else { panic!("{line}") };
        let decision = task.judge(offset.parse().unwrap(), key, scope, version.parse().unwrap());
        let (reason, changes) = expected.strip_suffix('!').map_or((expected, false), |reason| (reason, true));
        assert_eq!((decision.reason.as_str(), decision.step.is_change()), (reason, changes), "{line}");
        let is_older = matches!(decision.reason, Reason::EpochOlder | Reason::VersionOlder);
        assert_eq!(decision.verdict == Verdict::Stale, is_older, "{line}");
    }
    task
}

fn starts(task: &Task) -> Vec<Vec<i64>> {
    let of = |scope: &Scope| scope.segments.iter().map(|segment| segment.began).collect();
    task.progress.epochs.scopes().iter().map(of).collect()
}

#[test]
fn first_scope_is_compared_by_version_alone() {
    let task = judge(
        "0 x a 5 first
         1 x a 4 version_older
         2 x a 6 newer
         3 y a 1 first",
    );
    assert_eq!(starts(&task), [[0]]);
    let step = |offset, version| Reached { offset, version: vec![0x81, version] };
    assert_eq!(task.progress.epochs.scopes()[0].reached, [step(0, 5), step(2, 6)]);
}

#[test]
fn redelivered_records_of_a_followed_scope_stay_old() {
    let task = judge(
        "0 x a 5 first
         1 y a 6 first
         2 x b 1 epoch_changed!
         3 x b 2 newer
         4 x a 5 epoch_older
         5 x a 6 epoch_older
         6 y a 6 version_equal
         7 y b 1 epoch_changed
         8 y a 6 epoch_older
         9 x b 2 version_equal
         10 x b 1 version_older
         11 z b 3 first
         12 z a 2 epoch_older",
    );
    assert_eq!(starts(&task), [[0], [2]]);
}

#[test]
fn redelivered_records_stay_old_after_a_failback() {
    let task = judge(
        "0 x a 5 first
         1 y a 6 first
         2 x b 9 epoch_changed!
         3 y b 8 epoch_changed
         4 x a 7 epoch_changed!
         5 x b 9 epoch_older
         6 x a 5 version_older
         7 y a 6 epoch_older
         8 y b 8 version_equal
         9 y a 8 epoch_changed
         10 y b 8 epoch_older
         11 x b 10 epoch_changed!
         12 x a 7 epoch_older
         13 y a 8 version_equal
         14 y b 9 epoch_older
         15 x a 9 epoch_changed!",
    );
    assert_eq!(starts(&task), [vec![0, 4, 15], vec![2, 11]]);
}

#[test]
fn scope_that_came_back_unnoticed_is_found_when_met() {
    let task = judge(
        "0 x a 5 first
         1 x b 1 epoch_changed!
         2 y a 6 first
         3 y b 2 epoch_changed!
         4 z a 7 first
         5 z b 1 epoch_older
         6 z b 3 epoch_changed!
         7 x a 5 epoch_older
         8 x b 1 version_equal
         9 y a 6 epoch_older
         10 y b 2 version_equal
         11 z a 7 epoch_older
         12 z b 3 version_equal",
    );
    assert_eq!(starts(&task), [vec![0], vec![1, 3, 6]]);
}

#[test]
fn unnoticed_failback_starts_where_its_version_was_reached() {
    // a has continued to 8 with a key that b does not know; c follows; then a's 7 meets b's entry.
    let task = judge(
        "0 x a 5 first
         1 y b 1 first!
         2 z a 8 first
         3 z c 1 epoch_changed!
         4 y a 7 epoch_changed!
         5 z a 8 epoch_older
         6 y b 1 epoch_older
         7 y c 1 epoch_changed
         8 y a 9 epoch_changed!
         9 z a 8 epoch_older",
    );
    assert_eq!(starts(&task), [vec![0, 2, 8], vec![1], vec![3]], "right before c, which followed it");
}

#[test]
fn records_without_a_scope_do_not_affect_scopes() {
    let task = judge(
        "0 x - 5 first
         1 x - 4 version_older
         2 x a 6 newer
         3 x - 7 newer
         4 x b 1 epoch_changed!
         5 x - 2 newer
         6 x a 6 epoch_older",
    );
    assert_eq!(starts(&task), [[2], [4]]);
    assert_eq!(task.progress.epochs.scopes()[0].reached, [Reached { offset: 2, version: vec![0x81, 6] }]);
}

#[test]
fn group_reset_before_a_segments_start_lowers_it() {
    // It had begun at 100, in the middle of b; what came before is older, and b began earlier than was known.
    let task = judge(
        "100 x b 5 first
         101 y b 6 first
         0 x a 50 epoch_older!
         1 z a 51 first
         2 y a 52 epoch_older
         50 z b 1 epoch_changed
         51 z a 51 epoch_older
         52 x b 3 version_older
         102 x a 52 epoch_older
         103 x a 53 epoch_changed!",
    );
    assert_eq!(starts(&task), [vec![50], vec![0, 103]]);
}

#[test]
fn staircase_has_one_step_between_two_starts() {
    let mut task = Task::new();
    let mut offset = 0;
    let mut give = |scope: &str, version| {
        task.judge(offset, "x", scope, version);
        offset += 1;
    };
    (1..50).for_each(|version| give("a", version));
    (1..50).for_each(|version| give("b", version));
    (50..90).for_each(|version| give("a", version));
    let steps = |number: usize| -> Vec<(i64, u8)> {
        let reached = &task.progress.epochs.scopes()[number].reached;
        reached.iter().map(|step| (step.offset, step.version[1])).collect()
    };
    // The first record after a start begins a step, and all up to the next start are one more.
    assert_eq!(steps(0), [(0, 1), (48, 49), (98, 50), (137, 89)]);
    assert_eq!(steps(1), [(49, 1), (97, 49)]);
}

#[test]
fn restored_scopes_decide_alike() {
    let task = judge(
        "0 x a 5 first
         1 x b 9 epoch_changed!
         2 x a 7 epoch_changed!",
    );
    let again = Epochs::from_scopes(task.progress.epochs.scopes().to_vec(), &Bounds::DEFAULT);
    assert_eq!(again, task.progress.epochs);
    for (offset, scope, version) in [(3, b"a", 7), (3, b"b", 9), (3, b"b", 10), (1, b"b", 1)] {
        let number = again.number(scope);
        let ask =
            |epochs: &Epochs| epochs.relation(number, &[0x81, version], offset, (1 - number.unwrap(), &[0x81, 7]));
        assert_eq!(ask(&again), ask(&task.progress.epochs));
    }
    let mut copy = Epochs::default();
    copy.clone_from(&again);
    assert_eq!(copy, again);
}

#[test]
fn scopes_beyond_a_bound_are_refused_and_change_nothing() {
    let mut epochs = Epochs::default();
    let see = |epochs: &mut Epochs, scope: &[u8], version: &[u8], offset| {
        epochs.note(Step::Scope { scope: 0 }, scope, version, offset)
    };
    see(&mut epochs, b"a", &[0; 4], 0).unwrap();
    see(&mut epochs, b"b", &[0; 4], 1).unwrap();
    let mut turn_of = |turn: i64| {
        let before = epochs.clone();
        let (scope, since) = ((turn % 2) as u16, turn + 1);
        let name: &[u8] = if scope == 0 { b"a" } else { b"b" };
        let version = (turn as u32 + 1).to_be_bytes();
        let noted = epochs.note(Step::Segment { scope, since }, name, &version, turn + 2);
        assert!(noted.is_ok() || epochs == before);
        noted
    };
    let turns_max = SEGMENTS_MAX as i64 - 2;
    assert!((0..turns_max).all(|turn| turn_of(turn).is_ok()));
    assert_eq!(turn_of(turns_max), Err(Error::TooManySegments(SEGMENTS_MAX)));
    let mut epochs = Epochs::default();
    assert_eq!(see(&mut epochs, &vec![0; BYTES_MAX], b"\x80", 0), Err(Error::TooLong));
    assert!(epochs.is_empty());
}
