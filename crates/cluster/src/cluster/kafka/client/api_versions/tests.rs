//! A query that fails is repeated, and a broker is listed as silent only at the deadline.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use super::super::{Network, Networks};
use super::*;
use crate::cluster::kafka::wire::brokers::tests::world::{World, at, settings};

/// ApiVersions.
const API_VERSIONS: i16 = 18;

/// The network of a client: brokers 1, 2 and 3 at the ports 9001, 9002 and 9003; the client knows the first address.
#[derive(Clone)]
struct Net(Arc<Mutex<World>>);

impl Networks for Net {
    fn open(&self) -> (Box<dyn Network>, u64) {
        (Box::new(self.clone()), 1)
    }
}

impl Network for Net {
    fn now(&self) -> Instant {
        self.0.lock().unwrap().now
    }

    fn wall_ms(&self) -> i64 {
        0
    }

    fn drive(&mut self, brokers: &mut Brokers, wait: Duration) -> bool {
        let world = &mut *self.0.lock().unwrap();
        std::mem::swap(&mut world.brokers, brokers);
        let (until, progress_count) = (world.now + wait, world.brokers.progress_count());
        world.settle();
        while world.brokers.progress_count() == progress_count && world.now < until {
            world.now = world.brokers.next_tick().map_or(until, |at| at.min(until));
            world.settle();
        }
        std::mem::swap(&mut world.brokers, brokers);
        false
    }

    fn wake_by(&mut self, _: UnixStream) {}
}

/// The offers of the brokers in this world, the duration of the query, and the world afterwards.
fn query_in_world(world: World) -> (Option<Offers>, Duration, World) {
    let (began, net) = (world.now, Net(Arc::new(Mutex::new(world))));
    let client = ClientSettings::simulated(settings(), vec![at(9001)], Arc::new(net.clone()));
    let offers = query_api_versions(&client);
    drop(client);
    let world = Arc::into_inner(net.0).expect("the client is gone").into_inner().unwrap();
    (offers, world.now - began, world)
}

fn connection_attempts(world: &World, port: u16) -> usize {
    world.connects.iter().filter(|(_, to, _)| *to == port).count()
}

#[test]
fn query_is_repeated_to_a_broker_that_failed() {
    for failures in [1, 3] {
        let mut world = World::new(settings());
        let mut failures_left = failures;
        world.serve = Box::new(move |_, request| {
            let fails = request.api_key == API_VERSIONS && request.port == 9002 && failures_left > 0;
            failures_left -= usize::from(fails);
            // A valid response to this request is never empty.
            fails.then(Vec::new)
        });
        let (offers, duration, world) = query_in_world(world);
        let offers = offers.expect("all respond");
        assert_eq!((offers.all.len(), &offers.silent[..]), (3, &[][..]));
        assert_eq!(connection_attempts(&world, 9002), failures + 1);
        assert!(duration < RESPONSE_MAX / 4, "{duration:?}");
    }
}

#[test]
fn broker_that_keeps_failing_is_listed_as_silent_at_the_deadline() {
    let mut world = World::new(settings());
    world.cluster.down = [9003].into();
    let (offers, duration, world) = query_in_world(world);
    let offers = offers.expect("the others respond");
    let answered: Vec<&str> = offers.all.iter().map(|offer| &offer.broker[..]).collect();
    assert_eq!(
        (&answered[..], &offers.silent[..]),
        (&["kafka:9001", "kafka:9002"][..], &["kafka:9003".to_owned()][..])
    );
    assert_eq!(duration, RESPONSE_MAX);
    let attempts = connection_attempts(&world, 9003);
    assert!((5..20).contains(&attempts), "with back-off: {attempts}");
}

#[test]
fn unreachable_cluster_is_reported_at_once() {
    let mut world = World::new(settings());
    world.cluster.down = [9001, 9002, 9003].into();
    let (offers, duration, _) = query_in_world(world);
    assert_eq!((offers, duration), (None, Duration::ZERO));
}
