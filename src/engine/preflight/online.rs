//! `check --online`: queries the cluster about topologies that are not running, and changes nothing.

use std::path::Path;

use crate::cluster::{self, Abilities, Cluster, ErrorKind, embedded::Embedded};
use crate::config::{ClusterKind, Config};
use crate::engine::{kafka, reach};
use crate::state::Survey;
use crate::topology::Topology;
use crate::topology::sink::Sink;

use super::creation::rehearse;
use super::facts::{Facts, NamedTopic};
use super::finding::Finding;
use super::judge::{Judge, Role};
use super::unreached::{PROPERTIES_HELP, QueryFailure, input_help};
use super::{beginning, feeding, largest_partition_count};

/// The state of a topology's topics and group on the cluster.
pub struct ClusterReport {
    /// All findings, most severe first.
    pub findings: Vec<Finding>,
    /// The facts about its inputs, and about the topics that belong to each.
    pub inputs: Vec<Facts>,
}

/// Queries the cluster. Returns the abilities of the brokers, if they report them, and the report about each topology,
/// in the given order.
pub fn query(
    config: &Config,
    topologies: &[&Topology],
) -> Result<(Option<Abilities>, Vec<ClusterReport>), QueryFailure> {
    match &config.cluster {
        ClusterKind::Kafka => {
            let cluster = kafka(config, 1);
            let cluster = cluster.map_err(|error| QueryFailure::with_help(error, PROPERTIES_HELP))?;
            query_on(&cluster, config, topologies)
        }
        ClusterKind::Embedded { dir, partitions } => {
            check_exists(dir).map_err(|error| QueryFailure::with_help(error, input_help(Embedded::IS_SHARED)))?;
            let cluster = Embedded::open(dir, *partitions).map_err(|error| QueryFailure::of(config, &error))?;
            query_on(&cluster, config, topologies)
        }
    }
}

/// Checks that the folder exists: opening it would create it.
fn check_exists(dir: &Path) -> Result<(), cluster::Error> {
    if dir.is_dir() {
        return Ok(());
    }
    let message = format!("the embedded cluster's folder {} does not exist yet", dir.display());
    Err(cluster::Error::new(ErrorKind::Retry, message))
}

/// Queries a given cluster.
fn query_on<C: Cluster>(
    cluster: &C,
    config: &Config,
    topologies: &[&Topology],
) -> Result<(Option<Abilities>, Vec<ClusterReport>), QueryFailure> {
    let abilities = reach::query(cluster).map_err(|error| QueryFailure::of(config, &error))?;
    let queries = topologies.iter().map(|topology| query_topology(cluster, config, topology));
    let reports = queries.collect::<Result<_, _>>().map_err(|error| {
        let is_refused = error.kind == ErrorKind::Refused;
        QueryFailure::with_help(
            error,
            if is_refused { "run would be refused, too" } else { "check again; run keeps trying" },
        )
    })?;
    Ok((abilities, reports))
}

fn query_topology<C: Cluster>(
    cluster: &C,
    config: &Config,
    topology: &Topology,
) -> Result<ClusterReport, cluster::Error> {
    let rules_digest = &topology.rules.digest();
    let judge = Judge { topology, rules_digest, settings: &config.topics, is_shared: C::IS_SHARED };
    let rights = cluster.group_rights(&topology.group())?;
    let names = feeding::inputs(cluster, topology)?;
    let survey = Survey::of_folder(&config.state_dir);
    let mut findings = Vec::new();
    if names.is_empty() {
        findings.push(Finding::warning(
            format!("no topic matches {}", topology.input),
            "run waits for one; is the pattern right, and may the topics be described?",
        ));
    }
    let mut inputs = Vec::new();
    for name in &names {
        match feeding::problem_with(topology, name, &names) {
            Some(problem) => findings.push(Finding::refused(problem, "exclude it with input.exclude")),
            None => {
                let facts = Facts::gather(cluster, topology, name, rights, &survey)?;
                findings.extend(judge.input(&facts));
                let partition_count = facts.input.description().map(|input| input.partition_count);
                let output = facts.output.as_ref().map(|output| (Role::Output, output));
                for (role, topic) in output.into_iter().chain([(Role::Changelog, &facts.changelog)]) {
                    findings.extend(rehearse(cluster, role, topic, partition_count, &config.topics)?);
                }
                inputs.push(facts);
            }
        }
    }
    findings.extend(beginning::problem_with(cluster, topology, &inputs)?);
    let partition_count = largest_partition_count(&inputs);
    let largest =
        inputs.iter().filter_map(|facts| facts.input.description()).map(|input| input.message_bytes_max).max();
    let control = topology.control();
    let side_topics = [
        (Role::DeadLetter, Some(topology.dead_letter.as_str())),
        (Role::Audit, topology.audit.as_deref()),
        (Role::Results, topology.sink().and_then(Sink::result)),
        (Role::Control, topology.calls().map(|_| control.as_str())),
    ];
    for (role, name) in side_topics {
        let Some(name) = name else { continue };
        let partition_count = if role == Role::Control { Some(1) } else { partition_count };
        let topic = NamedTopic::query(cluster, name.to_owned())?;
        findings.extend(judge.side_topic(role, &topic, partition_count, largest.unwrap_or(0)));
        findings.extend(rehearse(cluster, role, &topic, partition_count, &config.topics)?);
    }
    findings.extend(judge.group(rights));
    findings.sort_by_key(|finding| finding.severity);
    Ok(ClusterReport { findings, inputs })
}
