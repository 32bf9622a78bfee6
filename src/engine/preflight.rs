//! The checks before a lane joins the group or reads a new topic: topics, partition counts, policies, rights, and
//! whether the group's offsets were committed under these rules. The findings come from [`judge`], for both `run` and
//! `check --online` ([`online`]). `run` then creates missing topics that may be created, and refuses to continue if a
//! finding requires that, with advice.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cluster::{self, Cluster, Detail, ErrorKind, NewTopic, Rights, TopicDescription};
use crate::config;
use crate::state::Survey;
use crate::topology::Topology;
use crate::topology::sink::Sink;

use super::catalog::InputTopic;
use super::feeding;

pub mod beginning;
pub mod creation;
pub mod facts;
pub mod finding;
pub mod judge;
pub mod online;
pub mod rows;
pub mod unreached;
pub mod warned;

use facts::{Facts, NamedTopic};
use finding::{Finding, Severity};
use judge::{Judge, Role};
use warned::Warnings;

/// The result of the checks at the start.
pub struct Admitted {
    /// The topics that are read.
    pub topics: HashMap<Arc<str>, InputTopic>,
    /// Topics that match the pattern but cannot be read, with the reason.
    pub refused: BTreeMap<String, String>,
}

/// Checks a topology's topics.
pub struct Preflight<'a, C> {
    cluster: &'a C,
    survey: Survey,
    judge: Judge<'a>,
    warned: Arc<Warnings>,
}

fn refused(message: String) -> cluster::Error {
    cluster::Error::new(ErrorKind::Refused, message)
}

impl<'a, C: Cluster> Preflight<'a, C> {
    /// Checks for `topology`, whose rules have this digest and whose stores are in the folder that `survey` examines.
    pub fn new(
        cluster: &'a C,
        topology: &'a Topology,
        rules_digest: &'a [u8; 32],
        settings: &'a config::TopicSettings,
        survey: Survey,
    ) -> Self {
        let judge = Judge { topology, rules_digest, settings, is_shared: C::IS_SHARED };
        Self { cluster, survey, judge, warned: Arc::default() }
    }

    /// The same, after checks that have logged these warnings.
    pub fn after(self, warned: &Arc<Warnings>) -> Self {
        Self { warned: Arc::clone(warned), ..self }
    }

    /// The cluster.
    pub fn cluster(&self) -> &'a C {
        self.cluster
    }

    /// Sends a query that any cluster can answer, so that trouble with the whole cluster, a wrong password for example,
    /// is reported once and not per topic.
    pub fn reach(&self) -> Result<(), cluster::Error> {
        self.cluster.list_topics().map(drop)
    }

    /// Checks all topics before the lanes start, and creates missing topics that may be created. A problem with a named
    /// topic refuses the whole topology; a problem with a topic that merely matches a pattern refuses only that topic.
    pub fn begin(&self) -> Result<Admitted, cluster::Error> {
        let names = feeding::inputs(self.cluster, self.judge.topology)?;
        let rights = if names.is_empty() { None } else { self.group_rights() };
        let mut all = Vec::new();
        for name in &names {
            all.push(Facts::gather(self.cluster, self.judge.topology, name, rights, &self.survey)?);
        }
        if let Some(finding) = beginning::problem_with(self.cluster, self.judge.topology, &all)? {
            return Err(refused(finding.to_string()));
        }
        let partition_count = largest_partition_count(&all);
        let mut admitted = Admitted { topics: HashMap::new(), refused: BTreeMap::new() };
        let mut refusals = Vec::new();
        for facts in &all {
            match self.judge_and_create(facts, partition_count.unwrap_or(1), &names) {
                Ok(topic) => {
                    admitted.topics.insert(Arc::from(facts.input.name.as_str()), topic);
                }
                Err(error) if error.kind != ErrorKind::Refused => return Err(error),
                Err(error) if self.judge.topology.input.named().is_empty() => {
                    admitted.refused.insert(facts.input.name.clone(), error.message);
                }
                Err(error) => refusals.push(error),
            }
        }
        if refusals.is_empty() {
            return Ok(admitted);
        }
        let missing = missing(&refusals);
        let words: Vec<String> = refusals.into_iter().map(|error| error.message).collect();
        Err(refused(words.join("; ")).with(missing))
    }

    /// Whether a topology that has read nothing yet may start with these new topics.
    pub fn may_begin(&self, topics: &[String]) -> Result<(), cluster::Error> {
        let rights = self.group_rights();
        let gather = |topic: &String| Facts::gather(self.cluster, self.judge.topology, topic, rights, &self.survey);
        let all = topics.iter().map(gather).collect::<Result<Vec<_>, _>>()?;
        let problem = beginning::problem_with(self.cluster, self.judge.topology, &all)?;
        problem.map_or(Ok(()), |finding| Err(refused(finding.to_string())))
    }

    /// Checks a topic that was added while the topology runs; `others` are the topics that are read already.
    pub fn admit(&self, topic: &str, others: &[String]) -> Result<InputTopic, cluster::Error> {
        let facts = Facts::gather(self.cluster, self.judge.topology, topic, self.group_rights(), &self.survey)?;
        self.judge_and_create(&facts, facts.input.description().map_or(1, |input| input.partition_count), others)
    }

    /// The rights to the group, if the cluster reports them. If the group's coordinator does not respond, the lanes
    /// will discover that.
    fn group_rights(&self) -> Option<Rights> {
        self.cluster.group_rights(&self.judge.topology.group()).ok().flatten()
    }

    /// Judges an input topic, then creates the missing topics that belong to it.
    fn judge_and_create(
        &self,
        facts: &Facts,
        partition_count: i32,
        inputs: &[String],
    ) -> Result<InputTopic, cluster::Error> {
        let topology = self.judge.topology;
        if let Some(problem) = feeding::problem_with(topology, &facts.input.name, inputs) {
            return Err(refused(problem));
        }
        self.report(&facts.input.name, self.judge.input(facts))?;
        let Some(input) = facts.input.description() else {
            return Err(refused(format!("input topic {:?} does not exist", facts.input.name)));
        };
        if let Some(output) = &facts.output {
            self.ensure(Role::Output, output.clone(), input.partition_count)?;
        }
        let changelog = self.ensure(Role::Changelog, facts.changelog.clone(), input.partition_count)?;
        let largest = input.message_bytes_max;
        let dead_letters = self.side_topic(Role::DeadLetter, &topology.dead_letter, partition_count, largest)?;
        let audit = match &topology.audit {
            None => 1,
            Some(audit) => self.side_topic(Role::Audit, audit, partition_count, largest)?,
        };
        let results = match topology.sink().and_then(Sink::result) {
            None => 1,
            Some(results) => self.side_topic(Role::Results, results, partition_count, largest)?,
        };
        if topology.calls().is_some() {
            self.side_topic(Role::Control, &topology.control(), 1, 0)?;
        }
        Ok(InputTopic {
            input_id: input.id,
            changelog_id: changelog.id,
            task_count: input.partition_count.unsigned_abs(),
            delete_retention_ms: changelog.delete_retention_ms,
            dead_letter_partitions: dead_letters,
            audit_partitions: audit,
            result_partitions: results,
        })
    }

    /// Checks a topic besides the output, and creates it if it is missing. Returns its partition count.
    fn side_topic(&self, role: Role, name: &str, partition_count: i32, largest: i64) -> Result<i32, cluster::Error> {
        let topic = NamedTopic::query(self.cluster, name.to_owned())?;
        self.report(name, self.judge.side_topic(role, &topic, Some(partition_count), largest))?;
        self.ensure(role, topic, partition_count).map(|topic| topic.partition_count.max(1))
    }

    /// The topic, which is created if it is missing. Whether that is permitted was judged before.
    fn ensure(&self, role: Role, topic: NamedTopic, partition_count: i32) -> Result<TopicDescription, cluster::Error> {
        if let facts::TopicState::Exists(topic) = topic.state {
            return Ok(*topic);
        }
        let (name, settings) = (topic.name.as_str(), self.judge.settings);
        debug_assert!(role.is_created(settings.create), "a topic that is missing was refused");
        let all = creation::settings_of(role, settings);
        let new = NewTopic { name, partition_count, replication_factor: settings.replication_factor, settings: &all };
        self.cluster.create_topic(&new).map_err(|error| match creation::problem(name, &error, settings) {
            Some(finding) => refused(finding.to_string()),
            None => error,
        })?;
        tracing::info!(topic = name, partitions = partition_count, "topic created");
        self.created(role, name)
    }

    /// The topic that was just created. Its rights can be checked only now.
    fn created(&self, role: Role, name: &str) -> Result<TopicDescription, cluster::Error> {
        let created = NamedTopic::query(self.cluster, name.to_owned())?;
        self.report(name, self.judge.usable(role, &created))?;
        match created.state {
            facts::TopicState::Exists(topic) => Ok(*topic),
            _ => {
                let message = format!("topic {name:?} was created but is not visible yet");
                Err(cluster::Error::new(ErrorKind::Retry, message))
            }
        }
    }

    /// Logs the warnings among these findings about a topic, unless the previous check has logged them. All refusals
    /// together make up the error, which is marked as missing if only topics are missing.
    fn report(&self, topic: &str, findings: Vec<Finding>) -> Result<(), cluster::Error> {
        let topology = &self.judge.topology.name;
        let (mut refusals, mut are_missing, mut is_lost) = (Vec::new(), true, false);
        for finding in self.warned.without_repeated(topic, findings) {
            match finding.severity {
                Severity::Refused => {
                    are_missing &= finding.is_missing;
                    is_lost |= finding.is_lost;
                    refusals.push(finding.to_string());
                }
                Severity::Warning => tracing::warn!(topology, help = finding.help, "{}", finding.message),
                Severity::Note => tracing::debug!(topology, help = finding.help, "{}", finding.message),
            }
        }
        if refusals.is_empty() {
            return Ok(());
        }
        let missing = if is_lost { Detail::Lost } else { Detail::Missing };
        Err(refused(refusals.join("; ")).with(are_missing.then_some(missing)))
    }
}

/// The detail of all these errors together: that only topics are missing, if that is the case.
fn missing(refusals: &[cluster::Error]) -> Option<Detail> {
    let is_lost = refusals.iter().any(|error| error.detail() == Some(Detail::Lost));
    let missing = if is_lost { Detail::Lost } else { Detail::Missing };
    refusals.iter().all(cluster::Error::is_missing).then_some(missing)
}

/// The partition count of the largest input; `None` if no input exists.
fn largest_partition_count(all: &[Facts]) -> Option<i32> {
    all.iter().filter_map(|facts| facts.input.description()).map(|input| input.partition_count).max()
}
