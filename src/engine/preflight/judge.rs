//! The findings about a topology's topics: pure rules, used by both `run` and `check --online`. This file covers any
//! topic and the group's rights; `forwarding` covers forwarded records, `memory` the changelog and the group's
//! committed offsets.

use crate::cluster::{Denied, Rights, TopicDescription};
use crate::config::{self, Create};
use crate::topology::Topology;
use crate::words::counted;

use super::facts::{Facts, NamedTopic, TopicState};
use super::finding::Finding;
use super::unreached::input_help;

mod forwarding;
mod memory;

/// Where the documentation lists the rights.
const GRANT: &str = "grant what docs/operations.md lists under Rights";

/// The expectations that topics are judged against.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// The topology.
    pub topology: &'a Topology,
    /// Its rules' digest.
    pub rules_digest: &'a [u8; 32],
    /// The worker's settings for topics.
    pub settings: &'a config::TopicSettings,
    /// Whether other programs may write to the cluster's topics.
    pub is_shared: bool,
}

/// A topic's role in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Records are read from it.
    Input,
    /// Records are forwarded to it.
    Output,
    /// The state is written to it.
    Changelog,
    /// Records that need a person's attention go to it.
    DeadLetter,
    /// Drops are explained in it.
    Audit,
    /// The results of a sink's statements are written to it.
    Results,
    /// It contains commands and their acknowledgements.
    Control,
}

impl Role {
    const fn noun(self) -> &'static str {
        match self {
            Self::Input => "input topic",
            Self::Output => "output topic",
            Self::Changelog => "changelog topic",
            Self::DeadLetter => "dead letter topic",
            Self::Audit => "audit topic",
            Self::Results => "topic for results",
            Self::Control => "control topic",
        }
    }

    const fn is_read(self) -> bool {
        matches!(self, Self::Input | Self::Changelog | Self::Control)
    }

    const fn is_written(self) -> bool {
        !matches!(self, Self::Input)
    }

    /// Whether `run` creates it if it is missing.
    pub fn is_created(self, create: Create) -> bool {
        match self {
            Self::Input => false,
            Self::Output | Self::Results => create == Create::All,
            Self::Changelog | Self::DeadLetter | Self::Audit | Self::Control => create != Create::None,
        }
    }
}

impl Judge<'_> {
    /// All findings about one input topic and the topics that belong only to it.
    pub fn input(&self, facts: &Facts) -> Vec<Finding> {
        let mut findings = Vec::new();
        match &facts.input.state {
            TopicState::Missing => findings.push(Finding::missing(
                format!("input topic {:?} does not exist", facts.input.name),
                input_help(self.is_shared),
            )),
            TopicState::Withheld { words, denied } => {
                findings.push(withheld(Role::Input, &facts.input.name, words, *denied));
            }
            TopicState::Exists(input) => {
                self.rights(Role::Input, &facts.input.name, input, &mut findings);
                elections(Role::Input, &facts.input.name, input, &mut findings);
                identity(Role::Input, &facts.input.name, input, &mut findings);
                self.reading(&facts.input.name, input, &mut findings);
            }
        }
        let input = facts.input.description();
        let partition_count = input.map(|input| input.partition_count);
        if let Some(output) = &facts.output {
            self.written(Role::Output, output, partition_count, &mut findings);
        }
        match self.lost(facts) {
            Some(lost) => findings.push(lost),
            None => self.written(Role::Changelog, &facts.changelog, partition_count, &mut findings),
        }
        if let (Some(input), Some(output)) = (input, &facts.output)
            && let Some(description) = output.description()
        {
            self.forwarding((&facts.input.name, input), (&output.name, description), &mut findings);
        }
        if let Some(changelog) = facts.changelog.description() {
            memory::changelog_itself(facts, input, changelog, &mut findings);
        }
        self.committed(facts, &mut findings);
        findings
    }

    /// The findings about a topic besides the output. `partition_count` is the partition count with which it would be
    /// created, if known, and `largest` is the size of the largest batch that may arrive.
    pub fn side_topic(
        &self,
        role: Role,
        topic: &NamedTopic,
        partition_count: Option<i32>,
        largest: i64,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.written(role, topic, partition_count, &mut findings);
        if let Some(known) = topic.description()
            && known.message_bytes_max < largest
            && role == Role::DeadLetter
        {
            findings.push(Finding::warning(
                format!(
                    "dead letter topic {:?} takes batches of {} bytes and an input {largest}: a record that is too \
                     large for it stops its task",
                    topic.name, known.message_bytes_max
                ),
                "raise its max.message.bytes",
            ));
        }
        if let Some(known) = topic.description().filter(|_| role == Role::Control) {
            memory::control_itself(&topic.name, known, &mut findings);
        }
        findings
    }

    /// The findings about the rights to a topic that was just created.
    pub fn usable(&self, role: Role, topic: &NamedTopic) -> Vec<Finding> {
        let mut findings = Vec::new();
        match &topic.state {
            TopicState::Missing => {}
            TopicState::Withheld { words, denied } => findings.push(withheld(role, &topic.name, words, *denied)),
            TopicState::Exists(known) => self.rights(role, &topic.name, known, &mut findings),
        }
        findings
    }

    /// The findings about the group.
    pub fn group(&self, rights: Option<Rights>) -> Vec<Finding> {
        let group = self.topology.group();
        match rights {
            None => vec![Finding::note(
                format!("the cluster does not say what this client may do with the group {group:?}"),
                GRANT,
            )],
            Some(rights) if !rights.read => {
                let help = format!("grant Read on group {group}");
                vec![Finding::refused(format!("not authorised to read as the group {group:?}"), help)]
            }
            // If rights are restricted at all, others that cannot be queried may be missing too.
            Some(rights) if !rights.alter => vec![Finding::note(
                format!(
                    "whether transactional ids that begin with \"ratchet.{}.\" may be used cannot be asked; run finds \
                     out when it starts",
                    self.topology.name
                ),
                "grant Write on them",
            )],
            Some(_) => Vec::new(),
        }
    }

    /// Findings about the rights and replicas of a topic that is written to, or about its absence.
    fn written(&self, role: Role, topic: &NamedTopic, partition_count: Option<i32>, findings: &mut Vec<Finding>) {
        let name = &topic.name;
        match &topic.state {
            TopicState::Withheld { words, denied } => findings.push(withheld(role, name, words, *denied)),
            TopicState::Missing if role.is_created(self.settings.create) => findings.push(Finding::note(
                format!("{} {name:?} does not exist", role.noun()),
                format!("run creates it with {}", partitions(partition_count)),
            )),
            TopicState::Missing => findings.push(missing(role, name, partition_count)),
            TopicState::Exists(known) => {
                self.rights(role, name, known, findings);
                self.replicas(role, name, known, findings);
                elections(role, name, known, findings);
            }
        }
    }

    fn rights(&self, role: Role, name: &str, topic: &TopicDescription, findings: &mut Vec<Finding>) {
        let Some(rights) = topic.rights else {
            let noun = role.noun();
            findings.push(Finding::note(
                format!("the cluster does not say what this client may do with {noun} {name:?}"),
                GRANT,
            ));
            return;
        };
        let (reads, writes) = (role.is_read(), role.is_written());
        for (needed, right, verb, operation) in
            [(reads, rights.read, "read", "Read"), (writes, rights.write, "write", "Write")]
        {
            if needed && !right {
                findings.push(Finding::refused(
                    format!("not authorised to {verb} {} {name:?}", role.noun()),
                    format!("grant {operation} on topic {name}"),
                ));
            }
        }
    }

    fn replicas(&self, role: Role, name: &str, topic: &TopicDescription, findings: &mut Vec<Finding>) {
        let (Some(replicas), Some(needed)) = (topic.replicas, topic.min_insync_replicas) else { return };
        let (noun, counted) = (role.noun(), counted(replicas, "replica"));
        if needed > replicas {
            findings.push(Finding::refused(
                format!("{noun} {name:?} has {counted} and min.insync.replicas={needed}: it takes no record"),
                "add replicas, or lower its min.insync.replicas",
            ));
        } else if replicas < self.settings.replication_factor || needed < self.settings.min_insync_replicas {
            findings.push(Finding::warning(
                format!(
                    "{noun} {name:?} has {counted} and min.insync.replicas={needed}, the configuration says \
                     {} and {}: it may lose what was committed",
                    self.settings.replication_factor, self.settings.min_insync_replicas
                ),
                "add replicas, or set topics.replication_factor and topics.min_insync_replicas to what is meant",
            ));
        }
    }
}

/// The finding about a topic that may be led by a replica that lacks records.
fn elections(role: Role, name: &str, topic: &TopicDescription, findings: &mut Vec<Finding>) {
    if topic.elects_uncleanly == Some(true) {
        let noun = role.noun();
        findings.push(Finding::warning(
            format!(
                "{noun} {name:?} may elect a leader that lacks records (unclean.leader.election.enable=true): what was \
                 committed may be lost"
            ),
            "set it to false, for the topic or as the brokers' default",
        ));
    }
}

/// The finding about a topic without a known id: its recreation would go unnoticed.
fn identity(role: Role, name: &str, topic: &TopicDescription, findings: &mut Vec<Finding>) {
    if !topic.id.is_known() {
        let noun = role.noun();
        findings.push(Finding::refused(
            format!(
                "{noun} {name:?} has no id: the brokers report none, so it could be deleted and created again \
                 unnoticed"
            ),
            "use brokers that give topics ids: Kafka 2.8 or later, with an inter.broker.protocol.version of at least 2.8",
        ));
    }
}

/// The finding about a required topic that is missing.
pub fn missing(role: Role, name: &str, partition_count: Option<i32>) -> Finding {
    let setting = if matches!(role, Role::Output | Role::Results) { "all" } else { "internal" };
    Finding::missing(
        format!("topic {name:?} does not exist"),
        format!("create it with {}, or let ratchet create it (topics.create: {setting})", partitions(partition_count)),
    )
}

/// The number of partitions of a new topic, in words; `None` if the input does not exist yet.
fn partitions(count: Option<i32>) -> String {
    match count {
        None => "as many partitions as the input".to_owned(),
        Some(count) => counted(count, "partition"),
    }
}

fn withheld(role: Role, name: &str, words: &str, denied: Option<Denied>) -> Finding {
    let operations = match (denied, role.is_read(), role.is_written()) {
        (Some(Denied::Settings), ..) => "DescribeConfigs",
        (Some(Denied::Topic), true, true) => "Read and Write",
        (Some(Denied::Topic), true, _) => "Read",
        (Some(Denied::Topic), ..) => "Write",
        (None, ..) => "Describe and DescribeConfigs",
    };
    Finding::refused(
        format!("{} {name:?} cannot be seen: {words}", role.noun()),
        format!("grant {operations} on topic {name}, see Rights in docs/operations.md"),
    )
}

#[cfg(test)]
pub(super) mod tests;
