//! What a field's name suggests about its role in a record. Only a hint: the values decide.

/// How much a name suggests an identity, from 0; from [`EVENT`] on, one that is unique to each event.
pub fn identity_score(name: &str) -> u32 {
    let plain = plain(name);
    match plain.as_str() {
        "idempotencykey" | "idempotencyid" | "dedupid" | "dedupkey" | "deduplicationid" => 100,
        "eventid" | "messageid" | "msgid" | "eventuuid" | "ceid" | "transactionid" => 90,
        "uuid" | "guid" | "requestid" => EVENT,
        "id" => 80,
        _ if is_of_delivery(name) || plain == "traceid" || plain == "spanid" || plain == "correlationid" => 0,
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

/// How much a name suggests a field that, together with an id, distinguishes two things.
pub fn companion_score(name: &str) -> u32 {
    match plain(name).as_str() {
        "op" | "operation" | "type" | "eventtype" | "action" | "kind" | "event" | "step" | "status" | "state"
        | "source" | "tenant" | "table" | "region" => 50,
        _ => identity_score(name).min(40),
    }
}

/// Whether a field describes the delivery and not what is delivered, so that it differs when a record is sent
/// again.
pub fn is_of_delivery(name: &str) -> bool {
    matches!(
        plain(name).as_str(),
        "sentat"
            | "sendtime"
            | "senttime"
            | "deliveredat"
            | "deliveryid"
            | "deliverytag"
            | "attempt"
            | "attempts"
            | "retry"
            | "retries"
            | "retrycount"
            | "receivedat"
            | "ingestedat"
            | "ingesttime"
            | "publishedat"
            | "publishtime"
            | "processedat"
            | "traceid"
            | "spanid"
            | "traceparent"
            | "redelivered"
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
}
