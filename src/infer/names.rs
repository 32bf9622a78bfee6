//! What a field's name suggests about its role in a record. Only a hint: the values decide.

/// How much a name suggests an identity, from 0; from [`EVENT`] on, one that is unique to each event.
pub fn identity_score(name: &str) -> u32 {
    let plain = plain(name);
    match plain.as_str() {
        "idempotencykey" | "idempotencyid" | "dedupid" | "dedupkey" | "deduplicationid" => 100,
        "eventid" | "messageid" | "msgid" | "eventuuid" | "ceid" | "transactionid" => 90,
        "uuid" | "guid" | "requestid" => EVENT,
        "id" => 80,
        _ if is_of_delivery(name) || plain == "correlationid" => 0,
        _ if ends_like_an_id(name) => 60,
        _ => 0,
    }
}

/// From this score on, an id is an event's own and needs no version.
pub const EVENT: u32 = 85;

/// How much a name suggests a version, from 0.
pub fn version_score(name: &str) -> u32 {
    match plain(name).as_str() {
        "version" | "ver" | "revision" | "rev" | "seq" | "sequence" | "sequencenumber" | "seqno" | "sequenceno"
        | "lsn" | "generation" | "rowversion" | "committs" => STRONG,
        "updatedat" | "modifiedat" | "lastmodified" | "lastmodifiedat" | "lastupdated" | "lastupdatedat"
        | "updatetime" | "updatedtime" | "changedat" | "updatedon" | "modifiedon" | "updated" | "modified" => CHANGED,
        "ts" | "tsms" | "timestamp" | "time" | "eventtime" | "occurredat" | "date" | "datetime" | "eventts"
        | "ctime" => MOMENT,
        _ => 0,
    }
}

/// The score of a name that means a version.
pub const STRONG: u32 = 100;
/// The score of a name for the time of a change.
pub const CHANGED: u32 = 80;
/// The score of a name for any other time.
pub const MOMENT: u32 = 40;

/// The score of a name that, together with an id, may distinguish two things.
pub const COMPANION: u32 = 50;

/// How much a name suggests a field that, together with an id, distinguishes two things.
pub fn companion_score(name: &str) -> u32 {
    match plain(name).as_str() {
        "op" | "operation" | "type" | "eventtype" | "action" | "kind" | "event" | "step" | "status" | "state"
        | "stage" | "phase" | "source" | "tenant" | "table" | "region" => COMPANION,
        _ => identity_score(name).min(40),
    }
}

/// Whether a field describes the delivery and not what is delivered, so that it differs when a record is sent
/// again: the time at which a connector or a producer worked on it, the number of attempts, the name of one attempt.
pub fn is_of_delivery(name: &str) -> bool {
    // Debezium adds the time at which the connector worked on a change; `__source_ts_ms` is the change's own.
    if LOADERS.contains(&name) {
        return true;
    }
    let plain = plain(name);
    let is_time_of = |verb: &str| {
        plain.strip_prefix(verb).is_some_and(|rest| TIMES.contains(&rest))
            || TIMES.iter().any(|time| plain.strip_prefix(time) == Some(verb))
    };
    DELIVERIES.contains(&plain.as_str()) || VERBS.iter().any(|verb| is_time_of(verb))
}

/// Fields that connectors and loaders add about their own work on a row.
const LOADERS: [&str; 18] = [
    "__ts_ms",
    "__ts_us",
    "__ts_ns",
    "_airbyte_ab_id",
    "_airbyte_raw_id",
    "_airbyte_emitted_at",
    "_airbyte_extracted_at",
    "_airbyte_loaded_at",
    "_airbyte_normalized_at",
    "_airbyte_generation_id",
    "_airbyte_meta",
    "_fivetran_synced",
    "_sdc_extracted_at",
    "_sdc_received_at",
    "_sdc_batched_at",
    "_sdc_sequence",
    "_dlt_id",
    "_dlt_load_id",
];

/// Verbs for the delivery of a record, as in `emitted_at`. Verbs for goods do not count: a parcel's `delivered_at` is its
/// own, except for the names that are known below.
const VERBS: [&str; 22] = [
    "sent",
    "send",
    "sending",
    "resent",
    "emitted",
    "emit",
    "received",
    "receive",
    "ingested",
    "ingest",
    "ingestion",
    "processing",
    "produced",
    "enqueued",
    "extracted",
    "extract",
    "synced",
    "sync",
    "replicated",
    "retried",
    "attempted",
    "redelivered",
];

/// The endings of a time's name, after the word for the event.
const TIMES: [&str; 9] = ["at", "time", "ts", "timestamp", "tsms", "tsus", "tsns", "atms", "timems"];

/// Other fields of the delivery.
const DELIVERIES: [&str; 38] = [
    "deliveredat",
    "publishedat",
    "publishtime",
    "processedat",
    "deliveryid",
    "deliverytag",
    "deliverycount",
    "deliveryattempt",
    "deliveryattempts",
    "attempt",
    "attempts",
    "attemptid",
    "attemptno",
    "attemptnumber",
    "attemptcount",
    "retry",
    "retries",
    "retryid",
    "retryno",
    "retrycount",
    "retrynumber",
    "retryattempt",
    "isretry",
    "trycount",
    "tries",
    "redelivered",
    "redelivery",
    "redeliveries",
    "redeliverycount",
    "receivecount",
    "resendcount",
    "sendcount",
    "traceid",
    "spanid",
    "parentspanid",
    "traceparent",
    "tracestate",
    "kafkaoffset",
];

/// Whether a field may belong to the delivery, and differ between two of them, or to the thing itself: a time, an id of a
/// request. Only the records can show which.
pub fn may_be_of_delivery(name: &str) -> bool {
    let plain = plain(name);
    matches!(
        plain.as_str(),
        "requestid"
            | "reqid"
            | "correlationid"
            | "batchid"
            | "jobid"
            | "runid"
            | "sessionid"
            | "host"
            | "hostname"
            | "pod"
            | "instance"
            | "instanceid"
            | "worker"
            | "workerid"
            | "producer"
            | "producerid"
            | "producerinstance"
    ) || is_time(name)
}

/// Whether a name is that of a time.
pub fn is_time(name: &str) -> bool {
    let plain = plain(name);
    let ends = [
        "_at",
        "_ts",
        "_time",
        "_timestamp",
        "At",
        "Ts",
        "Time",
        "Timestamp",
        "_on",
        "_ms",
        "_us",
        "_ns",
        "-time",
        "-at",
    ];
    (MOMENT..STRONG).contains(&version_score(name)) || plain == "now" || ends.iter().any(|end| name.ends_with(end))
}

/// Whether a companion's name is that of a state, to which a thing may return.
pub fn is_state(name: &str) -> bool {
    matches!(plain(name).as_str(), "status" | "state" | "step" | "stage" | "phase")
}

/// Whether a word is a change of a row: a row may be updated any number of times, so it distinguishes no two changes.
pub fn is_change_word(word: &str) -> bool {
    matches!(
        word.to_ascii_lowercase().as_str(),
        "c" | "u"
            | "d"
            | "r"
            | "i"
            | "t"
            | "p"
            | "insert"
            | "inserted"
            | "create"
            | "created"
            | "update"
            | "updated"
            | "upsert"
            | "upserted"
            | "delete"
            | "deleted"
            | "remove"
            | "removed"
            | "read"
            | "refresh"
            | "replace"
            | "modify"
            | "modified"
            | "change"
            | "changed"
            | "put"
            | "del"
            | "patch"
            | "truncate"
            | "load"
            | "ins"
            | "upd"
            | "pt"
            | "up"
            | "dl"
            | "rr"
            | "add"
            | "edit"
            | "save"
    )
}

/// A name without case, separators and the prefix `X-`.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' ')).flat_map(char::to_lowercase);
    let plain: String = letters.collect();
    match plain.strip_prefix('x') {
        Some(rest) if name.starts_with("X-") || name.starts_with("x-") => rest.to_owned(),
        _ => plain,
    }
}

fn ends_like_an_id(name: &str) -> bool {
    let ends = ["_id", "-id", "Id", "ID", "_uuid", "Uuid", "_key", "Key", "_no", "_number", "Number", "_code", "_ref"];
    ends.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_separators_do_not_matter() {
        for name in ["event_id", "eventId", "EventID", "event-id", "X-Event-Id"] {
            assert_eq!(identity_score(name), 90, "{name}");
        }
        assert_eq!(version_score("updatedAt"), version_score("UPDATED_AT"));
    }

    #[test]
    fn word_that_happens_to_end_in_id_is_not_an_id() {
        assert_eq!(["paid", "valid", "grid"].map(identity_score), [0; 3]);
        assert_eq!(["order_id", "orderId", "skuCode"].map(|name| identity_score(name) > 0), [true, true, false]);
    }

    #[test]
    fn id_of_the_delivery_is_not_an_identity() {
        assert_eq!(["delivery_id", "trace_id", "x-span-id"].map(identity_score), [0; 3]);
        assert!(is_of_delivery("sent_at") && !is_of_delivery("created_at"));
    }

    #[test]
    fn time_at_which_somebody_worked_on_a_record_is_of_the_delivery() {
        for name in ["emitted_at", "emittedAt", "ts_sent", "__ts_ms", "_airbyte_extracted_at", "_sdc_batched_at"] {
            assert!(is_of_delivery(name), "{name}");
        }
        for name in [
            "_airbyte_data",
            "_sdc_deleted_at",
            "__source_ts_ms",
            "ts_ms",
            "timestamp",
            "updated_at",
            "loader",
            "processor",
            "sender",
        ] {
            assert!(!is_of_delivery(name), "{name}");
        }
        assert!(["timestamp", "event_time", "createdAt", "request_id"].iter().all(|name| may_be_of_delivery(name)));
        assert!(!["version", "id", "amount", "format"].iter().any(|name| may_be_of_delivery(name)));
    }
}
