//! Hints from a summary's counts: what looks wrong in the rules, and what to change.

use std::collections::BTreeMap;

use crate::dedup::Reason;
use crate::words::{agreeing, counted};

/// The word of [`crate::dedup::OnNull::FollowDelete`].
pub const FOLLOW_DELETE: &str = "follow_delete";

/// Having no duplicate is only suspicious among at least this many records.
const RECORDS_WITHOUT_DUPLICATE: u64 = 1_000_000;
/// Shares are only meaningful for at least this many records.
const RECORDS_MIN: u64 = 20;

/// The findings beyond counts as hints, and which other hints they make superfluous.
#[derive(Clone, Debug, Default)]
pub struct Noticed {
    /// The hints.
    pub hints: Vec<String>,
    /// Whether they explain why versions fall and records are stale.
    pub explains_stale: bool,
    /// How many records they explain that are late or from the future, by their reasons.
    pub explained: BTreeMap<Reason, u64>,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// All records.
    pub records: u64,
    /// Duplicates, for whatever reason.
    pub duplicate: u64,
    /// Stale ones, for whatever reason.
    pub stale: u64,
    /// Duplicates because their offset had been seen.
    pub replayed: u64,
    /// Dropped records that were equal to an earlier one, without the replayed.
    pub again: Again,
    /// Records with a version that were redelivered, without the replayed.
    pub redelivered: Redelivered,
    /// Those whose version was less than the one remembered.
    pub older: u64,
    /// Those whose identity was read.
    pub identified: u64,
    /// Whether the rules have a version.
    pub has_version: bool,
    /// Those that have one.
    pub versioned: u64,
    /// What the preset says about records without an identity.
    pub without_identity: Option<&'static str>,
    /// What the preset says about records without a version.
    pub without_version: Option<&'static str>,
    /// What it says about malformed versions; `rejection` contains it.
    pub malformed_version: Option<&'static str>,
    /// Versions below the highest of their partition.
    pub falls: u64,
    /// Those of them that were forwarded, without redeliveries.
    pub falls_forwarded: u64,
    /// Identities on several partitions.
    pub on_several_partitions: u64,
    /// Null values.
    pub nulls: u64,
    /// Null values that were not forwarded because they are null, and whose identity had no delete before them.
    pub undeleted_nulls: u64,
    /// Where the first of these is.
    pub undeleted_null_first: Option<String>,
    /// The word under `on_null_value`.
    pub on_null_value: &'static str,
    /// Those without an identity.
    pub unidentified: u64,
    /// For each reason for which records are invalid: how many records have it, and the first one's reason in words.
    pub rejections: BTreeMap<Reason, (u64, String)>,
    /// Changes, deletes and reads that have an identity and no version.
    pub unversioned: u64,
    /// Findings beyond counts.
    pub noticed: Noticed,
    /// Lines in kcat's envelope, without the option that says so.
    pub like_kcat: u64,
}

/// Dropped records whose key, value and headers had already been seen in their partition. They were redelivered, which
/// says nothing against the rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Again {
    /// Duplicates.
    pub duplicate: u64,
    /// Stale ones.
    pub stale: u64,
}

/// Records with a version that are one of [`Again`], or whose identity had the same version in that partition before:
/// redelivered, maybe with another time of sending, which says nothing against their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redelivered {
    /// All of them.
    pub versioned: u64,
    /// Stale ones.
    pub stale: u64,
    /// Those whose version was less than the one remembered.
    pub older: u64,
    /// Versions below the highest of their partition.
    pub falls: u64,
}

impl Again {
    fn dropped(self) -> u64 {
        self.duplicate + self.stale
    }
}

/// Every hint that these counts give.
pub fn hints(facts: &Facts) -> Vec<String> {
    if facts.like_kcat > 0 {
        // every other hint would only be a consequence
        return vec!["the lines look like what `kcat -J` prints: add `--envelope kcat`".to_owned()];
    }
    let mut hints: Vec<String> = unidentified(facts).into_iter().chain(invalid(facts)).collect();
    hints.extend(facts.noticed.hints.iter().cloned());
    let all = [too_fine, redelivered, too_coarse, versions_missing, versions_fall, several_partitions, nulls_lost];
    hints.extend(all.iter().filter_map(|hint| hint(facts)));
    hints
}

/// Fewer than one record in this many give no hint by themselves.
const SHARE: u64 = 100;

/// Whether this many of the records are worth a hint.
pub fn is_share(count: u64, records: u64) -> bool {
    count > 0 && count * SHARE >= records
}

fn unidentified(facts: &Facts) -> Option<String> {
    is_share(facts.unidentified, facts.records).then(|| {
        let advice = facts.without_identity.unwrap_or(
            "change `identity` to what they have, unless nothing identifies them; lines without an envelope have no key",
        );
        format!(
            "{} of {} {} no identity (identity_missing), so no duplicate is recognised among them: {advice}",
            facts.unidentified,
            counted(facts.records, "record"),
            agreeing(facts.unidentified, "has", "have")
        )
    })
}

/// For each reason for which records are invalid, what to change.
fn invalid(facts: &Facts) -> impl Iterator<Item = String> {
    let is_explained = move |reason: Reason, count: u64| facts.noticed.explained.get(&reason) >= Some(&count);
    let told = move |(&reason, (count, words)): (&Reason, &(u64, String))| {
        if reason == Reason::IdentityMissing || is_explained(reason, *count) || !is_share(*count, facts.records) {
            return None;
        }
        let change = change(reason, words, facts);
        Some(if *count == facts.records {
            format!("every record is invalid ({reason}): {words}; {change}")
        } else {
            let (records, are) = (counted(facts.records, "record"), agreeing(*count, "is", "are"));
            format!("{count} of {records} {are} invalid ({reason}), the first because {words}; {change}")
        })
    };
    facts.rejections.iter().filter_map(told)
}

/// Words of the rejection of a key or a value that is read as JSON, but looks like the output of a schema registry's
/// serializers.
const SERIALIZERS: &str = "a schema registry's serializers";
/// Words that are added if JSON follows the schema id.
const JSON_FOLLOWS: &str = "JSON seems to follow";
/// Words of the rejection if a record has no schema id, but its format requires one.
const NO_ID: &str = "no schema id";
/// Words of the rejections of a record that cannot be read by its schema.
const BY_SCHEMA: [&str; 2] = ["cannot be read: ", "is not a record of "];

/// What to change where records are invalid for this reason.
fn change(reason: Reason, words: &str, facts: &Facts) -> &'static str {
    match reason {
        Reason::ValueMalformed if words.contains(NO_ID) => {
            "have the producer write the schema's id; or, if values without an id are JSON, write `value_format: auto`"
        }
        Reason::KeyMalformed if words.contains(NO_ID) => {
            "have the producer write the schema's id; or, if keys without an id are JSON, write `key_format: auto`"
        }
        Reason::ValueMalformed if words.contains(SERIALIZERS) => {
            if words.contains(JSON_FOLLOWS) {
                "write `value_format: json_schema` under `input`, and say where the schemas are: \
                 `--set schema_registry.url=http://localhost:8081`, or `--set schemas.dir=FOLDER`"
            } else {
                "write `value_format: avro` under `input` (or `protobuf`, `auto`), and say where the schemas are: \
                 `--set schema_registry.url=http://localhost:8081`, or `--set schemas.dir=FOLDER`"
            }
        }
        Reason::KeyMalformed if words.contains(SERIALIZERS) => {
            "write `key_format: avro` under `input` (or `protobuf`, `json_schema`, `auto`), and say where the schemas \
             are; or write `key_format: bytes` and `identity: key`"
        }
        Reason::ValueMalformed | Reason::KeyMalformed if BY_SCHEMA.iter().any(|said| words.contains(said)) => {
            "compare the record with the schema that the message names; an id is valid in one registry only, so \
             ratchet has to use the producer's registry"
        }
        Reason::ValueMalformed => {
            "if values are not JSON, write `value_format: bytes` under `input`, and an `identity` that reads nothing inside \
             them (`key`, `value`)"
        }
        Reason::KeyMalformed => {
            "if keys are not JSON, write `key_format: bytes` under `input`, and `identity: key`, which takes all of the key \
             (Kafka Connect writes keys as JSON with `key.converter=org.apache.kafka.connect.json.JsonConverter`)"
        }
        Reason::IdentityNotScalar => "name a field inside it, or take all of it with `{content: PATH}`",
        Reason::VersionMalformed if facts.malformed_version.is_some() => "`--explain` shows each record",
        Reason::VersionMalformed => "change `version`, or its `as`, to what these records have",
        Reason::VersionMissing => "change `version` to what these records have, or leave it out",
        Reason::NullValue => {
            "write what to do with null values: `on_null_value` (`delete` if they are deletes, and their headers or keys \
             have a version)"
        }
        Reason::TimestampInFuture => "raise `future_max`, or let the producers correct their clocks",
        Reason::Late => "lengthen `retention`, or let late records through with `on_late: forward`",
        _ => "`--explain` shows more",
    }
}

fn too_fine(facts: &Facts) -> Option<String> {
    let dropped = facts.duplicate - facts.replayed + facts.stale;
    (facts.identified >= RECORDS_WITHOUT_DUPLICATE && dropped == 0).then(|| {
        format!(
            "no duplicate in {} records: `identity` may be too fine; leave out what differs between two \
             deliveries of one thing (a time of sending, an id of the delivery, an offset)",
            facts.records
        )
    })
}

fn redelivered(facts: &Facts) -> Option<String> {
    let again = facts.replayed + facts.again.dropped();
    (facts.records >= RECORDS_MIN && again * 2 > facts.records).then(|| {
        format!(
            "{again} of {} records came again ({} with an offset that was there before, {} with the key, value and \
             headers of a record before): the input was redelivered, and nothing has to be changed, unless equal \
             records mean different things",
            facts.records,
            facts.replayed,
            facts.again.dropped()
        )
    })
}

fn too_coarse(facts: &Facts) -> Option<String> {
    let (duplicate, stale) =
        (facts.duplicate - facts.replayed - facts.again.duplicate, facts.stale - facts.again.stale);
    let identified = facts.identified - facts.again.dropped();
    let is_explained = facts.noticed.explains_stale && stale > duplicate;
    if identified < RECORDS_MIN || (duplicate + stale) * 2 <= identified || is_explained {
        return None;
    }
    let what = match facts.replayed + facts.again.dropped() {
        0 => "over half of the records are dropped",
        _ => "over half of the records that did not just come again are dropped",
    };
    let known_versions = facts.redelivered.stale - facts.again.stale;
    Some(if stale > duplicate && known_versions * 2 > stale {
        format!(
            "{what}, most of them as stale, with an identity and a version that had come before: the input was redelivered \
             with other values (a time of sending, for one), and nothing has to be changed, unless several changes of an \
             identity share a version; `--explain` shows what each lost against"
        )
    } else if stale > duplicate {
        format!(
            "{what}, most of them as stale: `version` may not be what rises with each change of an identity, \
             or `identity` is too coarse; `--explain` shows what each lost against"
        )
    } else {
        format!(
            "{what}, most of them as duplicates: `identity` may be too coarse; add what distinguishes two things, or \
             two changes of a thing, or a `version`"
        )
    })
}

fn versions_missing(facts: &Facts) -> Option<String> {
    if !facts.has_version || facts.identified == 0 {
        return None;
    }
    let change = facts.without_version.unwrap_or("change `version` to a field that these records have");
    if facts.versioned == 0 {
        return Some(format!("no record has a version, so nothing is known to be old: {change}"));
    }
    is_share(facts.unversioned, facts.records).then(|| {
        format!(
            "{} of {} {} no version, so nothing says whether {} old: {}",
            facts.unversioned,
            counted(facts.records, "record"),
            agreeing(facts.unversioned, "has", "have"),
            agreeing(facts.unversioned, "it is", "they are"),
            facts
                .without_version
                .unwrap_or("if another field orders them, name it in `version` as well, with `first_of`")
        )
    })
}

fn versions_fall(facts: &Facts) -> Option<String> {
    if facts.noticed.explains_stale {
        return None;
    }
    let again = facts.redelivered;
    // Redelivered versions fall whatever the rules are.
    let (within, falls) = (facts.older - again.older, facts.falls - again.falls);
    let rarely_within = within * 4 <= falls;
    let redelivered = match again.falls {
        0 => String::new(),
        count => format!(" ({count} more were redelivered: their identity had that version before)"),
    };
    if facts.falls_forwarded > 0 && rarely_within {
        return Some(format!(
            "versions fall within partitions {}, and within an identity {}{redelivered}: that is normal for change data \
             capture, and where each identity counts by itself, and nothing has to be changed; a high-water mark for \
             each partition would have dropped {}",
            counted(falls, "time"),
            counted(within, "time"),
            counted(facts.falls_forwarded, "good record")
        ));
    }
    let versioned = facts.versioned - again.versioned;
    (versioned >= RECORDS_MIN && within * 10 > versioned && !rarely_within).then(|| {
        format!(
            "versions fall within an identity {}, and between identities {}{redelivered}: unless several write to the \
             input at once, `version` may not be what rises with each change; `--explain` shows them",
            counted(within, "time"),
            counted(falls.saturating_sub(within), "time")
        )
    })
}

fn several_partitions(facts: &Facts) -> Option<String> {
    (facts.on_several_partitions > 0).then(|| {
        format!(
            "{} {} on several partitions, where duplicates are not recognised: let the producer partition by what \
             `identity` reads, or take something that stays in one partition",
            counted(facts.on_several_partitions, "identity"),
            agreeing(facts.on_several_partitions, "is", "are")
        )
    })
}

fn nulls_lost(facts: &Facts) -> Option<String> {
    if facts.undeleted_nulls == 0 {
        return None;
    }
    let (lost, word) = (counted(facts.undeleted_nulls, "null value"), facts.on_null_value);
    let (were, them) = (agreeing(facts.undeleted_nulls, "was", "were"), agreeing(facts.undeleted_nulls, "it", "them"));
    let first = facts.undeleted_null_first.as_ref().map(|first| format!(" (first at {first})")).unwrap_or_default();
    Some(format!(
        "{lost} {were} not forwarded (`on_null_value: {word}`), and no delete of the identity came before {them}{first}: in \
         this stream a null value may itself be the delete, as in flattened change events and in compacted topics; write \
         `on_null_value: forward` to pass null values on"
    ))
}

#[cfg(test)]
mod tests;
