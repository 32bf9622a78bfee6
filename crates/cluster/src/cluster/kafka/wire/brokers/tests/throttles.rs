//! A connection is muted for the throttle time of any response (KIP-219).

use bytes::BytesMut;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Encodable;

use super::super::*;
use super::world::*;

const THROTTLE_MS: i32 = 700;

macro_rules! throttled {
    ($($api:ident $response:ident $versions:expr,)+) => {{
        let mut responses = Vec::new();
        $(for version in $versions {
            let mut body = BytesMut::new();
            $response::default().with_throttle_time_ms(THROTTLE_MS).encode(&mut body, version).unwrap();
            responses.push((ApiKey::$api, version, body.to_vec()));
        })+
        responses
    }};
}

/// Responses in the versions that the client uses, except Produce, whose throttle time is read by the writer.
fn throttled_responses() -> Vec<(ApiKey, i16, Vec<u8>)> {
    throttled! {
        Fetch FetchResponse 4..=11,
        Metadata MetadataResponse 4..=12,
        FindCoordinator FindCoordinatorResponse 1..=3,
        InitProducerId InitProducerIdResponse 0..=4,
        OffsetForLeaderEpoch OffsetForLeaderEpochResponse 2..=4,
        AddPartitionsToTxn AddPartitionsToTxnResponse 0..=3,
        AddOffsetsToTxn AddOffsetsToTxnResponse 0..=3,
        TxnOffsetCommit TxnOffsetCommitResponse 3..=4,
        EndTxn EndTxnResponse 0..=5,
    }
}

#[test]
fn throttle_time_of_any_response_mutes_its_connection() {
    for (api, version, body) in throttled_responses() {
        let mut world = World::new(settings());
        world.until(|world| world.is_ready(-1, Purpose::Control) && world.is_ready(-1, Purpose::Fetch));
        world.serve = Box::new(move |_, seen| (seen.api_key == api as i16).then(|| body.clone()));
        let request = Request { api_key: api as i16, version, body: Vec::<u8>::new().into() };
        world.brokers.send(-1, Purpose::Control, request, Duration::from_secs(5), world.now);
        world.settle();
        assert!(!world.is_ready(-1, Purpose::Control), "{api:?} in version {version}");
        assert!(world.is_ready(-1, Purpose::Fetch), "brokers mute no other connection");
        let took = world.until(|world| world.is_ready(-1, Purpose::Control));
        assert_eq!(took.as_millis(), THROTTLE_MS as u128, "{api:?} in version {version}");
    }
}

#[test]
fn throttle_time_of_the_versions_response_mutes_the_connection() {
    let mut world = World::new(settings());
    world.serve = Box::new(|_, seen| {
        let mut body = BytesMut::new();
        let response = ApiVersionsResponse::default().with_throttle_time_ms(THROTTLE_MS);
        response.encode(&mut body, seen.version).unwrap();
        Some(body.to_vec())
    });
    assert_eq!(world.until(|world| world.is_ready(-1, Purpose::Control)).as_millis(), THROTTLE_MS as u128);
}

#[test]
fn throttle_times_are_limited_to_a_minute() {
    assert_eq!(mute_duration(-1), Duration::ZERO);
    assert_eq!(mute_duration(i32::MAX), Duration::from_mins(1));
}

/// How long a connection is muted.
fn mute_duration(throttle_ms: i32) -> Duration {
    let mut world = World::new(settings());
    world.until(|world| world.is_ready(-1, Purpose::Control));
    world.serve = Box::new(move |_, _| Some(throttle_ms.to_be_bytes().to_vec()));
    let request = Request { api_key: ApiKey::EndTxn as i16, version: 0, body: Vec::<u8>::new().into() };
    world.brokers.send(-1, Purpose::Control, request, Duration::from_secs(5), world.now);
    world.settle();
    assert_eq!(world.events.len(), 1);
    world.until(|world| world.is_ready(-1, Purpose::Control))
}
