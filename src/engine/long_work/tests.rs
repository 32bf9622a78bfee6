//! Goal: one line every ten seconds and no others, with the numbers of the work done.

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Records a slice of a walk. Returns the line that is then due.
fn slice(walks: &mut Walks, seconds: u64, walked: u64, removed: u64, remaining: Option<u64>) -> Option<Line> {
    let walk = walks.walk.as_mut().unwrap();
    walk.removed += removed;
    walk.pace.at(at(seconds), walk.pace.done() + walked, remaining.unwrap_or(0));
    walks.line(at(seconds), remaining.is_none())
}

#[test]
fn restore_is_logged_every_ten_seconds() {
    let mut restoring = Restoring::begin(at(100), 4_000);
    let mut logged = Vec::new();
    for second in 1..=40 {
        let done = second * 100;
        restoring.pace.at(at(100 + second), done, 4_000 - done);
        if restoring.is_due(at(100 + second)) {
            logged.push((
                second,
                restoring.pace.per_second().unwrap() as u64,
                restoring.pace.left().unwrap().as_secs(),
            ));
        }
    }
    assert_eq!(logged, [(10, 100, 30), (20, 100, 20), (30, 100, 10)], "its end is logged separately");
}

#[test]
fn finished_walk_is_logged() {
    let mut walks = Walks::default();
    walks.begin(at(5), 500);
    let line = slice(&mut walks, 7, 500, 20, None);
    assert_eq!(line, Some(Line::Ended(EndedWalks { walks: 1, walked: 500, removed: 20, took: at(2) })));
}

#[test]
fn long_walk_is_logged_while_it_is_under_way() {
    let mut walks = Walks::default();
    walks.begin(at(0), 2_500);
    let lines: Vec<_> = (1..=25)
        .filter_map(|second| {
            let remaining = 2_500 - second * 100;
            slice(&mut walks, second, 100, 1, (remaining > 0).then_some(remaining))
        })
        .collect();
    let walking = |walked: u64| Line::Walking {
        walked,
        removed: walked / 100,
        remaining: 2_500 - walked,
        per_second: Some(100),
        done_in_s: Some((2_500 - walked) / 100),
    };
    let ended = Line::Ended(EndedWalks { walks: 1, walked: 2_500, removed: 25, took: at(25) });
    assert_eq!(lines, [walking(1_000), walking(2_000), ended]);
}

#[test]
fn walks_that_follow_each_other_closely_share_a_line() {
    let mut walks = Walks::default();
    let mut lines = Vec::new();
    for second in 0..25 {
        walks.begin(at(second), 10);
        lines.extend(slice(&mut walks, second, 10, 1, None));
    }
    let ended = |walks| Line::Ended(EndedWalks { walks, walked: walks * 10, removed: walks, took: at(0) });
    assert_eq!(lines, [ended(1), ended(10), ended(10)], "every walk but the last is in one of the lines");
}

#[test]
fn walk_over_an_empty_store_is_not_logged() {
    let mut walks = Walks::default();
    walks.begin(at(0), 0);
    assert_eq!(slice(&mut walks, 0, 0, 0, None), None);
}

#[test]
fn restarted_walk_counts_from_zero() {
    let mut walks = Walks::default();
    walks.begin(at(0), 1_000);
    assert_eq!(slice(&mut walks, 1, 400, 4, Some(600)), None);
    walks.begin(at(2), 1_000);
    assert_eq!(walks.walked(), 0);
    let line = slice(&mut walks, 3, 1_000, 10, None);
    assert_eq!(line, Some(Line::Ended(EndedWalks { walks: 1, walked: 1_000, removed: 10, took: at(1) })));
}
