//! Findings beyond counts: times and their units, positions that begin again, encoded bytes that ratchet does not read.
//!
//! Nothing here judges. Each part remembers little, however long the capture is.

use super::hints::Noticed;
use super::seen::Seen;
use crate::dedup::Rules;

mod forms;
mod restarts;
mod times;

use forms::Forms;
use restarts::Restarts;
use times::Times;

/// Everything that is watched.
#[derive(Debug)]
pub struct Watch {
    forms: Forms,
    restarts: Restarts,
    times: Times,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(rules: &Rules) -> Self {
        Self { forms: Forms::new(rules), restarts: Restarts::default(), times: Times::new(rules) }
    }

    /// Watches a record. `was_redelivered`: its identity had its version before.
    pub fn add(&mut self, seen: &Seen<'_>, was_redelivered: bool) {
        self.forms.add(seen);
        self.times.add(seen);
        if let Some(version) = seen.version {
            self.restarts.add(seen, version, was_redelivered);
        }
    }

    /// The findings among this many records.
    pub fn noticed(&self, records: u64) -> Noticed {
        let (restart, units) = (self.restarts.hint(), self.times.units());
        let (beyond, stamps) = (self.times.beyond().filter(|_| units.is_none()), self.times.timestamps(records));
        Noticed {
            explains_stale: restart.is_some() || units.is_some() || beyond.is_some(),
            explained: self.times.explained(records),
            hints: [units, beyond, restart, stamps, self.forms.hint()].into_iter().flatten().collect(),
        }
    }
}
