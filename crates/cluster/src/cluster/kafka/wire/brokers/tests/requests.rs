//! Requests and their responses: every schedule of reads and writes gives the same responses, every lost connection is
//! reported correctly, and no other bytes from a broker are mistaken for a response.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::*;
use super::world::*;
use crate::cluster::kafka::wire::connection::{Segment, Segments};

/// A request in several segments, one of them shared.
fn segmented(body: &[u8]) -> Request {
    let (first, rest) = body.split_at(body.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    let mut segments = Segments::new();
    segments.push(Segment::Owned(first.to_vec()));
    segments.push(Segment::Shared(Arc::new(second.to_vec())));
    segments.push(Segment::Owned(Vec::new()));
    segments.push(Segment::Owned(third.to_vec()));
    Request { api_key: ECHO, version: 7, body: segments }
}

fn ready() -> World {
    let mut world = World::new(settings());
    world.until(|world| world.is_ready(-1, Purpose::Fetch));
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_schedule_gives_the_same_responses(
        lengths in prop::collection::vec(prop_oneof![0_usize..50, 0_usize..100_000], 1..10),
        pieces in prop::collection::vec(prop_oneof![1_usize..8, 1_usize..40_000], 1..30),
    ) {
        let mut world = ready();
        let bodies: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(n, length)| (0..*length).map(|i| (i * 31 + n) as u8).collect()).collect();
        let timeout = Duration::from_secs(5);
        let ids: Vec<RequestId> = bodies
            .iter()
            .map(|body| world.brokers.send(-1, Purpose::Fetch, segmented(body), timeout, world.now))
            .collect();
        let mut piece_lengths = pieces.iter().cycle();
        world.settle_in_pieces(|| *piece_lengths.next().unwrap());
        prop_assert_eq!(world.take_responses(), ids.into_iter().zip(bodies).collect::<Vec<_>>());
    }

    /// Random bytes as responses: the connection breaks, or waits, and each request fails once.
    #[test]
    fn arbitrary_bytes_cause_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 1..300),
        has_request in any::<bool>(),
        piece in 1_usize..60,
    ) {
        let mut world = World::new(settings());
        world.is_ready(-1, Purpose::Fetch);
        world.act();
        if has_request {
            world.until(|world| world.is_ready(-1, Purpose::Fetch));
            world.send(-1, Purpose::Fetch, b"hello");
        }
        let link = world.links()[0];
        world.write(link, usize::MAX);
        world.wires.get_mut(&link).unwrap().to_client.extend(&bytes);
        while world.wires.contains_key(&link) && world.read(link, piece) {
            world.act();
        }
        world.cut(link, "it is gone");
        world.events.extend(std::iter::from_fn(|| world.brokers.next_event()));
        prop_assert_eq!(world.events.len(), usize::from(has_request));
    }
}

#[test]
fn responses_are_not_copied_and_buffers_are_reused() {
    let mut world = ready();
    let body = vec![5; 1 << 20];
    world.send(-1, Purpose::Fetch, &body);
    world.settle();
    let Some(Event::Responded { body: response, version, .. }) = world.events.pop() else {
        panic!("{:?}", world.events)
    };
    assert_eq!((response.as_slice(), version), (&body[..], 5));
    let buffer = response.into_buffer();
    let address = buffer.as_ptr();
    world.brokers.recycle(buffer);
    world.send(-1, Purpose::Fetch, &body);
    world.settle();
    let Some(Event::Responded { body: response, .. }) = world.events.pop() else { panic!("{:?}", world.events) };
    assert_eq!(response.as_slice().as_ptr().addr() - address.addr(), 4, "the correlation id comes before it");
    assert!(world.brokers.buffer().capacity() > 0, "requests' buffers are reused as well");
}

/// Three requests, cut after every number of bytes.
#[test]
fn only_partly_or_fully_written_requests_are_reported_as_sent() {
    let bodies = [&b"first"[..], b"second one", b"third"];
    let lengths: Vec<usize> = {
        let mut world = ready();
        let link = world.links()[0];
        let length = |body: &&[u8]| {
            let before = world.wires[&link].written;
            world.brokers.send(-1, Purpose::Fetch, segmented(body), ms(1000), world.now);
            world.write(link, usize::MAX);
            world.wires[&link].written - before
        };
        bodies.iter().map(length).collect()
    };
    let starts = [0, lengths[0], lengths[0] + lengths[1]];
    for cut in 0..=lengths.iter().sum() {
        let mut world = ready();
        let link = world.links()[0];
        for body in bodies {
            world.brokers.send(-1, Purpose::Fetch, segmented(body), ms(1000), world.now);
        }
        if cut > 0 {
            world.write(link, cut);
        }
        world.cut(link, "it went away");
        world.settle();
        let expected = starts.map(|start| cut > start);
        let failed = world.take_failures();
        assert_eq!(failed.iter().map(|(_, sent, _)| *sent).collect::<Vec<_>>(), expected, "cut after {cut}");
        assert!(failed.iter().map(|(id, ..)| id.0).eq(0..3), "in order");
        assert_eq!(failed[0].2, "kafka:9001: it went away");
    }
}

/// The responses of three requests, cut after every number of bytes.
#[test]
fn responses_that_arrived_before_the_connection_broke_are_delivered() {
    let start = || {
        let mut world = ready();
        let link = world.links()[0];
        for body in [&b"a"[..], b"bb", b"ccc"] {
            world.send(-1, Purpose::Fetch, body);
        }
        world.write(link, usize::MAX);
        while world.serve(link) {}
        (world, link)
    };
    let (world, link) = start();
    let response_bytes = world.wires[&link].to_client.len();
    assert_eq!(response_bytes, 3 * 8 + 6);
    for cut in 0..response_bytes {
        let (mut world, link) = start();
        if cut > 0 {
            world.read(link, cut);
        }
        world.cut(link, "it went away");
        let whole = [9, 19, 30].iter().filter(|end| cut >= **end).count();
        world.events.extend(std::iter::from_fn(|| world.brokers.next_event()));
        for (index, event) in world.events.iter().enumerate() {
            match event {
                Event::Responded { id, body, .. } => {
                    assert!(index < whole && id.0 == index as u64);
                    assert_eq!(body.as_slice(), [&b"a"[..], b"bb", b"ccc"][index]);
                }
                Event::Failed { id, sent, .. } => assert!(index >= whole && id.0 == index as u64 && *sent),
            }
        }
        assert_eq!(world.events.len(), 3, "cut after {cut}");
    }
}

/// Makes a broker send invalid `bytes`; returns the failed requests, and the trouble.
fn send_invalid_bytes(bytes: &[u8], requests: usize) -> (Vec<(RequestId, bool, String)>, Option<Trouble>) {
    let mut world = ready();
    let link = world.links()[0];
    for _ in 0..requests {
        world.send(-1, Purpose::Fetch, b"x");
    }
    world.write(link, usize::MAX);
    world.wires.get_mut(&link).unwrap().to_client.extend(bytes);
    world.read(link, usize::MAX);
    assert_eq!(world.brokers.next_act(), Some(Act::Close { link }), "the client closes the connection");
    assert!(world.brokers.input(link).is_empty(), "and the link is no longer in use");
    world.brokers.filled(link, 10, world.now);
    world.brokers.broke(link, "late", world.now);
    world.events.extend(std::iter::from_fn(|| world.brokers.next_event()));
    (world.take_failures(), world.brokers.trouble().cloned())
}

#[test]
fn unrequested_responses_break_the_connection() {
    // Request 0 was the connection's own first one.
    let (failed, trouble) = send_invalid_bytes(&[0, 0, 0, 4, 0, 0, 0, 2], 2);
    let reason = "kafka:9001: it answered request 2 instead of 1".to_owned();
    assert_eq!(failed, [(RequestId(0), true, reason.clone()), (RequestId(1), true, reason)]);
    assert_eq!(trouble.unwrap().kind, TroubleKind::Protocol);
    let (failed, trouble) = send_invalid_bytes(&[0, 0, 0, 4, 0, 0, 0, 1], 0);
    assert!(failed.is_empty());
    assert_eq!(trouble.unwrap().message, "it answered request 1, but no request is pending");
}

#[test]
fn invalid_frame_lengths_break_the_connection() {
    let (failed, _) = send_invalid_bytes(&(-2_i32).to_be_bytes(), 1);
    assert_eq!(failed, [(RequestId(0), true, "kafka:9001: it sent a response of the invalid length -2".to_owned())]);
    let (failed, _) = send_invalid_bytes(&((100 << 20) + 1_i32).to_be_bytes(), 1);
    assert!(failed[0].2.contains("104857601 bytes; at most 104857600 are allowed"));
}

#[test]
fn response_to_a_partly_written_request_breaks_the_connection() {
    let mut world = ready();
    let link = world.links()[0];
    world.send(-1, Purpose::Fetch, b"not all of it");
    world.write(link, 10);
    world.wires.get_mut(&link).unwrap().to_client.extend([0, 0, 0, 4, 0, 0, 0, 1]);
    world.read(link, usize::MAX);
    world.settle();
    let reason = "kafka:9001: it answered request 1, but no request is pending".to_owned();
    assert_eq!(world.take_failures(), [(RequestId(0), true, reason)]);
}

#[test]
fn request_without_a_timely_response_fails_together_with_later_requests() {
    let mut world = ready();
    world.cluster.silent.insert(9001);
    let begin = world.now;
    world.brokers.send(-1, Purpose::Fetch, echo(b"a"), Duration::from_secs(60), world.now);
    world.brokers.send(-1, Purpose::Fetch, echo(b"b"), Duration::from_secs(2), world.now);
    world.until(|world| !world.events.is_empty());
    assert_eq!(world.now - begin, Duration::from_secs(2));
    let reason = "kafka:9001: it did not answer a request in time".to_owned();
    assert_eq!(world.take_failures(), [(RequestId(0), true, reason.clone()), (RequestId(1), true, reason)]);
}

#[test]
fn requests_that_cannot_be_sent_fail_unsent() {
    let mut world = World::new(settings());
    let id = world.send(7, Purpose::Fetch, b"to nobody");
    let unknown = Request { api_key: 999, version: 0, body: Segments::new() };
    world.until(|world| world.is_ready(-1, Purpose::Control));
    let other = world.brokers.send(-1, Purpose::Control, unknown, ms(1000), world.now);
    world.settle();
    let reasons = ["the broker is not connected", "unknown API key 999"].map(str::to_owned);
    assert_eq!(world.take_failures(), [(id, false, reasons[0].clone()), (other, false, reasons[1].clone())]);
    // The connection still works.
    world.send(-1, Purpose::Control, b"x");
    world.settle();
    assert_eq!(world.take_responses().len(), 1);
}
