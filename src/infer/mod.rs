//! Proposing a topology for captured records.
//!
//! - [`Sample`]: a bounded number of records, as trees; `by_schema` decodes records that name schemas
//! - `shape`: which system the records are from, and its preset
//! - `rows`: an identity from the row's columns, if the preset finds none
//! - `keys`, `flattened`, `cloud`, `dms`: keys that are not JSON, flattened events without a position, CloudEvents, AWS
//!   DMS with details of transactions
//! - `others`, `nulls`: TiCDC's Simple protocol and GoldenGate's rows; null values that say what they delete
//! - `names`, `cell`, `fields`, `trial`, `choose`: without a preset, which fields identify and version them
//! - `refused`: fields that would identify the records but for a few, and why they are not proposed
//! - `meaning`, `blocks`: how records are identified and ordered, by their shape
//! - `propose`, `draft`: the YAML, with its reasons as comments; `needed`: which parts of it a replay shows to be needed
//! - `ties`, `compared`: records with the identity and version of an earlier one, and what the proposal says of them
//! - `doubts`: doubts that appear when the proposal is replayed
//! - [`Tally`]: the verdicts of the proposed topology on the sample
//!
//! **Failure**: a capture that cannot be read, or a proposal that does not load, which would be a bug here.

use std::io;
use std::path::Path;

use crate::dedup::Reason;
use crate::topology::{self, Diagnostics, Environment, Process, Topology};

mod blocks;
mod by_schema;
mod cell;
mod choose;
mod cloud;
mod compared;
mod dms;
mod doubts;
mod draft;
mod fields;
mod flattened;
mod keys;
mod meaning;
pub(crate) mod names;
mod needed;
mod nulls;
mod others;
mod propose;
mod refused;
mod rows;
mod sample;
mod shape;
mod tally;
#[cfg(test)]
mod tests;
mod ties;
mod trial;

#[cfg(feature = "program")]
pub(crate) use draft::in_yaml;
pub use propose::{Proposal, Wanted};
pub use sample::{Sample, topic_of};
pub use tally::Tally;

use needed::Needed;
use propose::propose;
use ties::Ties;

/// Maximum number of corrections after replaying a proposal.
const CHANGES_MAX: usize = 8;

/// Proposes a topology, replays the sample with it, and corrects what turns out wrong: a preset that finds no keys to
/// identify rows by, keys that are not JSON, null values that are deletes themselves, records that are late, fields that
/// differ with each delivery.
pub fn infer(sample: &Sample, wanted: &Wanted) -> Result<(Proposal, Tally), Diagnostics> {
    let mut needed = Needed::default();
    let mut proposal = propose(sample, wanted, needed, &Ties::default());
    let mut topology = load(&proposal.text)?.for_json();
    let mut tally = Tally::of(sample, &topology);
    for _ in 0..CHANGES_MAX {
        let more = shown(needed, sample, &proposal, &tally);
        let changed = propose(sample, wanted, more, tally.ties());
        if changed == proposal {
            break;
        }
        (needed, proposal) = (more, changed);
        topology = load(&proposal.text)?.for_json();
        tally = Tally::of(sample, &topology);
    }
    doubts::add(&mut proposal, sample, &topology, &tally);
    Ok((proposal, tally))
}

/// The needs that these verdicts show, in addition to the earlier ones.
fn shown(needed: Needed, sample: &Sample, proposal: &Proposal, tally: &Tally) -> Needed {
    let is_most = |reason: Reason| tally.of_reason(reason) * 2 > sample.records.len();
    let is_flattened = proposal.preset.is_some() && sample.values().any(|(_, value)| value.get("__op").is_some());
    Needed {
        rows_identify: needed.rows_identify || is_most(Reason::IdentityMissing),
        raw_keys: needed.raw_keys || tally.of_reason(Reason::KeyMalformed) > 0,
        by_time: needed.by_time || (is_flattened && is_most(Reason::VersionMissing)),
        nulls_pass: needed.nulls_pass || tally.undeleted_nulls() > 0,
        forever: needed.forever || tally.of_reason(Reason::Late) > 0,
    }
}

/// The proposal's file name in mistakes.
const FILE: &str = "proposed.yaml";

/// Loads a topology that is not a file as `check` would.
pub(crate) fn load(text: &str) -> Result<Topology, Diagnostics> {
    Ok(topology::load(Path::new(FILE), &Proposed(text))?.topology)
}

/// This process's environment, plus the proposal as a file.
struct Proposed<'a>(&'a str);

impl Environment for Proposed<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        Process.variable(name)
    }

    fn variables(&self) -> Vec<(String, String)> {
        Process.variables()
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == Path::new(FILE) { Ok(self.0.into()) } else { Process.read_file(path) }
    }

    fn cores(&self) -> usize {
        Process.cores()
    }
}
