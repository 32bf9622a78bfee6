//! Throttle times in brokers' responses (KIP-219): how long the client should send no more requests.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;

/// The longest throttle time that is respected, since a response may be damaged: brokers measure quotas over 11 s by
/// default (`quota.window.num`), and a broker that needs a longer pause delays the next request itself.
const THROTTLE_MAX: Duration = Duration::from_mins(1);

/// The throttle time at the beginning of a response's body, where all responses have it in the versions that are
/// requested here, except:
///
/// - ApiVersions, whose throttle time is read with the [versions](super::versions), and Produce, whose throttle time is
///   read by the writer: both have it at their end
/// - SaslHandshake and SaslAuthenticate, which have none
pub fn from_response(api: ApiKey, body: &[u8]) -> Option<Duration> {
    match api {
        ApiKey::Fetch
        | ApiKey::Metadata
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::FindCoordinator
        | ApiKey::InitProducerId
        | ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::TxnOffsetCommit
        | ApiKey::EndTxn => duration(i32::from_be_bytes(*body.first_chunk()?)),
        _ => None,
    }
}

/// A throttle time in milliseconds as a duration; `None` if it is not positive.
pub fn duration(throttle_ms: i32) -> Option<Duration> {
    u64::try_from(throttle_ms).ok().filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms).min(THROTTLE_MAX))
}
