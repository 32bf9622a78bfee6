//! Doubts that appear when a proposal is replayed on its sample.

use super::choose::NOTHING_REPEATS;
use super::propose::Proposal;
use super::sample::Sample;
use super::tally::Tally;
use super::ties::Ties;
use crate::capture::guesses;
use crate::dedup::{Action, Reason, Verdict};
use crate::topology::Topology;
use crate::words::{agreeing, counted};

/// Fewer stale records in a row are only disorder.
const STALE_MIN: usize = 3;

/// Adds these doubts to the proposal's.
pub fn add(proposal: &mut Proposal, sample: &Sample, topology: &Topology, tally: &Tally) {
    let of = |count: usize| format!("{count} of {}", counted(sample.records.len(), "record"));
    for (reason, what) in [(Reason::IdentityMissing, "identity"), (Reason::VersionMissing, "version")] {
        let count = tally.of_reason(reason);
        if count > 0 {
            let hint = topology.hint(reason).map_or_else(String::new, |hint| format!(": {hint}"));
            let topics = tally.topics_of(reason, sample);
            proposal.unsure.push(format!("{} {} no {what}{topics}{hint}", of(count), agreeing(count, "has", "have")));
        }
    }
    let is_all = tally.of_verdict(Verdict::Invalid) == sample.records.len();
    let mut invalid = Vec::new();
    for (reason, count, words) in tally.invalid() {
        let topics = tally.topics_of(reason, sample);
        match reason {
            // said above
            Reason::IdentityMissing | Reason::VersionMissing if !is_all => {}
            _ if is_all && count == sample.records.len() => invalid
                .push(format!("by what is proposed, every record that was looked at is invalid: {words} ({reason})")),
            _ => invalid.push(format!(
                "by what is proposed, {} {} invalid{topics}: {words} ({reason})",
                of(count),
                agreeing(count, "is", "are")
            )),
        }
    }
    proposal.unsure.splice(0..0, invalid);
    if proposal.preset.is_some() {
        proposal.unsure.extend(conflicts(topology, tally.ties(), &of));
    }
    proposal.unsure.extend(unlike(tally, &of));
    proposal.unsure.extend(odd_timestamps(sample));
    if tally.of_verdict(Verdict::Duplicate) + tally.of_verdict(Verdict::Stale) == 0 {
        unproven(proposal, sample);
    }
}

/// The proposal drops nothing, which looks like success and shows nothing.
fn unproven(proposal: &mut Proposal, sample: &Sample) {
    let records = sample.records.len();
    let (which, are) = match records {
        1 => ("The only record that was looked at".to_owned(), "is no duplicate and not"),
        _ => (format!("None of the {records} records that were looked at"), "is a duplicate or"),
    };
    proposal.comment(&format!(
        "{which} {are} stale: the proposal drops nothing here, so these records do not prove that it would recognise a \
         duplicate. Try it on a capture in which records came again."
    ));
    // about an identity of fields the same is said with their names
    if !proposal.unsure.iter().any(|unsure| unsure.starts_with(NOTHING_REPEATS)) {
        proposal.unsure.push(
            "the proposal drops none of these records, so nothing proves that it would recognise a duplicate: try it on a \
             capture in which records came again"
                .to_owned(),
        );
    }
}

/// Records that are conflicts by a preset.
fn conflicts(topology: &Topology, ties: &Ties, of: &dyn Fn(usize) -> String) -> Option<String> {
    let first = ties.first.as_ref()?;
    let (has, identity) = match (ties.conflicts, topology.rules.version.is_some()) {
        (1, true) => ("has", "the newest version of its identity"),
        (_, true) => ("have", "the newest version of their identity"),
        (count, false) => (agreeing(count, "has", "have"), "the identity of an earlier one"),
    };
    let action = topology.rules.actions.conflict;
    let fate = if action == Action::Forward { "passed on" } else { "not passed on" };
    Some(format!(
        "{} {has} {identity} and other contents: {}; by `on_conflict: {action}` of the preset such a record is {fate}",
        of(ties.conflicts),
        first.words(),
    ))
}

/// Records that would be dropped although no earlier record of their identity says the same.
fn unlike(tally: &Tally, of: &dyn Fn(usize) -> String) -> Vec<String> {
    let (duplicates, stale) = tally.unlike();
    let mut doubts = Vec::new();
    if duplicates > 0 {
        doubts.push(format!(
            "{} would be dropped as duplicates although they say something else than all before with the same identity: \
             `identity` may name too little, such as a key that several rows share, or several changes may share a version",
            of(duplicates)
        ));
    }
    if stale >= STALE_MIN {
        doubts.push(format!(
            "the last {stale} changes of known identities in a partition would be dropped as stale although they say \
             something else than all before with the same identity: old changes may have come late, positions may have \
             begun again (a new replication slot, a restored server), or `version` may not be what rises; `ratchet replay \
             --summary` says more"
        ));
    }
    doubts
}

/// Records whose timestamps are in another unit than milliseconds.
fn odd_timestamps(sample: &Sample) -> Option<String> {
    let odd = |ms: i64| guesses::unit_of_timestamp(ms);
    let timestamps = || sample.records.iter().filter_map(|observed| observed.captured.timestamp);
    let unit = timestamps().find_map(odd)?;
    let count = timestamps().filter(|&ms| odd(ms).is_some()).count();
    Some(format!(
        "the timestamps of {} of {} look like {unit}, where Kafka has milliseconds: a limited retention measures with \
         them, so have the producer correct them, or the topic write its own (`message.timestamp.type=LogAppendTime`)",
        count,
        counted(sample.records.len(), "record")
    ))
}
