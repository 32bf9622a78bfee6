//! Which rule has changed, where a refusal says that the rules have: the texts of former rules are kept in the state folder
//! ([`crate::state::rules`]).

use std::path::Path;

use crate::dedup::Rules;
use crate::format::OffsetMetadata;
use crate::state::{StateDir, rules};
use crate::topology::Topology;

/// Keeps the text of the topology's rules, for the day on which others are refused. That it could not be written matters
/// only then.
pub fn keep(slot: &StateDir, topology: &Topology) {
    let (text, short) = (topology.rules.text(), OffsetMetadata::short_digest(&topology.rules.digest()));
    if let Err(error) = rules::keep(slot, &topology.name, &short, &text) {
        tracing::warn!(topology = topology.name, %error, "the rules' text was not kept: a later refusal cannot say what they were");
    }
}

/// Which rules are other ones than those with this short digest, under which the topology's state was made, as far as a
/// state folder (one of `root`'s slots, or `root`) knows. Continues a sentence.
pub fn changes(root: &Path, topology: &Topology, found: &str) -> String {
    let is_theirs = |text: &str| OffsetMetadata::short_digest(&Rules::digest_of(text)) == found;
    match rules::find(root, &topology.name, found, is_theirs) {
        None => format!("the text of the former rules is not in {}", root.display()),
        Some(former) => topology.rules.changes_since(&former).join("; "),
    }
}
