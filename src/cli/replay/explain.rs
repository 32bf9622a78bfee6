//! The explanation of one record, as `ratchet replay --explain` prints it.

use crate::dedup::Decision;
use crate::record::Record;
use crate::rehearsal::{Called, Explanation, Made, as_json};

/// A record's explanation as a JSON object in one line: topic, partition, offset, verdict, reason,
/// identity (a list of its parts), version, epoch (a list of its parts), kind, and against: the version,
/// epoch and last_seen of what it was compared with. These five may be null. Where a record cannot be judged, or cannot
/// have its effect, a message follows: why, in words. For a topology with a sink, what it causes there follows: effects,
/// a list of statements with their parameters; or request, the method and the address of its call as the topology writes
/// them, null if it makes none.
pub fn explained(
    record: &Record<'_>,
    decision: &Decision,
    explanation: &Explanation,
    called: Option<&[Called]>,
    made: Option<&Made>,
) -> String {
    let or_null = |json: &Option<String>| json.clone().unwrap_or_else(|| "null".to_owned());
    let effects = called.map_or_else(String::new, |called| format!(r#","effects":{}"#, as_json(called)));
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let rejection = explanation.rejection.as_ref();
    let message = rejection.map_or_else(String::new, |words| format!(r#","message":{}"#, quoted(words)));
    let request = made.map_or_else(String::new, |made| match made.address.as_str() {
        "" => r#","request":null"#.to_owned(),
        address => format!(r#","request":{{"method":"{}","address":{}}}"#, made.method, quoted(address)),
    });
    format!(
        r#"{{"topic":{},"partition":{},"offset":{},"verdict":"{}","reason":"{}","identity":{},"version":{},"epoch":{},"kind":{},"against":{}{message}{effects}{request}}}"#,
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
