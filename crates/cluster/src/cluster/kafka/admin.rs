//! Queries about topics and groups, and the creation of topics.
//!
//! **Failure**: a topic that does not exist is `None`, not an error; a cluster that does not respond in
//! time is [`ErrorKind::Retry`], unless missing rights or a wrong password are the cause.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::errors::{Code, Failure};
use super::native::{self, ANSWER_DEADLINE, Client, Group, c_string, create_or_validate, describe_group, settings};
use crate::cluster::{Denied, Detail, Error, ErrorKind, NewTopic, TopicDescription};

/// How long the first client waits for a coordinator: while the internal topic for group offsets is being created,
/// librdkafka waits for ever. Each further client waits twice as long, up to [`ANSWER_DEADLINE`] in all.
const COORDINATOR_ANSWER: Duration = Duration::from_secs(2);
/// Pause between two queries to a coordinator.
const COORDINATOR_PAUSE: Duration = Duration::from_millis(100);
/// How long it may take until all partitions of a new topic have a leader.
const USABLE_DEADLINE: Duration = Duration::from_secs(30);
/// Pause between two checks of a new topic.
const USABLE_STEP: Duration = Duration::from_millis(20);

/// The topic settings that are queried.
const SETTINGS: [&str; 10] = [
    "cleanup.policy",
    "delete.retention.ms",
    "retention.ms",
    "retention.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "max.message.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
];

/// Describes `group`, using a new client from `make` for each attempt. A client that is not allowed to describe the
/// group has no rights to it at all.
pub(super) fn group(make: impl Fn() -> Result<Arc<Client>, Error>, group: &str) -> Result<Group, Error> {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let mut wait = COORDINATOR_ANSWER;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match describe_group(&make()?, group, wait.min(left)) {
            // The internal topic is being created, or another broker is taking it over.
            Err(error) if error.kind == ErrorKind::Retry && Instant::now() + COORDINATOR_PAUSE < deadline => {
                wait = ANSWER_DEADLINE.min(wait * 2);
                thread::sleep(COORDINATOR_PAUSE);
            }
            answer => return answer,
        }
    }
}

/// Describes `topic`; `None` if it does not exist.
pub(super) fn describe(client: &Arc<Client>, topic: &str) -> Result<Option<TopicDescription>, Error> {
    let what = || format!("describing the topic {topic}");
    let unseen = |failure: Failure| {
        let error = failure.plain(what());
        if failure.is_denied_topic() { error.with(Some(Detail::Denied(Some(Denied::Topic)))) } else { error }
    };
    let Some(outline) = native::outline(client, topic).map_err(unseen)? else { return Ok(None) };
    let found = match settings(client, topic, SETTINGS) {
        Ok(found) => found,
        // It was deleted between the two queries, or not all brokers know it yet.
        Err(failure) if failure.code == Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART => {
            let again = native::outline(client, topic).map_err(unseen)?;
            let unsure = Error::new(ErrorKind::Retry, format!("{}: not all brokers know it yet", what()));
            return if again.is_none() { Ok(None) } else { Err(unsure) };
        }
        Err(failure) if failure.is_denied_topic() => {
            let what = format_args!("describing the settings of the topic {topic}");
            return Err(failure.plain(what).with(Some(Detail::Denied(Some(Denied::Settings)))));
        }
        Err(failure) => return Err(failure.plain(what())),
    };
    let value_of =
        |name: &str| SETTINGS.iter().position(|known| *known == name).map_or("", |index| found[index].as_str());
    let number = |name: &str, absent: Option<i64>| match (value_of(name), absent) {
        // Older brokers do not know this setting.
        ("", Some(absent)) => Ok(absent),
        (text, _) => text.parse().map_err(|_| {
            let what = what();
            Error::new(
                ErrorKind::Refused,
                format!("{what}: its {name} is {text:?}, which is not a number; may its settings be described?"),
            )
        }),
    };
    let limit = |name: &str| number(name, Some(-1)).map(|limit| if limit < 0 { i64::MAX } else { limit });
    Ok(Some(TopicDescription {
        id: outline.id,
        partition_count: outline.partition_count,
        cleanup_policy: value_of("cleanup.policy").to_owned(),
        delete_retention_ms: number("delete.retention.ms", None)?,
        retention_ms: limit("retention.ms")?,
        retention_bytes: limit("retention.bytes")?,
        stamps: value_of("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms: limit("message.timestamp.before.max.ms")?,
        timestamp_after_max_ms: limit("message.timestamp.after.max.ms")?,
        message_bytes_max: number("max.message.bytes", None)?,
        replicas: Some(outline.replicas),
        min_insync_replicas: number("min.insync.replicas", Some(1)).map(|count| i32::try_from(count).ok())?,
        elects_uncleanly: value_of("unclean.leader.election.enable").parse().ok(),
        rights: outline.rights,
    }))
}

/// Creates a topic and waits until it can be used. Succeeds if it already exists.
pub(super) fn create(client: &Arc<Client>, topic: &NewTopic<'_>) -> Result<(), Error> {
    create_or_validate(client, topic, false)?;
    wait_usable(client, topic.name)
}

/// Waits until every partition of `topic` has a leader that responds.
fn wait_usable(client: &Arc<Client>, topic: &str) -> Result<(), Error> {
    let deadline = Instant::now() + USABLE_DEADLINE;
    let name = c_string(topic)?;
    loop {
        let outline = native::outline(client, topic)
            .map_err(|failure| failure.plain(format_args!("waiting for the topic {topic}")))?;
        let answers = |partition| client.query_watermarks(&name, partition, ANSWER_DEADLINE).is_ok();
        if outline.is_some_and(|topic| topic.is_led && (0..topic.partition_count).all(answers)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::new(ErrorKind::Retry, format!("the new topic {topic} has partitions without a leader")));
        }
        thread::sleep(USABLE_STEP);
    }
}
