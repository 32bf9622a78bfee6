//! The store's own clock: it goes as the world's does, and is set now and then. All that it has shown is known, so that
//! what has passed on it can be judged.

use std::time::Duration;

/// What it shows at first, so that it is never set to before its beginning.
const BEGINS_MS: i64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Clock {
    /// Since when, and how far it is ahead of the world's.
    set: Vec<(Duration, i64)>,
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("a short run")
}

impl Clock {
    pub fn new() -> Clock {
        Clock { set: vec![(Duration::ZERO, BEGINS_MS)] }
    }

    /// What it shows.
    pub fn at(&self, now: Duration) -> i64 {
        ms(now) + self.set.last().expect("it was begun").1
    }

    /// It is set forth, or back.
    pub fn set(&mut self, now: Duration, by_ms: i64) {
        let (_, ahead) = *self.set.last().expect("it was begun");
        self.set.push((now, ahead + by_ms));
    }

    /// The least that it has shown in this time.
    pub fn least(&self, from: Duration, to: Duration) -> i64 {
        self.shown(from, to).map(|(first, _)| first).min().expect("it always shows something")
    }

    /// The most that it has shown in this time.
    pub fn most(&self, from: Duration, to: Duration) -> i64 {
        self.shown(from, to).map(|(_, last)| last).max().expect("it always shows something")
    }

    /// What it has shown from one setting to the next.
    fn shown(&self, from: Duration, to: Duration) -> impl Iterator<Item = (i64, i64)> {
        self.set.iter().enumerate().filter_map(move |(number, (since, ahead))| {
            let until = self.set.get(number + 1).map_or(Duration::MAX, |(next, _)| *next);
            let (first, last) = (from.max(*since), to.max(from).min(until));
            (first <= last).then(|| (ms(first) + ahead, ms(last) + ahead))
        })
    }
}
