//! Goal: ranges hold exactly the offsets that were added, and time only moves forward.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::dedup::tests::rules;

#[test]
fn continuous_read_is_one_range() {
    let mut ranges = Ranges::new();
    (5..10).for_each(|offset| ranges.add(offset).unwrap());
    ranges.add_range(10, 12).unwrap();
    ranges.add(12).unwrap();
    assert_eq!(ranges.as_pairs(), [(5, 13)]);
    assert!(ranges.contains(11) && !ranges.contains(13) && !ranges.contains(4));
}

#[test]
fn skip_starts_a_new_range_and_filling_it_joins_them() {
    let mut ranges = Ranges::from_pairs([(20, 30), (0, 10)], &Bounds::DEFAULT).unwrap();
    assert_eq!(ranges.as_pairs(), [(0, 10), (20, 30)]);
    ranges.add_range(10, 15).unwrap();
    ranges.add_range(15, 18).unwrap();
    assert_eq!(ranges.as_pairs(), [(0, 18), (20, 30)]);
    ranges.add_range(17, 25).unwrap();
    assert_eq!(ranges.as_pairs(), [(0, 30)]);
    ranges.add_range(7, 7).unwrap();
    ranges.add(3).unwrap();
    assert_eq!(ranges.as_pairs(), [(0, 30)]);
}

#[test]
fn full_ranges_reject_a_new_one_but_still_grow() {
    let mut ranges = Ranges::from_pairs((0..RANGES_MAX as i64).map(|i| (i * 3, i * 3 + 1)), &Bounds::DEFAULT).unwrap();
    assert_eq!(ranges.add(100_000), Err(Error::TooManyRanges(RANGES_MAX)));
    assert_eq!(ranges.as_pairs().len(), RANGES_MAX);
    ranges.add(1).unwrap();
    ranges.add(2).unwrap();
    ranges.add(100_000).unwrap();
    assert_eq!(ranges.as_pairs()[0], (0, 4));
    assert_eq!(ranges.as_pairs().len(), RANGES_MAX);
}

proptest! {
    #[test]
    fn ranges_hold_what_was_added(pairs in prop::collection::vec((0_i64..60, 0_i64..8), 0..20)) {
        let mut ranges = Ranges::new();
        let mut expected = BTreeSet::new();
        for (from, length) in pairs {
            ranges.add_range(from, from + length).unwrap();
            expected.extend(from..from + length);
            prop_assert!((-1..70).all(|offset| ranges.contains(offset) == expected.contains(&offset)));
            let all = |from: i64, to: i64| (from..to).all(|offset| expected.contains(&offset));
            prop_assert!((-1..70).all(|to| ranges.contains_all(from, to) == all(from, to)));
            prop_assert!(ranges.as_pairs().iter().all(|(from, to)| from < to));
            prop_assert!(ranges.as_pairs().windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
        prop_assert_eq!(Ranges::from_pairs(ranges.as_pairs().iter().rev().copied(), &Bounds::DEFAULT), Ok(ranges));
    }
}

#[test]
fn greatest_possible_offset_is_handled() {
    let mut ranges = Ranges::new();
    ranges.add(i64::MAX - 1).unwrap();
    ranges.add(i64::MAX).unwrap();
    assert_eq!(ranges.as_pairs(), [(i64::MAX - 1, i64::MAX)]);
}

#[test]
fn stream_time_and_horizon_never_go_back() {
    let mut rules = rules(&["value"], None);
    rules.retention = Retention::For { ms: 100 };
    let mut progress = Progress::default();
    progress.advance(&rules, None);
    assert_eq!(progress, Progress::default());
    for (timestamp, expected) in [(1000, (1000, 900)), (500, (1000, 900)), (1100, (1100, 1000))] {
        progress.advance(&rules, Some(timestamp));
        assert_eq!((progress.stream_time, progress.horizon), expected);
    }
    // A longer retention does not bring back what has expired; a shorter one moves the horizon at once.
    rules.retention = Retention::For { ms: 1000 };
    progress.advance(&rules, Some(1200));
    assert_eq!((progress.stream_time, progress.horizon), (1200, 1000));
    rules.retention = Retention::Forever;
    progress.advance(&rules, Some(1300));
    assert_eq!((progress.stream_time, progress.horizon), (1300, 1000));
    rules.retention = Retention::For { ms: 10 };
    progress.advance(&rules, Some(0));
    assert_eq!((progress.stream_time, progress.horizon), (1300, 1290));
}
