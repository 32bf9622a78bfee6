//! `check --online`: asks the cluster about topologies that do not run, and changes nothing.

use std::path::Path;

use crate::cluster::{self, Cluster, Kind, embedded::Embedded, kafka::Kafka};
use crate::config::{ClusterKind, Config};
use crate::topology::Topology;

use super::creation::rehearse;
use super::facts::{Facts, Named};
use super::finding::Finding;
use super::judge::{Judge, Role};
use super::{feeding, most_partitions};

/// Everything that is to be said of each topology, in their order, most severe first.
pub fn ask(config: &Config, topologies: &[&Topology]) -> Result<Vec<Vec<Finding>>, cluster::Error> {
    match &config.cluster {
        ClusterKind::Kafka => {
            let kafka = &config.kafka;
            ask_on(&Kafka::new(&kafka.for_admin(), &kafka.for_consumer(), &kafka.for_producer())?, config, topologies)
        }
        ClusterKind::Embedded { dir, partitions } => {
            check_exists(dir)?;
            ask_on(&Embedded::open(dir, *partitions)?, config, topologies)
        }
    }
}

/// Opening it would make it.
fn check_exists(dir: &Path) -> Result<(), cluster::Error> {
    if dir.is_dir() {
        return Ok(());
    }
    let message = format!("the embedded cluster's folder {} does not exist yet", dir.display());
    Err(cluster::Error::new(Kind::Retry, message))
}

/// The same, on a cluster.
pub fn ask_on<C: Cluster>(
    cluster: &C,
    config: &Config,
    topologies: &[&Topology],
) -> Result<Vec<Vec<Finding>>, cluster::Error> {
    // What holds for the whole cluster, a wrong password say, is told once and not of each topic.
    cluster.list_topics()?;
    topologies.iter().map(|topology| ask_about(cluster, config, topology)).collect()
}

fn ask_about<C: Cluster>(cluster: &C, config: &Config, topology: &Topology) -> Result<Vec<Finding>, cluster::Error> {
    let judge = Judge { topology, rules_digest: &topology.rules.digest(), settings: &config.topics };
    let names = feeding::inputs(cluster, topology)?;
    let mut findings = Vec::new();
    if names.is_empty() {
        findings.push(Finding::warning(
            format!("no topic matches {}", topology.input),
            "run waits for one; is the pattern right, and may the topics be described?",
        ));
    }
    let mut all = Vec::new();
    for name in &names {
        match feeding::problem_with(topology, name, &names) {
            Some(problem) => findings.push(Finding::refused(problem, "leave it out by input.exclude")),
            None => {
                let facts = Facts::gather(cluster, topology, name)?;
                findings.extend(judge.input(&facts));
                let partition_count = facts.input.there().map(|input| input.partition_count);
                for (role, topic) in [(Role::Output, &facts.output), (Role::Changelog, &facts.changelog)] {
                    findings.extend(rehearse(cluster, role, topic, partition_count, &config.topics)?);
                }
                all.push(facts);
            }
        }
    }
    let partition_count = most_partitions(&all);
    let largest = all.iter().filter_map(|facts| facts.input.there()).map(|input| input.message_bytes_max).max();
    let asides = [(Role::DeadLetter, Some(&topology.dead_letter)), (Role::Audit, topology.audit.as_ref())];
    for (role, name) in asides {
        let Some(name) = name else { continue };
        let topic = Named::ask(cluster, name.clone())?;
        findings.extend(judge.aside(role, &topic, partition_count, largest.unwrap_or(0)));
        findings.extend(rehearse(cluster, role, &topic, partition_count, &config.topics)?);
    }
    findings.extend(judge.group(cluster.group_rights(&topology.group())?));
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}
