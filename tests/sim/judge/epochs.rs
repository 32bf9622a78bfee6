//! Which of two versions of different scopes is newer, from everything ever seen of each.
//!
//! Each scope has segments: the first begins with its first record, another one each time it comes back. Of two
//! segments, the one that began later is newer. A scope comes back with a record that meets what another scope's
//! segment wrote, and whose version is above everything its own scope had reached when that segment began. It may
//! have come back earlier without meeting anything: then what meets its later records must be above what its own
//! scope had reached by the next beginning.
//!
//! Records come in order of their offsets, each once.

/// How a version compares with one of another scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Newer,
    Older,
    /// Its scope comes back after this offset.
    ComesBack(i64),
}

#[derive(Clone)]
struct Segment {
    /// Its versions are above this; `None` for the first segment.
    above: Option<i128>,
    began: i64,
}

#[derive(Clone)]
struct Scope {
    name: String,
    segments: Vec<Segment>,
    /// The offset and version of everything seen.
    seen: Vec<(i64, i128)>,
}

impl Scope {
    /// Where the segment of a version began.
    fn began(&self, version: i128) -> i64 {
        let of = self.segments.iter().rfind(|segment| segment.above.is_none_or(|above| above < version));
        of.unwrap_or(&self.segments[0]).began
    }

    /// The highest version up to an offset, or the first version if there is none.
    fn reached(&self, upto: i64) -> i128 {
        let below = self.seen.iter().take_while(|(offset, _)| *offset <= upto);
        below.map(|(_, version)| *version).max().unwrap_or(self.seen[0].1)
    }

    /// Where it reached a version after `since` for the first time.
    fn came_back(&self, version: i128, since: i64) -> Option<i64> {
        if self.reached(since) >= version {
            return None;
        }
        let mut later = self.seen.iter().filter(|(offset, seen)| *offset > since && *seen >= version);
        later.next().map(|(offset, _)| *offset)
    }
}

/// All scopes, in the order first seen.
#[derive(Clone, Default)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// The number of scopes, and of their segments.
    pub fn counts(&self) -> (usize, usize) {
        (self.0.len(), self.0.iter().map(|scope| scope.segments.len()).sum())
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|scope| scope.name == name)
    }

    /// A scope's number; if it is new, the next one.
    pub fn number_or_next(&self, name: &str) -> usize {
        self.number(name).unwrap_or(self.0.len())
    }

    fn begins(&self) -> impl Iterator<Item = i64> {
        self.0.iter().flat_map(|scope| &scope.segments).map(|segment| segment.began)
    }

    /// What a scope had reached when any scope's next segment began after `offset`, or by now.
    fn reached_until_change(&self, scope: &Scope, offset: i64) -> i128 {
        let change = self.begins().filter(|began| *began > offset).min();
        scope.reached(change.unwrap_or(i64::MAX))
    }

    /// How the version of the next record, of the scope `name`, compares with one that another scope has written.
    pub fn relation(&self, name: &str, version: i128, (their_number, their_version): (usize, i128)) -> Relation {
        let theirs = &self.0[their_number];
        let since = theirs.began(their_version);
        let Some(ours) = self.number(name).map(|number| &self.0[number]) else { return Relation::Newer };
        let began = ours.began(version);
        if began <= since {
            return if version > ours.reached(since) { Relation::ComesBack(since) } else { Relation::Older };
        }
        match theirs.came_back(their_version, began) {
            None => Relation::Newer,
            Some(at) if version > self.reached_until_change(ours, at) => Relation::ComesBack(at),
            Some(_) => Relation::Older,
        }
    }

    /// Adds the next record: its version, and after which offset its scope came back, if it did.
    pub fn see(&mut self, name: &str, version: i128, offset: i64, came_back: Option<i64>) {
        let Some(number) = self.number(name) else {
            let segments = vec![Segment { above: None, began: offset }];
            return self.0.push(Scope { name: name.to_owned(), segments, seen: vec![(offset, version)] });
        };
        if let Some(since) = came_back {
            self.begin_segment(number, since, version, offset);
        }
        self.0[number].seen.push((offset, version));
    }

    /// Starts the segment of a scope that has come back. If another scope's segment began after it had reached this
    /// version unnoticed, its own begins before that one.
    fn begin_segment(&mut self, number: usize, since: i64, version: i128, offset: i64) {
        let ours = &self.0[number];
        let others: Vec<i64> = (0..self.0.len())
            .filter(|other| *other != number)
            .flat_map(|other| self.0[other].segments.iter().map(|segment| segment.began))
            .collect();
        let before_unnoticed = ours.seen.iter().find(|(at, seen)| *at > since && *seen >= version);
        let follower = before_unnoticed.and_then(|(at, _)| others.iter().filter(|began| **began > *at).min());
        let began = follower.map_or(offset, |follower| offset.min(follower - 1));
        let above = match others.iter().filter(|other| **other <= began).max() {
            Some(before) if *before < since => self.reached_until_change(ours, since),
            before => ours.reached(before.copied().unwrap_or(since)),
        };
        let segments = &mut self.0[number].segments;
        match segments.iter_mut().find(|segment| segment.above == Some(above)) {
            Some(same) => same.began = began,
            None => {
                segments.push(Segment { above: Some(above), began });
                segments.sort_by_key(|segment| segment.above);
            }
        }
    }
}
