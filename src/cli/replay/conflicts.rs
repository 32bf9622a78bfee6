//! Records with an identity and a version that were seen, but with other contents: the fact that exposes nearly every rule
//! that is too coarse. The first is remembered with the record that it conflicts with, and what differs between them.
//!
//! Memory: the records that were passed on, up to [`VALUES_BYTES_MAX`] bytes and [`VALUES_MAX`] identities. Beyond that a
//! conflict is counted, and what it conflicts with may not be named.

use std::collections::HashMap;
use std::fmt;

use super::advice::{NAMED_MAX, advice, differing_id, quoted};
use super::seen::{Seen, captured};
use crate::capture::Captured;
use crate::dedup::{Action, ContentsPart, Path, Reason, Rules};
use crate::infer;
use crate::rehearsal::Contrast;
use crate::topology::Topology;

/// Maximum bytes of the records that are kept to compare with.
const VALUES_BYTES_MAX: usize = 256 << 20;
/// Maximum number of identities whose record is kept.
const VALUES_MAX: usize = 1_000_000;
/// The conflicts seen so far.
#[derive(Debug)]
pub struct Conflicts {
    rules: Rules,
    /// Whether the records, which are JSON here, were decoded by their schemas.
    reads_schemas: bool,
    /// The last record that was passed on, by topic, partition and identity.
    records: HashMap<(String, i32, String), Kept>,
    bytes: usize,
    /// How many were forwarded, and how many were not.
    forwarded: u64,
    held_back: u64,
    has_version: bool,
    first: Option<Example>,
    /// The preset, if it says what conflicts are, and passes them on: see [`preset_that_forwards`].
    pub(super) preset: Option<String>,
}

#[derive(Debug)]
struct Kept {
    captured: Captured,
    kind: Option<&'static str>,
    version: Option<String>,
}

impl Kept {
    /// How many bytes it takes, roughly.
    fn bytes(&self) -> usize {
        let Captured { key, value, headers, .. } = &self.captured;
        [key, value].into_iter().flatten().map(Vec::len).sum::<usize>() + headers.byte_len()
    }
}

/// The first conflict.
#[derive(Debug)]
struct Example {
    place: String,
    identity: String,
    version: Option<String>,
    action: Action,
    /// The record that it conflicts with.
    other: Option<Other>,
}

#[derive(Debug)]
struct Other {
    place: String,
    contrast: Contrast,
    /// Whether the two were decoded by their schemas.
    reads_schemas: bool,
    /// What would settle such conflicts, as far as the two records show it.
    advice: Option<String>,
    /// A field that is an id by its name, and differs.
    id: Option<Path>,
}

impl Conflicts {
    /// No conflict seen yet. The rules are for records as JSON; `reads_schemas` if they were decoded by their schemas.
    pub fn new(rules: &Rules, reads_schemas: bool) -> Self {
        Self {
            rules: rules.clone(),
            reads_schemas,
            records: HashMap::new(),
            bytes: 0,
            forwarded: 0,
            held_back: 0,
            has_version: false,
            first: None,
            preset: None,
        }
    }

    /// Notes a judged record.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let Seen { record, decision, explanation, .. } = seen;
        let Some(identity) = &explanation.identity else { return };
        let is_conflict = decision.reason.is_conflict();
        let key = (record.topic.to_owned(), record.partition, identity.clone());
        if is_conflict {
            self.has_version |= decision.reason == Reason::VersionTied;
            let count = if decision.action == Action::Forward { &mut self.forwarded } else { &mut self.held_back };
            *count += 1;
            if self.first.is_none() {
                let kept = self.records.get(&key).filter(|kept| kept.version == explanation.version);
                self.first = Some(Example {
                    place: place(record.topic, record.partition, record.offset),
                    identity: identity.clone(),
                    version: explanation.version.clone(),
                    action: decision.action,
                    other: kept.map(|kept| Other::of((&self.rules, self.reads_schemas), kept, seen)),
                });
                // Only the first is explained.
                self.records = HashMap::new();
            }
        }
        if decision.action == Action::Forward && record.value.is_some() && self.first.is_none() {
            let version = explanation.version.clone();
            self.keep(key, Kept { captured: captured(record), kind: explanation.kind, version });
        }
    }

    /// Keeps a record, if there is room.
    fn keep(&mut self, key: (String, i32, String), kept: Kept) {
        let former = self.records.get(&key).map(Kept::bytes);
        let bytes = self.bytes - former.unwrap_or(0) + kept.bytes();
        if bytes <= VALUES_BYTES_MAX && (former.is_some() || self.records.len() < VALUES_MAX) {
            self.bytes = bytes;
            self.records.insert(key, kept);
        } else if former.is_some() {
            // Nothing is kept rather than a record that was followed by another.
            self.bytes -= former.unwrap_or(0);
            self.records.remove(&key);
        }
    }
}

impl Other {
    /// What this conflict shows beside the record that it conflicts with.
    fn of((rules, reads_schemas): (&Rules, bool), kept: &Kept, seen: &Seen<'_>) -> Self {
        let Captured { topic, partition, offset, .. } = &kept.captured;
        let later = captured(seen.record);
        let mut contrast = Contrast::of(rules, (&kept.captured, kept.kind), (&later, seen.explanation.kind));
        // The bytes of a record contain the id of its schema.
        let is_written = rules.contents.as_ref().is_some_and(|of| matches!(of.parts[..], [ContentsPart::Written(_)]));
        contrast.is_only_written |= reads_schemas && is_written && contrast == Contrast::default();
        let advice = advice(rules, &contrast, &kept.captured, &later);
        let id = differing_id(rules, &contrast.compared, &later).filter(|_| contrast.kinds.is_none()).cloned();
        Self { place: place(topic, *partition, *offset), contrast, reads_schemas, advice, id }
    }

    /// In what the two differ, as far as it can be named.
    fn differing(&self) -> Option<String> {
        let Contrast { kinds, compared, is_only_written, .. } = &self.contrast;
        if let Some([before, now]) = kinds {
            return Some(format!("the kind of change ({before}, then {now})"));
        }
        if *is_only_written {
            let how = if self.reads_schemas { "its schema or its encoding" } else { "how its JSON is written" };
            return Some(format!("{how}, and in nothing else that is compared"));
        }
        let more = compared.len().saturating_sub(NAMED_MAX);
        let named = (!compared.is_empty()).then(|| quoted(compared));
        named.map(|named| if more > 0 { format!("{named} and {more} more") } else { named })
    }
}

impl fmt::Display for Conflicts {
    /// One hint, or nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = &self.first else { return Ok(()) };
        let records = self.forwarded + self.held_back;
        let (noun, have) = if records == 1 { ("record", "has") } else { ("records", "have") };
        let what = if self.has_version { "an identity and a version that were" } else { "an identity that was" };
        write!(f, "hint: {records} {noun} {have} {what} seen, but with other contents")?;
        match (self.forwarded, self.held_back) {
            (_, 0) => write!(f, " (forwarded)")?,
            (0, _) => write!(f, " (not forwarded)")?,
            (forwarded, held_back) => write!(f, " ({forwarded} forwarded, {held_back} not)")?,
        }
        write!(f, ": first {}, identity {}", first.place, first.identity)?;
        if let Some(version) = &first.version {
            write!(f, ", version {version}")?;
        }
        let other = first.other.as_ref();
        if let Some(other) = other {
            write!(f, ", which differs from {}", other.place)?;
            if let Some(differing) = other.differing() {
                write!(f, " in {differing}")?;
            }
        }
        if let Some(preset) = &self.preset {
            let shared = if self.has_version { "a position" } else { "an identity" };
            write!(
                f,
                ". Nothing has to be changed for them: `{preset}` takes them for changes of their own that share {shared}, and \
                 its `on_conflict: forward` passes them on"
            )?;
            return match other.and_then(|other| other.id.as_ref()) {
                Some(id) => writeln!(
                    f,
                    ". If several rows have one key, `{id}` as another part of `identity` would tell them apart"
                ),
                None => writeln!(f),
            };
        }
        let coarse = if self.has_version { "`version` or `identity`" } else { "`identity`, or a `version`" };
        match other.and_then(|other| other.advice.as_deref()) {
            Some(advice) => write!(f, ". {advice}")?,
            None => write!(
                f,
                ". If they say different things, add what tells them apart to {coarse}; if a field differs in each delivery \
                 of one thing, leave it out: `contents: {{fingerprint: value, except: [...]}}`"
            )?,
        }
        writeln!(f, ". `on_conflict` says what to do with such records, and is `{}` here", first.action)
    }
}

/// The topology's preset, if conflicts are what it says they are, and are passed on: what its author knows of the source
/// is then better advice than what two records show.
pub fn preset_that_forwards(topology: &Topology) -> Option<String> {
    let preset = topology.preset.as_ref()?;
    let alone = format!("name: alone\npreset: {preset}\ninput: {{topics: [alone]}}\noutput: {{topic: alone.unique}}\n");
    let (own, known) = (&topology.rules, infer::load(&alone).ok()?.rules);
    let is_known = own.identity == known.identity && own.version == known.version && own.contents == known.contents;
    (is_known && own.actions.conflict == Action::Forward).then(|| preset.clone())
}

fn place(topic: &str, partition: i32, offset: i64) -> String {
    format!("{topic}:{partition}:{offset}")
}

#[cfg(test)]
mod tests;
