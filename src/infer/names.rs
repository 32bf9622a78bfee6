//! What a field's name says about its part in a record. Only a hint: what the values say decides.

/// How much a name speaks for an identity, from 0; above [`EVENT`] for one that each event has of its own.
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

/// From this score on an id is an event's own, so that it needs no version.
pub const EVENT: u32 = 85;

/// How much a name speaks for a version, from 0.
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

/// The score of a version by name.
pub const STRONG: u32 = 100;
/// The score of a time of change.
pub const CHANGED: u32 = 80;
/// The score of a moment that may be anything's.
pub const MOMENT: u32 = 40;

/// How much a name speaks for what, beside an id, tells two things apart.
pub fn companion_score(name: &str) -> u32 {
    match plain(name).as_str() {
        "op" | "operation" | "type" | "eventtype" | "action" | "kind" | "event" | "step" | "status" | "state"
        | "source" | "tenant" | "table" | "region" => 50,
        _ => identity_score(name).min(40),
    }
}

/// Whether a field is of the delivery and not of what is delivered, so that it differs when a record is sent
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

/// A name without what different habits of writing put into it.
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
    fn habits_of_writing_do_not_matter() {
        for name in ["event_id", "eventId", "EventID", "event-id", "X-Event-Id"] {
            assert_eq!(identity_score(name), 90, "{name}");
        }
        assert_eq!(version_score("updatedAt"), version_score("UPDATED_AT"));
    }

    #[test]
    fn what_only_ends_in_the_letters_is_no_id() {
        assert_eq!(["paid", "valid", "grid"].map(identity_score), [0; 3]);
        assert_eq!(["order_id", "orderId", "skuCode"].map(|name| identity_score(name) > 0), [true, true, false]);
    }

    #[test]
    fn an_id_of_the_delivery_is_no_id_of_the_thing() {
        assert_eq!(["delivery_id", "trace_id", "x-span-id"].map(identity_score), [0; 3]);
        assert!(is_of_delivery("sent_at") && !is_of_delivery("created_at"));
    }
}
