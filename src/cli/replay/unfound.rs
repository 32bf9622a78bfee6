//! Paths of `contents` that no record has. A misspelt path compares nothing, so that records with other contents would count
//! as repetitions; and a misspelt exception leaves nothing out.

use std::fmt;

use super::seen::{Seen, captured};
use crate::dedup::{ContentsPart, Rules};
use crate::rehearsal::has_part;

/// How many records are searched for a path before it counts as one that none has.
const RECORDS_MAX: u64 = 10_000;

/// The paths that no record has had so far.
#[derive(Debug)]
pub struct Unfound {
    rules: Rules,
    /// Parts of the contents, and exceptions in them.
    parts: Vec<ContentsPart>,
    exceptions: Vec<ContentsPart>,
    records: u64,
}

impl Unfound {
    /// No record searched yet.
    pub fn new(rules: &Rules) -> Self {
        let parts = rules.contents.as_ref().map(|contents| contents.parts.clone()).unwrap_or_default();
        let exceptions = |part: &ContentsPart| match part {
            ContentsPart::Fingerprint { except, .. } => except.clone(),
            _ => Vec::new(),
        };
        let exceptions = parts.iter().flat_map(exceptions).map(ContentsPart::Written).collect();
        Self { rules: rules.clone(), parts, exceptions, records: 0 }
    }

    /// Searches a record. A delete's contents are its kind alone.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let has_contents = matches!(seen.explanation.kind, Some("change" | "read")) && seen.record.value.is_some();
        if !has_contents || self.records >= RECORDS_MAX || self.parts.is_empty() && self.exceptions.is_empty() {
            return;
        }
        self.records += 1;
        let (rules, record) = (&self.rules, captured(seen.record));
        self.parts.retain(|part| !has_part(rules, &record, part));
        self.exceptions.retain(|part| !has_part(rules, &record, part));
    }
}

impl fmt::Display for Unfound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.records == 0 {
            return Ok(());
        }
        let searched = if self.records < RECORDS_MAX { String::new() } else { format!(" of the first {RECORDS_MAX}") };
        for part in &self.parts {
            writeln!(f, "hint: no record{searched} has `{part}`, which `contents` names: nothing of it is compared")?;
        }
        for part in &self.exceptions {
            writeln!(f, "hint: no record{searched} has `{part}`, which `except` names: nothing is left out for it")?;
        }
        Ok(())
    }
}
