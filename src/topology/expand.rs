//! A topology with its preset written out, as YAML that loads to the same topology.
//!
//! **Invariant.** The text decides, renders and expands like the topology that it came from. `presets::merge` merges
//! everything that a preset means there, and the same tree is compiled and printed. Only advice is lost: a preset's notes
//! become comments, and its hints about records without a version are no longer given.

use std::fmt::Write;

use super::keys::TOP;
use super::load::Loaded;
use super::presets::Preset;
use crate::yaml::Value;
use crate::yaml::tree::Entry;

/// Width at which comments are folded, in characters.
const WIDTH: usize = 106;

impl Loaded {
    /// The topology with its preset replaced by the preset's blocks. Substitutions (`${env:NAME}`) are left as written,
    /// and so are the comments at the file's beginning.
    pub fn expanded(&self) -> String {
        let head = self.file.text().lines().take_while(|line| line.starts_with('#'));
        let mut text: String = head.map(|line| format!("{}\n", line.trim_end())).collect();
        if let Some(preset) = self.topology.preset.as_deref().and_then(Preset::find) {
            comment(&mut text, "# ", &format!("What `preset: {}` stands for, written out.", preset.pinned()));
            preset.notes().iter().for_each(|note| comment(&mut text, "# - ", note));
        }
        let Value::Mapping(entries) = &self.tree.value else { return text };
        let order = |entry: &Entry| TOP.keys.iter().position(|key| key.name == entry.key);
        let mut entries: Vec<Entry> = entries.iter().filter(|entry| entry.key != "preset").cloned().collect();
        entries.sort_by_key(order);
        text.push_str(&crate::yaml::write::write(&entries));
        text
    }
}

/// A comment, folded, each further line indented.
fn comment(out: &mut String, begin: &str, text: &str) {
    let mut line = begin.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            // writing to a string never fails
            let _ = writeln!(out, "{line}");
            line = format!("#{:1$}", "", begin.len() - 1);
            empty = true;
        }
        line.push_str(if empty { "" } else { " " });
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
}
