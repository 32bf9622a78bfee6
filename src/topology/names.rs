//! Names of topics: what Kafka accepts, and what ratchet derives.

/// Stands for the input topic in an output's name.
pub const TEMPLATE: &str = "{topic}";
/// Kafka's maximum length of a topic's name.
pub const TOPIC_CHARS_MAX: usize = 249;
/// Maximum length of a topology's name.
pub const NAME_CHARS_MAX: usize = 60;

/// Whether a topology may have this name.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The nearest valid name to `name`, if anything is left of it.
pub fn nearest_name(name: &str) -> Option<String> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.trim().chars().map(allowed).take(NAME_CHARS_MAX).collect();
    name.contains(|c: char| c != '-').then_some(name)
}

/// Why Kafka would refuse a topic of this name.
pub fn topic_problem(name: &str) -> Option<String> {
    if let Some(odd) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        return Some(format!("a topic's name holds letters, digits, `.`, `_` and `-` only, not {odd:?}"));
    }
    match name.len() {
        0 => Some("a topic needs a name".to_owned()),
        _ if name == "." || name == ".." => Some(format!("a topic cannot be named `{name}`")),
        length if length > TOPIC_CHARS_MAX => Some(too_long(length)),
        _ => None,
    }
}

/// The message for a name of this many characters.
pub fn too_long(length: usize) -> String {
    format!("it has {length} characters, Kafka takes {TOPIC_CHARS_MAX}")
}

/// The changelog of a topology's input topic.
pub fn changelog(name: &str, topic: &str) -> String {
    format!("ratchet.{name}.{topic}.changelog")
}

/// Whether this is a changelog's name, this topology's or another's.
pub fn is_changelog(topic: &str) -> bool {
    let inner = topic.strip_prefix("ratchet.").and_then(|rest| rest.strip_suffix(".changelog"));
    inner.and_then(|inner| inner.split_once('.')).is_some_and(|(name, topic)| is_name(name) && !topic.is_empty())
}

/// The control topic of a topology.
pub fn control(name: &str) -> String {
    format!("ratchet.{name}.control")
}

/// Whether this is a control topic's name, this topology's or another's.
pub fn is_control(topic: &str) -> bool {
    topic.strip_prefix("ratchet.").and_then(|rest| rest.strip_suffix(".control")).is_some_and(is_name)
}

/// Whether a pattern never matches this topic: a changelog, a control topic, or one of Kafka's or Connect's own.
pub fn is_internal(topic: &str) -> bool {
    is_changelog(topic) || is_control(topic) || topic.starts_with("__")
}
