//! What would settle a conflict, as far as the two records show it: a field that orders them, one that tells them apart,
//! or one that seems to differ in each delivery.

use serde_json::Value;

use crate::capture::{self, Captured};
use crate::dedup::{Contents, ContentsPart, Format, Path, Rules, Source, VersionPart};
use crate::infer::{in_yaml, names};
use crate::rehearsal::Contrast;
use crate::words::agreeing;

/// Maximum number of fields that are named.
pub const NAMED_MAX: usize = 5;
/// From this score of an identity's name on, a field that differs is taken for an id.
const ID: u32 = 60;

/// A sentence without its full stop; `None` if the records show nothing of the kind.
pub fn advice(rules: &Rules, contrast: &Contrast, earlier: &Captured, later: &Captured) -> Option<String> {
    let contents = rules.contents.as_ref()?;
    if contrast.kinds.is_some() {
        return None;
    }
    if contrast.is_only_written {
        return rewritten(contents);
    }
    of_delivery(contents, &contrast.compared)
        .or_else(|| order(rules, contrast, earlier, later))
        .or_else(|| identity(rules, &contrast.compared, later))
}

/// The same JSON in other bytes.
fn rewritten(contents: &Contents) -> Option<String> {
    let [ContentsPart::Written(path)] = contents.parts.as_slice() else { return None };
    let path = in_yaml(&path.to_string());
    Some(format!(
        "To take such records for one thing sent again, compare what they mean: `contents: {{fingerprint: {path}}}`"
    ))
}

/// Only fields differ that, by their names, may differ in each delivery.
fn of_delivery(contents: &Contents, compared: &[Path]) -> Option<String> {
    let (of, known) = match contents.parts.as_slice() {
        [ContentsPart::Written(path)] => (path, &[][..]),
        [ContentsPart::Fingerprint { of, except }] => (of, &except[..]),
        _ => return None,
    };
    let is_one = |path: &Path| {
        path.within(of).is_some()
            && path.steps.iter().any(|name| names::is_of_delivery(name) || names::may_be_of_delivery(name))
    };
    if compared.is_empty() || compared.len() > NAMED_MAX || !compared.iter().all(is_one) {
        return None;
    }
    let except: Vec<String> = known.iter().chain(compared).map(|path| in_yaml(&path.to_string())).collect();
    let count = compared.len();
    Some(format!(
        "By {}, {} may differ in each delivery of one thing: if {}, leave {} out, with `contents: {{fingerprint: {}, except: \
         [{}]}}`; if {}, the records say different things",
        agreeing(count, "its name", "their names"),
        quoted(compared),
        agreeing(count, "it does", "they do"),
        agreeing(count, "it", "them"),
        in_yaml(&of.to_string()),
        except.join(", "),
        agreeing(count, "it does not", "they do not"),
    ))
}

/// A field that is a version by its name, and greater in the later record.
fn order(rules: &Rules, contrast: &Contrast, earlier: &Captured, later: &Captured) -> Option<String> {
    let parts = rules.version.iter().flat_map(|version| &version.parts);
    let known: Vec<&Path> = parts.flat_map(|part: &VersionPart| &part.of).collect();
    let rises = |path: &&Path| {
        let name = path.steps.last().map_or("", String::as_str);
        let numbers = [earlier, later].map(|record| integer(&at(rules, record, path)?));
        names::version_score(name) >= names::STRONG
            && !known.contains(path)
            && matches!(numbers, [Some(before), Some(now)] if now > before)
    };
    let path = contrast.compared.iter().chain(&contrast.others).find(rises)?;
    let part = if rules.version.is_some() { "another part of `version`" } else { "`version`" };
    Some(format!("`{path}` is greater in the later record: as {part} it would order the two"))
}

/// A field that is an id by its name.
fn identity(rules: &Rules, compared: &[Path], later: &Captured) -> Option<String> {
    let path = differing_id(rules, compared, later)?;
    Some(format!("They differ in `{path}`: as another part of `identity` it would tell the two apart"))
}

/// The first of these fields that is an id, or says of what kind a record is, by its name.
pub fn differing_id<'p>(rules: &Rules, compared: &'p [Path], later: &Captured) -> Option<&'p Path> {
    let is_id = |path: &&Path| {
        let name = path.steps.last().map_or("", String::as_str);
        let is_change = matches!(at(rules, later, path), Some(Value::String(word)) if names::is_change_word(&word));
        let is_kind = names::companion_score(name) >= names::COMPANION && !names::is_state(name);
        let is_own = names::identity_score(name) >= ID && !names::may_be_of_delivery(name);
        (is_own || is_kind) && !is_change && path.source == Source::Value
    };
    compared.iter().find(is_id)
}

/// Paths as code, at most [`NAMED_MAX`].
pub fn quoted(paths: &[Path]) -> String {
    paths.iter().take(NAMED_MAX).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ")
}

/// What a record's value has at a path.
fn at(rules: &Rules, record: &Captured, path: &Path) -> Option<Value> {
    if path.source != Source::Value {
        return None;
    }
    let mut tree: Value = serde_json::from_slice(record.value.as_deref()?).ok()?;
    if rules.value_format == Format::ConnectJson {
        capture::unwrap(&mut tree, true);
    }
    path.steps.iter().try_fold(tree, |mut tree, step| match &mut tree {
        Value::Object(fields) => fields.remove(step),
        Value::Array(items) => Some(items.get_mut(step.parse::<usize>().ok()?)?.take()),
        _ => None,
    })
}

/// An integer, or one in a text.
fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.to_string().parse().ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
