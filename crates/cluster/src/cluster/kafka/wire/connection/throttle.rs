//! How long a broker wants to be left alone (KIP-219): what it says in its responses.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;

/// The longest time that is believed: brokers count for 11 s, unless they are set otherwise (`quota.window.num`), and one
/// that means more holds the next request back itself. A response may be damaged.
const LONGEST: Duration = Duration::from_mins(1);

/// A throttle time that a response's body begins with, as all do in the versions that are asked for here, but:
///
/// - ApiVersions, read with the [versions](super::versions), and Produce, read by the writer, which say it at their end
/// - SaslHandshake and SaslAuthenticate, which say none
pub fn said(api: ApiKey, body: &[u8]) -> Option<Duration> {
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
    u64::try_from(throttle_ms).ok().filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms).min(LONGEST))
}
