//! Topics that `run` creates: with which settings, and what is said where the cluster refuses to.

use crate::cluster::{self, Cluster, Kind, NewTopic};
use crate::config;

use super::facts::{Named, Seen};
use super::finding::Finding;
use super::judge::Role;

/// `max.message.bytes` of a dead letter or audit topic: whatever may be read has to fit, with headers that say why.
const ASIDE_BYTES_MAX: usize = 17 << 20;

/// The settings of a topic that is created for this role.
pub fn settings_of(role: Role, settings: &config::Topics) -> Vec<(&'static str, String)> {
    let mut all = vec![("min.insync.replicas", settings.min_insync_replicas.to_string())];
    match role {
        Role::Input | Role::Output => {}
        Role::Changelog => all.push(("cleanup.policy", "compact".to_owned())),
        Role::DeadLetter | Role::Audit => all.push(("max.message.bytes", ASIDE_BYTES_MAX.to_string())),
    }
    all
}

/// What is to be said where a topic cannot be created; `None` where the cluster may do it another time.
pub fn refusal(name: &str, error: &cluster::Error, settings: &config::Topics) -> Option<Finding> {
    if error.kind != Kind::Refused {
        return None;
    }
    let help = match error.denied {
        Some(_) => format!("grant Create on topic {name}, or create it by hand"),
        None => format!(
            "create it by hand, or see topics.replication_factor ({}), topics.min_insync_replicas ({}) and \
             topics.create",
            settings.replication_factor, settings.min_insync_replicas
        ),
    };
    Some(Finding::refused(format!("topic {name:?} cannot be created: {}", error.message), help))
}

/// Asks whether `run` could create a topic that is missing; changes nothing.
pub fn rehearse<C: Cluster>(
    cluster: &C,
    role: Role,
    topic: &Named,
    partition_count: Option<i32>,
    settings: &config::Topics,
) -> Result<Option<Finding>, cluster::Error> {
    let (Seen::Missing, Some(partition_count)) = (&topic.seen, partition_count) else { return Ok(None) };
    if !role.is_created(settings.create) {
        return Ok(None);
    }
    let all = settings_of(role, settings);
    let replication_factor = settings.replication_factor;
    let new = NewTopic { name: &topic.name, partition_count, replication_factor, settings: &all };
    match cluster.check_creation(&new) {
        Ok(()) => Ok(None),
        Err(error) => refusal(&topic.name, &error, settings).map(Some).ok_or(error),
    }
}
