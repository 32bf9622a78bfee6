//! Findings about the changelog and the group's committed offsets: whether the changelog holds the transactions that
//! the offsets name.

use crate::cluster::{CommittedOffset, TopicDescription};
use crate::engine::preflight::facts::{Facts, TopicState};
use crate::engine::preflight::finding::Finding;
use crate::engine::resume::{ANEW, FOREIGN_OFFSET_HELP, LOST_HELP, REBUILD_HELP};
use crate::format::{self, OffsetMetadata};
use crate::sabotage::{self, Sabotage};
use crate::words::counted;

use super::{GRANT, Judge, Role, identity};

impl Judge<'_> {
    /// The finding about a missing changelog whose contents are known to have existed: a new changelog would be empty.
    pub(super) fn lost(&self, facts: &Facts) -> Option<Finding> {
        if facts.changelog.state != TopicState::Missing || sabotage::is_on(Sabotage::ChangelogCreatedAnew) {
            return None;
        }
        let name = &facts.changelog.name;
        let committed = facts.committed.as_deref().unwrap_or_default().iter().flatten();
        let is_ours = |committed: &&CommittedOffset| matches!(OffsetMetadata::parse(&committed.metadata), Ok(Some(_)));
        let evidence = match (committed.filter(is_ours).count(), facts.stores.as_slice()) {
            (0, []) => return None,
            (0, stores) => format!("stores hold its former contents: {}", stores.join(", ")),
            (partitions, _) => format!(
                "the group {:?} has committed transactions that were in it, for {partitions} of {} partitions",
                self.topology.group(),
                facts.committed.as_ref().map_or(0, Vec::len)
            ),
        };
        Some(Finding::lost(
            format!("changelog topic {name:?} does not exist, and {evidence}: it was deleted"),
            format!("{LOST_HELP}, or {ANEW}"),
        ))
    }

    /// Offsets that were committed under other rules, or by another program, are found before subscribing, so that a
    /// rolling upgrade with changed rules does not stall healthy instances.
    pub(super) fn committed(&self, facts: &Facts, findings: &mut Vec<Finding>) {
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
                        "the rules have changed: {}. The offset of {partition} was committed under other rules (digest \
                         {}, these rules' is {ours}): identities or versions have changed their meaning",
                        facts.changes.as_deref().unwrap_or("it is not known which"),
                        metadata.digest
                    ),
                    format!("bring its former rules back, or {ANEW}"),
                )),
                Ok(_) => continue,
            }
            // The other partitions would lead to the same finding.
            return;
        }
    }
}

/// Findings about the control topic's own settings.
pub(super) fn control_itself(name: &str, control: &TopicDescription, findings: &mut Vec<Finding>) {
    identity(Role::Control, name, control, findings);
    if control.cleanup_policy.contains("compact") {
        findings.push(Finding::warning(
            format!(
                "control topic {name:?} has cleanup.policy={}: commands may be removed before they are carried out",
                control.cleanup_policy
            ),
            "set it to delete, with retention.ms=-1",
        ));
    }
}

/// Findings about the changelog's own settings.
pub(super) fn changelog_itself(
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
                true if changelog.partition_count > input.partition_count => {
                    format!("partitions were added to it by hand: {REBUILD_HELP}, or {ANEW}")
                }
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
