//! `ratchet changelog rebuild`: rewrites a lost changelog from the stores that hold its contents.
//!
//! No instance may be running meanwhile: the group has to be empty, and the state folder's slots are locked. For each
//! partition one store is chosen ([`mod@choose`]). All partitions are checked before the first record is written. Then
//! each partition's entries are written in transactions of their own. The last of these transactions also contains the
//! position record and the group's offset, whose token names the new changelog. So a partition either is written
//! completely or does not count.
//!
//! A changelog that exists but is unusable (it was given partitions, or has lost its last records) has to be deleted by
//! the operator first, and the command says so only if every partition has a store that holds everything the changelog
//! holds.
//!
//! **Failure**: a repeated command writes the same records again, so the command can be repeated if it is killed at any
//! moment. Any other contents of the changelog are never overwritten.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::cluster::{
    self, Cluster, CommittedOffset, ErrorKind, Fencing, Inquiry, NewTopic, Settled, Settling, TopicDescription,
    TopicId, embedded::Embedded, kafka::Kafka,
};
use crate::config::{self, ClusterKind, Config};
use crate::format::ChangelogOffset;
use crate::record::TopicPartition;
use crate::state::{self, FoundStore, StateSlot, Survey};
use crate::topology::Topology;
use crate::words::counted;

use super::clock::{Clock, SystemClock};
use super::feeding;
use super::preflight::creation;
use super::preflight::judge::Role;
use super::resume;

pub mod choose;
mod probe;
mod write;

use choose::{Candidate, Choice, Contents, Expected, Facts, Problem, choose, choose_anew};
use write::Writer;

/// How long to wait for the group's offsets.
const COMMITTED_WAIT: Duration = Duration::from_secs(15);
/// How long to wait between two checks of a settling changelog.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Why some or all partitions were not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A cluster operation failed.
    #[error("{0}")]
    Cluster(#[from] cluster::Error),
    /// The state folder, or a store, cannot be read.
    #[error("{0}")]
    State(#[from] state::Error),
    /// The changelog must not be rewritten: nothing was written.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
}

fn refused<T>(reason: String) -> Result<T, Error> {
    Err(Error::Refused(vec![reason]))
}

/// The result for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The input's partition.
    pub input: TopicPartition,
    /// A description of what was done.
    pub description: String,
}

/// Rewrites the topology's changelogs. With `without_group`, a partition's store is trusted if the group names no
/// transaction for the partition.
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

/// Rewrites the topology's changelogs on a given cluster.
pub(super) fn rebuild_on<C: Cluster>(
    cluster: &C,
    config: &Config,
    topology: &Topology,
    without_group: bool,
) -> Result<Vec<Rebuilt>, Error> {
    let _locks = StateSlot::lock_all(&config.state_dir)?;
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
    Ok(plans.into_iter().flat_map(Plan::results).collect())
}

/// A partition to write.
struct ToWrite {
    partition: i32,
    /// The store whose entries are written.
    from: Candidate,
    /// The next offset of the input to read.
    offset: i64,
}

/// The plan for one input topic.
struct Plan {
    input: String,
    changelog: String,
    /// The description of the changelog topic, if it exists.
    described_changelog: Option<TopicDescription>,
    partition_count: i32,
    choices: BTreeMap<i32, Choice>,
    committed: Vec<Option<CommittedOffset>>,
    /// The contents of each partition of the changelog; empty if there is no changelog.
    contents: Vec<Contents>,
    found: Vec<FoundStore>,
    candidates: Vec<Candidate>,
    expected: Expected,
    /// The number of entries written for each partition.
    written: BTreeMap<i32, u64>,
}

impl Plan {
    /// Checks all partitions of an input topic, without any change.
    fn make<C: Cluster>(
        cluster: &C,
        config: &Config,
        topology: &Topology,
        (input, without_group): (&str, bool),
        problems: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let Some(described_input) = cluster.describe_topic(input)? else {
            return refused(format!("input topic {input:?} does not exist; correct input.topics"));
        };
        let changelog = topology.changelog(input);
        let described_changelog = cluster.describe_topic(&changelog)?;
        let partitions: Vec<_> = (0..described_input.partition_count).map(|p| TopicPartition::new(input, p)).collect();
        let committed = cluster.committed(&topology.group(), &partitions, COMMITTED_WAIT)?;
        let contents = contents(cluster, topology, &partitions, (&changelog, described_changelog.as_ref()))?;
        let found = Survey::of_folder(&config.state_dir).stores(&topology.name, input)?;
        let changelog_id = described_changelog.as_ref().map(|described| described.id);
        let mut candidates = candidates(&found)?;
        for candidate in candidates.iter_mut().filter(|found| Some(TopicId(found.meta.changelog_id)) == changelog_id) {
            let input = TopicPartition::new(input, candidate.meta.partition);
            candidate.is_missed = is_missed(cluster, topology, (&input, &changelog), candidate)?;
        }
        let expected = Expected {
            input_id: described_input.id,
            changelog_id,
            rules_digest: topology.rules.digest(),
            task_count: described_input.partition_count.unsigned_abs(),
            without_group,
        };
        let mut plan = Self {
            input: input.to_owned(),
            changelog,
            described_changelog,
            partition_count: described_input.partition_count,
            choices: BTreeMap::new(),
            committed,
            contents,
            found,
            candidates,
            expected,
            written: BTreeMap::new(),
        };
        plan.decide(problems);
        Ok(plan)
    }

    /// The facts for a partition's choice.
    fn facts(&self, partition: i32) -> Facts<'_> {
        let index = partition as usize;
        Facts {
            partition,
            committed: self.committed[index].as_ref(),
            contents: self.contents.get(index),
            candidates: &self.candidates,
            expected: self.expected,
        }
    }

    /// Chooses for each partition, or reports the problems and whether the changelog has to be deleted.
    fn decide(&mut self, problems: &mut Vec<String>) {
        let mut other_problems = Vec::new();
        let mut unusable =
            self.described_changelog.as_ref().and_then(|described| unusable(described, self.partition_count));
        for partition in 0..self.partition_count {
            match choose(self.facts(partition)) {
                Ok(choice) => drop(self.choices.insert(partition, choice)),
                Err(Problem::Lost(why)) => {
                    unusable.get_or_insert_with(|| format!("has lost records of partition {partition} ({why})"));
                }
                Err(Problem::Other(problem)) => other_problems.push(format!("{}:{partition}: {problem}", self.input)),
            }
        }
        match unusable {
            Some(why) => problems.extend(self.advise_deletion(&format!("changelog topic {:?} {why}", self.changelog))),
            None => problems.append(&mut other_problems),
        }
    }

    /// What to report if the changelog can be neither kept nor written to: whether it may be deleted. That depends on
    /// all its partitions, even if only one of them is affected.
    fn advise_deletion(&self, why: &str) -> Vec<String> {
        let missing: Vec<String> = (0..self.partition_count)
            .filter_map(|partition| {
                let problem = choose_anew(self.facts(partition)).err()?;
                Some(format!("{}:{partition}: {problem}", self.input))
            })
            .collect();
        if missing.is_empty() {
            return vec![format!(
                "{why}: each partition has a store that it can be rewritten from; copy all state folders, delete \
                 the topic, and run this command again"
            )];
        }
        let first = format!("{why}: do not delete the topic: it may be the only copy, since some stores are missing");
        std::iter::once(first).chain(missing).collect()
    }

    /// The partitions to write, with the store for each.
    fn to_write(&self) -> Vec<ToWrite> {
        let to_write = |(partition, choice): (&i32, &Choice)| match choice {
            Choice::Write { from, offset } => {
                Some(ToWrite { partition: *partition, from: (**from).clone(), offset: *offset })
            }
            Choice::Keep | Choice::Nothing => None,
        };
        self.choices.iter().filter_map(to_write).collect()
    }

    /// Creates the changelog if it does not exist.
    fn create<C: Cluster>(&self, cluster: &C, settings: &config::TopicSettings) -> Result<(), Error> {
        if self.described_changelog.is_some() {
            return Ok(());
        }
        let topic_settings = creation::settings_of(Role::Changelog, settings);
        let (name, partition_count) = (self.changelog.as_str(), self.partition_count);
        let new = NewTopic {
            name,
            partition_count,
            replication_factor: settings.replication_factor,
            settings: &topic_settings,
        };
        cluster.create_topic(&new).map_err(|error| match creation::problem(name, &error, settings) {
            Some(finding) => Error::Refused(vec![finding.to_string()]),
            None => error.into(),
        })
    }

    fn results(self) -> Vec<Rebuilt> {
        let mut results = Vec::new();
        for (partition, choice) in self.choices {
            let description = match choice {
                Choice::Keep => "kept: its changelog holds everything that is known about it".to_owned(),
                Choice::Nothing => "nothing was ever processed".to_owned(),
                Choice::Write { from, offset } => format!(
                    "rewritten from {}: {} entries; its input continues at offset {offset}",
                    from.path.display(),
                    self.written.get(&partition).copied().unwrap_or_default()
                ),
            };
            results.push(Rebuilt { input: TopicPartition::new(self.input.as_str(), partition), description });
        }
        results
    }
}

/// Why a changelog is unusable, whatever its contents are.
fn unusable(described: &TopicDescription, partition_count: i32) -> Option<String> {
    if described.partition_count != partition_count {
        let (has, input) = (counted(described.partition_count, "partition"), counted(partition_count, "partition"));
        return Some(format!("has {has}, and its input has {input}"));
    }
    (described.cleanup_policy != "compact").then(|| {
        format!(
            "has cleanup.policy={}, under which entries get lost (if no entry was lost, set it to compact)",
            described.cleanup_policy
        )
    })
}

/// The changelog's contents for each of the input's partitions; empty if there is no changelog.
fn contents<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    inputs: &[TopicPartition],
    (changelog, described_changelog): (&str, Option<&TopicDescription>),
) -> Result<Vec<Contents>, Error> {
    let count = described_changelog.map_or(0, |described| described.partition_count);
    let with_changelog = inputs.iter().filter(|input| input.partition < count);
    with_changelog
        .map(|input| {
            let changelog = TopicPartition::new(changelog, input.partition);
            let settled = await_settled(cluster, topology, (input, &changelog), None)?;
            probe::contents(cluster, &changelog, &settled)
        })
        .collect()
}

/// Whether the changelog has lost the store's last transaction and has grown again since.
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
    Ok(seen.is_some_and(|seen| resume::check_witness(&seen, Some(&candidate.position.encode())).is_err()))
}

/// The stores that are the result of a transaction.
fn candidates(found: &[FoundStore]) -> Result<Vec<Candidate>, Error> {
    let mut all = Vec::new();
    for found in found {
        let read = found.open().and_then(|store| {
            let Some(store) = store else { return Ok(None) };
            Ok(store.meta()?.zip(store.position()?))
        });
        match read {
            Ok(Some((meta, position))) => {
                all.push(Candidate { path: found.path.clone(), meta, position, is_missed: false });
            }
            Ok(None) => {}
            Err(state::Error::Damaged { path, reason }) => {
                tracing::warn!(path = %path.display(), reason, "a store is damaged: it is not used");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Carries out the plans, after a check that no changelog has other contents.
fn carry_out<C: Cluster>(
    cluster: &C,
    settings: &config::TopicSettings,
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
        for ToWrite { partition, from, offset } in plan.to_write() {
            let input = TopicPartition::new(plan.input.as_str(), partition);
            let changelog = TopicPartition::new(plan.changelog.as_str(), partition);
            let state = await_settled(cluster, topology, (&input, &changelog), None)?;
            if state.committed.as_ref() != plan.committed[partition as usize].as_ref() {
                return refused(format!(
                    "{input}: the group has committed meanwhile: stop all instances, and try again"
                ));
            }
            let store = open(plan, &from.path)?;
            if let Some(obstacle) = writer.obstacle(cluster, &state, &changelog, &store)? {
                let why = "another program has written to it, or it is left over from the former changelog";
                return Err(Error::Refused(plan.advise_deletion(&format!("{obstacle}: {why}"))));
            }
            settled.push((state, from, offset));
        }
    }
    let mut settled = settled.into_iter();
    for plan in plans.iter_mut() {
        for ToWrite { partition, .. } in plan.to_write() {
            let (state, from, offset) = settled.next().expect("every partition to write was checked");
            let input = TopicPartition::new(plan.input.as_str(), partition);
            let changelog = TopicPartition::new(plan.changelog.as_str(), partition);
            let store = open(plan, &from.path)?;
            let entries = writer.write(&state, (&input, &changelog), (&store, &from), offset)?;
            tracing::info!(task = %input, entries, "changelog rewritten");
            plan.written.insert(partition, entries);
        }
    }
    Ok(writer.close()?)
}

/// The store in this folder, which was found before.
fn open(plan: &Plan, path: &Path) -> Result<state::StoreReader, Error> {
    let found = plan.found.iter().find(|found| found.path == path).expect("it was chosen among them");
    match found.open()? {
        Some(store) => Ok(store),
        None => refused(format!("the store {} no longer exists", path.display())),
    }
}

/// The settled state, once no former owner has an open transaction; it includes the contents of the changelog from the
/// offset `looks_from`.
fn await_settled<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    (input, changelog): (&TopicPartition, &TopicPartition),
    looks_from: Option<ChangelogOffset>,
) -> Result<Settled, Error> {
    let fencing = Fencing { prefix: topology.transactional_ids(), in_use: Vec::new() };
    let mut settling =
        cluster.settle(Inquiry { fencing, looks_from, ..Inquiry::of(&topology.group(), input, changelog) });
    loop {
        match settling.poll() {
            Some(settled) => return Ok(settled?),
            None => std::thread::park_timeout(CHECK_INTERVAL),
        }
    }
}

/// The end of a wait, on the monotonic clock.
struct Deadline(SystemClock, Duration);

impl Deadline {
    fn after(length: Duration) -> Self {
        let clock = SystemClock::default();
        let until = clock.monotonic() + length;
        Self(clock, until)
    }

    /// Fails once the deadline has passed.
    fn check(&self, operation: &str) -> Result<(), Error> {
        if self.0.monotonic() < self.1 {
            return Ok(());
        }
        Err(cluster::Error::new(ErrorKind::Retry, format!("{operation} took too long; try again")).into())
    }
}
