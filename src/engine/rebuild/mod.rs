//! `ratchet changelog rebuild`: writes a changelog that is gone anew, from the stores that remember what stood in it.
//!
//! Nobody may be at work meanwhile: the group has to be empty, and the state folder's slots are locked. For each
//! partition one store is taken ([`mod@choose`]); all is looked at before anything is written. Then each partition's
//! entries go into transactions of their own, and in the last one the position record goes with the group's offset,
//! whose token names the new changelog. So a partition is written wholly or counts for nothing.
//!
//! A changelog that is there and cannot be gone on with (it was given partitions, or has lost its last records) has to be
//! deleted first, by people: that is said only where every partition has a store that holds all that it holds.
//!
//! **Failure**: whatever was written of a partition is the same when it is written again: killed at any moment, the
//! command is given once more. What else stands in the changelog is never written over.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::cluster::{
    self, Cluster, CommittedOffset, Fencing, Inquiry, Kind, NewTopic, Settled, Settling, TopicDescription, TopicId,
    embedded::Embedded, kafka::Kafka,
};
use crate::config::{self, ClusterKind, Config};
use crate::record::TopicPartition;
use crate::state::{self, Found, StateDir, Survey};
use crate::topology::Topology;
use crate::words::counted;

use super::clock::{Clock, SystemClock};
use super::feeding;
use super::plan;
use super::preflight::creation;
use super::preflight::judge::Role;

pub mod choose;
mod look;
mod write;

use choose::{Candidate, Choice, Contents, Facts, Known, Problem, choose, choose_anew};
use write::Writer;

/// How long the group's offsets are waited for.
const COMMITTED_WAIT: Duration = Duration::from_secs(15);
/// Between two looks at something that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Why nothing, or not all, was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster could not do something.
    #[error("{0}")]
    Cluster(#[from] cluster::Error),
    /// The state folder, or a store, cannot be read.
    #[error("{0}")]
    State(#[from] state::Error),
    /// It would not be right: nothing was written.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
}

fn refused<T>(reason: String) -> Result<T, Error> {
    Err(Error::Refused(vec![reason]))
}

/// What became of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The input's partition.
    pub input: TopicPartition,
    /// What was done, in words.
    pub done: String,
}

/// Writes the topology's changelogs anew. `without_group`: where the group says nothing of a partition, its store is
/// taken at its own word.
pub fn rebuild(config: &Config, topology: &Topology, without_group: bool) -> Result<Vec<Rebuilt>, Error> {
    match &config.cluster {
        ClusterKind::Kafka => {
            let kafka = &config.kafka;
            let cluster = Kafka::new(&kafka.for_admin(), &kafka.for_consumer(), &kafka.for_producer())?;
            rebuild_on(&cluster, config, topology, without_group)
        }
        ClusterKind::Embedded { dir, partitions } => {
            rebuild_on(&Embedded::open(dir, *partitions)?, config, topology, without_group)
        }
    }
}

/// The same, on a cluster.
pub(super) fn rebuild_on<C: Cluster>(
    cluster: &C,
    config: &Config,
    topology: &Topology,
    without_group: bool,
) -> Result<Vec<Rebuilt>, Error> {
    let _locks = StateDir::lock_all(&config.state_dir)?;
    let group = topology.group();
    let members = cluster.members_of(&group)?;
    if members > 0 {
        return refused(format!(
            "the group {group} has members ({members}): stop all instances (one that was killed is a member until its \
             session has timed out)"
        ));
    }
    let inputs = feeding::inputs(cluster, topology)?;
    let (mut plans, mut problems) = (Vec::new(), Vec::new());
    for input in &inputs {
        plans.push(Plan::make(cluster, config, topology, (input, without_group), &mut problems)?);
    }
    if !problems.is_empty() {
        return Err(Error::Refused(problems));
    }
    if plans.iter().flat_map(|plan| plan.choices.values()).any(|choice| matches!(choice, Choice::Write { .. })) {
        carry_out(cluster, &config.topics, topology, (&mut plans, &inputs))?;
    }
    Ok(plans.into_iter().flat_map(Plan::told).collect())
}

/// What is to be done for one input topic.
struct Plan {
    input: String,
    changelog: String,
    described: Option<TopicDescription>,
    partition_count: i32,
    choices: BTreeMap<i32, Choice>,
    committed: Vec<Option<CommittedOffset>>,
    /// What the changelog holds, of each partition; nothing where there is none.
    contents: Vec<Contents>,
    found: Vec<Found>,
    candidates: Vec<Candidate>,
    known: Known,
    written: BTreeMap<i32, u64>,
}

impl Plan {
    /// Looks at everything, and changes nothing.
    fn make<C: Cluster>(
        cluster: &C,
        config: &Config,
        topology: &Topology,
        (input, without_group): (&str, bool),
        problems: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let Some(described) = cluster.describe_topic(input)? else {
            return refused(format!("input topic {input:?} does not exist; correct input.topics"));
        };
        let changelog = topology.changelog(input);
        let there = cluster.describe_topic(&changelog)?;
        let partitions: Vec<_> = (0..described.partition_count).map(|p| TopicPartition::new(input, p)).collect();
        let committed = cluster.committed(&topology.group(), &partitions, COMMITTED_WAIT)?;
        let contents = contents(cluster, topology, &partitions, (&changelog, there.as_ref()))?;
        let found = Survey::of_folder(&config.state_dir).stores(&topology.name, input)?;
        let changelog_id = there.as_ref().map(|there| there.id);
        let mut candidates = candidates(&found)?;
        for candidate in candidates.iter_mut().filter(|found| Some(TopicId(found.meta.changelog_id)) == changelog_id) {
            let input = TopicPartition::new(input, candidate.meta.partition);
            candidate.is_missed = is_missed(cluster, topology, (&input, &changelog), candidate)?;
        }
        let known = Known {
            input_id: described.id,
            changelog_id,
            rules_digest: topology.rules.digest(),
            task_count: described.partition_count.unsigned_abs(),
            without_group,
        };
        let mut plan = Self {
            input: input.to_owned(),
            changelog,
            described: there,
            partition_count: described.partition_count,
            choices: BTreeMap::new(),
            committed,
            contents,
            found,
            candidates,
            known,
            written: BTreeMap::new(),
        };
        plan.decide(problems);
        Ok(plan)
    }

    /// What a partition's choice is made by.
    fn facts(&self, partition: i32) -> Facts<'_> {
        let index = partition as usize;
        Facts {
            partition,
            committed: self.committed[index].as_ref(),
            contents: self.contents.get(index),
            candidates: &self.candidates,
            known: self.known,
        }
    }

    /// Chooses for each partition; or says what is wrong, and whether the changelog is to be deleted for it.
    fn decide(&mut self, problems: &mut Vec<String>) {
        let mut told = Vec::new();
        let mut unfit = self.described.as_ref().and_then(|there| unfit(there, self.partition_count));
        for partition in 0..self.partition_count {
            match choose(self.facts(partition)) {
                Ok(choice) => drop(self.choices.insert(partition, choice)),
                Err(Problem::Lost(why)) => {
                    unfit.get_or_insert_with(|| format!("has lost records of partition {partition} ({why})"));
                }
                Err(Problem::Other(problem)) => told.push(format!("{}:{partition}: {problem}", self.input)),
            }
        }
        match unfit {
            Some(why) => problems.extend(self.without(&format!("changelog topic {:?} {why}", self.changelog))),
            None => problems.append(&mut told),
        }
    }

    /// What is to be said where the changelog cannot be gone on with, nor be written to: whether it may be deleted. That
    /// is of all its partitions, whichever of them it is about.
    fn without(&self, why: &str) -> Vec<String> {
        let missing: Vec<String> = (0..self.partition_count)
            .filter_map(|partition| {
                let problem = choose_anew(self.facts(partition)).err()?;
                Some(format!("{}:{partition}: {problem}", self.input))
            })
            .collect();
        if missing.is_empty() {
            return vec![format!(
                "{why}: every store that it can be written anew from is there; copy all state folders, delete the topic, and \
                 give this command again"
            )];
        }
        let first = format!("{why}: do not delete the topic, which may be the only copy, for not every store is there");
        std::iter::once(first).chain(missing).collect()
    }

    /// The partitions that are to be written, with the store of each.
    fn to_write(&self) -> Vec<(i32, Candidate, i64)> {
        let of = |(partition, choice): (&i32, &Choice)| match choice {
            Choice::Write { from, offset } => Some((*partition, (**from).clone(), *offset)),
            Choice::Stands | Choice::Nothing => None,
        };
        self.choices.iter().filter_map(of).collect()
    }

    /// Creates the changelog where it is gone.
    fn create<C: Cluster>(&self, cluster: &C, settings: &config::Topics) -> Result<(), Error> {
        if self.described.is_some() {
            return Ok(());
        }
        let all = creation::settings_of(Role::Changelog, settings);
        let (name, partition_count) = (self.changelog.as_str(), self.partition_count);
        let new = NewTopic { name, partition_count, replication_factor: settings.replication_factor, settings: &all };
        cluster.create_topic(&new).map_err(|error| match creation::refusal(name, &error, settings) {
            Some(finding) => Error::Refused(vec![finding.to_string()]),
            None => error.into(),
        })
    }

    fn told(self) -> Vec<Rebuilt> {
        let mut all = Vec::new();
        for (partition, choice) in self.choices {
            let done = match choice {
                Choice::Stands => "stands: its changelog holds what is known of it".to_owned(),
                Choice::Nothing => "nothing was ever processed".to_owned(),
                Choice::Write { from, offset } => format!(
                    "written anew from {}: {} entries; its input goes on at offset {offset}",
                    from.path.display(),
                    self.written.get(&partition).copied().unwrap_or_default()
                ),
            };
            all.push(Rebuilt { input: TopicPartition::new(self.input.as_str(), partition), done });
        }
        all
    }
}

/// Why a changelog cannot be gone on with, whatever it holds.
fn unfit(there: &TopicDescription, partition_count: i32) -> Option<String> {
    if there.partition_count != partition_count {
        let (has, input) = (counted(there.partition_count, "partition"), counted(partition_count, "partition"));
        return Some(format!("has {has}, and its input has {input}"));
    }
    (there.cleanup_policy != "compact").then(|| {
        format!(
            "has cleanup.policy={}, under which entries get lost (if none was, set it to compact)",
            there.cleanup_policy
        )
    })
}

/// What each of the input's partitions has in the changelog; nothing where that is not there.
fn contents<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    inputs: &[TopicPartition],
    (changelog, there): (&str, Option<&TopicDescription>),
) -> Result<Vec<Contents>, Error> {
    let count = there.map_or(0, |there| there.partition_count);
    let here = inputs.iter().filter(|input| input.partition < count);
    here.map(|input| {
        let changelog = TopicPartition::new(changelog, input.partition);
        let settled = await_settled(cluster, topology, (input, &changelog), None)?;
        look::contents(cluster, &changelog, &settled)
    })
    .collect()
}

/// Whether the store's changelog has lost its last transaction and has grown again since.
fn is_missed<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    (input, changelog): (&TopicPartition, &str),
    candidate: &Candidate,
) -> Result<bool, Error> {
    let Some(at) = candidate.meta.position_offset else { return Ok(false) };
    let changelog = TopicPartition::new(changelog, input.partition);
    let settled = await_settled(cluster, topology, (input, &changelog), Some(at))?;
    let seen = settled.seen.filter(|_| (settled.changelog_start..settled.changelog_end).contains(&at));
    Ok(seen.is_some_and(|seen| plan::check_witness(&seen, Some(&candidate.position.encode())).is_err()))
}

/// Those of the stores that are the result of a transaction.
fn candidates(found: &[Found]) -> Result<Vec<Candidate>, Error> {
    let mut all = Vec::new();
    for found in found {
        let read = found.read().and_then(|store| {
            let Some(store) = store else { return Ok(None) };
            Ok(store.meta()?.zip(store.position()?))
        });
        match read {
            Ok(Some((meta, position))) => {
                all.push(Candidate { path: found.path.clone(), meta, position, is_missed: false });
            }
            Ok(None) => {}
            Err(state::Error::Damaged { path, reason }) => {
                tracing::warn!(path = %path.display(), reason, "a store is damaged: nothing is taken from it");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Writes what was planned, once it is known that nothing stands in its way.
fn carry_out<C: Cluster>(
    cluster: &C,
    settings: &config::Topics,
    topology: &Topology,
    (plans, inputs): (&mut [Plan], &[String]),
) -> Result<(), Error> {
    for plan in plans.iter().filter(|plan| !plan.to_write().is_empty()) {
        plan.create(cluster, settings)?;
    }
    let partitions = plans.iter().map(|plan| plan.partition_count).sum::<i32>();
    let mut writer = Writer::open(cluster, topology, (inputs, partitions.unsigned_abs() as usize))?;
    let mut settled = Vec::new();
    for plan in plans.iter() {
        for (partition, from, offset) in plan.to_write() {
            let input = TopicPartition::new(plan.input.as_str(), partition);
            let changelog = TopicPartition::new(plan.changelog.as_str(), partition);
            let known = await_settled(cluster, topology, (&input, &changelog), None)?;
            if known.committed.as_ref() != plan.committed[partition as usize].as_ref() {
                return refused(format!(
                    "{input}: the group has committed meanwhile: stop all instances, and try again"
                ));
            }
            let store = open(plan, &from.path)?;
            if let Some(obstacle) = writer.obstacle(cluster, &known, &changelog, &store)? {
                let why = "another has written to it, or it is a part of the former one";
                return Err(Error::Refused(plan.without(&format!("{obstacle}: {why}"))));
            }
            settled.push((known, from, offset));
        }
    }
    let mut settled = settled.into_iter();
    for plan in plans.iter_mut() {
        for (partition, _, _) in plan.to_write() {
            let (known, from, offset) = settled.next().expect("as many as were looked at");
            let input = TopicPartition::new(plan.input.as_str(), partition);
            let changelog = TopicPartition::new(plan.changelog.as_str(), partition);
            let store = open(plan, &from.path)?;
            let entries = writer.write(&known, (&input, &changelog), (&store, &from), offset)?;
            tracing::info!(task = %input, entries, "changelog written anew");
            plan.written.insert(partition, entries);
        }
    }
    Ok(writer.close()?)
}

/// The store in this folder, which was found before.
fn open(plan: &Plan, path: &Path) -> Result<state::StoreReader, Error> {
    let found = plan.found.iter().find(|found| found.path == path).expect("it was chosen among them");
    match found.read()? {
        Some(store) => Ok(store),
        None => refused(format!("the store {} is not there any more", path.display())),
    }
}

/// What stands, once nothing of a former owner is open any more; and what the changelog has from an offset on.
fn await_settled<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    (input, changelog): (&TopicPartition, &TopicPartition),
    looks_from: Option<i64>,
) -> Result<Settled, Error> {
    let fencing = Fencing { prefix: topology.transactional_ids(), in_use: Vec::new() };
    let mut settling =
        cluster.settle(Inquiry { fencing, looks_from, ..Inquiry::of(&topology.group(), input, changelog) });
    loop {
        match settling.poll() {
            Some(answer) => return Ok(answer?),
            None => std::thread::park_timeout(LOOK_INTERVAL),
        }
    }
}

/// Until when something is waited for.
struct Deadline(SystemClock, Duration);

impl Deadline {
    fn after(length: Duration) -> Self {
        let clock = SystemClock::default();
        let until = clock.monotonic() + length;
        Self(clock, until)
    }

    /// An error once it is over.
    fn check(&self, what: &str) -> Result<(), Error> {
        if self.0.monotonic() < self.1 {
            return Ok(());
        }
        Err(cluster::Error::new(Kind::Retry, format!("{what} took too long; try again")).into())
    }
}
