//! Proposing a topology for captured records.
//!
//! - [`Sample`]: a bounded number of records, as trees
//! - `shape`: which system the records are from, and its preset
//! - `rows`: an identity from the row's columns, if the preset finds none
//! - `names`, `cell`, `fields`, `choose`: without a preset, which fields identify and version them
//! - `propose`: the YAML, with its reasons as comments
//! - [`Tally`]: the verdicts of the proposed topology on the sample
//!
//! **Failure**: a capture that cannot be read, or a proposal that does not load, which would be a bug here.

use std::io;
use std::path::Path;

use crate::dedup::Reason;
use crate::topology::{self, Diagnostics, Environment, Process, Topology};
use crate::words::{agreeing, counted};

mod cell;
mod choose;
mod fields;
mod names;
mod propose;
mod rows;
mod sample;
mod shape;
mod tally;
#[cfg(test)]
mod tests;

pub use propose::{Proposal, Wanted};
pub use sample::{Sample, topic_of};
pub use tally::Tally;

use propose::propose;

/// Proposes a topology and replays the sample with it. If a preset finds no keys to identify rows by, a second
/// proposal takes the rows' own fields.
pub fn infer(sample: &Sample, wanted: &Wanted) -> Result<(Proposal, Tally), Diagnostics> {
    let mut proposal = propose(sample, wanted, false);
    let mut topology = load(&proposal.text)?;
    let mut tally = Tally::of(sample, &topology);
    if proposal.preset.is_some() && tally.of_reason(Reason::IdentityMissing) * 2 > sample.records.len() {
        proposal = propose(sample, wanted, true);
        topology = load(&proposal.text)?;
        tally = Tally::of(sample, &topology);
    }
    for (reason, what) in [(Reason::IdentityMissing, "identity"), (Reason::VersionMissing, "version")] {
        let count = tally.of_reason(reason);
        if count > 0 {
            let hint = topology.hint(reason).map_or_else(String::new, |hint| format!(": {hint}"));
            let topics = tally.topics_of(reason, sample);
            let of = format!("{count} of {}", counted(sample.records.len(), "record"));
            proposal.unsure.push(format!("{of} {} no {what}{topics}{hint}", agreeing(count, "has", "have")));
        }
    }
    if let Some(words) = tally.all_invalid() {
        proposal.unsure.insert(0, format!("by what is proposed, every record that was looked at is invalid: {words}"));
    }
    Ok((proposal, tally))
}

/// The proposal's file name in mistakes.
const FILE: &str = "proposed.yaml";

/// Loads the proposed topology as `check` would.
fn load(text: &str) -> Result<Topology, Diagnostics> {
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
