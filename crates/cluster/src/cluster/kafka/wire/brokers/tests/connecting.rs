//! Which connections are opened, when they are retried, and when they are closed.

use super::super::*;
use super::world::*;

#[test]
fn each_purpose_has_a_connection_of_its_own() {
    let mut world = World::new(settings());
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    world.until(|world| {
        let ready = [Purpose::Fetch, Purpose::Produce, Purpose::Control].map(|purpose| world.is_ready(2, purpose));
        ready == [true; 3]
    });
    let ports: Vec<u16> = world.connects.iter().map(|(_, port, _)| *port).collect();
    assert_eq!(ports, [9001, 9002, 9002, 9002], "the bootstrap's, and one for each use");
}

#[test]
fn attempts_to_a_broker_that_is_down_back_off() {
    let mut world = World::new(settings());
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    world.cluster.down.insert(9002);
    world.connects.clear();
    // A caller requests the connection every millisecond.
    let until = world.now + Duration::from_secs(10);
    while world.now < until {
        world.is_ready(2, Purpose::Fetch);
        world.pass(ms(1));
    }
    let attempts: Vec<Instant> =
        world.connects.iter().filter(|(_, _, purpose)| *purpose == Purpose::Fetch).map(|(at, ..)| *at).collect();
    let backoffs: Vec<u128> = attempts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert!((14..17).contains(&attempts.len()), "{backoffs:?}");
    for (failures, backoff) in backoffs.iter().enumerate() {
        let expected = (20 << failures.min(10)).min(1000);
        assert!((expected * 8 / 10..=expected * 12 / 10 + 1).contains(backoff), "{backoffs:?}");
    }
    world.cluster.down.clear();
    let took = world.until(|world| world.is_ready(2, Purpose::Fetch));
    assert!(took <= ms(1300), "{took:?}");
    // A connection that has worked is opened again at once.
    world.send(2, Purpose::Fetch, b"x");
    world.settle();
    world.events.clear();
    let link = *world.wires.iter().find(|(_, wire)| wire.port == 9002).unwrap().0;
    world.cut(link, "it went away");
    let took = world.until(|world| world.is_ready(2, Purpose::Fetch));
    assert!(took <= ms(25), "{took:?}");
}

#[test]
fn attempts_to_a_broker_that_closes_at_the_first_request_back_off() {
    let mut world = World::new(settings());
    world.watch("orders");
    let until = world.now + Duration::from_secs(10);
    while world.now < until {
        world.act();
        for link in world.links() {
            world.write(link, usize::MAX);
            let metadata_requests = world.count(3);
            world.serve(link);
            match world.count(3) > metadata_requests {
                true => world.cut(link, "it closed the connection"),
                false => drop(world.read(link, usize::MAX)),
            }
        }
        world.now += ms(1);
        world.brokers.tick(world.now);
    }
    assert!((14..18).contains(&world.connects.len()), "{}", world.connects.len());
}

#[test]
fn connections_are_opened_only_on_demand() {
    let mut world = World::new(settings());
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    world.until(|world| world.is_ready(2, Purpose::Fetch));
    let link = *world.wires.iter().find(|(_, wire)| wire.port == 9002).unwrap().0;
    world.cut(link, "it went away");
    world.connects.clear();
    world.pass(Duration::from_secs(60));
    assert!(!world.connects.iter().any(|(_, port, _)| *port == 9002), "{:?}", world.connects);
}

#[test]
fn connection_that_does_not_open_in_time_is_closed() {
    let mut world = World::new(settings());
    world.brokers.tick(world.now);
    world.brokers.ensure_ready(-1, Purpose::Fetch, world.now);
    let Some(Act::Connect { link, .. }) = world.brokers.next_act() else { panic!("nothing is opened") };
    let next = world.brokers.next_tick().unwrap();
    assert_eq!(next - world.now, Duration::from_secs(3));
    world.brokers.tick(next - ms(1));
    assert_eq!(world.brokers.next_act(), None);
    world.brokers.tick(next);
    assert_eq!(world.brokers.next_act(), Some(Act::Close { link }));
    world.brokers.connected(link, next);
    let mut slices = vec![];
    world.brokers.output(link, &mut slices);
    assert!(slices.is_empty(), "the link is no longer in use");
}

#[test]
fn connection_to_a_broker_that_never_responds_is_closed() {
    let mut world = World::new(settings());
    world.cluster.silent.insert(9001);
    world.is_ready(-1, Purpose::Fetch);
    world.pass(ms(4_900));
    assert_eq!(world.wires.len(), 1);
    world.pass(ms(200));
    assert_eq!(world.wires.len(), 0);
}

#[test]
fn all_bootstrap_addresses_are_attempted() {
    let mut world = World::with(settings(), &[9009, 9008, 9001], 1);
    world.cluster.down.extend([9009, 9008]);
    world.watch("orders");
    let took = world.until(|world| world.leader(0).is_some());
    assert!(took < ms(5), "{took:?}");
    assert_eq!(world.connects.iter().map(|(_, port, _)| *port).collect::<Vec<_>>(), [9009, 9008, 9001]);
    assert_eq!(world.brokers.any_node(world.now), Some(-3));
}

#[test]
fn second_broker_is_attempted_while_the_first_is_silent() {
    let mut world = World::with(settings(), &[9009, 9001], 1);
    world.cluster.silent.insert(9009);
    world.watch("orders");
    let took = world.until(|world| world.leader(0).is_some());
    assert!((1000..1010).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn bootstrap_addresses_are_attempted_again_while_all_brokers_are_unreachable() {
    let mut world = World::with(settings(), &[9100], 1);
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    world.until(|world| world.is_ready(2, Purpose::Fetch));
    // All brokers move to other addresses at once, and only the bootstrap address still points to one of them.
    world.cluster.down.extend([9001, 9002, 9003]);
    world.cluster.nodes = (1..=3).map(|node| (node, 9200 + node as u16)).collect();
    for link in world.links() {
        world.cut(link, "it went away");
    }
    let took = world.until(|world| world.is_ready(2, Purpose::Fetch));
    assert!(took < ms(500), "{took:?}");
    assert!(world.connects.iter().any(|(_, port, _)| *port == 9202));
}

#[test]
fn known_brokers_are_preferred_to_bootstrap_addresses() {
    let mut world = World::new(settings());
    let mut node = None;
    world.until(|world| {
        node = world.brokers.any_node(world.now);
        node.is_some()
    });
    assert_eq!(node, Some(-1));
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    world.until(|world| world.is_ready(3, Purpose::Control));
    assert_eq!(world.brokers.any_node(world.now), Some(3));
    // A muted connection is not chosen.
    world.brokers.mute(3, Purpose::Control, world.now + ms(100));
    assert_eq!(world.brokers.any_node(world.now), Some(-1));
}

#[test]
fn idle_connection_is_closed_before_the_broker_closes_it() {
    let mut world = World::new(settings());
    world.until(|world| world.is_ready(-1, Purpose::Fetch));
    world.pass(Duration::from_secs(500));
    world.send(-1, Purpose::Fetch, b"x");
    world.settle();
    assert_eq!(world.take_responses().len(), 1);
    world.pass(Duration::from_secs(539));
    assert_eq!(world.wires.len(), 1);
    world.pass(Duration::from_secs(1));
    assert_eq!((world.wires.len(), world.events.len()), (0, 0));
    let took = world.until(|world| world.is_ready(-1, Purpose::Fetch));
    assert!(took <= ms(1), "the connection is reopened without backoff");
}

#[test]
fn failures_before_a_working_connection_are_forgotten_when_it_is_closed_as_idle() {
    let mut world = World::new(settings());
    world.until(|world| world.is_ready(-1, Purpose::Fetch));
    let link = world.links()[0];
    world.cut(link, "it went away");
    assert!(world.brokers.is_failing(-1, Purpose::Fetch));
    world.until(|world| world.is_ready(-1, Purpose::Fetch));
    world.send(-1, Purpose::Fetch, b"x");
    world.settle();
    world.pass(Duration::from_secs(540));
    assert!(world.wires.is_empty(), "it is closed");
    assert!(!world.brokers.is_failing(-1, Purpose::Fetch));
}

#[test]
fn muted_connection_is_not_ready_until_the_mute_ends() {
    let mut world = World::new(settings());
    world.until(|world| world.is_ready(-1, Purpose::Fetch) && world.is_ready(-1, Purpose::Produce));
    world.brokers.mute(-1, Purpose::Fetch, world.now + ms(50));
    world.brokers.mute(-1, Purpose::Fetch, world.now + ms(30));
    assert_eq!((world.is_ready(-1, Purpose::Fetch), world.is_ready(-1, Purpose::Produce)), (false, true));
    assert_eq!(world.brokers.next_tick(), Some(world.now + ms(50)));
    world.pass(ms(49));
    assert!(!world.is_ready(-1, Purpose::Fetch));
    world.pass(ms(1));
    assert!(world.is_ready(-1, Purpose::Fetch));
}

#[test]
fn trouble_with_a_removed_broker_is_forgotten() {
    let mut world = World::new(settings());
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    world.brokers.ensure_ready(2, Purpose::Fetch, world.now);
    let Some(Act::Connect { link, address }) = world.brokers.next_act() else { panic!("nothing is opened") };
    world.brokers.refused(link, TroubleKind::Host, "its name is unknown", world.now);
    let trouble = world.brokers.trouble().unwrap();
    assert_eq!(
        (trouble.kind, &trouble.address, &*trouble.message),
        (TroubleKind::Host, &address, "its name is unknown")
    );
    world.cluster.nodes.remove(&2);
    world.until(|world| world.brokers.trouble().is_none());
}

#[test]
fn broker_that_is_too_old_is_reported_as_trouble() {
    let mut world = World::new(settings());
    world.cluster.metadata_max = 3;
    world.watch("orders");
    world.pass(ms(100));
    assert_eq!(world.brokers.trouble().unwrap().message, "it is too old for this client");
    assert_eq!(world.count(3), 0);
}

#[test]
fn debug_output_never_contains_passwords() {
    let login = Login::Plain { user: "me".into(), password: "hunter2".into() };
    let mut world = World::new(Settings { login, ..settings() });
    let shown =
        |world: &World| format!("{:?} {:?} {:?}", world.brokers, world.brokers.settings, world.brokers.channels);
    let token = format!("{:?}", b"hunter2").trim_matches(['[', ']']).to_owned();
    assert!(format!("{:?}", b"\0me\0hunter2").contains(&token));
    world.is_ready(-1, Purpose::Fetch);
    for _ in 0..10 {
        world.act();
        for link in world.links() {
            let shown = shown(&world);
            assert!(!shown.contains("hunter2") && !shown.contains(&token), "{shown}");
            world.write(link, 7);
            world.write(link, usize::MAX);
            world.serve(link);
            world.read(link, usize::MAX);
        }
    }
    assert_eq!(world.count(17), 1, "the login was reached");
}

#[test]
fn failure_explains_why_no_connection_is_ready() {
    let mut world = World::new(settings());
    world.cluster.down.insert(9001);
    world.watch("orders");
    world.settle();
    assert_eq!(world.brokers.failure(), Some("kafka:9001: it is down"));
    // A broker that requires a login closes the connection at the first request.
    world.cluster.down.clear();
    world.cluster.silent.insert(9001);
    world.until(|world| !world.wires.is_empty());
    world.cluster.silent.clear();
    let link = world.links()[0];
    world.write(link, usize::MAX);
    world.serve(link);
    world.read(link, usize::MAX);
    world.write(link, usize::MAX);
    world.cut(link, "it closed the connection");
    assert_eq!(world.brokers.failure(), Some("kafka:9001: it closed the connection; it may require a login"));
    world.until(|world| world.leader(0).is_some());
    assert_eq!(world.brokers.failure(), None);
}
