//! Lines that are nearly a captured record with its key and coordinates, and would be taken for a bare value: written by
//! hand, or by another program than kcat. For warnings, never for verdicts.
//!
//! A value may name a topic, a partition and an offset too: a report of lag, a dead letter, a message of MQTT. So a line
//! has to have what a record has, and nothing else.

use std::fmt;

use serde_json::{Map, Value};

use super::envelope::Captured;
use super::in_one_line;

/// The fields of kcat's envelope.
const FIELDS: [&str; 11] = [
    "topic",
    "partition",
    "offset",
    "tstype",
    "ts",
    "broker",
    "headers",
    "key",
    "payload",
    "key_error",
    "payload_error",
];
/// What people call `payload` and `ts`.
const OTHER_NAMES: [&str; 2] = ["value", "timestamp"];
/// A line has at least this many fields of the envelope.
const FIELDS_MIN: usize = 3;
/// How `kafka-console-consumer` begins a line with more than the value.
const CONSOLE: [&str; 5] = ["CreateTime:", "LogAppendTime:", "Partition:", "Offset:", "NoTimestamp"];

/// What a line nearly is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nearly {
    /// A record of `kcat -J`, and what differs.
    Kcat(String),
    /// A record as `kafka-console-consumer` prints it.
    Console,
}

impl Nearly {
    /// What to do instead.
    pub const HELP: &str = "give what `kcat -C -e -J` prints, unless it is one";

    /// What this line nearly is; `None` if it is a record of `kcat -J`, or nothing like one.
    pub fn of(line: &[u8]) -> Option<Self> {
        if is_console(line) {
            return Some(Self::Console);
        }
        // most lines do not name a topic, and are not parsed
        if !line.trim_ascii_start().starts_with(b"{") || !contains(line, "\"topic\"") {
            return None;
        }
        let error = Captured::default().read_kcat(line).err()?;
        let is_near = match serde_json::from_slice::<Map<String, Value>>(line) {
            Ok(fields) => is_near(&fields),
            // quotes in the payload that are not escaped, a comma that is missing
            Err(_) => ["\"partition\"", "\"offset\"", "\"payload\""].iter().all(|name| contains(line, name)),
        };
        is_near.then(|| Self::Kcat(in_one_line(&error)))
    }
}

/// Whether these fields are those of a record.
fn is_near(fields: &Map<String, Value>) -> bool {
    let has = |name: &str| fields.contains_key(name);
    let own = fields.keys().filter(|name| FIELDS.contains(&name.as_str())).count();
    let others = fields.keys().filter(|name| !OTHER_NAMES.contains(&name.as_str())).count() - own;
    // the only foreign name may be the payload's, misspelt
    let are_others_few = others == 0 || others == 1 && !has("payload") && !has("value") && has("key");
    let has_content = ["key", "payload", "value"].into_iter().any(has);
    let has_place = has("partition") || has("offset");
    fields.get("topic").is_some_and(Value::is_string) && own >= FIELDS_MIN && has_content && has_place && are_others_few
}

/// Whether a line begins as `kafka-console-consumer` prints a record's timestamp, partition or offset.
fn is_console(line: &[u8]) -> bool {
    let field = line.split(|&byte| byte == b'\t').next().unwrap_or_default();
    let Ok(field) = std::str::from_utf8(field) else { return false };
    let is_field = |name: &str| {
        let rest = field.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() != name.ends_with(':') && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    field.len() < line.len() && CONSOLE.iter().any(|name| is_field(name))
}

fn contains(line: &[u8], text: &str) -> bool {
    line.windows(text.len()).any(|window| window == text.as_bytes())
}

impl fmt::Display for Nearly {
    /// After the line's place: `looks like a record of ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kcat(difference) => write!(f, "looks like a record of `kcat -J`, but is none ({difference})"),
            Self::Console => f.write_str(
                "looks like a record of `kafka-console-consumer` with `print.timestamp` or `print.partition`, which \
                 ratchet does not read",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(line: &str) -> String {
        match Nearly::of(line.as_bytes()) {
            Some(Nearly::Kcat(difference)) => difference,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_differs_from_a_record_of_kcat_is_named() {
        for (line, expected) in [
            (r#"{"topic":"t","partition":0,"offset":0,"key":"k","value":"{}"}"#, "missing field `payload`"),
            (r#"{"topic":"t","partition":0,"offset":0,"key":"k","paylod":"{}"}"#, "missing field `payload`"),
            (r#"{"topic":"t","partition":0,"key":"k","payload":"{}"}"#, "missing field `offset`"),
            (r#"{"topic":"t","partition":"0","offset":0,"key":null,"payload":"{}"}"#, "invalid type: string \"0\""),
            (r#"{"topic":"t","partition":0,"offset":0,"payload":{"id":1}}"#, "kcat without `-s`"),
            (r#"{"topic":"t","partition":0,"offset":0,"key":"k","payload":"{"id":1}"}"#, "at column"),
        ] {
            let difference = difference(line);
            assert!(difference.contains(expected), "{line}: {difference}");
        }
    }

    #[test]
    fn record_of_kcat_and_value_are_not_nearly_one() {
        for line in [
            r#"{"topic":"t","partition":0,"offset":0,"key":"k","payload":"{}"}"#,
            r#"{"id":1}"#,
            // lag, a dead letter, MQTT, news
            r#"{"group":"g","topic":"t","partition":0,"offset":5,"lag":3}"#,
            r#"{"topic":"t","partition":0,"offset":5}"#,
            r#"{"topic":"t","partition":0,"offset":5,"key":"k","value":"x","error":"e","attempts":2}"#,
            r#"{"topic":"a/b","payload":"21.5","qos":1,"key":"k"}"#,
            r#"{"topic":"sport","offset":0,"title":"a"}"#,
            r#"{"topic":"t","partition":0"#,
            "Partition: a wall between two rooms\tnoun",
            "Offset:5",
            "a\tb",
        ] {
            assert_eq!(Nearly::of(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn lines_of_the_console_consumer_are_known_by_their_beginning() {
        for line in ["CreateTime:1735689600000\tk\t{}", "Partition:0\tOffset:5\t{}", "NoTimestamp\tk\t{}"] {
            assert_eq!(Nearly::of(line.as_bytes()), Some(Nearly::Console), "{line}");
        }
    }
}
