//! Positions that begin again: a run of records whose versions are new, rise among themselves, and are below the earlier
//! ones.
//!
//! Only one thing about such a run is certain: which of its records were dropped. A person has to find out why it came.

use std::collections::HashMap;

use crate::cli::replay::seen::Seen;
use crate::dedup::Reason;
use crate::words::{agreeing, counted};

/// Fewer records in a row are only disorder.
const RUN_MIN: u64 = 3;
/// Fewer stale ones among them are not worth a hint.
const STALE_MIN: u64 = 2;
/// A run of this many records counts even if versions rise above the highest after it; a shorter one has to last to the end.
const RUN_LONG: u64 = 20;
/// If more short runs than this ended, the stream's versions fall all the time, and no run is special.
const SHORT_MAX: u64 = 1;

/// The runs of all streams.
#[derive(Debug, Default)]
pub struct Restarts {
    streams: HashMap<(String, i32, Option<String>), Stream>,
}

/// The versions of one epoch in a partition.
#[derive(Debug, Default)]
struct Stream {
    highest: Vec<u8>,
    run: Run,
    /// The long run with the most dropped records.
    longest: Run,
    /// How many shorter runs ended, with stale records in them.
    short: u64,
}

/// Records in a row whose versions are below the highest.
#[derive(Clone, Debug, Default)]
struct Run {
    first: String,
    last: Vec<u8>,
    records: u64,
    falls: u64,
    stale: u64,
}

impl Stream {
    /// The run of which most was dropped: a long one, or the one that lasts.
    fn worst(&self) -> &Run {
        if self.run.stale > self.longest.stale { &self.run } else { &self.longest }
    }
}

impl Restarts {
    /// Watches a record with a version.
    pub fn add(&mut self, seen: &Seen<'_>, version: &[u8], was_redelivered: bool) {
        // a snapshot's reads have the position at which the snapshot began, and a redelivery has an earlier position
        if was_redelivered || seen.explanation.kind == Some("read") || seen.decision.reason == Reason::Replayed {
            return;
        }
        let name = (seen.record.topic.to_owned(), seen.record.partition, seen.explanation.epoch.clone());
        let stream = self.streams.entry(name).or_default();
        if version >= stream.highest.as_slice() {
            stream.highest.clear();
            stream.highest.extend_from_slice(version);
            let run = std::mem::take(&mut stream.run);
            if run.records < RUN_LONG {
                stream.short += u64::from(run.stale > 0);
            } else if run.stale > stream.longest.stale {
                stream.longest = run;
            }
            return;
        }
        let run = &mut stream.run;
        let is_fall = version < run.last.as_slice();
        if run.records == 0 || (is_fall && (run.falls + 1) * 2 > run.records) {
            *run = Run { first: seen.place(), ..Run::default() };
        } else if is_fall {
            run.falls += 1;
        }
        run.records += 1;
        run.stale += u64::from(seen.decision.reason == Reason::VersionOlder);
        if run.last.as_slice() < version {
            run.last.clear();
            run.last.extend_from_slice(version);
        }
    }

    /// The hint about the run of which most was dropped.
    pub fn hint(&self) -> Option<String> {
        let is_run = |run: &&Run| run.records >= RUN_MIN && run.stale >= STALE_MIN;
        let is_orderly = |stream: &&Stream| stream.short <= SHORT_MAX;
        let runs = || self.streams.values().filter(is_orderly).map(Stream::worst).filter(is_run);
        let Run { first, records, stale, .. } = runs().max_by_key(|run| (run.stale, &run.first))?;
        let more = runs().count() - 1;
        let more = if more == 0 { String::new() } else { format!(" (so in {})", counted(more, "more partition")) };
        Some(format!(
            "from {first} on, {} in a row {} versions below those before, which had not come before{more}, and {stale} of \
             them {} dropped as stale: positions may have begun again there (a new replication slot, a server that was \
             restored, upgraded or replaced, RESET MASTER, RESETLOGS), or old changes may have come that are not in this \
             capture; if positions began again, write an `epoch` block with another `const`, or with what names the server",
            counted(*records, "record"),
            agreeing(*records, "has", "have"),
            agreeing(*stale, "was", "were")
        ))
    }
}
