//! Every public file and every real capture, delivered again from any place on. Goal: whatever a source's positions look
//! like, nothing that came before comes out again, and nothing that follows is lost. What judges here knows no preset:
//! it knows which records it has given before.

use ratchet::dedup::{Action, Decision, Reason};

use crate::task::{Given, Task, rules};
use crate::{corpus, real};

/// What comes out each time it comes, by the words of the topologies' pages: nothing orders it, or nothing names it.
const PASSING: [Reason; 4] = [Reason::VersionMissing, Reason::VersionEqual, Reason::IdentityMissing, Reason::NullValue];

/// Places in a file of so many records: all of them, or, of a long one, as many as take a moment.
fn places(count: usize) -> impl Iterator<Item = usize> + Clone {
    (0..=count).step_by(count.div_ceil(16).max(1))
}

/// What is not as it should be where a connector was killed before `end` and began again at `begin`; and how many records
/// came again.
fn begun_again(task: &mut Task, records: &[Given], first: &[Decision], (begin, end): (usize, usize)) -> Vec<String> {
    let mut wrong = Vec::new();
    for given in &records[..end] {
        task.give(given.clone());
    }
    for (nth, given) in records.iter().enumerate().skip(begin) {
        let decision = task.give(given.clone());
        let is_out = decision.action == Action::Forward;
        if nth < end && is_out && !PASSING.contains(&decision.reason) {
            wrong.push(format!("{nth} comes out again ({}), begun again at {begin} after {end}", decision.reason));
        }
        if nth >= end && decision.action != first[nth].action {
            let (now, then) = (decision.reason, first[nth].reason);
            wrong.push(format!("{nth} is {now} and was {then}, begun again at {begin} after {end}"));
        }
    }
    wrong
}

#[test]
fn what_is_delivered_again_changes_nothing() {
    let (mut wrong, mut again, mut files) = (Vec::new(), 0, 0);
    for (name, topology, records) in corpus::histories().into_iter().chain(real::histories()) {
        let rules = rules(&topology);
        let mut once = Task::by(rules.clone());
        let first: Vec<Decision> = records.iter().map(|given| once.give(given.clone())).collect();
        let places = places(records.len());
        for (end, begin) in places.clone().flat_map(|end| places.clone().map(move |begin| (end, begin))) {
            if begin < end {
                let found = begun_again(&mut Task::by(rules.clone()), &records, &first, (begin, end));
                wrong.extend(found.first().map(|first| format!("{name}: {first} (and {} more)", found.len() - 1)));
                again += end - begin;
            }
        }
        files += 1;
    }
    wrong.dedup_by_key(|line| line.split(": ").next().unwrap_or_default().to_owned());
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
    assert!(files > 150 && again > 20_000, "{again} records of {files} files came again");
}

/// Who took each delivery for a thing of its own would be seen.
#[test]
fn what_comes_out_again_is_seen() {
    let rules = rules("identity: meta.offset\n");
    let records = vec![crate::task::value(serde_json::json!({"id": 1})); 3];
    let mut once = Task::by(rules.clone());
    let first: Vec<Decision> = records.iter().map(|given| once.give(given.clone())).collect();
    let found = begun_again(&mut Task::by(rules), &records, &first, (1, 3));
    assert_eq!(found.len(), 2, "{found:?}");
}
