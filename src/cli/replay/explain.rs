//! The explanation of one record, as `ratchet replay --explain` prints it.

use crate::dedup::Decision;
use crate::record::Record;
use crate::rehearsal::Explanation;

/// A record's explanation as a JSON object in one line: topic, partition, offset, verdict, reason,
/// identity (a list of its parts), version, epoch (a list of its parts), kind, and against: the version,
/// epoch and last_seen of what it was compared with. The last five may be null.
pub fn explained(record: &Record<'_>, decision: &Decision, explanation: &Explanation) -> String {
    let or_null = |json: &Option<String>| json.clone().unwrap_or_else(|| "null".to_owned());
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        r#"{{"topic":{},"partition":{},"offset":{},"verdict":"{}","reason":"{}","identity":{},"version":{},"epoch":{},"kind":{},"against":{}}}"#,
        quoted(record.topic),
        record.partition,
        record.offset,
        decision.verdict,
        decision.reason,
        or_null(&explanation.identity),
        or_null(&explanation.version),
        or_null(&explanation.epoch),
        explanation.kind.map_or_else(|| "null".to_owned(), quoted),
        or_null(&explanation.against),
    )
}
