//! Hints from a summary's counts: what looks wrong in the rules, and what to change.

use crate::dedup::Reason;
use crate::words::{agreeing, counted};

/// The word of [`crate::dedup::OnNull::FollowDelete`].
pub const FOLLOW_DELETE: &str = "follow_delete";

/// Having no duplicate is only suspicious among at least this many records.
const RECORDS_WITHOUT_DUPLICATE: u64 = 1_000_000;
/// Shares are only meaningful for at least this many records.
const RECORDS_MIN: u64 = 20;

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// All records.
    pub records: u64,
    /// Duplicates, for whatever reason.
    pub duplicate: u64,
    /// Stale ones, for whatever reason.
    pub stale: u64,
    /// Those that could not be judged.
    pub invalid: u64,
    /// Duplicates because their offset had been seen.
    pub replayed: u64,
    /// Dropped records that were equal to an earlier one, without the replayed.
    pub again: Again,
    /// Records with a version that were redelivered, without the replayed.
    pub redelivered: Redelivered,
    /// Those whose version was less than the one remembered.
    pub older: u64,
    /// How many different pairs of verdict and reason there were.
    pub reasons: usize,
    /// Those whose identity was read.
    pub identified: u64,
    /// Whether the rules have a version.
    pub has_version: bool,
    /// Those that have one.
    pub versioned: u64,
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
    /// Null values that were not forwarded because they are null.
    pub nulls_lost: u64,
    /// Deletes.
    pub deletes: u64,
    /// The word under `on_null_value`.
    pub on_null_value: &'static str,
    /// Those without an identity.
    pub unidentified: u64,
    /// Why the first such record could not be judged, and in words.
    pub rejection: Option<(Reason, String)>,
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
    let all = [
        unidentified,
        all_invalid,
        too_fine,
        redelivered,
        too_coarse,
        versions_missing,
        versions_fall,
        several_partitions,
        nulls_lost,
    ];
    all.iter().filter_map(|hint| hint(facts)).collect()
}

fn unidentified(facts: &Facts) -> Option<String> {
    (facts.unidentified > 0 && facts.unidentified * 2 >= facts.records).then(|| {
        format!(
            "{} of {} {} no identity (identity_missing): change `identity` to what these records have; lines without an \
             envelope have no key",
            facts.unidentified,
            counted(facts.records, "record"),
            agreeing(facts.unidentified, "has", "have")
        )
    })
}

fn all_invalid(facts: &Facts) -> Option<String> {
    let (reason, words) = facts.rejection.as_ref().filter(|(reason, _)| *reason != Reason::IdentityMissing)?;
    if facts.invalid != facts.records || facts.reasons != 1 {
        return None;
    }
    let change = match reason {
        Reason::ValueMalformed => "if values are not JSON, write `value_format: bytes` under `input`",
        Reason::KeyMalformed => "if keys are not JSON, write `key_format: bytes` under `input`",
        Reason::IdentityNotScalar => "name a field inside it, or take all of it with `{content: PATH}`",
        Reason::VersionMalformed if facts.malformed_version.is_some() => "`--explain` shows each record",
        Reason::VersionMalformed => "change `version`, or its `as`, to what these records have",
        Reason::VersionMissing => "change `version` to what these records have, or leave it out",
        Reason::NullValue => "write what to do with null values: `on_null_value`",
        Reason::TimestampInFuture => "raise `future_max`, or let the producers correct their clocks",
        Reason::Late => "lengthen `retention`, or let late records through with `on_late: forward`",
        _ => "`--explain` shows more",
    };
    Some(format!("every record is invalid ({reason}): {words}; {change}"))
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
    if identified < RECORDS_MIN || (duplicate + stale) * 2 <= identified {
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
    (facts.has_version && facts.identified > 0 && facts.versioned == 0).then(|| {
        let change = "change `version` to a field that these records have";
        let change = facts.without_version.unwrap_or(change);
        format!("no record has a version, so nothing is known to be old: {change}")
    })
}

fn versions_fall(facts: &Facts) -> Option<String> {
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
    if facts.nulls_lost == 0 || facts.deletes > 0 {
        return None;
    }
    let (lost, word) = (counted(facts.nulls_lost, "null value"), facts.on_null_value);
    let were = agreeing(facts.nulls_lost, "was", "were");
    Some(format!(
        "{lost} {were} not forwarded (`on_null_value: {word}`), and no delete came before any: in this \
                     stream a null value may itself be the delete, as in flattened change events and in compacted topics; \
                     write `on_null_value: forward` to pass them on"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(facts: &Facts) -> String {
        let hints = hints(facts);
        let [hint] = &hints[..] else { panic!("{hints:?}") };
        hint.clone()
    }

    fn judged(records: u64) -> Facts {
        Facts {
            records,
            identified: records,
            versioned: records,
            has_version: true,
            reasons: 3,
            on_null_value: FOLLOW_DELETE,
            ..Facts::default()
        }
    }

    #[test]
    fn good_counts_give_no_hint() {
        assert_eq!(
            hints(&Facts { duplicate: 10, older: 2, stale: 2, falls: 2, falls_forwarded: 0, ..judged(100) }),
            [""; 0]
        );
        assert_eq!(hints(&judged(0)), [""; 0]);
    }

    #[test]
    fn identity_that_is_too_fine_or_too_coarse_gets_a_hint() {
        assert!(only(&judged(1_000_000)).contains("too fine"));
        // an input that was read again says nothing about its identities
        let replayed = Facts { duplicate: 500, replayed: 500, ..judged(1_000_000) };
        assert!(only(&replayed).contains("too fine"));
        assert_eq!(hints(&judged(999_999)), [""; 0]);
        assert!(only(&Facts { duplicate: 51, ..judged(100) }).contains("too coarse"));
        assert_eq!(hints(&Facts { duplicate: 50, ..judged(100) }), [""; 0]);
        assert_eq!(hints(&Facts { duplicate: 19, ..judged(19) }), [""; 0]);
        assert!(only(&Facts { stale: 60, ..judged(100) }).contains("`version` may not be"));
    }

    #[test]
    fn redelivered_records_are_not_blamed_on_the_rules() {
        let again = Again { duplicate: 40, stale: 120 };
        let redelivered = Redelivered { versioned: 160, stale: 120, older: 120, falls: 120 };
        let facts = Facts { duplicate: 40, stale: 120, older: 120, falls: 120, again, redelivered, ..judged(200) };
        let hint = only(&facts);
        assert!(hint.contains("160 of 200 records came again") && hint.contains("nothing has to be changed"), "{hint}");
        let replayed = Facts { duplicate: 150, replayed: 150, identified: 50, versioned: 50, ..judged(200) };
        assert!(only(&replayed).contains("(150 with an offset that was there before, 0 "), "{}", only(&replayed));
        // a few do not need to be explained
        let again = Again { duplicate: 10, stale: 30 };
        let redelivered = Redelivered { versioned: 40, stale: 30, older: 30, falls: 30 };
        let few = Facts { duplicate: 10, stale: 30, older: 30, falls: 30, again, redelivered, ..judged(200) };
        assert_eq!(hints(&few), [""; 0]);
        // anything else that is wrong is reported as well
        let coarse = Facts { duplicate: 70, ..facts };
        assert!(hints(&coarse)[1].contains("did not just come again are dropped, most of them as duplicates"));
    }

    #[test]
    fn records_that_all_lack_a_version_get_a_hint() {
        assert!(only(&Facts { versioned: 0, ..judged(3) }).contains("no record has a version"));
        assert_eq!(hints(&Facts { versioned: 0, has_version: false, ..judged(3) }), [""; 0]);
        let without_version = Some("write a position");
        assert!(only(&Facts { versioned: 0, without_version, ..judged(3) }).contains("known to be old: write a pos"));
    }

    #[test]
    fn versions_that_fall_between_identities_are_normal() {
        let hint = only(&Facts { falls: 9, falls_forwarded: 7, ..judged(100) });
        assert!(hint.contains("would have dropped 7 good records") && hint.contains("normal"), "{hint}");
        let hint = only(&Facts { falls: 20, older: 18, stale: 18, falls_forwarded: 2, ..judged(100) });
        assert!(hint.contains("within an identity 18 times"), "{hint}");
    }

    #[test]
    fn versions_that_fall_only_when_redelivered_are_not_blamed_on_the_rules() {
        // redelivered with another time of sending: no record quite equals an earlier one
        let redelivered = Redelivered { versioned: 60, stale: 60, older: 60, falls: 60 };
        let facts = Facts { falls: 60, older: 60, stale: 60, redelivered, ..judged(200) };
        assert_eq!(hints(&facts), [""; 0]);
        let forwarded = Facts { falls: 80, falls_forwarded: 20, ..facts.clone() };
        let hint = only(&forwarded);
        let expected =
            "versions fall within partitions 20 times, and within an identity 0 times (60 more were redelivered";
        assert!(hint.contains(expected) && hint.contains("nothing has to be changed"), "{hint}");
        // over half of all records is reported, but not blamed on the rules
        let most = Facts { records: 100, identified: 100, versioned: 100, ..facts };
        let hint = only(&most);
        assert!(
            hint.contains("a version that had come before") && hint.contains("nothing has to be changed"),
            "{hint}"
        );
    }

    #[test]
    fn hint_counts_falls_without_redeliveries() {
        let redelivered = Redelivered { versioned: 50, stale: 50, older: 50, falls: 50 };
        let facts = Facts { falls: 90, older: 80, stale: 80, falls_forwarded: 10, redelivered, ..judged(200) };
        let hint = only(&facts);
        let expected = "within an identity 30 times, and between identities 10 times (50 more were redelivered";
        assert!(hint.contains(expected) && hint.contains("may not be what rises"), "{hint}");
    }

    #[test]
    fn identities_on_several_partitions_get_a_hint() {
        assert!(only(&Facts { on_several_partitions: 2, ..judged(100) }).contains("2 identities"));
    }

    #[test]
    fn lines_in_an_envelope_get_no_other_hint() {
        let facts = Facts { like_kcat: 1, versioned: 0, on_several_partitions: 3, ..judged(100) };
        assert!(only(&facts).contains("--envelope kcat"));
    }

    #[test]
    fn records_all_invalid_for_one_reason_get_a_hint_what_to_change() {
        for (reason, change) in [(Reason::ValueMalformed, "value_format: bytes"), (Reason::Late, "retention")] {
            let rejection = Some((reason, "it is so".to_owned()));
            let facts = Facts { records: 4, invalid: 4, reasons: 1, rejection, ..Facts::default() };
            let hint = only(&facts);
            assert!(hint.contains("it is so") && hint.contains(change), "{hint}");
            assert_eq!(hints(&Facts { reasons: 2, ..facts }), [""; 0]);
        }
    }

    #[test]
    fn presets_advice_about_malformed_versions_replaces_the_general_one() {
        let rejection = Some((Reason::VersionMalformed, "it is too low: set it".to_owned()));
        let malformed_version = Some("set it");
        let facts = Facts { records: 4, invalid: 4, reasons: 1, rejection, malformed_version, ..Facts::default() };
        assert_eq!(only(&facts).matches("`version`").count(), 0);
        assert!(only(&Facts { malformed_version: None, ..facts }).contains("change `version`"));
    }

    #[test]
    fn forwarded_records_without_an_identity_get_a_hint() {
        let rejection = Some((Reason::IdentityMissing, "value.id is missing".to_owned()));
        let facts = Facts { records: 10, unidentified: 5, identified: 5, rejection, ..Facts::default() };
        assert!(only(&facts).contains("5 of 10 records have no identity"));
        assert_eq!(hints(&Facts { unidentified: 4, ..facts }), [""; 0]);
    }

    #[test]
    fn null_values_that_may_be_deletes_get_a_hint() {
        let facts = Facts { nulls: 3, nulls_lost: 3, ..judged(100) };
        let hint = only(&facts);
        assert!(hint.contains("on_null_value: forward") && hint.contains(FOLLOW_DELETE), "{hint}");
        assert_eq!(hints(&Facts { deletes: 1, ..facts }), [""; 0]);
    }
}
