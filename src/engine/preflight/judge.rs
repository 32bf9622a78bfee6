//! What is to be said of the topics that a topology works with: each rule once, pure, for `run` and for
//! `check --online` alike.

use crate::cluster::{CommittedOffset, Denied, Rights, TopicDescription};
use crate::config::{self, Create};
use crate::dedup::{Path, Retention, Rules, Source};
use crate::engine::plan::{ANEW, FOREIGN_OFFSET_HELP, LOST_HELP};
use crate::format::{self, OffsetMetadata};
use crate::mistakes::{self, Mistake};
use crate::topology::Topology;
use crate::words::counted;
use crate::yaml::units::show_duration_ms;

use super::facts::{Facts, Named, Seen};
use super::finding::Finding;
use super::unreached::input_help;

/// Where the documentation lists the rights.
const GRANT: &str = "grant what docs/operations.md lists under Rights";

/// What topics are judged by.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// The topology.
    pub topology: &'a Topology,
    /// Its rules' digest.
    pub rules_digest: &'a [u8; 32],
    /// What the worker's configuration says of topics.
    pub settings: &'a config::Topics,
    /// Whether other programs may write to the cluster's topics.
    pub is_shared: bool,
}

/// What a topic is to a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Records are read from it.
    Input,
    /// What is forwarded goes there.
    Output,
    /// The state goes there.
    Changelog,
    /// What a person has to look at goes there.
    DeadLetter,
    /// What was dropped is explained there.
    Audit,
}

impl Role {
    const fn noun(self) -> &'static str {
        match self {
            Self::Input => "input topic",
            Self::Output => "output topic",
            Self::Changelog => "changelog topic",
            Self::DeadLetter => "dead letter topic",
            Self::Audit => "audit topic",
        }
    }

    const fn is_read(self) -> bool {
        matches!(self, Self::Input | Self::Changelog)
    }

    const fn is_written(self) -> bool {
        !matches!(self, Self::Input)
    }

    /// Whether `run` creates it where it is missing.
    pub fn is_created(self, create: Create) -> bool {
        match self {
            Self::Input => false,
            Self::Output => create == Create::All,
            Self::Changelog | Self::DeadLetter | Self::Audit => create != Create::None,
        }
    }
}

impl Judge<'_> {
    /// Everything that is to be said of one input topic and what belongs to it alone.
    pub fn input(&self, facts: &Facts) -> Vec<Finding> {
        let mut findings = Vec::new();
        match &facts.input.seen {
            Seen::Missing => findings.push(Finding::refused(
                format!("input topic {:?} does not exist", facts.input.name),
                input_help(self.is_shared),
            )),
            Seen::Withheld { words, denied } => {
                findings.push(withheld(Role::Input, &facts.input.name, words, *denied));
            }
            Seen::There(input) => {
                self.rights(Role::Input, &facts.input.name, input, &mut findings);
                elections(Role::Input, &facts.input.name, input, &mut findings);
                identity(Role::Input, &facts.input.name, input, &mut findings);
                self.reading(&facts.input.name, input, &mut findings);
            }
        }
        let input = facts.input.there();
        let partition_count = input.map(|input| input.partition_count);
        self.written(Role::Output, &facts.output, partition_count, &mut findings);
        match self.lost(facts) {
            Some(lost) => findings.push(lost),
            None => self.written(Role::Changelog, &facts.changelog, partition_count, &mut findings),
        }
        if let (Some(input), Some(output)) = (input, facts.output.there()) {
            self.forwarding(facts, input, output, &mut findings);
        }
        if let Some(changelog) = facts.changelog.there() {
            changelog_itself(facts, input, changelog, &mut findings);
        }
        self.committed(facts, &mut findings);
        findings
    }

    /// What is to be said of the dead letter or the audit topic; `partition_count` is the largest input's, if there
    /// is one, and `largest` the largest batch that may come.
    pub fn aside(&self, role: Role, topic: &Named, partition_count: Option<i32>, largest: i64) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.written(role, topic, partition_count, &mut findings);
        if let Some(known) = topic.there()
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
        findings
    }

    /// What is to be said of the rights on a topic that was just created.
    pub fn usable(&self, role: Role, topic: &Named) -> Vec<Finding> {
        let mut findings = Vec::new();
        match &topic.seen {
            Seen::Missing => {}
            Seen::Withheld { words, denied } => findings.push(withheld(role, &topic.name, words, *denied)),
            Seen::There(known) => self.rights(role, &topic.name, known, &mut findings),
        }
        findings
    }

    /// What is to be said of the group.
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
            // Where somebody is held off, more may be missing that cannot be asked for.
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

    /// What matters of the input alone.
    fn reading(&self, name: &str, input: &TopicDescription, findings: &mut Vec<Finding>) {
        let rules = &self.topology.rules;
        if let Retention::For { ms } = rules.retention {
            let kept = kept_for(input);
            if kept > ms {
                let kept = if kept == i64::MAX { "for ever".to_owned() } else { show_duration_ms(kept) };
                let bytes = match input.retention_bytes {
                    i64::MAX => String::new(),
                    bytes => format!(", at most {bytes} bytes a partition"),
                };
                findings.push(Finding::warning(
                    format!(
                        "input topic {name:?} keeps its records {kept}{bytes} (cleanup.policy={}), and identities are \
                         remembered {} (retention): a record that was sent again after that is forwarded again",
                        input.cleanup_policy,
                        show_duration_ms(ms)
                    ),
                    "set `retention` to at least as long, or the topic's retention.ms to no longer",
                ));
            }
        }
        if input.stamps && reads_time(rules) {
            findings.push(Finding::warning(
                format!(
                    "input topic {name:?} stamps its records itself (message.timestamp.type=LogAppendTime), and the \
                     rules read the timestamp: a record that is sent again has another one"
                ),
                "read a time that the producer has set, or set the topic's message.timestamp.type to CreateTime",
            ));
        }
    }

    /// Rights and replicas of a topic that is written to, or what follows from its absence.
    fn written(&self, role: Role, topic: &Named, partition_count: Option<i32>, findings: &mut Vec<Finding>) {
        let name = &topic.name;
        match &topic.seen {
            Seen::Withheld { words, denied } => findings.push(withheld(role, name, words, *denied)),
            Seen::Missing if role.is_created(self.settings.create) => findings.push(Finding::note(
                format!("{} {name:?} does not exist", role.noun()),
                format!("run creates it with {}", partitions(partition_count)),
            )),
            Seen::Missing => findings.push(missing(role, name, partition_count)),
            Seen::There(known) => {
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

    /// What matters of input and output together.
    fn forwarding(
        &self,
        facts: &Facts,
        input: &TopicDescription,
        output: &TopicDescription,
        findings: &mut Vec<Finding>,
    ) {
        let (from, to) = (&facts.input.name, &facts.output.name);
        if output.partition_count < input.partition_count {
            findings.push(Finding::refused(
                format!(
                    "output topic {to:?} has {} and its input {from:?} has {}: records are forwarded to the partition \
                     they came from",
                    counted(output.partition_count, "partition"),
                    input.partition_count
                ),
                "add partitions to the output",
            ));
        }
        if output.message_bytes_max < input.message_bytes_max {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} takes batches of {} bytes and its input {from:?} takes {}: it may refuse \
                     records (on_unsendable)",
                    output.message_bytes_max, input.message_bytes_max
                ),
                "raise max.message.bytes of the output",
            ));
        }
        if output.stamps {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} stamps its records itself (message.timestamp.type=LogAppendTime): forwarded \
                     records lose their timestamps"
                ),
                "set its message.timestamp.type to CreateTime",
            ));
            return;
        }
        let oldest = input.timestamp_before_max_ms.saturating_add(kept_for(input));
        if output.timestamp_before_max_ms < oldest {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} refuses records that are older than {} (message.timestamp.before.max.ms), and \
                     those of its input {from:?} may be {}",
                    show_duration_ms(output.timestamp_before_max_ms),
                    if oldest == i64::MAX {
                        "of any age".to_owned()
                    } else {
                        format!("{} old", show_duration_ms(oldest))
                    },
                ),
                "raise it, or expect such records under on_unsendable",
            ));
        }
        let ahead = self.topology.rules.future_max_ms.min(input.timestamp_after_max_ms);
        if output.timestamp_after_max_ms < ahead {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} refuses records that are more than {} ahead (message.timestamp.after.max.ms), \
                     and those that are forwarded may be {} ahead",
                    show_duration_ms(output.timestamp_after_max_ms),
                    show_duration_ms(ahead)
                ),
                "raise it, or lower `future_max`",
            ));
        }
    }

    /// A changelog that is missing although something tells of what stood in it: another one would hold nothing of that.
    fn lost(&self, facts: &Facts) -> Option<Finding> {
        if facts.changelog.seen != Seen::Missing || mistakes::made(Mistake::ChangelogCreatedAnew) {
            return None;
        }
        let name = &facts.changelog.name;
        let committed = facts.committed.as_deref().unwrap_or_default().iter().flatten();
        let is_ours = |committed: &&CommittedOffset| matches!(OffsetMetadata::parse(&committed.metadata), Ok(Some(_)));
        let told_by = match (committed.filter(is_ours).count(), facts.stores.as_slice()) {
            (0, []) => return None,
            (0, stores) => format!("stores remember what stood in it: {}", stores.join(", ")),
            (partitions, _) => format!(
                "the group {:?} has committed transactions that stood in it, for {partitions} of {} partitions",
                self.topology.group(),
                facts.committed.as_ref().map_or(0, Vec::len)
            ),
        };
        Some(Finding::refused(
            format!("changelog topic {name:?} does not exist, and {told_by}: it was deleted"),
            format!("{LOST_HELP}, or {ANEW}"),
        ))
    }

    /// Offsets that were committed under other rules, or by something else, are seen before subscribing, so that
    /// a rolling upgrade with changed rules does not stall healthy instances.
    fn committed(&self, facts: &Facts, findings: &mut Vec<Finding>) {
        let group = self.topology.group();
        let committed = match &facts.committed {
            Ok(committed) => committed,
            Err(words) => {
                findings.push(Finding::refused(format!("what {group:?} has committed cannot be seen: {words}"), GRANT));
                return;
            }
        };
        let ours = OffsetMetadata::short_digest(self.rules_digest);
        for (number, committed) in committed.iter().enumerate() {
            let Some(committed) = committed else { continue };
            let partition = format!("{}:{number}", facts.input.name);
            match OffsetMetadata::parse(&committed.metadata) {
                Err(error @ format::Error::Format { .. }) => findings.push(Finding::refused(
                    format!("the offset of {partition} was committed by another release: {error}"),
                    "use the release that committed it, or a later one",
                )),
                Err(error) => findings.push(Finding::refused(
                    format!(
                        "group {group:?} has an offset for {partition} that is not ratchet's ({error}): another \
                         program uses the group"
                    ),
                    FOREIGN_OFFSET_HELP,
                )),
                Ok(Some(metadata)) if metadata.digest != ours => findings.push(Finding::refused(
                    format!(
                        "the offset of {partition} was committed under other rules (digest {}, these rules' is \
                         {ours}): identities or versions have changed their meaning",
                        metadata.digest
                    ),
                    format!("bring its former rules back, or {ANEW}"),
                )),
                Ok(_) => continue,
            }
            // The other partitions say the same.
            return;
        }
    }
}

/// What is to be said of a topic that may be led by a replica which lacks records.
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

/// What is to be said of a topic whose id nothing is known of: that it was recreated would not be noticed.
fn identity(role: Role, name: &str, topic: &TopicDescription, findings: &mut Vec<Finding>) {
    if !topic.id.is_told() {
        let noun = role.noun();
        findings.push(Finding::refused(
            format!(
                "{noun} {name:?} has no id: the brokers tell none, so that it was deleted and created again could not be \
                 noticed"
            ),
            "use brokers that give topics ids: Kafka 2.8 or later, with an inter.broker.protocol.version of at least 2.8",
        ));
    }
}

/// What is to be said of a topic that must be there and is not.
pub fn missing(role: Role, name: &str, partition_count: Option<i32>) -> Finding {
    let setting = if role == Role::Output { "all" } else { "internal" };
    Finding::refused(
        format!("topic {name:?} does not exist"),
        format!("create it with {}, or let ratchet create it (topics.create: {setting})", partitions(partition_count)),
    )
}

/// How many partitions a topic gets; `None` where the input is not there to be counted.
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

fn changelog_itself(
    facts: &Facts,
    input: Option<&TopicDescription>,
    changelog: &TopicDescription,
    findings: &mut Vec<Finding>,
) {
    let (from, name) = (&facts.input.name, &facts.changelog.name);
    identity(Role::Changelog, name, changelog, findings);
    if let Some(input) = input
        && changelog.partition_count != input.partition_count
    {
        findings.push(Finding::refused(
            format!(
                "changelog topic {name:?} has {} and its input {from:?} has {}: they must be equal",
                counted(changelog.partition_count, "partition"),
                input.partition_count
            ),
            match facts.has_worked() {
                true => format!(
                    "partitions were added to the input, so records of one identity may be on another partition now: {ANEW}"
                ),
                false => format!("create it with as many as the input has; if partitions were added to the input, {ANEW}"),
            },
        ));
    }
    if changelog.cleanup_policy != "compact" {
        findings.push(Finding::refused(
            format!(
                "changelog topic {name:?} has cleanup.policy={}, under which entries get lost",
                changelog.cleanup_policy
            ),
            "set it to compact",
        ));
    }
}

/// For how long a topic keeps a record at the most, in milliseconds; `i64::MAX` for always.
fn kept_for(topic: &TopicDescription) -> i64 {
    if topic.cleanup_policy.contains("delete") { topic.retention_ms } else { i64::MAX }
}

/// Whether identity or version depend on the record's timestamp.
fn reads_time(rules: &Rules) -> bool {
    let is_time = |path: &Path| path.source == Source::Timestamp;
    rules.paths().into_iter().any(is_time) || rules.identity.parts.iter().any(|part| part.bucket_ms().is_some())
}

#[cfg(test)]
mod tests;
