//! Versions as kafka-protocol writes them, and outgoing requests.

use std::time::Duration;

use bytes::BytesMut;
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::protocol::{Encodable as _, StrBytes};
use proptest::prelude::*;

use super::versions::{Reply, reply};
use super::*;

fn listed(version: i16) -> Vec<u8> {
    let api = |key, least, most| ApiVersion::default().with_api_key(key).with_min_version(least).with_max_version(most);
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
        let reading = reply(&listed(version), version);
        let Some(Reply::Offers(offered, throttle_ms)) = reading else { panic!("version {version}") };
        assert_eq!(throttle_ms, if version >= 1 { 7 } else { 0 });
        let known: Vec<_> = [0, 1, 2, 18].iter().map(|key| offered.of(*key)).collect();
        assert_eq!(known, [Some(3..=12), Some(4..=17), None, Some(0..=4)]);
        assert_eq!(offered.feature("transaction.version"), (version >= 3).then_some(2));
        let body = listed(version);
        for cut in 0..body.len() {
            assert_eq!(reply(&body[..cut], version), None, "version {version} cut at {cut}");
        }
    }
}

#[test]
fn refused_version_is_followed_by_a_known_one() {
    let refused = |keys: &[i16]| {
        let mut body = [0, 35].to_vec();
        body.extend((keys.len() as i32).to_be_bytes());
        keys.iter().for_each(|most| body.extend([18, 0, *most].map(i16::to_be_bytes).concat()));
        body
    };
    assert_eq!(reply(&refused(&[2]), 3), Some(Reply::AskAgain(2)));
    assert_eq!(reply(&refused(&[4]), 3), Some(Reply::AskAgain(2)), "the same version is not tried again");
    assert_eq!(reply(&refused(&[]), 3), Some(Reply::AskAgain(0)));
    assert_eq!(reply(&[0, 35], 3), Some(Reply::AskAgain(0)));
    assert_eq!(reply(&[0, 35], 0), Some(Reply::Refused(35)), "version 0 is the last to be tried");
    assert_eq!(reply(&[0, 42, 0], 3), Some(Reply::Refused(42)));
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic(
        version in 0_i16..=3,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut body = listed(version);
        let at = at.index(body.len());
        body[at] = byte;
        let _ = reply(&body, version);
        let _ = reply(&noise, version);
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
fn a_write_gets_no_more_slices_than_systems_take() {
    let (mut outbox, mut pool, now) = outbox();
    for count in [1, 1000, 3] {
        let body: Vec<Segment> = (0..count).map(|byte| Segment::Owned(vec![byte as u8; 3])).collect();
        outbox.push(request(body.into()), Owner::Sent(RequestId(count)), now, "me", &mut pool).unwrap();
    }
    let (mut all, mut writes) = (Vec::new(), 0);
    while outbox.has_output() {
        let mut slices = Vec::new();
        outbox.output(&mut slices);
        assert!(!slices.is_empty() && slices.len() <= 256);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        all.extend_from_slice(&bytes);
        outbox.written(bytes.len(), &mut pool);
        writes += 1;
    }
    // Length, key, version, correlation, client, no tagged fields; and the body.
    assert_eq!((all.len(), writes), (3 * 17 + 1004 * 3, 4));
    assert_eq!(all[..17], [0, 0, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0, 0, 2, b'm', b'e', 0]);
}

#[test]
fn correlation_ids_wrap_around_to_zero() {
    let (mut outbox, mut pool, now) = outbox();
    outbox.correlation = i32::MAX;
    for id in 0..2 {
        outbox.push(request(Segments::new()), Owner::Sent(RequestId(id)), now, "me", &mut pool).unwrap();
    }
    outbox.written(34, &mut pool);
    assert_eq!(outbox.answered(i32::MAX).unwrap().owner, Owner::Sent(RequestId(0)));
    assert_eq!(outbox.answered(0).unwrap().owner, Owner::Sent(RequestId(1)));
    assert!(outbox.answered(1).is_err());
}

#[test]
fn a_client_s_name_that_is_too_long_is_cut() {
    let (mut outbox, mut pool, now) = outbox();
    outbox.push(request(Segments::new()), Owner::Greeting, now, &"x".repeat(40_000), &mut pool).unwrap();
    let mut slices = Vec::new();
    outbox.output(&mut slices);
    assert_eq!(slices[0].len(), 15 + i16::MAX as usize);
}

#[test]
fn deadline_is_the_earliest_of_the_unanswered_requests() {
    let (mut outbox, mut pool, now) = outbox();
    for seconds in [5, 2, 9] {
        let deadline = now + Duration::from_secs(seconds);
        outbox.push(request(Segments::new()), Owner::Greeting, deadline, "me", &mut pool).unwrap();
    }
    assert_eq!(outbox.deadline(), Some(now + Duration::from_secs(2)));
    outbox.written(34, &mut pool);
    outbox.answered(0).unwrap();
    outbox.answered(1).unwrap();
    assert_eq!(outbox.deadline(), Some(now + Duration::from_secs(9)));
}
