//! What a replay says of each record.

use crate::dedup::Decision;
use crate::record::Record;
use crate::rehearsal::Told;

/// One record's explanation as a JSON object in one line: topic, partition, offset, verdict, reason,
/// identity (a list of its parts), version, epoch (a list of its parts), kind, and against: the version,
/// epoch and last_seen of what it was compared with. The last five are null where there is nothing.
pub fn explanation(record: &Record<'_>, decision: &Decision, told: &Told) -> String {
    let or_null = |json: &Option<String>| json.clone().unwrap_or_else(|| "null".to_owned());
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        r#"{{"topic":{},"partition":{},"offset":{},"verdict":"{}","reason":"{}","identity":{},"version":{},"epoch":{},"kind":{},"against":{}}}"#,
        quoted(record.topic),
        record.partition,
        record.offset,
        decision.verdict,
        decision.reason,
        or_null(&told.identity),
        or_null(&told.version),
        or_null(&told.epoch),
        told.kind.map_or_else(|| "null".to_owned(), quoted),
        or_null(&told.against),
    )
}
