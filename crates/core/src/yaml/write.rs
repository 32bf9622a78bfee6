//! Writes a tree as text that parses to the same tree: places, comments and style are lost, nothing else.

use super::tree::{Entry, Node, Value};

/// Lists and mappings that fit into this many columns are written on one line.
const WIDTH: usize = 110;

/// The text of a mapping's entries, one after the other; ends with a newline unless it is empty.
pub fn write(entries: &[Entry]) -> String {
    let mut out = String::new();
    mapping(entries, 0, &mut out);
    out
}

fn mapping(entries: &[Entry], indent: usize, out: &mut String) {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push_str(&" ".repeat(indent));
        }
        let key = scalar(&entry.key, true);
        let flow = flow(&entry.node);
        if is_scalar(&entry.node) || indent + key.len() + 2 + flow.len() <= WIDTH {
            out.push_str(&format!("{key}: {flow}\n"));
        } else {
            out.push_str(&format!("{key}:\n"));
            block(&entry.node, indent + 2, out);
        }
    }
}

/// A list or mapping on several lines, each indented.
fn block(node: &Node, indent: usize, out: &mut String) {
    match &node.value {
        Value::List(items) => {
            for item in items {
                out.push_str(&format!("{}- ", " ".repeat(indent)));
                let flow = flow(item);
                match &item.value {
                    Value::Mapping(entries) if indent + 2 + flow.len() > WIDTH => mapping(entries, indent + 2, out),
                    _ => out.push_str(&format!("{flow}\n")),
                }
            }
        }
        Value::Mapping(entries) => {
            out.push_str(&" ".repeat(indent));
            mapping(entries, indent, out);
        }
        Value::Scalar { .. } => {}
    }
}

fn is_scalar(node: &Node) -> bool {
    matches!(node.value, Value::Scalar { .. })
}

/// A node on one line.
fn flow(node: &Node) -> String {
    match &node.value {
        _ if node.is_null() => "null".to_owned(),
        Value::Scalar { text, plain } => scalar(text, *plain),
        Value::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Mapping(entries) => {
            let entry = |entry: &Entry| format!("{}: {}", scalar(&entry.key, true), flow(&entry.node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A scalar, without quotes if it had none and needs none.
fn scalar(text: &str, plain: bool) -> String {
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_/".contains(c))
        || text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if plain && begins && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./@+-".contains(c)) {
        return text.to_owned();
    }
    let odd = |c: char| c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    if text.contains(odd) || !text.contains(['"', '\\']) {
        return escaped(text, odd);
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// A text in double quotes.
fn escaped(text: &str, odd: impl Fn(char) -> bool) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if odd(c) => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    //! Goal: whatever tree is written, the same tree is read back.

    use proptest::prelude::*;

    use super::*;
    use crate::yaml::{Place, tree};

    /// The tree without places, and with null in one form.
    fn bare(node: &Node) -> Node {
        let value = match &node.value {
            _ if node.is_null() => Value::Scalar { text: "null".to_owned(), plain: true },
            Value::Scalar { text, plain } => {
                Value::Scalar { text: text.clone(), plain: *plain && scalar(text, true) == *text }
            }
            Value::List(items) => Value::List(items.iter().map(bare).collect()),
            Value::Mapping(entries) => Value::Mapping(
                entries
                    .iter()
                    .map(|entry| Entry { key: entry.key.clone(), key_place: Place::default(), node: bare(&entry.node) })
                    .collect(),
            ),
        };
        Node { value, place: Place::default() }
    }

    fn nodes() -> impl Strategy<Value = Node> {
        let text =
            prop_oneof![".{0,6}", "[a-z]{1,40}", "-?[0-9]{1,4}", Just("null".to_owned()), Just("true".to_owned())];
        let leaf = (text, any::<bool>()).prop_map(|(text, plain)| Value::Scalar { text, plain });
        let node = |value| Node { value, place: Place::default() };
        leaf.prop_map(node).prop_recursive(4, 40, 5, move |inner| {
            let entry =
                (".{0,5}", inner.clone()).prop_map(|(key, node)| Entry { key, key_place: Place::default(), node });
            prop_oneof![
                prop::collection::vec(inner, 0..5).prop_map(Value::List),
                prop::collection::vec(entry, 0..5).prop_map(Value::Mapping),
            ]
            .prop_map(node)
        })
    }

    proptest! {
        #[test]
        fn written_yaml_reads_back_unchanged(nodes in prop::collection::vec(nodes(), 1..5)) {
            let entries: Vec<Entry> = nodes
                .into_iter()
                .enumerate()
                .map(|(index, node)| Entry { key: format!("k{index}"), key_place: Place::default(), node })
                .collect();
            let text = write(&entries);
            let read = tree::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            let written = Node { value: Value::Mapping(entries), place: Place::default() };
            prop_assert_eq!(bare(&read), bare(&written), "{}", text);
        }
    }
}
