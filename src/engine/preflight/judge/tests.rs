//! Goal: each finding appears exactly when it should, once, and says what to do; sound topics lead to no finding.

use std::sync::Arc;

use super::*;
use crate::cluster::{CommittedOffset, TopicId};
use crate::dedup::{Identity, IdentityPart, Path, Retention, Rules};
use crate::engine::preflight::finding::Severity;
use crate::format::{OffsetMetadata, Token};
use crate::topology::{Destination, Input, Output, Start};

const DAY_MS: i64 = 86_400_000;
const DIGEST: [u8; 32] = [7; 32];

fn topology() -> Topology {
    let identity = Identity::of_paths([Path::parse("value.id").unwrap()]);
    Topology {
        name: "t".to_owned(),
        preset: None,
        input: Input::Topics(vec!["in".to_owned()]),
        start: Start::Earliest,
        // Twice as long as the input keeps its records.
        rules: Arc::new(Rules { retention: Retention::For { ms: 14 * DAY_MS }, ..Rules::new(identity, None) }),
        schemas: Default::default(),
        destination: Destination::Output(Output::to("out")),
        gate: None,
        dead_letter: "dead".to_owned(),
        audit: None,
        only_said_to_be_partitioned: false,
        tests: Vec::new(),
    }
}

pub(in crate::engine::preflight) fn topic() -> TopicDescription {
    TopicDescription {
        id: TopicId([1; 16]),
        partition_count: 3,
        cleanup_policy: "delete".to_owned(),
        delete_retention_ms: DAY_MS,
        retention_ms: 7 * DAY_MS,
        retention_bytes: i64::MAX,
        stamps: false,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        message_bytes_max: 1_000_000,
        replicas: Some(3),
        min_insync_replicas: Some(2),
        elects_uncleanly: Some(false),
        rights: Some(Rights::ALL),
    }
}

fn existing(name: &str, topic: TopicDescription) -> NamedTopic {
    NamedTopic { name: name.to_owned(), state: TopicState::Exists(Box::new(topic)) }
}

pub(in crate::engine::preflight) fn sound() -> Facts {
    let changelog = TopicDescription { cleanup_policy: "compact".to_owned(), ..topic() };
    Facts {
        input: existing("in", topic()),
        output: Some(existing("out", topic())),
        changelog: existing("log", changelog),
        committed: Ok(vec![None; 3]),
        stores: Vec::new(),
        changes: None,
    }
}

fn settings() -> config::TopicSettings {
    config::TopicSettings { create: Create::Internal, replication_factor: 3, min_insync_replicas: 2 }
}

fn judge<'a>(topology: &'a Topology, settings: &'a config::TopicSettings) -> Judge<'a> {
    Judge { topology, rules_digest: &DIGEST, settings, is_shared: true }
}

fn judged(topology: &Topology, facts: &Facts) -> Vec<Finding> {
    judge(topology, &settings()).input(facts)
}

fn out(facts: &mut Facts) -> &mut NamedTopic {
    facts.output.as_mut().unwrap()
}

fn change(named: &mut NamedTopic, change: impl FnOnce(&mut TopicDescription)) {
    let TopicState::Exists(topic) = &mut named.state else { panic!("{} does not exist", named.name) };
    change(topic);
}

/// Returns the only finding after `alter` has changed the sound facts.
#[track_caller]
fn only(alter: impl FnOnce(&mut Topology, &mut Facts)) -> Finding {
    let (mut topology, mut facts) = (topology(), sound());
    alter(&mut topology, &mut facts);
    let mut findings = judged(&topology, &facts);
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[track_caller]
fn says(severity: Severity, words: &[&str], alter: impl FnOnce(&mut Topology, &mut Facts)) {
    let finding = only(alter);
    assert_eq!(finding.severity, severity, "{finding}");
    for word in words {
        assert!(finding.to_string().contains(word), "no {word:?} in {finding}");
    }
    assert!(!finding.help.is_empty());
}

use Severity::{Note, Refused, Warning};

#[test]
fn unclean_elections_are_warned_of() {
    let words = ["unclean.leader.election.enable", "set it to false"];
    let unclean = |topic: &mut TopicDescription| topic.elects_uncleanly = Some(true);
    says(Warning, &[&words[..], &["input topic \"in\""]].concat(), |_, facts| change(&mut facts.input, unclean));
    says(Warning, &[&words[..], &["output topic \"out\""]].concat(), |_, facts| change(out(facts), unclean));
    says(Warning, &[&words[..], &["changelog topic \"log\""]].concat(), |_, facts| {
        change(&mut facts.changelog, unclean)
    });
    let dead = existing("dead", TopicDescription { elects_uncleanly: Some(true), ..topic() });
    let findings = judge(&topology(), &settings()).side_topic(Role::DeadLetter, &dead, Some(3), 0);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].to_string().contains("dead letter topic \"dead\" may elect"), "{}", findings[0]);
    // A setting that the cluster does not report leads to no finding.
    let (topology, mut facts) = (topology(), sound());
    change(out(&mut facts), |topic| topic.elects_uncleanly = None);
    assert_eq!(judged(&topology, &facts), []);
}

#[test]
fn topics_without_an_id_are_refused() {
    let unnamed = |topic: &mut TopicDescription| topic.id = TopicId::default();
    for (name, of) in [
        ("input topic \"in\"", (|facts| &mut facts.input) as fn(&mut Facts) -> &mut NamedTopic),
        ("changelog topic \"log\"", |facts| &mut facts.changelog),
    ] {
        says(Refused, &[name, "no id", "Kafka 2.8"], |_, facts| change(of(facts), unnamed));
    }
    // The output's id is not needed.
    let (topology, mut facts) = (topology(), sound());
    change(out(&mut facts), unnamed);
    assert_eq!(judged(&topology, &facts), []);
}

#[test]
fn sound_topics_lead_to_no_finding() {
    assert_eq!(judged(&topology(), &sound()), []);
}

#[test]
fn missing_topics_are_refused_or_created() {
    says(Refused, &["input topic \"in\" does not exist", "input.topics"], |_, facts| {
        facts.input.state = TopicState::Missing;
        facts.committed = Ok(Vec::new());
    });
    says(Refused, &["topic \"out\" does not exist", "3 partitions", "topics.create: all"], |_, facts| {
        out(facts).state = TopicState::Missing;
    });
    says(Note, &["changelog topic \"log\" does not exist", "creates it with 3"], |_, facts| {
        facts.changelog.state = TopicState::Missing;
    });
}

#[test]
fn lost_changelog_is_not_created_again() {
    let ways_out = ["bring the changelog back", "ratchet changelog rebuild", "a new name and a new output"];
    let token = crate::format::Token { lane: 1, transaction: 2, changelog_id: [3; 16], partition: 1 };
    let digest = OffsetMetadata::short_digest(&DIGEST);
    let metadata = OffsetMetadata { token, digest, owner: None }.to_string();
    let words = ["topic \"log\" does not exist", "\"ratchet.t\" has committed", "for 1 of 3 partitions"];
    says(Refused, &[&words[..], &ways_out].concat(), |_, facts| {
        facts.changelog.state = TopicState::Missing;
        facts.committed = Ok(vec![None, Some(CommittedOffset { offset: 7, metadata: metadata.clone() }), None]);
    });
    let words = ["topic \"log\" does not exist", "/state/slot-0/t/in-1 (up to offset 7)"];
    says(Refused, &[&words[..], &ways_out].concat(), |_, facts| {
        facts.changelog.state = TopicState::Missing;
        facts.stores = vec!["/state/slot-0/t/in-1 (up to offset 7)".to_owned()];
    });
    // The offset was set by the group's creator: nothing was processed.
    says(Note, &["creates it with 3"], |_, facts| {
        facts.changelog.state = TopicState::Missing;
        facts.committed = Ok(vec![None, Some(CommittedOffset { offset: 7, metadata: String::new() }), None]);
    });
}

#[test]
fn missing_topic_is_requested_with_the_inputs_partition_count() {
    let (topology, settings) = (topology(), settings());
    let helps = |facts: &Facts| judged(&topology, facts).into_iter().map(|finding| finding.help).collect::<Vec<_>>();
    let mut facts =
        Facts { output: Some(NamedTopic { name: "out".to_owned(), state: TopicState::Missing }), ..sound() };
    change(&mut facts.input, |input| input.partition_count = 1);
    change(&mut facts.changelog, |changelog| changelog.partition_count = 1);
    facts.committed = Ok(vec![None]);
    assert_eq!(helps(&facts), ["create it with 1 partition, or let ratchet create it (topics.create: all)"]);
    // If the input does not exist, its partition count is not known.
    facts.input.state = TopicState::Missing;
    facts.changelog.state = TopicState::Missing;
    let expected = [
        "create it, or name another in input.topics",
        "create it with as many partitions as the input, or let ratchet create it (topics.create: all)",
        "run creates it with as many partitions as the input",
    ];
    assert_eq!(helps(&facts), expected);
    let judge = judge(&topology, &settings);
    let [finding] = &judge.side_topic(Role::Audit, &facts.changelog, None, 0)[..] else { panic!() };
    assert_eq!(finding.help, "run creates it with as many partitions as the input");
}

#[test]
fn withheld_topics_name_the_right_to_grant() {
    for (index, noun) in ["input", "output", "changelog"].into_iter().enumerate() {
        says(Refused, &[noun, "cannot be seen: no", "DescribeConfigs"], |_, facts| {
            let output = facts.output.as_mut().unwrap();
            let named = [&mut facts.input, output, &mut facts.changelog];
            named.into_iter().nth(index).unwrap().state = TopicState::Withheld { words: "no".to_owned(), denied: None };
        });
    }
    let denied = |denied| TopicState::Withheld { words: "no".to_owned(), denied: Some(denied) };
    says(Refused, &["grant DescribeConfigs on topic in,"], |_, facts| facts.input.state = denied(Denied::Settings));
    says(Refused, &["grant Read on topic in,"], |_, facts| facts.input.state = denied(Denied::Topic));
    says(Refused, &["grant Write on topic out,"], |_, facts| out(facts).state = denied(Denied::Topic));
    says(Refused, &["grant Read and Write on topic log,"], |_, facts| facts.changelog.state = denied(Denied::Topic));
    says(Refused, &["what \"ratchet.t\" has committed", "no"], |_, facts| facts.committed = Err("no".to_owned()));
}

#[test]
fn wrong_partition_counts_are_refused() {
    says(Refused, &["2 partitions", "has 3", "add partitions to the output"], |_, facts| {
        change(out(facts), |output| output.partition_count = 2);
    });
    says(Refused, &["4 partitions", "must be equal", "a new name"], |_, facts| {
        change(&mut facts.changelog, |changelog| changelog.partition_count = 4);
    });
}

#[test]
fn changelog_that_is_not_only_compacted_is_refused() {
    says(Refused, &["cleanup.policy=compact,delete", "entries get lost"], |_, facts| {
        change(&mut facts.changelog, |changelog| changelog.cleanup_policy = "compact,delete".to_owned());
    });
}

#[test]
fn input_kept_longer_than_the_retention_is_warned_of() {
    says(Warning, &["keeps its records 15d", "remembered 14d", "retention.ms"], |_, facts| {
        change(&mut facts.input, |input| input.retention_ms = 15 * DAY_MS);
    });
    says(Warning, &["keeps its records for ever", "at most 5 bytes"], |_, facts| {
        change(&mut facts.input, |input| (input.retention_ms, input.retention_bytes) = (i64::MAX, 5));
    });
    says(Warning, &["for ever", "cleanup.policy=compact"], |_, facts| {
        change(&mut facts.input, |input| input.cleanup_policy = "compact".to_owned());
    });
}

#[test]
fn offset_under_other_rules_says_which_rule_has_changed() {
    let (topology, other) = (topology(), OffsetMetadata::short_digest(&[8; 32]));
    let token = Token { lane: 1, transaction: 1, changelog_id: [1; 16], partition: 0 };
    let metadata = OffsetMetadata { token, digest: other, owner: None }.to_string();
    let committed = Ok(vec![Some(CommittedOffset { offset: 7, metadata })]);
    for (changes, words) in [
        (
            Some("`identity` was value.a, and is value.id".to_owned()),
            "the rules have changed: `identity` was value.a, and is value.id.",
        ),
        (None, "the rules have changed: it is not known which."),
    ] {
        let found = judged(&topology, &Facts { committed: committed.clone(), changes, ..sound() });
        let [only] = &found[..] else { panic!("{found:?}") };
        assert!(
            only.is_refused() && only.message.starts_with(words) && only.message.contains("under other rules"),
            "{only}"
        );
    }
}

#[test]
fn retention_below_twice_the_inputs_is_warned_of() {
    for days in [8, 14] {
        let words = ["for ", "segment.ms", "remembered 14d", "set `retention` to"];
        says(Warning, &[words[0], words[1], words[2], words[3], &format!("{}d, twice", 2 * days)], |_, facts| {
            change(&mut facts.input, |input| input.retention_ms = days * DAY_MS);
        });
    }
    // The seven days in `sound` are half of the retention.
    assert_eq!(judged(&topology(), &sound()), []);
}

#[test]
fn input_may_be_kept_for_ever_if_it_is_remembered_for_ever() {
    let (mut topology, mut facts) = (topology(), sound());
    topology.rules = Arc::new(Rules { retention: Retention::Forever, ..(*topology.rules).clone() });
    change(&mut facts.input, |input| input.retention_ms = i64::MAX);
    assert_eq!(judged(&topology, &facts), []);
}

#[test]
fn topics_that_stamp_records_are_warned_of() {
    says(Warning, &["output topic \"out\" stamps", "LogAppendTime"], |_, facts| {
        change(out(facts), |output| output.stamps = true);
    });
    says(Warning, &["input topic \"in\" stamps", "read the timestamp"], |topology, facts| {
        let identity = Identity { parts: vec![IdentityPart::FirstOf(vec![vec![IdentityPart::Bucket { ms: 1 }]])] };
        topology.rules = Arc::new(Rules { identity, ..(*topology.rules).clone() });
        change(&mut facts.input, |input| input.stamps = true);
    });
    let mut facts = sound();
    change(&mut facts.input, |input| input.stamps = true);
    assert_eq!(judged(&topology(), &facts), [], "no rule reads the timestamp");
}

#[test]
fn timestamps_that_the_output_refuses_are_warned_of() {
    says(Warning, &["older than 1d", "of any age", "on_unsendable"], |_, facts| {
        change(out(facts), |output| output.timestamp_before_max_ms = DAY_MS);
    });
    says(Warning, &["older than 1d", "8d old"], |_, facts| {
        change(out(facts), |output| output.timestamp_before_max_ms = DAY_MS);
        change(&mut facts.input, |input| input.timestamp_before_max_ms = DAY_MS);
    });
    says(Warning, &["more than 1m ahead", "1h ahead", "future_max"], |_, facts| {
        change(out(facts), |output| output.timestamp_after_max_ms = 60_000);
    });
}

#[test]
fn smaller_batch_limits_are_warned_of() {
    says(Warning, &["999999 bytes", "takes 1000000", "max.message.bytes"], |_, facts| {
        change(out(facts), |output| output.message_bytes_max = 999_999);
    });
    let (topology, settings) = (topology(), settings());
    let judge = judge(&topology, &settings);
    let [finding] = &judge.side_topic(Role::DeadLetter, &existing("dead", topic()), Some(3), 1_000_001)[..] else {
        panic!()
    };
    assert!(finding.severity == Warning && finding.message.contains("stops its task"), "{finding}");
    assert_eq!(judge.side_topic(Role::DeadLetter, &existing("dead", topic()), Some(3), 1_000_000), []);
}

#[test]
fn too_few_replicas_are_found() {
    says(Warning, &["output", "1 replica", "says 3 and 2"], |_, facts| {
        change(out(facts), |output| (output.replicas, output.min_insync_replicas) = (Some(1), Some(1)));
    });
    says(Warning, &["changelog", "min.insync.replicas=1"], |_, facts| {
        change(&mut facts.changelog, |changelog| changelog.min_insync_replicas = Some(1));
    });
    says(Refused, &["3 replicas and min.insync.replicas=4", "takes no record"], |_, facts| {
        change(out(facts), |output| output.min_insync_replicas = Some(4));
    });
}

#[test]
fn missing_rights_to_topics_are_refused() {
    let no_read = Some(Rights { read: false, ..Rights::ALL });
    let no_write = Some(Rights { write: false, ..Rights::ALL });
    says(Refused, &["not authorised to read input topic"], |_, facts| {
        change(&mut facts.input, |topic| topic.rights = no_read);
    });
    says(Refused, &["not authorised to write output topic"], |_, facts| {
        change(out(facts), |topic| topic.rights = no_write);
    });
    says(Refused, &["not authorised to read changelog topic"], |_, facts| {
        change(&mut facts.changelog, |topic| topic.rights = no_read);
    });
    says(Refused, &["not authorised to write changelog topic"], |_, facts| {
        change(&mut facts.changelog, |topic| topic.rights = no_write);
    });
    says(Note, &["does not say", "input topic"], |_, facts| change(&mut facts.input, |topic| topic.rights = None));
    let (topology, settings) = (topology(), settings());
    let judge = judge(&topology, &settings);
    for role in [Role::DeadLetter, Role::Audit] {
        let named = existing("aside", TopicDescription { rights: no_write, ..topic() });
        let [finding] = &judge.side_topic(role, &named, Some(3), 0)[..] else { panic!() };
        assert!(finding.is_refused() && finding.message.contains(role.noun()), "{finding}");
    }
}

#[test]
fn missing_rights_to_the_group_are_found() {
    let (topology, settings) = (topology(), settings());
    let judge = judge(&topology, &settings);
    let found = |rights| judge.group(rights).into_iter().map(|finding| (finding.severity, finding.message)).next();
    assert_eq!(found(Some(Rights::ALL)), None);
    let (severity, message) = found(Some(Rights { read: false, ..Rights::ALL })).unwrap();
    assert!(severity == Refused && message.contains("\"ratchet.t\""), "{message}");
    let (severity, message) = found(Some(Rights { alter: false, ..Rights::ALL })).unwrap();
    assert!(severity == Note && message.contains("transactional ids"), "{message}");
    assert_eq!(found(None).unwrap().0, Note);
}

#[test]
fn foreign_offsets_in_the_group_are_refused() {
    let committed = |metadata: &str| Some(CommittedOffset { offset: 1, metadata: metadata.to_owned() });
    says(Refused, &["in:1", "not ratchet's", "reset the group to earliest"], |_, facts| {
        facts.committed = Ok(vec![None, committed("something else"), committed("something else")]);
    });
    let later = "ratchet/2 what a later release says";
    says(Refused, &["in:0", "another release", "has format 2, this release reads 1", "a later one"], |_, facts| {
        facts.committed = Ok(vec![committed(later)]);
    });
    let token = crate::format::Token { lane: 1, transaction: 1, changelog_id: [0; 16], partition: 0 };
    let digest = OffsetMetadata::short_digest(&[1; 32]);
    let others = OffsetMetadata { token, digest, owner: None }.to_string();
    says(Refused, &["in:0", "other rules", "a new name"], |_, facts| facts.committed = Ok(vec![committed(&others)]));
    let digest = OffsetMetadata::short_digest(&DIGEST);
    let ours = OffsetMetadata { token, digest, owner: None }.to_string();
    let facts = Facts { committed: Ok(vec![committed(&ours), committed("")]), ..sound() };
    assert_eq!(judged(&topology(), &facts), []);
}

#[test]
fn only_unknown_topics_are_marked_as_missing() {
    let (topology, settings) = (topology(), settings());
    let mut facts = sound();
    facts.input.state = TopicState::Missing;
    let of = |facts: &Facts| judge(&topology, &settings).input(facts).into_iter().filter(Finding::is_refused).collect();
    let found: Vec<Finding> = of(&facts);
    assert!(found.iter().all(|finding| finding.is_missing) && !found.is_empty(), "{found:?}");
    out(&mut facts).state = TopicState::Withheld { words: "no".to_owned(), denied: None };
    let found: Vec<Finding> = of(&facts);
    assert!(found.iter().any(|finding| finding.is_missing) && !found.iter().all(|finding| finding.is_missing));
}
