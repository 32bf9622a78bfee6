//! Tests of ApiVersions responses as kafka-protocol writes them, and of outgoing requests.

use std::time::Duration;

use bytes::BytesMut;
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::protocol::{Encodable as _, StrBytes};
use proptest::prelude::*;

use super::versions::{VersionsResponse, read_response};
use super::*;

fn versions_response(version: i16) -> Vec<u8> {
    let api = |key, min, max| ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max);
    let mut response = ApiVersionsResponse::default().with_api_keys(vec![api(18, 0, 4), api(0, 3, 12), api(1, 4, 17)]);
    if version >= 1 {
        response = response.with_throttle_time_ms(7);
    }
    if version >= 3 {
        let name = StrBytes::from_static_str("transaction.version");
        let supported = SupportedFeatureKey::default().with_name(name.clone()).with_max_version(9);
        let finalized =
            FinalizedFeatureKey::default().with_name(name).with_max_version_level(2).with_min_version_level(1);
        response = response.with_supported_features(vec![supported]).with_finalized_features(vec![finalized]);
        response = response.with_finalized_features_epoch(3).with_zk_migration_ready(true);
    }
    let mut body = BytesMut::new();
    response.encode(&mut body, version).unwrap();
    body.to_vec()
}

#[test]
fn versions_that_kafka_protocol_writes_are_read() {
    for version in 0..=3 {
        let response = read_response(&versions_response(version), version);
        let Some(VersionsResponse::Offered(offered, throttle_ms)) = response else { panic!("version {version}") };
        assert_eq!(throttle_ms, if version >= 1 { 7 } else { 0 });
        let known: Vec<_> = [0, 1, 2, 18].iter().map(|key| offered.range_of(*key)).collect();
        assert_eq!(known, [Some(3..=12), Some(4..=17), None, Some(0..=4)]);
        assert_eq!(offered.feature("transaction.version"), (version >= 3).then_some(2));
        let body = versions_response(version);
        for cut in 0..body.len() {
            assert_eq!(read_response(&body[..cut], version), None, "version {version} cut at {cut}");
        }
    }
}

#[test]
fn refused_version_is_replaced_by_a_known_one() {
    let refused = |keys: &[i16]| {
        let mut body = [0, 35].to_vec();
        body.extend((keys.len() as i32).to_be_bytes());
        keys.iter().for_each(|highest| body.extend([18, 0, *highest].map(i16::to_be_bytes).concat()));
        body
    };
    assert_eq!(read_response(&refused(&[2]), 3), Some(VersionsResponse::RetryWith(2)));
    assert_eq!(
        read_response(&refused(&[4]), 3),
        Some(VersionsResponse::RetryWith(2)),
        "the same version is not tried again"
    );
    assert_eq!(read_response(&refused(&[]), 3), Some(VersionsResponse::RetryWith(0)));
    assert_eq!(read_response(&[0, 35], 3), Some(VersionsResponse::RetryWith(0)));
    assert_eq!(
        read_response(&[0, 35], 0),
        Some(VersionsResponse::Refused(35)),
        "no version is left to try after version 0"
    );
    assert_eq!(read_response(&[0, 42, 0], 3), Some(VersionsResponse::Refused(42)));
}

proptest! {
    #[test]
    fn arbitrary_bytes_cause_no_panic(
        version in 0_i16..=3,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut body = versions_response(version);
        let at = at.index(body.len());
        body[at] = byte;
        let _ = read_response(&body, version);
        let _ = read_response(&noise, version);
    }
}

fn outbox() -> (Outbox, Pool, Instant) {
    let now = super::super::brokers::tests::world::World::new(Settings::default()).now;
    (Outbox::default(), Pool::new(1 << 20), now)
}

fn request(body: Segments) -> Request {
    Request { api_key: 0, version: 9, body }
}

#[test]
fn write_gets_at_most_256_slices() {
    let (mut outbox, mut pool, now) = outbox();
    for count in [1, 1000, 3] {
        let body: Vec<Segment> = (0..count).map(|byte| Segment::Owned(vec![byte as u8; 3])).collect();
        outbox.push(request(body.into()), Owner::Client(RequestId(count)), now, "me", &mut pool).unwrap();
    }
    let (mut output, mut writes) = (Vec::new(), 0);
    while outbox.has_output() {
        let mut slices = Vec::new();
        outbox.output(&mut slices);
        assert!(!slices.is_empty() && slices.len() <= 256);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        output.extend_from_slice(&bytes);
        outbox.written(bytes.len(), &mut pool);
        writes += 1;
    }
    // Length, key, version, correlation, client, no tagged fields; and the body.
    assert_eq!((output.len(), writes), (3 * 17 + 1004 * 3, 4));
    assert_eq!(output[..17], [0, 0, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 2, b'm', b'e', 0]);
}

#[test]
fn correlation_ids_wrap_around_to_zero() {
    let (mut outbox, mut pool, now) = outbox();
    outbox.next_correlation_id = i32::MAX;
    for id in 0..2 {
        outbox.push(request(Segments::new()), Owner::Client(RequestId(id)), now, "me", &mut pool).unwrap();
    }
    outbox.written(34, &mut pool);
    assert_eq!(outbox.take_pending(i32::MAX).unwrap().owner, Owner::Client(RequestId(0)));
    assert_eq!(outbox.take_pending(0).unwrap().owner, Owner::Client(RequestId(1)));
    assert!(outbox.take_pending(1).is_err());
}

#[test]
fn client_id_that_is_too_long_is_truncated() {
    // Never in the middle of a character.
    for (character, bytes) in [("x", i16::MAX as usize), ("é", i16::MAX as usize - 1)] {
        let (mut outbox, mut pool, now) = outbox();
        outbox.push(request(Segments::new()), Owner::Connection, now, &character.repeat(40_000), &mut pool).unwrap();
        let mut slices = Vec::new();
        outbox.output(&mut slices);
        assert_eq!(slices[0].len(), 15 + bytes);
    }
}

#[test]
fn deadline_is_the_earliest_of_the_pending_requests() {
    let (mut outbox, mut pool, now) = outbox();
    for seconds in [5, 2, 9] {
        let deadline = now + Duration::from_secs(seconds);
        outbox.push(request(Segments::new()), Owner::Connection, deadline, "me", &mut pool).unwrap();
    }
    assert_eq!(outbox.deadline(), Some(now + Duration::from_secs(2)));
    outbox.written(34, &mut pool);
    outbox.take_pending(0).unwrap();
    outbox.take_pending(1).unwrap();
    assert_eq!(outbox.deadline(), Some(now + Duration::from_secs(9)));
}
