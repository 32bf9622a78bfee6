//! Names the rules that have changed, for the refusal that says so. The state folder keeps the texts of former rules
//! ([`crate::state::rules`]).

use std::path::Path;

use crate::dedup::Rules;
use crate::format::OffsetMetadata;
use crate::state::{StateDir, rules};
use crate::topology::Topology;

/// Keeps the text of the topology's rules, for a later refusal of other rules. A failure to write it matters only then.
pub fn keep(slot: &StateDir, topology: &Topology) {
    let (text, short) = (topology.rules.text(), OffsetMetadata::short_digest(&topology.rules.digest()));
    if let Err(error) = rules::keep(slot, &topology.name, &short, &text) {
        tracing::warn!(topology = topology.name, %error, "the rules' text was not kept: a later refusal cannot say what they were");
    }
}

/// The rules that differ from those under which the topology's state was made, which have this short digest, if a state
/// folder (one of `root`'s slots, or `root`) has their text. Continues a sentence.
pub fn changes(root: &Path, topology: &Topology, found: &str) -> String {
    let is_theirs = |text: &str| OffsetMetadata::short_digest(&Rules::digest_of(text)) == found;
    match rules::find(root, &topology.name, found, is_theirs) {
        None => format!("the text of the former rules is not in {}", root.display()),
        Some(former) => topology.rules.changes_since(&former).join("; "),
    }
}
