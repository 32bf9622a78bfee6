//! Describes which rules have changed, for the refusal of changed rules. The state folder contains the texts of former
//! rules ([`crate::state::rules`]).

use std::path::Path;

use crate::dedup::Rules;
use crate::format::OffsetMetadata;
use crate::state::{StateSlot, rules};
use crate::topology::Topology;

/// Saves the text of the topology's rules, for a later refusal of changed rules. Only that refusal needs the text, so a
/// failure to write it is merely logged.
pub fn save(slot: &StateSlot, topology: &Topology) {
    let (text, short_digest) = (topology.rules.text(), OffsetMetadata::short_digest(&topology.rules.digest()));
    if let Err(error) = rules::save(slot, &topology.name, &short_digest, &text) {
        tracing::warn!(
            topology = topology.name, %error,
            "the rules' text was not saved: a later refusal cannot describe the changes"
        );
    }
}

/// Describes the difference between the topology's rules and the former rules with this short digest, under which its
/// state was written, if a state folder (one of `root`'s slots, or `root`) has their text. The result continues a
/// sentence.
pub fn changes(root: &Path, topology: &Topology, digest: &str) -> String {
    let has_digest = |text: &str| OffsetMetadata::short_digest(&Rules::digest_of(text)) == digest;
    match rules::find(root, &topology.name, digest, has_digest) {
        None => format!("the text of the former rules is not in {}", root.display()),
        Some(former) => topology.rules.changes_since(&former).join("; "),
    }
}
