//! Goal: a broker that fails while it is asked is asked again, and is left out only when the time is over.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use super::super::{Network, Networks};
use super::*;
use crate::cluster::kafka::wire::brokers::tests::world::{World, at, settings};

/// ApiVersions.
const API_VERSIONS: i16 = 18;

/// The network of a client: brokers 1, 2 and 3 at the ports 9001, 9002 and 9003, of which it knows the first.
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
        let (until, news) = (world.now + wait, world.brokers.news());
        world.settle();
        while world.brokers.news() == news && world.now < until {
            world.now = world.brokers.next_tick().map_or(until, |at| at.min(until));
            world.settle();
        }
        std::mem::swap(&mut world.brokers, brokers);
        false
    }

    fn wake_by(&mut self, _: UnixStream) {}
}

/// What brokers offer in this world, and how long it takes to find out.
fn asked(world: World) -> (Option<Offers>, Duration, World) {
    let (began, net) = (world.now, Net(Arc::new(Mutex::new(world))));
    let client = ClientSettings::simulated(settings(), vec![at(9001)], Arc::new(net.clone()));
    let offers = ask(&client);
    drop(client);
    let world = Arc::into_inner(net.0).expect("the client is gone").into_inner().unwrap();
    (offers, world.now - began, world)
}

fn tries(world: &World, port: u16) -> usize {
    world.connects.iter().filter(|(_, to, _)| *to == port).count()
}

#[test]
fn broker_that_fails_while_it_is_asked_is_asked_again() {
    for failures in [1, 3] {
        let mut world = World::new(settings());
        let mut left = failures;
        world.serve = Box::new(move |_, seen| {
            let fails = seen.api_key == API_VERSIONS && seen.port == 9002 && left > 0;
            left -= usize::from(fails);
            // A valid answer to this request is never empty.
            fails.then(Vec::new)
        });
        let (offers, took, world) = asked(world);
        let offers = offers.expect("all answer");
        assert_eq!((offers.all.len(), &offers.silent[..]), (3, &[][..]));
        assert_eq!(tries(&world, 9002), failures + 1);
        assert!(took < ANSWER_MAX / 4, "{took:?}");
    }
}

#[test]
fn broker_that_goes_on_failing_is_left_out_when_the_time_is_over() {
    let mut world = World::new(settings());
    world.cluster.down = [9003].into();
    let (offers, took, world) = asked(world);
    let offers = offers.expect("the others answer");
    let answered: Vec<&str> = offers.all.iter().map(|offer| &offer.broker[..]).collect();
    assert_eq!(
        (&answered[..], &offers.silent[..]),
        (&["kafka:9001", "kafka:9002"][..], &["kafka:9003".to_owned()][..])
    );
    assert_eq!(took, ANSWER_MAX);
    let tries = tries(&world, 9003);
    assert!((5..20).contains(&tries), "with back-off: {tries}");
}

#[test]
fn cluster_that_cannot_be_reached_is_not_waited_for() {
    let mut world = World::new(settings());
    world.cluster.down = [9001, 9002, 9003].into();
    let (offers, took, _) = asked(world);
    assert_eq!((offers, took), (None, Duration::ZERO));
}
