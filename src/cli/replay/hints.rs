//! What a summary's counts say about the rules: each hint names what looks wrong and what to change.

use crate::dedup::Reason;

/// The word of [`crate::dedup::OnNull::FollowDelete`].
pub const FOLLOW_DELETE: &str = "follow_delete";

/// In fewer records it says nothing that there is no duplicate.
const RECORDS_WITHOUT_DUPLICATE: u64 = 1_000_000;
/// Shares of fewer records say nothing.
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
    /// Duplicates because their offset was there before.
    pub replayed: u64,
    /// Those of the dropped ones that were equal to one before, other than the replayed.
    pub again: Again,
    /// Those whose version was less than the one remembered.
    pub older: u64,
    /// How many different verdicts and reasons there were.
    pub reasons: usize,
    /// Those whose identity was read.
    pub identified: u64,
    /// Whether the rules have a version.
    pub has_version: bool,
    /// Those that have one.
    pub versioned: u64,
    /// What the preset says of records without a version.
    pub without_version: Option<String>,
    /// Versions below the highest of their partition.
    pub falls: u64,
    /// Those of them that were forwarded.
    pub falls_forwarded: u64,
    /// Identities on several partitions.
    pub on_several_partitions: u64,
    /// Null values.
    pub nulls: u64,
    /// Null values that were not forwarded for being null.
    pub nulls_lost: u64,
    /// Deletes.
    pub deletes: u64,
    /// The word under `on_null_value`.
    pub on_null_value: &'static str,
    /// Those without an identity.
    pub unidentified: u64,
    /// Why the first record that could not be judged could not be, and in which words.
    pub refusal: Option<(Reason, String)>,
    /// Lines that are kcat's envelope though nobody said so.
    pub like_kcat: u64,
}

/// Of the dropped records those whose partition had brought the same key, value and headers before: they were
/// redelivered, which says nothing against the rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Again {
    /// Duplicates.
    pub duplicate: u64,
    /// Stale ones.
    pub stale: u64,
    /// Those whose version was less than the one remembered.
    pub older: u64,
    /// Those that have a version.
    pub versioned: u64,
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
        // all else would follow from this
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
            "{} of {} records have no identity (identity_missing): change `identity` to what these records have; lines \
             without an envelope have no key",
            facts.unidentified, facts.records
        )
    })
}

fn all_invalid(facts: &Facts) -> Option<String> {
    let (reason, words) = facts.refusal.as_ref().filter(|(reason, _)| *reason != Reason::IdentityMissing)?;
    if facts.invalid != facts.records || facts.reasons != 1 {
        return None;
    }
    let change = match reason {
        Reason::ValueMalformed => "if values are no JSON, write `value_format: bytes` under `input`",
        Reason::KeyMalformed => "if keys are no JSON, write `key_format: bytes` under `input`",
        Reason::IdentityNotScalar => "name a field inside it, or take all of it by `{content: PATH}`",
        Reason::VersionMalformed => "change `version`, or its `as`, to what these records have",
        Reason::VersionMissing => "change `version` to what these records have, or leave it out",
        Reason::NullValue => "write what to do with null values: `on_null_value`",
        Reason::TimestampInFuture => "raise `future_max`, or let the producers correct their clocks",
        Reason::Late => "lengthen `retention`, or let late records through by `on_late: forward`",
        _ => "`--explain` tells more",
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
             headers of a record before): the input was redelivered, and nothing has to be changed, unless records that \
             are equal mean different things",
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
    Some(if stale > duplicate {
        format!(
            "{what}, most of them as stale: `version` may not be what rises with each change of an identity, \
             or `identity` is too coarse; `--explain` shows what each lost against"
        )
    } else {
        format!(
            "{what}, most of them as duplicates: `identity` may be too coarse; add what tells two things, or two \
             changes of a thing, apart, or a `version`"
        )
    })
}

fn versions_missing(facts: &Facts) -> Option<String> {
    (facts.has_version && facts.identified > 0 && facts.versioned == 0).then(|| {
        let change = "change `version` to a field that these records have";
        let change = facts.without_version.as_deref().unwrap_or(change);
        format!("no record has a version, so nothing is known to be old: {change}")
    })
}

fn versions_fall(facts: &Facts) -> Option<String> {
    // What is told are all of them, as they stand above the hints.
    let (older, falls) = (facts.older - facts.again.older, facts.falls - facts.again.falls);
    let rarely_within = older * 4 <= falls;
    if facts.falls_forwarded > 0 && rarely_within {
        return Some(format!(
            "versions fall within partitions {} times, and within an identity {} times: that is normal for change data \
             capture, and where each identity counts by itself, and nothing has to be changed; a high-water mark for \
             each partition would have dropped {} good records",
            facts.falls, facts.older, facts.falls_forwarded
        ));
    }
    let versioned = facts.versioned - facts.again.versioned;
    (versioned >= RECORDS_MIN && older * 10 > versioned && !rarely_within).then(|| {
        format!(
            "versions fall within an identity {} times, rarely elsewhere: unless the input was redelivered with \
             other values or written by several at once, `version` may not be what rises with each change; `--explain` \
             shows them",
            facts.older
        )
    })
}

fn several_partitions(facts: &Facts) -> Option<String> {
    (facts.on_several_partitions > 0).then(|| {
        format!(
            "{} identities are on several partitions, where their duplicates are not recognised: let the producer \
             partition by what `identity` reads, or take something that stays in one partition",
            facts.on_several_partitions
        )
    })
}

fn nulls_lost(facts: &Facts) -> Option<String> {
    if facts.nulls_lost == 0 || facts.deletes > 0 {
        return None;
    }
    let (lost, word) = (facts.nulls_lost, facts.on_null_value);
    Some(format!(
        "{lost} null values were not forwarded (`on_null_value: {word}`), and no delete stood before any: in this \
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
    fn an_identity_that_is_too_fine_or_too_coarse_is_told() {
        assert!(only(&judged(1_000_000)).contains("too fine"));
        // an input that was read again says nothing of its identities
        let replayed = Facts { duplicate: 500, replayed: 500, ..judged(1_000_000) };
        assert!(only(&replayed).contains("too fine"));
        assert_eq!(hints(&judged(999_999)), [""; 0]);
        assert!(only(&Facts { duplicate: 51, ..judged(100) }).contains("too coarse"));
        assert_eq!(hints(&Facts { duplicate: 50, ..judged(100) }), [""; 0]);
        assert_eq!(hints(&Facts { duplicate: 19, ..judged(19) }), [""; 0]);
        assert!(only(&Facts { stale: 60, ..judged(100) }).contains("`version` may not be"));
    }

    #[test]
    fn what_was_only_redelivered_says_nothing_against_the_rules() {
        let again = Again { duplicate: 40, stale: 120, older: 120, versioned: 160, falls: 120 };
        let facts = Facts { duplicate: 40, stale: 120, older: 120, falls: 120, again, ..judged(200) };
        let hint = only(&facts);
        assert!(hint.contains("160 of 200 records came again") && hint.contains("nothing has to be changed"), "{hint}");
        let replayed = Facts { duplicate: 150, replayed: 150, identified: 50, versioned: 50, ..judged(200) };
        assert!(only(&replayed).contains("(150 with an offset that was there before, 0 "), "{}", only(&replayed));
        // a few do not need to be explained
        let few = Again { duplicate: 10, stale: 30, older: 30, versioned: 40, falls: 30 };
        assert_eq!(
            hints(&Facts { duplicate: 10, stale: 30, older: 30, falls: 30, again: few, ..judged(200) }),
            [""; 0]
        );
        // what is wrong beside that is told as well
        let coarse = Facts { duplicate: 70, ..facts };
        assert!(hints(&coarse)[1].contains("did not just come again are dropped, most of them as duplicates"));
    }

    #[test]
    fn versions_that_are_missing_everywhere_are_told() {
        assert!(only(&Facts { versioned: 0, ..judged(3) }).contains("no record has a version"));
        assert_eq!(hints(&Facts { versioned: 0, has_version: false, ..judged(3) }), [""; 0]);
        let without_version = Some("write a position".to_owned());
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
    fn identities_on_several_partitions_are_told() {
        assert!(only(&Facts { on_several_partitions: 2, ..judged(100) }).contains("2 identities"));
    }

    #[test]
    fn lines_in_an_envelope_are_told_and_nothing_else() {
        let facts = Facts { like_kcat: 1, versioned: 0, on_several_partitions: 3, ..judged(100) };
        assert!(only(&facts).contains("--envelope kcat"));
    }

    #[test]
    fn records_that_are_all_invalid_for_one_reason_are_told_with_what_to_change() {
        for (reason, change) in [(Reason::ValueMalformed, "value_format: bytes"), (Reason::Late, "retention")] {
            let refusal = Some((reason, "it is so".to_owned()));
            let facts = Facts { records: 4, invalid: 4, reasons: 1, refusal, ..Facts::default() };
            let hint = only(&facts);
            assert!(hint.contains("it is so") && hint.contains(change), "{hint}");
            assert_eq!(hints(&Facts { reasons: 2, ..facts }), [""; 0]);
        }
    }

    #[test]
    fn records_without_an_identity_are_told_also_where_they_are_forwarded() {
        let refusal = Some((Reason::IdentityMissing, "value.id is missing".to_owned()));
        let facts = Facts { records: 10, unidentified: 5, identified: 5, refusal, ..Facts::default() };
        assert!(only(&facts).contains("5 of 10 records have no identity"));
        assert_eq!(hints(&Facts { unidentified: 4, ..facts }), [""; 0]);
    }

    #[test]
    fn null_values_that_may_be_deletes_are_told() {
        let facts = Facts { nulls: 3, nulls_lost: 3, ..judged(100) };
        let hint = only(&facts);
        assert!(hint.contains("on_null_value: forward") && hint.contains(FOLLOW_DELETE), "{hint}");
        assert_eq!(hints(&Facts { deletes: 1, ..facts }), [""; 0]);
    }
}
