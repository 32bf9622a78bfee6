//! Topics that `run` creates: their settings, and the advice if the cluster refuses.

use crate::cluster::{self, Cluster, Detail, ErrorKind, NewTopic};
use crate::config;
use crate::words::{agreeing, counted};

use super::facts::{NamedTopic, TopicState};
use super::finding::Finding;
use super::judge::Role;

/// `max.message.bytes` of a dead letter or audit topic: every record that can be read has to fit, with the headers that
/// explain the reason.
const SIDE_TOPIC_BYTES_MAX: usize = 17 << 20;

/// The settings of a topic created for this role.
pub fn settings_of(role: Role, settings: &config::TopicSettings) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("min.insync.replicas", settings.min_insync_replicas.to_string()),
        // This does not depend on the brokers' default: a leader that lacks records would lose committed records.
        ("unclean.leader.election.enable", "false".to_owned()),
    ];
    match role {
        Role::Input | Role::Output | Role::Results => {}
        // The brokers set its timestamps: records from a host with a wrong clock cannot pass for Kafka's time.
        Role::Changelog => all
            .extend([("cleanup.policy", "compact".to_owned()), ("message.timestamp.type", "LogAppendTime".to_owned())]),
        // A command has to wait until an instance is active.
        Role::Control => {
            let forever = ["retention.ms", "retention.bytes"].map(|setting| (setting, "-1".to_owned()));
            all.extend([("cleanup.policy", "delete".to_owned())].into_iter().chain(forever));
        }
        Role::DeadLetter | Role::Audit => all.push(("max.message.bytes", SIDE_TOPIC_BYTES_MAX.to_string())),
    }
    all
}

/// The finding if a topic cannot be created; `None` if a later attempt may succeed.
pub fn problem(name: &str, error: &cluster::Error, settings: &config::TopicSettings) -> Option<Finding> {
    if error.kind != ErrorKind::Refused {
        return None;
    }
    let help = match error.detail {
        Some(Detail::Denied(Some(_))) => format!("grant Create on topic {name}, or create it by hand"),
        // The suggestion has as many replicas as these brokers can hold, and is as safe as they permit.
        Some(Detail::TooFewBrokers(brokers)) => format!(
            "add brokers, or write `topics: {{replication_factor: {brokers}, min_insync_replicas: {}}}` in the \
             configuration: there {} {}",
            settings.min_insync_replicas.min(brokers),
            agreeing(brokers, "is", "are"),
            counted(brokers, "broker")
        ),
        Some(
            Detail::Denied(None) | Detail::Missing | Detail::Lost | Detail::InUse | Detail::Damaged | Detail::Lacking,
        )
        | None => {
            format!(
                "create it by hand, or see topics.replication_factor ({}), topics.min_insync_replicas ({}) and \
                 topics.create",
                settings.replication_factor, settings.min_insync_replicas
            )
        }
    };
    Some(Finding::refused(format!("topic {name:?} cannot be created: {}", error.message), help))
}

/// Checks whether `run` could create a missing topic, without creating it.
pub fn rehearse<C: Cluster>(
    cluster: &C,
    role: Role,
    topic: &NamedTopic,
    partition_count: Option<i32>,
    settings: &config::TopicSettings,
) -> Result<Option<Finding>, cluster::Error> {
    let (TopicState::Missing, Some(partition_count)) = (&topic.state, partition_count) else { return Ok(None) };
    if !role.is_created(settings.create) {
        return Ok(None);
    }
    let all = settings_of(role, settings);
    let replication_factor = settings.replication_factor;
    let new = NewTopic { name: &topic.name, partition_count, replication_factor, settings: &all };
    match cluster.check_creation(&new) {
        Ok(()) => Ok(None),
        Err(error) => problem(&topic.name, &error, settings).map(Some).ok_or(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_brokers_lead_to_a_help_with_their_number() {
        let settings =
            config::TopicSettings { create: config::Create::All, replication_factor: 3, min_insync_replicas: 2 };
        let help = |brokers: Option<i32>| {
            let error = cluster::Error::new(ErrorKind::Refused, "no").with(brokers.map(Detail::TooFewBrokers));
            problem("t", &error, &settings).expect("it is refused").help
        };
        let one = "`topics: {replication_factor: 1, min_insync_replicas: 1}` in the configuration: there is 1 broker";
        let two = "`topics: {replication_factor: 2, min_insync_replicas: 2}` in the configuration: there are 2 brokers";
        assert!(help(Some(1)).contains(one), "{}", help(Some(1)));
        assert!(help(Some(2)).contains(two), "{}", help(Some(2)));
        assert!(help(None).contains("topics.replication_factor (3)"), "{}", help(None));
    }

    #[test]
    fn topics_are_created_as_configured_and_changelogs_are_compacted() {
        let settings =
            config::TopicSettings { create: config::Create::All, replication_factor: 3, min_insync_replicas: 2 };
        let replicas = ("min.insync.replicas", "2".to_owned());
        let (clean, compacted) =
            (("unclean.leader.election.enable", "false".to_owned()), ("cleanup.policy", "compact".to_owned()));
        let stamped = ("message.timestamp.type", "LogAppendTime".to_owned());
        let changelog = [replicas.clone(), clean.clone(), compacted.clone(), stamped];
        assert_eq!(settings_of(Role::Changelog, &settings), changelog);
        let kept = [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")];
        let kept = kept.map(|(setting, value)| (setting, value.to_owned()));
        assert_eq!(settings_of(Role::Control, &settings), [&[replicas.clone(), clean.clone()], &kept[..]].concat());
        for role in [Role::Output, Role::DeadLetter, Role::Audit] {
            let all = settings_of(role, &settings);
            assert!(all.contains(&replicas) && all.contains(&clean) && !all.contains(&compacted), "{all:?}");
        }
    }
}
