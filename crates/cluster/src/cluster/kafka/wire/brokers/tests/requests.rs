//! Requests and their responses: every schedule of reads and writes gives the same responses, every cut is reported
//! correctly, and nothing else that a broker sends is taken for an answer.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::*;
use super::world::*;
use crate::cluster::kafka::wire::connection::{Segment, Segments};

/// A request in several segments, one of them shared.
fn in_runs(body: &[u8]) -> Request {
    let (first, rest) = body.split_at(body.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    let mut runs = Segments::new();
    runs.push(Segment::Owned(first.to_vec()));
    runs.push(Segment::Shared(Arc::new(second.to_vec())));
    runs.push(Segment::Owned(Vec::new()));
    runs.push(Segment::Owned(third.to_vec()));
    Request { api_key: ECHO, version: 7, body: runs }
}

fn ready() -> World {
    let mut world = World::new(settings());
    world.until(|world| world.is_ready(-1, Use::Fetch));
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
            .map(|body| world.brokers.send(-1, Use::Fetch, in_runs(body), timeout, world.now))
            .collect();
        let mut turn = pieces.iter().cycle();
        world.settle_by(|| *turn.next().unwrap());
        prop_assert_eq!(world.answered(), ids.into_iter().zip(bodies).collect::<Vec<_>>());
    }

    /// Random bytes as responses: the connection breaks, or waits, and each request fails once.
    #[test]
    fn foreign_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 1..300),
        after in 0_usize..3,
        piece in 1_usize..60,
    ) {
        let mut world = World::new(settings());
        world.is_ready(-1, Use::Fetch);
        world.act();
        if after > 0 {
            world.until(|world| world.is_ready(-1, Use::Fetch));
            world.send(-1, Use::Fetch, b"hello");
        }
        let link = world.links()[0];
        world.write(link, usize::MAX);
        world.wires.get_mut(&link).unwrap().to_client.extend(&bytes);
        while world.wires.contains_key(&link) && world.read(link, piece) {
            world.act();
        }
        world.cut(link, "it is gone");
        world.events.extend(std::iter::from_fn(|| world.brokers.next_event()));
        prop_assert_eq!(world.events.len(), usize::from(after > 0));
    }
}

#[test]
fn responses_are_not_copied_and_buffers_are_reused() {
    let mut world = ready();
    let body = vec![5; 1 << 20];
    world.send(-1, Use::Fetch, &body);
    world.settle();
    let Some(Event::Answered { body: answer, version, .. }) = world.events.pop() else { panic!("{:?}", world.events) };
    assert_eq!((answer.as_slice(), version), (&body[..], 5));
    let buffer = answer.into_buffer();
    let place = buffer.as_ptr();
    world.brokers.recycle(buffer);
    world.send(-1, Use::Fetch, &body);
    world.settle();
    let Some(Event::Answered { body: answer, .. }) = world.events.pop() else { panic!("{:?}", world.events) };
    assert_eq!(answer.as_slice().as_ptr().addr() - place.addr(), 4, "the correlation id comes before it");
    assert!(world.brokers.buffer().capacity() > 0, "requests' buffers are reused as well");
}

/// Three requests, cut after every number of bytes.
#[test]
fn only_requests_that_were_begun_are_reported_as_sent() {
    let bodies = [&b"first"[..], b"second one", b"third"];
    let lengths: Vec<usize> = {
        let mut world = ready();
        let link = world.links()[0];
        let length = |body: &&[u8]| {
            let before = world.wires[&link].written;
            world.brokers.send(-1, Use::Fetch, in_runs(body), ms(1000), world.now);
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
            world.brokers.send(-1, Use::Fetch, in_runs(body), ms(1000), world.now);
        }
        if cut > 0 {
            world.write(link, cut);
        }
        world.cut(link, "it went away");
        world.settle();
        let expected = starts.map(|start| cut > start);
        let failed = world.failed();
        assert_eq!(failed.iter().map(|(_, sent, _)| *sent).collect::<Vec<_>>(), expected, "cut after {cut}");
        assert!(failed.iter().map(|(id, ..)| id.0).eq(0..3), "in order");
        assert_eq!(failed[0].2, "kafka:9001: it went away");
    }
}

/// The responses of three requests, cut after every number of bytes.
#[test]
fn responses_that_arrived_before_a_cut_are_delivered() {
    let begin = || {
        let mut world = ready();
        let link = world.links()[0];
        for body in [&b"a"[..], b"bb", b"ccc"] {
            world.send(-1, Use::Fetch, body);
        }
        world.write(link, usize::MAX);
        while world.serve(link) {}
        (world, link)
    };
    let (world, link) = begin();
    let all = world.wires[&link].to_client.len();
    assert_eq!(all, 3 * 8 + 6);
    for cut in 0..all {
        let (mut world, link) = begin();
        if cut > 0 {
            world.read(link, cut);
        }
        world.cut(link, "it went away");
        let whole = [9, 19, 30].iter().filter(|end| cut >= **end).count();
        world.events.extend(std::iter::from_fn(|| world.brokers.next_event()));
        for (place, event) in world.events.iter().enumerate() {
            match event {
                Event::Answered { id, body, .. } => {
                    assert!(place < whole && id.0 == place as u64);
                    assert_eq!(body.as_slice(), [&b"a"[..], b"bb", b"ccc"][place]);
                }
                Event::Failed { id, sent, .. } => assert!(place >= whole && id.0 == place as u64 && *sent),
            }
        }
        assert_eq!(world.events.len(), 3, "cut after {cut}");
    }
}

/// A broker sends invalid `bytes`: the failed requests, and the trouble.
fn lied(bytes: &[u8], requests: usize) -> (Vec<(RequestId, bool, String)>, Option<Trouble>) {
    let mut world = ready();
    let link = world.links()[0];
    for _ in 0..requests {
        world.send(-1, Use::Fetch, b"x");
    }
    world.write(link, usize::MAX);
    world.wires.get_mut(&link).unwrap().to_client.extend(bytes);
    world.read(link, usize::MAX);
    assert_eq!(world.brokers.next_act(), Some(Act::Close { link }), "it is closed from this side");
    assert!(world.brokers.input(link).is_empty(), "and the link is no longer known");
    world.brokers.filled(link, 10, world.now);
    world.brokers.broke(link, "late", world.now);
    world.events.extend(std::iter::from_fn(|| world.brokers.next_event()));
    (world.failed(), world.brokers.trouble().cloned())
}

#[test]
fn unrequested_responses_break_the_connection() {
    // Request 0 was the connection's own first one.
    let (failed, trouble) = lied(&[0, 0, 0, 4, 0, 0, 0, 2], 2);
    let reason = "kafka:9001: it answered request 2 instead of 1".to_owned();
    assert_eq!(failed, [(RequestId(0), true, reason.clone()), (RequestId(1), true, reason)]);
    assert_eq!(trouble.unwrap().kind, TroubleKind::Protocol);
    let (failed, trouble) = lied(&[0, 0, 0, 4, 0, 0, 0, 1], 0);
    assert!(failed.is_empty());
    assert_eq!(trouble.unwrap().message, "it answered request 1, but no request is pending");
}

#[test]
fn invalid_frame_lengths_break_the_connection() {
    let (failed, _) = lied(&(-2_i32).to_be_bytes(), 1);
    assert_eq!(failed, [(RequestId(0), true, "kafka:9001: it sent a response of the invalid length -2".to_owned())]);
    let (failed, _) = lied(&((100 << 20) + 1_i32).to_be_bytes(), 1);
    assert!(failed[0].2.contains("104857601 bytes; at most 104857600 are allowed"));
}

#[test]
fn answer_to_a_partly_written_request_breaks_the_connection() {
    let mut world = ready();
    let link = world.links()[0];
    world.send(-1, Use::Fetch, b"not all of it");
    world.write(link, 10);
    world.wires.get_mut(&link).unwrap().to_client.extend([0, 0, 0, 4, 0, 0, 0, 1]);
    world.read(link, usize::MAX);
    world.settle();
    let reason = "kafka:9001: it answered request 1, but no request is pending".to_owned();
    assert_eq!(world.failed(), [(RequestId(0), true, reason)]);
}

#[test]
fn a_request_that_is_not_answered_in_time_fails_and_so_do_those_behind_it() {
    let mut world = ready();
    world.cluster.mute.insert(9001);
    let begin = world.now;
    world.brokers.send(-1, Use::Fetch, echo(b"a"), Duration::from_secs(60), world.now);
    world.brokers.send(-1, Use::Fetch, echo(b"b"), Duration::from_secs(2), world.now);
    world.until(|world| !world.events.is_empty());
    assert_eq!(world.now - begin, Duration::from_secs(2));
    let reason = "kafka:9001: it did not answer a request in time".to_owned();
    assert_eq!(world.failed(), [(RequestId(0), true, reason.clone()), (RequestId(1), true, reason)]);
}

#[test]
fn requests_that_cannot_be_sent_fail_unsent() {
    let mut world = World::new(settings());
    let id = world.send(7, Use::Fetch, b"to nobody");
    let unknown = Request { api_key: 999, version: 0, body: Segments::new() };
    world.until(|world| world.is_ready(-1, Use::Control));
    let other = world.brokers.send(-1, Use::Control, unknown, ms(1000), world.now);
    world.settle();
    let reasons = ["the broker is not connected", "unknown API key 999"].map(str::to_owned);
    assert_eq!(world.failed(), [(id, false, reasons[0].clone()), (other, false, reasons[1].clone())]);
    // The connection still works.
    world.send(-1, Use::Control, b"x");
    world.settle();
    assert_eq!(world.answered().len(), 1);
}
