//! Facts about the topics that belong to one input topic, from the cluster and, if a changelog is missing, from the
//! state folder. Gathering them changes nothing.

use std::time::Duration;

use crate::cluster::{self, Cluster, CommittedOffset, Denied, ErrorKind, Rights, TopicDescription, TopicId};
use crate::engine::former_rules::changes;
use crate::engine::resume::processed_of;
use crate::format::OffsetMetadata;
use crate::record::TopicPartition;
use crate::state::{self, Survey};
use crate::topology::Topology;

/// How long to wait for committed offsets on which a transaction is pending; the restore waits longer.
const COMMITTED_WAIT: Duration = Duration::from_secs(15);

/// The state of a topic, as far as the cluster shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicState {
    /// The topic exists.
    Exists(Box<TopicDescription>),
    /// The topic does not exist.
    Missing,
    /// The cluster refuses to describe it.
    Withheld {
        /// The cluster's message.
        words: String,
        /// The right that is missing, if that is the reason.
        denied: Option<Denied>,
    },
}

impl TopicState {
    /// The description, if the topic can be seen.
    pub fn description(&self) -> Option<&TopicDescription> {
        match self {
            Self::Exists(topic) => Some(topic),
            Self::Missing | Self::Withheld { .. } => None,
        }
    }

    /// Queries a topic.
    pub fn query<C: Cluster>(cluster: &C, topic: &str) -> Result<Self, cluster::Error> {
        match cluster.describe_topic(topic) {
            Ok(Some(topic)) => Ok(Self::Exists(Box::new(topic))),
            Ok(None) => Ok(Self::Missing),
            Err(error) if error.kind == ErrorKind::Refused => {
                let denied = error.denied();
                Ok(Self::Withheld { words: error.message, denied })
            }
            Err(error) => Err(error),
        }
    }
}

/// A topic and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTopic {
    /// The name.
    pub name: String,
    /// Its state.
    pub state: TopicState,
}

impl NamedTopic {
    /// Queries a topic.
    pub fn query<C: Cluster>(cluster: &C, name: String) -> Result<Self, cluster::Error> {
        Ok(Self { state: TopicState::query(cluster, &name)?, name })
    }

    /// The description, if the topic can be seen.
    pub fn description(&self) -> Option<&TopicDescription> {
        self.state.description()
    }
}

/// The facts about one input topic and the topics that belong only to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The input topic.
    pub input: NamedTopic,
    /// Its output; `None` if the topology ends in a sink.
    pub output: Option<NamedTopic>,
    /// Its changelog.
    pub changelog: NamedTopic,
    /// The group's committed offsets, by partition; or why they cannot be seen.
    pub committed: Result<Vec<Option<CommittedOffset>>, String>,
    /// If the changelog is missing: descriptions of the stores on this machine that have processed records of the
    /// input.
    pub stores: Vec<String>,
    /// If an offset was committed under other rules: a description of the changes.
    pub changes: Option<String>,
}

impl Facts {
    /// Whether ratchet has evidently committed an offset for the input.
    pub fn has_worked(&self) -> bool {
        let of_ratchet = |text: &str| OffsetMetadata::parse(text).is_ok_and(|metadata| metadata.is_some());
        let known = self.committed.iter().flatten().flatten();
        known.into_iter().any(|committed| of_ratchet(&committed.metadata))
    }

    /// Gathers all facts, given this client's rights to the topology's group.
    pub fn gather<C: Cluster>(
        cluster: &C,
        topology: &Topology,
        topic: &str,
        rights: Option<Rights>,
        survey: &Survey,
    ) -> Result<Self, cluster::Error> {
        let input = NamedTopic::query(cluster, topic.to_owned())?;
        let output = topology.output_topic(topic).map(|output| NamedTopic::query(cluster, output)).transpose()?;
        let mut changelog = NamedTopic::query(cluster, topology.changelog(topic))?;
        let partition_count = input.description().map_or(0, |input| input.partition_count);
        let partitions: Vec<_> = (0..partition_count).map(|partition| TopicPartition::new(topic, partition)).collect();
        let committed = committed(cluster, &topology.group(), &partitions, rights)?;
        let changes = other_rules(topology, &committed).map(|found| changes(survey.root(), topology, &found));
        let mut stores = Vec::new();
        if let (TopicState::Missing, Some(input)) = (&changelog.state, input.description()) {
            stores = stores_with_progress(survey, &topology.name, topic, input.id)?;
            if committed.as_ref().is_ok_and(Vec::is_empty) {
                let words =
                    "the changelog does not exist, and whether the group has committed anything is not known yet";
                return Err(cluster::Error::new(ErrorKind::Retry, words));
            }
            // The changelog is queried once more, after the stores and offsets: another instance may have created it,
            // and committed, meanwhile.
            changelog = NamedTopic::query(cluster, changelog.name)?;
        }
        Ok(Self { input, output, changelog, committed, stores, changes })
    }
}

/// The short digest of other rules than the topology's, under which an offset was committed.
fn other_rules(topology: &Topology, committed: &Result<Vec<Option<CommittedOffset>>, String>) -> Option<String> {
    let ours = OffsetMetadata::short_digest(&topology.rules.digest());
    let all = committed.iter().flatten().flatten();
    let mut digests = all.filter_map(|committed| Some(OffsetMetadata::parse(&committed.metadata).ok()??.digest));
    digests.find(|digest| *digest != ours)
}

/// Descriptions of the stores that have processed records of this input. A store that cannot be read may have done so.
fn stores_with_progress(
    survey: &Survey,
    topology: &str,
    topic: &str,
    input_id: TopicId,
) -> Result<Vec<String>, cluster::Error> {
    let later = |error: state::Error| cluster::Error::new(ErrorKind::Retry, error.to_string());
    let mut all = Vec::new();
    for found in survey.stores(topology, topic).map_err(later)? {
        let path = found.path.display();
        let position = found.open().and_then(|store| store.map_or(Ok(None), |store| store.position()));
        match position {
            Ok(position) => {
                let processed = position.and_then(|position| processed_of(&position, input_id));
                all.extend(processed.map(|end| format!("{path} (up to offset {end})")));
            }
            Err(state::Error::Damaged { reason, .. }) => all.push(format!("{path} (damaged: {reason})")),
            Err(error) => return Err(later(error)),
        }
    }
    Ok(all)
}

/// The group's committed offsets; or why they cannot be seen.
fn committed<C: Cluster>(
    cluster: &C,
    group: &str,
    partitions: &[TopicPartition],
    rights: Option<Rights>,
) -> Result<Result<Vec<Option<CommittedOffset>>, String>, cluster::Error> {
    if partitions.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    // A client that may not see the group gets no error when it fetches offsets: librdkafka keeps looking for the
    // group's coordinator until the request times out.
    if let Some(Rights { read: false, describe: false, .. }) = rights {
        return Ok(Err("not authorised to see the group; grant Read on the group".to_owned()));
    }
    match cluster.committed(group, partitions, COMMITTED_WAIT) {
        Ok(committed) => Ok(Ok(committed)),
        // If a transaction is pending, the restore checks again.
        Err(error) if error.kind == ErrorKind::Retry => Ok(Ok(Vec::new())),
        Err(error) if error.kind == ErrorKind::Refused => Ok(Err(error.message)),
        Err(error) => Err(error),
    }
}
