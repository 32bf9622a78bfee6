//! Every public file and every real capture, redelivered from any place. Goal: whatever a source's positions look like,
//! no earlier record is forwarded again, and no later one is lost. The judge here knows no preset: it knows which
//! records it has given before.

use std::collections::BTreeMap;

use ratchet::dedup::{Action, Decision, Reason};

use ratchet::topology::Preset;

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

type History = (String, String, Vec<Given>);

/// With the newest number of the preset that the topology names, if there is a newer one.
fn newer((name, topology, records): History) -> Option<History> {
    let pinned = topology.lines().find_map(|line| line.strip_prefix("preset: "))?;
    let newest = Preset::newest(pinned.split('@').next()?)?.pinned();
    (newest != pinned).then(|| (format!("{name} by {newest}"), topology.replace(pinned, &newest), records))
}

/// Redelivers each file from any place on; returns what goes wrong, how many records came again, and of how many files.
fn redelivered(histories: impl Iterator<Item = History>) -> (Vec<String>, usize, usize) {
    let (mut wrong, mut again, mut files) = (Vec::new(), 0, 0);
    for (name, topology, records) in histories {
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
    (wrong, again, files)
}

#[test]
fn redelivery_changes_nothing() {
    let (wrong, again, files) = redelivered(corpus::histories().into_iter().chain(real::histories()));
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
    assert!(files > 150 && again > 20_000, "{again} records of {files} files came again");
}

/// Golden files name the presets that they were written for; here every record goes through the newest ones.
#[test]
fn redelivery_changes_nothing_by_the_newest_presets() {
    let histories = corpus::histories().into_iter().chain(real::histories()).filter_map(newer);
    let (wrong, again, files) = redelivered(histories);
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
    assert!(files > 50 && again > 10_000, "{again} records of {files} files came again");
}

/// Where a newest preset judges a record otherwise than the golden file's: reads that repair rows, and nothing else.
#[test]
fn newest_presets_judge_otherwise_only_where_reads_repair() {
    let mut otherwise: BTreeMap<String, usize> = BTreeMap::new();
    for history in corpus::histories().into_iter().chain(real::histories()) {
        let Some((name, newest, records)) = newer(history.clone()) else { continue };
        let (mut old, mut new) = (Task::of(&history.1), Task::of(&newest));
        for given in records {
            let [before, after] = [&mut old, &mut new].map(|task| task.give(given.clone()).reason);
            if before != after {
                *otherwise.entry(format!("{name}: {after} was {before}")).or_default() += 1;
            }
        }
    }
    let otherwise: Vec<_> = otherwise.iter().map(|(what, count)| (what.as_str(), *count)).collect();
    assert_eq!(otherwise, OTHERWISE);
}

/// The second snapshots of the captures, and PostgreSQL's incremental one, whose reads have no `lsn`.
const OTHERWISE: [(&str, usize); 5] = [
    ("mariadb/store.shop.order_lines by debezium-mariadb@3: newer was snapshot_read", 2),
    ("mariadb/store.shop.orders by debezium-mariadb@3: newer was snapshot_read", 17),
    ("postgres/shop.public.order_lines by debezium-postgres@3: newer was snapshot_read", 2),
    ("postgres/shop.public.orders by debezium-postgres@3: newer was snapshot_read", 9),
    ("postgres/shop.public.orders by debezium-postgres@3: newer was version_missing", 8),
];

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
