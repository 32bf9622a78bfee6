//! Whether what is in the logs, and in the group, is what the apps were told.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::app::{GROUP, Tx, Verdict};

/// A record as the judge finds it in a log.
struct Found {
    topic: String,
    partition: i32,
    offset: i64,
    value: Vec<u8>,
    is_committed: bool,
}

/// All records of all logs, in order, and whether their transaction was committed, by the markers alone.
fn found(world: &World) -> Vec<Found> {
    let mut all = Vec::new();
    let broker = &world.cluster.broker;
    for partition in broker.nodes.partitions() {
        let log = broker.topics.log(&partition).expect("it is there");
        all.extend(log.fates().into_iter().map(|(offset, record, is_committed)| Found {
            topic: partition.topic.to_string(),
            partition: partition.number,
            offset,
            value: record.value.as_deref().unwrap_or_default().to_vec(),
            is_committed: is_committed == Some(true),
        }));
    }
    all
}

/// How many transactions of unknown outcome were committed.
pub fn unknown_committed(world: &World) -> usize {
    let committed: BTreeSet<Vec<u8>> =
        found(world).into_iter().filter(|found| found.is_committed).map(|found| found.value).collect();
    let unknown = world.apps.iter().flat_map(|app| &app.txs).filter(|tx| tx.verdict == Verdict::Unknown);
    unknown.filter(|tx| tx.sent.iter().any(|sent| committed.contains(&sent.value))).count()
}

/// What is wrong, if anything.
pub fn judge(world: &World) -> Result<(), String> {
    if let Some(seen) = &world.seen {
        return Err(seen.clone());
    }
    if let Some(unheeded) = &world.links.unheeded {
        return Err(unheeded.clone());
    }
    let found = found(world);
    let mut places: BTreeMap<Vec<u8>, Vec<&Found>> = BTreeMap::new();
    for one in found.iter().filter(|one| one.is_committed) {
        places.entry(one.value.clone()).or_default().push(one);
    }
    let mut fates = BTreeMap::new();
    for tx in world.apps.iter().flat_map(|app| &app.txs) {
        let is_committed = transaction(tx, &places)?;
        fates.insert(tx.token.clone(), is_committed);
        reports(tx, &found)?;
    }
    order(&found)?;
    offsets(world, &fates)?;
    hanging(world)
}

/// A transaction is there as a whole, or not at all, as its app was told; each record once, and where it was sent to.
/// Whether it was committed; `None` if it had no records.
fn transaction(tx: &Tx, places: &BTreeMap<Vec<u8>, Vec<&Found>>) -> Result<Option<bool>, String> {
    let mut there = 0;
    for sent in &tx.sent {
        let at = places.get(&sent.value).map(Vec::as_slice).unwrap_or_default();
        there += usize::from(!at.is_empty());
        if at.len() > 1 {
            return Err(format!("{}: a record came {} times", tx.token, at.len()));
        }
        if let Some(at) = at.iter().find(|at| at.topic != sent.topic || at.partition != sent.partition) {
            return Err(format!("{}: a record came to {}:{}", tx.token, at.topic, at.partition));
        }
    }
    let all = tx.sent.len();
    let expected = match tx.verdict {
        Verdict::Committed => there == all && !tx.is_poisoned,
        Verdict::Aborted => there == 0,
        Verdict::Unknown | Verdict::Open => there == 0 || there == all && !tx.is_poisoned,
    };
    if !expected {
        return Err(format!("{}: {:?} ({}), but {there} of {all} records are there", tx.token, tx.verdict, tx.why));
    }
    Ok((all > 0).then_some(there > 0))
}

/// Offsets that were reported are where the records stand.
fn reports(tx: &Tx, found: &[Found]) -> Result<(), String> {
    for (ticket, offset) in &tx.delivered {
        let Some(sent) = tx.sent.iter().find(|sent| sent.ticket == Some(*ticket)) else {
            // Of a transaction before, whose reports nobody took.
            continue;
        };
        let is_it = |one: &&Found| one.topic == sent.topic && one.partition == sent.partition && one.offset == *offset;
        let at = found.iter().find(is_it);
        // A record of a transaction that failed may be gone with its leader, and its place taken.
        if tx.verdict == Verdict::Committed && at.is_none_or(|at| at.value != sent.value) {
            return Err(format!("{}: a record was reported at {offset}, where it is not", tx.token));
        }
    }
    if tx.verdict == Verdict::Committed {
        let reported: BTreeSet<u64> = tx.delivered.iter().map(|(ticket, _)| *ticket).collect();
        if let Some(missing) = tx.sent.iter().filter_map(|sent| sent.ticket).find(|ticket| !reported.contains(ticket)) {
            return Err(format!("{}: record {missing} was not reported", tx.token));
        }
    }
    Ok(())
}

/// In each partition an app's records stand in the order in which it sent them, aborted ones included.
fn order(found: &[Found]) -> Result<(), String> {
    let mut last: BTreeMap<(&str, i32, u64), (u64, u64)> = BTreeMap::new();
    for one in found.iter().filter(|one| one.is_committed) {
        let Some((app, tx, place)) = numbers(&one.value) else { return Err("a foreign record".to_owned()) };
        let key = (one.topic.as_str(), one.partition, app);
        if let Some(before) = last.insert(key, (tx, place)).filter(|before| *before >= (tx, place)) {
            return Err(format!("{}:{}: {app}-{tx}:{place} after {before:?}", one.topic, one.partition));
        }
    }
    Ok(())
}

/// App, transaction and place of a record.
fn numbers(value: &[u8]) -> Option<(u64, u64, u64)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split(['-', ':']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The group's offsets were committed with the transactions that carried them, once, in order, and in the generation of
/// their member.
fn offsets(world: &World, fates: &BTreeMap<String, Option<bool>>) -> Result<(), String> {
    let history: Vec<_> = world.cluster.broker.groups.decided(GROUP).collect();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for (one, taken_in) in &history {
        let txs =
            || world.apps.iter().flat_map(|app| app.txs.iter().enumerate().map(move |(place, tx)| (app, place, tx)));
        let Some((app, place, tx)) = txs().find(|(_, _, tx)| tx.token == one.metadata) else {
            return Err(format!("foreign offsets: {}", one.metadata));
        };
        if *taken_in != tx.generation {
            let generation = tx.generation;
            return Err(format!("{}: offsets of generation {generation} were taken in {taken_in}", tx.token));
        }
        if tx.verdict == Verdict::Aborted || fates.get(&tx.token) == Some(&Some(false)) {
            return Err(format!("{}: not committed ({}), but its offsets are", tx.token, tx.why));
        }
        if last.insert(app.number, place).is_some_and(|before| before >= place) {
            return Err(format!("{}: its offsets were committed again, or late", tx.token));
        }
    }
    let with: BTreeSet<&str> = history.iter().map(|(one, _)| one.metadata.as_str()).collect();
    for tx in world.apps.iter().flat_map(|app| &app.txs).filter(|tx| tx.has_offsets) {
        let is_committed = tx.verdict == Verdict::Committed || fates.get(&tx.token) == Some(&Some(true));
        if is_committed && !with.contains(tx.token.as_str()) {
            return Err(format!("{}: committed, but not its offsets", tx.token));
        }
    }
    Ok(())
}

/// Nothing is open once all is over; brokers that verify nothing may be left with a late copy.
fn hanging(world: &World) -> Result<(), String> {
    let broker = &world.cluster.broker;
    if broker.coordinator.is_busy() {
        return Err("a transaction is open at its coordinator, once all is over".to_owned());
    }
    for partition in broker.nodes.partitions().into_iter().filter(|_| world.profile.verifies) {
        if broker.topics.log(&partition).is_some_and(|log| log.open().next().is_some()) {
            return Err(format!("{partition:?}: a transaction hangs"));
        }
    }
    Ok(())
}
