//! Every public file and every real capture, redelivered from any place. Goal: whatever a source's positions look like,
//! no earlier record is forwarded again, and no later one is lost. The judge here knows no preset: it knows which
//! records it has given before.

use ratchet::dedup::{Action, Decision, Reason};

use crate::task::{Given, Task, rules};
use crate::{corpus, real};

/// Reasons to forward a record every time, as the topologies' pages say: it has no order, or no identity.
const PASSING: [Reason; 4] = [Reason::VersionMissing, Reason::VersionEqual, Reason::IdentityMissing, Reason::NullValue];

/// Places in a file of this many records: all of them, or at most about 16 in a long file.
fn places(count: usize) -> impl Iterator<Item = usize> + Clone {
    (0..=count).step_by(count.div_ceil(16).max(1))
}

/// What goes wrong if a connector is killed before `end` and restarts at `begin`.
fn restarted(task: &mut Task, records: &[Given], first: &[Decision], (begin, end): (usize, usize)) -> Vec<String> {
    let mut wrong = Vec::new();
    for given in &records[..end] {
        task.give(given.clone());
    }
    for (nth, given) in records.iter().enumerate().skip(begin) {
        let decision = task.give(given.clone());
        let is_out = decision.action == Action::Forward;
        if nth < end && is_out && !PASSING.contains(&decision.reason) {
            wrong.push(format!("{nth} is forwarded again ({}), restarted at {begin} after {end}", decision.reason));
        }
        if nth >= end && decision.action != first[nth].action {
            let (now, then) = (decision.reason, first[nth].reason);
            wrong.push(format!("{nth} is {now} and was {then}, restarted at {begin} after {end}"));
        }
    }
    wrong
}

#[test]
fn redelivery_changes_nothing() {
    let (mut wrong, mut again, mut files) = (Vec::new(), 0, 0);
    for (name, topology, records) in corpus::histories().into_iter().chain(real::histories()) {
        let rules = rules(&topology);
        let mut once = Task::by(rules.clone());
        let first: Vec<Decision> = records.iter().map(|given| once.give(given.clone())).collect();
        let places = places(records.len());
        for (end, begin) in places.clone().flat_map(|end| places.clone().map(move |begin| (end, begin))) {
            if begin < end {
                let found = restarted(&mut Task::by(rules.clone()), &records, &first, (begin, end));
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

/// Rules that took each delivery for a new thing would be noticed.
#[test]
fn repeated_output_is_noticed() {
    let rules = rules("identity: meta.offset\n");
    let records = vec![crate::task::value(serde_json::json!({"id": 1})); 3];
    let mut once = Task::by(rules.clone());
    let first: Vec<Decision> = records.iter().map(|given| once.give(given.clone())).collect();
    let found = restarted(&mut Task::by(rules), &records, &first, (1, 3));
    assert_eq!(found.len(), 2, "{found:?}");
}
