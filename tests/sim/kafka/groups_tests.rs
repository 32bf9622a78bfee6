//! Goal: groups form, rebalance and fence as Kafka's do. Each test names the source of its rule.

use super::super::{MS, SECOND};
use super::*;

const GROUP: &str = "readers";
const TIMES: (Time, Time) = (SECOND, 3 * SECOND);

#[derive(Default)]
struct Scene {
    groups: Groups,
    now: Time,
}

fn partition() -> Partition {
    Partition::new("in", 0)
}

fn offset(offset: i64) -> [(Partition, Committed); 1] {
    [(partition(), Committed { offset, metadata: String::new() })]
}

impl Scene {
    fn ask(&mut self, member: &str, owned: &[Partition]) -> Result<(), (Code, Arc<str>)> {
        let subscription = Subscription { topics: vec!["in".into()], owned: owned.to_vec(), generation: -1 };
        self.groups.join(self.now, (&GROUP.into(), member), subscription, TIMES)
    }

    /// A new client joins: it gets a member id, and joins again with it.
    fn arrive(&mut self) -> Arc<str> {
        let Err((Code::MemberIdRequired, id)) = self.ask("", &[]) else { panic!("no member id is given") };
        self.ask(&id, &[]).unwrap();
        id
    }

    fn joined(&mut self, member: &str) -> Option<Result<Joined, Code>> {
        self.groups.take_joined(GROUP, member)
    }

    fn sync(&mut self, member: &str, generation: i32, all: Option<&[(&str, i32)]>) -> Result<(), Code> {
        let assign = |all: &[(&str, i32)]| {
            all.iter().map(|(member, number)| ((*member).into(), vec![Partition::new("in", *number)])).collect()
        };
        self.groups.sync(self.now, (GROUP, member), generation, all.map(assign))
    }

    /// A stable group of one member.
    fn alone() -> (Self, Arc<str>) {
        let mut scene = Self::default();
        let member = scene.arrive();
        assert_eq!(scene.joined(&member).unwrap().unwrap().generation, 1);
        scene.sync(&member, 1, Some(&[(&member, 0)])).unwrap();
        assert_eq!(scene.groups.take_synced(GROUP, &member), Some(Ok(vec![partition()])));
        (scene, member)
    }

    fn beat(&mut self, member: &str, generation: i32) -> Result<(), Code> {
        self.groups.heartbeat(self.now, GROUP, member, generation)
    }

    fn commit(&mut self, member: &str, generation: i32) -> Result<(), Code> {
        self.groups.commit(self.now, &GROUP.into(), (member, generation), &offset(1))
    }

    fn commit_in(&mut self, producer: i64, member: &str, generation: i32, at: i64) -> Result<(), Code> {
        self.groups.commit_transactional(&GROUP.into(), (member, generation), (producer, 0), (&offset(at), false))
    }

    fn fetched(&self, stable: bool) -> Result<Option<i64>, Code> {
        self.groups.committed(GROUP, &partition(), stable).map(|found| found.map(|committed| committed.offset))
    }
}

/// `GroupMetadataManager.completeClassicGroupJoin`: all members have to rejoin; the generation rises; the leader gets
/// the list of members.
#[test]
fn new_member_makes_all_members_rejoin() {
    let (mut scene, first) = Scene::alone();
    let second = scene.arrive();
    assert_eq!(scene.joined(&second), None, "the first has not joined yet");
    assert_eq!(scene.beat(&first, 1), Err(Code::RebalanceInProgress));
    scene.ask(&first, &[partition()]).unwrap();
    let leader = scene.joined(&first).unwrap().unwrap();
    assert_eq!((leader.generation, leader.is_leader, leader.members.len()), (2, true, 2));
    let other = scene.joined(&second).unwrap().unwrap();
    assert_eq!((other.generation, other.is_leader, other.members.len()), (2, false, 0));
    scene.sync(&second, 2, None).unwrap();
    assert_eq!(scene.groups.take_synced(GROUP, &second), None, "the leader has not assigned yet");
    let (a, b) = (first.to_string(), second.to_string());
    scene.sync(&first, 2, Some(&[(&a, 0), (&b, 1)])).unwrap();
    assert_eq!(scene.groups.take_synced(GROUP, &second), Some(Ok(vec![Partition::new("in", 1)])));
}

/// `completeClassicGroupJoin`: a member that has not joined within the rebalance timeout is removed.
#[test]
fn member_that_does_not_join_in_time_is_removed() {
    let (mut scene, first) = Scene::alone();
    let second = scene.arrive();
    for _ in 0..6 {
        scene.now += SECOND / 2;
        assert_eq!(scene.beat(&first, 1), Err(Code::RebalanceInProgress), "it is alive but does not join");
        scene.groups.expire(scene.now);
    }
    assert!(scene.joined(&second).unwrap().unwrap().is_leader);
    assert_eq!(scene.beat(&first, 1), Err(Code::UnknownMemberId));
}

/// `GroupMetadataManager.classicGroupHeartbeat` and session expiry.
#[test]
fn silent_member_is_removed_and_its_commits_are_fenced() {
    let (mut scene, member) = Scene::alone();
    scene.now = SECOND - MS;
    scene.groups.expire(scene.now);
    assert_eq!(scene.beat(&member, 1), Ok(()));
    scene.now = 2 * SECOND;
    scene.groups.expire(scene.now);
    assert_eq!(scene.beat(&member, 1), Err(Code::UnknownMemberId));
    assert_eq!(scene.commit_in(7, &member, 1, 5), Err(Code::UnknownMemberId));
}

/// KIP-394: an unused member id delays the rebalance until it is used or has expired.
#[test]
fn unused_member_id_delays_the_rebalance() {
    let mut scene = Scene::default();
    let Err((Code::MemberIdRequired, _)) = scene.ask("", &[]) else { panic!() };
    let second = scene.arrive();
    assert_eq!(scene.joined(&second), None);
    scene.now = SECOND;
    scene.groups.expire(scene.now);
    assert!(scene.joined(&second).is_some());
    assert!(matches!(scene.ask("made-up", &[]), Err((Code::UnknownMemberId, _))));
}

/// `classicGroupJoinExistingMember`: a follower's unchanged rejoin has no effect; one with other owned partitions
/// does, and so does any by the leader.
#[test]
fn rejoin_with_changes_starts_a_rebalance() {
    let (mut scene, leader) = Scene::alone();
    scene.ask(&leader, &[]).unwrap();
    assert_eq!(scene.joined(&leader).unwrap().unwrap().generation, 2, "the leader's rejoin");
    scene.sync(&leader, 2, Some(&[])).unwrap();
    let other = scene.arrive();
    scene.ask(&leader, &[]).unwrap();
    let leads = scene.joined(&leader).unwrap().unwrap().is_leader;
    let follower = if leads { &other } else { &leader };
    scene.sync(if leads { &leader } else { &other }, 3, Some(&[])).unwrap();
    scene.joined(follower);
    scene.ask(follower, &[]).unwrap();
    assert_eq!(scene.joined(follower).unwrap().unwrap().generation, 3);
    scene.ask(follower, &[partition()]).unwrap();
    assert_eq!(scene.joined(follower), None, "a rebalance has begun");
}

/// `ClassicGroup.validateOffsetCommit`: only members of the current generation commit; a client without membership
/// only into an empty group; nobody between join and sync.
#[test]
fn plain_commits_are_fenced() {
    let (mut scene, member) = Scene::alone();
    assert_eq!(scene.commit(&member, 1), Ok(()));
    assert_eq!(scene.commit(&member, 0), Err(Code::IllegalGeneration));
    assert_eq!(scene.commit("other", 1), Err(Code::UnknownMemberId));
    assert_eq!(scene.commit("", -1), Err(Code::UnknownMemberId));
    scene.ask(&member, &[]).unwrap();
    assert_eq!(scene.commit(&member, 2), Err(Code::RebalanceInProgress));
    scene.groups.leave(scene.now, GROUP, &member).unwrap();
    assert_eq!(scene.commit("", -1), Ok(()));
    assert_eq!(scene.commit(&member, 2), Err(Code::UnknownMemberId));
}

/// `ClassicGroup.validateOffsetCommit` with `isTransactional`: during a rebalance a member's transaction can still
/// commit; one that names no member is not fenced at all.
#[test]
fn transactional_commits_are_fenced_by_membership() {
    let (mut scene, member) = Scene::alone();
    let newcomer = scene.arrive();
    assert_eq!(scene.commit_in(7, &member, 1, 5), Ok(()), "while the group prepares a rebalance");
    assert_eq!(scene.commit_in(7, &member, 0, 5), Err(Code::IllegalGeneration));
    assert_eq!(scene.commit_in(7, "gone", 1, 5), Err(Code::UnknownMemberId));
    assert_eq!(scene.commit_in(8, "", -1, 5), Ok(()), "unfenced");
    scene.ask(&member, &[]).unwrap();
    assert_eq!(scene.commit_in(7, &newcomer, 2, 5), Ok(()), "between join and sync");
    let missing = scene.groups.commit_transactional(&"none".into(), (&member, 1), (7, 0), (&offset(1), false));
    assert_eq!(missing, Err(Code::IllegalGeneration), "a group that does not exist");
}

/// KIP-447: a stable fetch waits for pending offsets; a plain one sees what was committed before.
#[test]
fn stable_fetch_waits_for_pending_offsets() {
    let (mut scene, member) = Scene::alone();
    scene.commit_in(7, &member, 1, 5).unwrap();
    assert_eq!(scene.fetched(true), Err(Code::UnstableOffsetCommit));
    assert_eq!(scene.fetched(false), Ok(None));
    scene.groups.end_transaction(GROUP, 7, 0, true);
    assert_eq!(scene.fetched(true), Ok(Some(5)));
    scene.commit_in(7, &member, 1, 9).unwrap();
    scene.groups.end_transaction(GROUP, 7, 0, false);
    assert_eq!(scene.fetched(true), Ok(Some(5)), "aborted");
}

/// `OffsetMetadataManager.replayEndTransactionMarker`: of two commits the later append wins, whenever the marker is
/// written.
#[test]
fn later_appended_offset_wins() {
    let (mut scene, member) = Scene::alone();
    scene.commit_in(7, &member, 1, 5).unwrap();
    scene.commit(&member, 1).unwrap();
    scene.groups.end_transaction(GROUP, 7, 0, true);
    assert_eq!(scene.fetched(true), Ok(Some(1)));
}

/// The offsets' partition is a log: a fenced producer's commit is rejected there too (`ProducerAppendInfo`).
#[test]
fn offsets_of_a_fenced_producer_are_rejected() {
    let (mut scene, member) = Scene::alone();
    scene.commit_in(7, &member, 1, 5).unwrap();
    scene.groups.end_transaction(GROUP, 7, 1, false);
    assert_eq!(scene.commit_in(7, &member, 1, 6), Err(Code::InvalidProducerEpoch));
}

/// `DeleteGroups`: NON_EMPTY_GROUP while it has members; after that its offsets are gone too.
#[test]
fn only_an_empty_group_can_be_deleted() {
    let (mut scene, member) = Scene::alone();
    scene.commit(&member, 1).unwrap();
    assert_eq!(scene.groups.delete(GROUP), Err(Code::NonEmptyGroup));
    scene.groups.leave(scene.now, GROUP, &member).unwrap();
    assert_eq!(scene.groups.delete(GROUP), Ok(()));
    assert_eq!(scene.fetched(true), Ok(None));
    assert_eq!(scene.groups.delete(GROUP), Err(Code::GroupIdNotFound));
}
