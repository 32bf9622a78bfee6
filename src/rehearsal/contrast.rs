//! In what two records differ, of what the rules compare: why one of them is a conflict.
//!
//! Only here are such records parsed into trees: conflicts are explained, not judged.

use serde_json::Value;

use crate::capture::{self, Captured, Place};
use crate::dedup::{ADDED_PREFIX, ContentsPart, Format, Path, Rules, Source};

/// A number with this many digits in a row may not fit into a double, so trees that are equal need not say the same.
const DIGITS_MAX: usize = 15;

/// In what two records differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contrast {
    /// Their kinds of change, if contents of these kinds always differ.
    pub kinds: Option<[&'static str; 2]>,
    /// The fields that differ, of those that are compared. Empty if they cannot be named.
    pub compared: Vec<Path>,
    /// The fields of the value that differ and are not compared.
    pub others: Vec<Path>,
    /// Whether what is compared is the same JSON, written in other bytes.
    pub is_only_written: bool,
}

impl Contrast {
    /// How `later` differs from `earlier`, by these rules; each with its kind of change.
    pub fn of(
        rules: &Rules,
        (earlier, kind_before): (&Captured, Option<&'static str>),
        (later, kind): (&Captured, Option<&'static str>),
    ) -> Self {
        let (documents, former) = (Documents { rules, record: later }, Documents { rules, record: earlier });
        let kinds = match [kind_before, kind] {
            [Some(before), Some(kind)] if class(before) != class(kind) => Some([before, kind]),
            _ => None,
        };
        // A delete says nothing but its kind.
        let is_whole = !kinds.iter().flatten().any(|&kind| matches!(kind, "delete" | "truncate"));
        let (mut compared, mut is_found) = (Vec::new(), true);
        for part in rules.contents.iter().flat_map(|contents| &contents.parts).filter(|_| is_whole) {
            match (former.part(part), documents.part(part)) {
                (Some(before), Some(now)) if before.at == now.at => compared.extend(before.differences(&now)),
                (None, None) => is_found = false,
                (before, now) => compared.extend(before.into_iter().chain(now).map(|part| part.at)),
            }
        }
        let is_same = is_found && compared.is_empty() && kinds.is_none() && rules.contents.is_some();
        compared.retain(is_named);
        let root = Path { source: Source::Value, steps: Vec::new() };
        let mut others = match (former.part(&ContentsPart::Written(root.clone())), documents.tree(&root)) {
            (Some(before), Some(now)) => before.differences(&Part { at: root, tree: now, except: Vec::new() }),
            _ => Vec::new(),
        };
        others.retain(|path| is_named(path) && !compared.contains(path));
        let is_json = rules.value_format != Format::Bytes && [earlier, later].into_iter().all(is_exact);
        let is_only_written = is_same && is_json && earlier.value != later.value;
        Self { kinds, compared, others, is_only_written }
    }
}

/// Kinds with the same number have the same contents, if the rest is the same.
fn class(kind: &str) -> u8 {
    match kind {
        "delete" => 1,
        "truncate" => 2,
        "message" => 3,
        _ => 0,
    }
}

/// Whether a record has this part of the contents, and not as null.
pub fn has_part(rules: &Rules, record: &Captured, part: &ContentsPart) -> bool {
    Documents { rules, record }.part(part).is_some()
}

/// Whether a path names more than the whole value.
fn is_named(path: &Path) -> bool {
    path.source != Source::Value || path.is_inside()
}

/// Whether the value is JSON, and a tree of it has each of its numbers exactly.
fn is_exact(record: &Captured) -> bool {
    let value = record.value.as_deref().unwrap_or_default();
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let has_long = value.split(|byte| !is_number(byte)).any(|digits| digits.len() > DIGITS_MAX);
    !has_long && serde_json::from_slice::<Value>(value).is_ok()
}

/// A part of a record's contents.
struct Part {
    /// Where it is.
    at: Path,
    /// What it says.
    tree: Value,
    /// Places within it that are not compared.
    except: Vec<Path>,
}

impl Part {
    fn differences(&self, later: &Self) -> Vec<Path> {
        let path = |place: Place| {
            let steps = self.at.steps.iter().cloned().chain(place).collect();
            Path { source: self.at.source.clone(), steps }
        };
        let all = capture::differences(&self.tree, &later.tree).into_iter().map(path);
        all.filter(|path| !self.except.iter().any(|except| path == except || path.within(except).is_some())).collect()
    }
}

/// A record's JSON.
struct Documents<'a> {
    rules: &'a Rules,
    record: &'a Captured,
}

impl Documents<'_> {
    /// This part of the contents, if it is there.
    fn part(&self, part: &ContentsPart) -> Option<Part> {
        let written = |at: &Path| Some(Part { at: at.clone(), tree: self.tree(at)?, except: Vec::new() });
        match part {
            ContentsPart::Written(path) => written(path),
            ContentsPart::Fingerprint { of, except } => Some(Part { except: except.clone(), ..written(of)? }),
            ContentsPart::Rows(places) => {
                let mut part = places.iter().find_map(written)?;
                if let Value::Array(rows) = &mut part.tree
                    && rows.len() == 1
                {
                    part.at.steps.push("0".to_owned());
                    part.tree = rows.remove(0);
                }
                Some(part)
            }
            ContentsPart::Flattened(path) => {
                let mut part = written(path)?;
                let Value::Object(row) = &mut part.tree else { return None };
                let fields = row.len();
                row.retain(|name, _| !name.starts_with(ADDED_PREFIX));
                (row.len() < fields).then_some(part)
            }
            ContentsPart::FirstOf(parts) => parts.iter().find_map(|part| self.part(part)),
        }
    }

    /// What is at this path; `None` if nothing is, or null.
    fn tree(&self, path: &Path) -> Option<Value> {
        let record = self.record;
        let mut tree = match &path.source {
            Source::Key => document(record.key.as_deref()?, self.rules.key_format),
            Source::Value => document(record.value.as_deref()?, self.rules.value_format),
            Source::Header(name) => document(record.headers.as_headers().last(name.as_bytes())?.value?, Format::Bytes),
            Source::Topic => record.topic.as_str().into(),
            Source::Partition => record.partition.into(),
            Source::Offset => record.offset.into(),
            Source::Timestamp => record.timestamp?.into(),
            Source::Const(_) => return None,
        };
        for step in &path.steps {
            tree = match &mut tree {
                Value::Object(fields) => fields.remove(step)?,
                Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?)?.take(),
                _ => return None,
            };
        }
        (!tree.is_null()).then_some(tree)
    }
}

/// These bytes as JSON, else as text.
fn document(bytes: &[u8], format: Format) -> Value {
    let text = || Value::String(String::from_utf8_lossy(bytes).into_owned());
    match serde_json::from_slice(bytes) {
        Ok(mut tree) if format != Format::Bytes => {
            if format == Format::ConnectJson {
                capture::unwrap(&mut tree, true);
            }
            tree
        }
        _ => text(),
    }
}

#[cfg(test)]
mod tests;
