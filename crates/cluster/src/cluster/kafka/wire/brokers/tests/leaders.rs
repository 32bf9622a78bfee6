//! Leaders: epochs, doubts, recreated topics, other clusters.

use super::super::*;
use super::world::*;

fn watching(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    world
}

fn set_leaders(world: &mut World, partitions: &[LeaderAndEpoch]) {
    world.cluster.topics.get_mut("orders").unwrap().1 = partitions.to_vec();
}

/// Doubts the leader of partition 0, and waits for the next metadata.
fn doubt(world: &mut World) -> Option<(i32, i32)> {
    let requests = world.count(3);
    let leader = world.brokers.leader("orders", 0);
    world.brokers.doubt_leader("orders", 0, leader, world.now);
    world.until(|world| world.count(3) > requests);
    world.leader(0)
}

#[test]
fn leaders_are_read_in_every_version() {
    for version in 4..=13 {
        let mut world = World::new(settings());
        world.cluster.metadata_max = version;
        world.watch("orders");
        world.watch("gone");
        world.until(|world| world.leader(0).is_some());
        let epoch = if version >= 7 { 5 } else { -1 };
        assert_eq!(
            [0, 1, 2, 3].map(|partition| world.leader(partition)),
            [Some((1, epoch)), Some((2, epoch)), Some((3, epoch)), None]
        );
        assert_eq!((world.brokers.topic_error("orders"), world.brokers.topic_error("gone")), (None, Some(3)));
        assert_eq!((world.brokers.partition_count("orders"), world.brokers.partition_count("gone")), (Some(3), None));
        let id = if version >= 10 { [1; 16] } else { [0; 16] };
        assert_eq!((world.brokers.topic_id("orders"), world.brokers.topic_id("gone")), (Some(id), None));
        assert_eq!(world.seen.last().unwrap().version, version.min(12));
    }
}

#[test]
fn leader_of_an_earlier_epoch_is_not_accepted() {
    let mut world = watching(settings());
    set_leaders(&mut world, &[(2, 4), (2, 6), (3, 5)]);
    assert_eq!(doubt(&mut world), None, "the partition has no leader until a newer one is reported");
    assert_eq!(world.leader(1), Some((2, 6)));
    set_leaders(&mut world, &[(3, 6), (2, 6), (3, 5)]);
    world.until(|world| world.leader(0).is_some());
    assert_eq!(world.leader(0), Some((3, 6)));
    // A partition that is not in doubt does not accept an earlier epoch either.
    set_leaders(&mut world, &[(3, 5), (1, 5), (3, 7)]);
    world.pass(Duration::from_secs(301));
    assert_eq!([0, 1, 2].map(|partition| world.leader(partition)), [Some((3, 6)), Some((2, 6)), Some((3, 7))]);
}

#[test]
fn recreated_topic_starts_with_its_own_epochs() {
    let mut world = watching(settings());
    world.cluster.topics.insert("orders".to_owned(), (2, vec![(2, 0)]));
    assert_eq!(doubt(&mut world), Some((2, 0)));
    assert_eq!((world.leader(1), world.brokers.topic_id("orders")), (None, Some([2; 16])));
}

#[test]
fn doubted_leader_can_be_confirmed() {
    let mut world = watching(settings());
    let leader = world.brokers.leader("orders", 0);
    world.brokers.doubt_leader("orders", 0, leader, world.now);
    assert_eq!(world.leader(0), None);
    assert_eq!(world.leader(1), Some((2, 5)), "the others are not in doubt");
    world.until(|world| world.leader(0).is_some());
    assert_eq!(world.leader(0), Some((1, 5)));
}

#[test]
fn doubt_about_a_former_leader_does_not_affect_its_successor() {
    let mut world = watching(settings());
    let old = world.brokers.leader("orders", 0);
    set_leaders(&mut world, &[(2, 6), (2, 5), (3, 5)]);
    assert_eq!(doubt(&mut world), Some((2, 6)));
    let requests = world.count(3);
    world.brokers.doubt_leader("orders", 0, old, world.now);
    world.pass(Duration::from_secs(10));
    assert_eq!((world.leader(0), world.count(3)), (Some((2, 6)), requests));
}

#[test]
fn doubt_is_not_resolved_by_the_response_to_an_earlier_request() {
    let mut world = watching(settings());
    world.pass(Duration::from_secs(10));
    let (requests, link) = (world.count(3), world.links()[0]);
    // A request is pending because of partition 1.
    let leader = world.brokers.leader("orders", 1);
    world.brokers.doubt_leader("orders", 1, leader, world.now);
    world.write(link, usize::MAX);
    world.serve(link);
    assert_eq!(world.count(3), requests + 1);
    let leader = world.brokers.leader("orders", 0);
    world.brokers.doubt_leader("orders", 0, leader, world.now);
    world.read(link, usize::MAX);
    assert_eq!((world.leader(0), world.leader(1)), (None, Some((2, 5))));
    world.until(|world| world.leader(0).is_some());
    assert_eq!(world.count(3), requests + 2);
}

#[test]
fn metadata_requests_back_off_and_go_to_other_brokers() {
    let mut world = watching(settings());
    world.seen.clear();
    let begin = world.now;
    while world.now < begin + Duration::from_secs(10) {
        let leader = world.brokers.leader("orders", 0);
        world.brokers.doubt_leader("orders", 0, leader, world.now);
        world.pass(ms(1));
    }
    let requests: Vec<u16> = world.seen.iter().filter(|seen| seen.api_key == 3).map(|seen| seen.port).collect();
    assert!((13..17).contains(&requests.len()), "{requests:?}");
    let ports: std::collections::BTreeSet<u16> = requests.iter().copied().collect();
    assert!(ports.len() == 3, "all brokers receive requests: {requests:?}");
    // After some time without requests, a doubt causes a request at once.
    world.pass(Duration::from_secs(10));
    let requests = world.count(3);
    let leader = world.brokers.leader("orders", 0);
    world.brokers.doubt_leader("orders", 0, leader, world.now);
    world.settle();
    assert_eq!(world.count(3), requests + 1);
}

#[test]
fn missing_leader_is_requested_only_while_it_is_looked_up() {
    let mut world = watching(settings());
    set_leaders(&mut world, &[(-1, 6), (2, 5), (3, 5)]);
    assert_eq!(doubt(&mut world), None);
    // The last look-up causes one request.
    world.pass(Duration::from_secs(5));
    let requests = world.count(3);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.count(3), requests, "the leader is not looked up");
    set_leaders(&mut world, &[(3, 7), (2, 5), (3, 5)]);
    let took = world.until(|world| world.leader(0).is_some());
    assert!(took < ms(5), "{took:?}");
    assert_eq!(world.leader(0), Some((3, 7)));
}

#[test]
fn topic_that_is_watched_later_is_requested_at_once() {
    let mut world = watching(settings());
    world.cluster.topics.insert("payments".to_owned(), (3, vec![(3, 1)]));
    world.watch("payments");
    let took = world.until(|world| world.brokers.leader("payments", 0).is_some());
    assert_eq!(took, Duration::ZERO);
    // A topic that does not exist yet is found once it is created.
    world.watch("refunds");
    world.pass(Duration::from_secs(1));
    assert_eq!((world.brokers.leader("refunds", 0), world.brokers.topic_error("refunds")), (None, Some(3)));
    world.cluster.topics.insert("refunds".to_owned(), (4, vec![(1, 1)]));
    let took = world.until(|world| world.brokers.leader("refunds", 0).is_some());
    assert!(took < ms(1300), "{took:?}");
    world.brokers.unwatch("refunds");
    assert_eq!(world.brokers.leader("refunds", 0), None);
    let requests = world.count(3);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.count(3), requests, "the topic is not watched");
}

#[test]
fn topic_that_a_broker_does_not_know_keeps_its_leaders() {
    let mut world = watching(settings());
    let topic = world.cluster.topics.remove("orders").unwrap();
    world.pass(Duration::from_secs(301));
    assert_eq!((world.brokers.topic_error("orders"), world.leader(0)), (Some(3), Some((1, 5))));
    world.cluster.topics.insert("orders".to_owned(), topic);
    world.pass(Duration::from_secs(301));
    assert_eq!(world.brokers.topic_error("orders"), None);
}

#[test]
fn old_metadata_is_requested_again() {
    let mut world = watching(settings());
    let requests = world.count(3);
    world.pass(Duration::from_secs(299));
    assert_eq!(world.count(3), requests);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.count(3), requests + 1);
}

#[test]
fn broken_connection_causes_a_metadata_request() {
    let mut world = watching(settings());
    world.until(|world| world.is_ready(2, Purpose::Fetch));
    world.pass(Duration::from_secs(10));
    let requests = world.count(3);
    set_leaders(&mut world, &[(1, 5), (3, 6), (3, 5)]);
    let link = *world.wires.iter().find(|(_, wire)| wire.port == 9002).unwrap().0;
    world.cut(link, "it went away");
    world.settle();
    assert_eq!((world.count(3), world.leader(1)), (requests + 1, Some((3, 6))));
}

#[test]
fn metadata_of_another_cluster_is_rejected() {
    let mut world = watching(settings());
    world.cluster.id = Some("other");
    set_leaders(&mut world, &[(2, 9), (2, 9), (2, 9)]);
    world.pass(Duration::from_secs(302));
    assert_eq!(world.leader(1), Some((2, 5)));
    let trouble = world.brokers.trouble().unwrap();
    assert_eq!(trouble.message, r#"it belongs to cluster "other", but the other brokers to "one""#);
    world.cluster.id = Some("one");
    world.until(|world| world.leader(1) == Some((2, 9)));
}

#[test]
fn metadata_is_requested_again_from_a_broker_that_knows_no_brokers_yet() {
    let mut world = World::new(settings());
    let nodes = std::mem::take(&mut world.cluster.nodes);
    world.watch("orders");
    world.pass(ms(500));
    assert_eq!(world.leader(0), None);
    assert!(world.count(3) > 2);
    world.cluster.nodes = nodes;
    world.until(|world| world.leader(0).is_some());
}

#[test]
fn malformed_metadata_is_requested_again() {
    let mut world = World::new(settings());
    world.serve = Box::new(|_, seen| (seen.api_key == 3).then(|| vec![0, 0]));
    world.watch("orders");
    world.pass(Duration::from_secs(2));
    assert_eq!(world.brokers.trouble().unwrap().message, "it sent malformed metadata");
    assert!((5..12).contains(&world.count(3)), "{}", world.count(3));
    world.serve = Box::new(|_, _| None);
    world.until(|world| world.leader(0).is_some());
    assert_eq!(world.brokers.trouble(), None);
}

#[test]
fn throttled_metadata_response_mutes_the_connection() {
    let mut world = World::new(settings());
    world.cluster.throttle_ms = 700;
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    assert!(!world.is_ready(-1, Purpose::Control));
    let took = world.until(|world| world.is_ready(-1, Purpose::Control));
    assert_eq!(took.as_millis(), 700);
}

#[test]
fn leader_with_an_unknown_address_causes_a_metadata_request() {
    let mut world = World::new(settings());
    world.cluster.nodes.remove(&2);
    world.watch("orders");
    world.until(|world| world.leader(1).is_some());
    world.pass(Duration::from_secs(5));
    assert!(!world.is_ready(2, Purpose::Fetch));
    world.cluster.nodes.insert(2, 9002);
    let took = world.until(|world| world.is_ready(2, Purpose::Fetch));
    assert!(took < ms(1300), "{took:?}");
}

#[test]
fn impossible_partitions_are_not_remembered() {
    let mut world = World::new(settings());
    world.serve = Box::new(|_, seen| {
        let topic = |body: &mut Vec<u8>, partitions: &[i32]| {
            body.extend((partitions.len() as i32).to_be_bytes());
            for partition in partitions {
                let numbers = [*partition, 1, 0, 0, 0];
                body.extend([0, 0]);
                body.extend(numbers.map(i32::to_be_bytes).concat());
            }
        };
        (seen.api_key == 3).then(|| {
            // Version 5: a broker, no cluster id, a controller, a topic.
            let mut body = [0, 1, 1].map(i32::to_be_bytes).concat();
            body.extend(b"\0\x05kafka");
            body.extend(9001_i32.to_be_bytes());
            body.extend([255, 255, 255, 255, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 6]);
            body.extend(b"orders\0");
            topic(&mut body, &[0, -1, i32::MIN, 1 << 20, i32::MAX, 7]);
            body
        })
    });
    world.cluster.metadata_max = 5;
    world.watch("orders");
    world.until(|world| world.leader(0).is_some());
    assert_eq!((world.leader(7), world.brokers.partition_count("orders")), (Some((1, -1)), Some(2)));
}
