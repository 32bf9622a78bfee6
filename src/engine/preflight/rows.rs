//! Findings about a sink's rows, for `check --online`: whether they belong to this cluster and this input, and how far
//! they differ from the group's offsets.
//!
//! A run compares a row with the position record in the changelog, for which the changelog has to be read. Here the
//! metadata of the group's offset is used instead. A late copy of a commit may restore older metadata, and a reset
//! blanks it. So a row that seems to be ahead of it leads only to a warning, and blank metadata to no finding.

use crate::cluster::TopicId;
use crate::effect::{Row, RowKey};
use crate::engine::preflight::facts::Facts;
use crate::engine::preflight::finding::Finding;
use crate::engine::rows::{RecordedTransaction, Relation, compare};
use crate::format::OffsetMetadata;
use crate::words::counted;

const BEHIND_HELP: &str = "run stops these tasks with `sink_behind`: see docs/sinks/postgres.md, When the database goes \
                           back in time; or the url names another database than the one that was written to";
const AHEAD_HELP: &str = "if that is so, run stops these tasks with `sink_ahead`: see docs/sinks/postgres.md, When the \
                          database goes back in time";

/// The findings about the rows of a topology with these inputs. `rows` are the rows that did not change while the facts
/// were gathered. `changing` are the keys of the other rows: an instance is active, so nothing is known about them.
pub fn findings(inputs: &[Facts], rows: &[(RowKey, Row)], changing: &[RowKey]) -> Vec<Finding> {
    inputs.iter().flat_map(|facts| of_input(facts, rows, changing)).collect()
}

fn of_input(facts: &Facts, rows: &[(RowKey, Row)], changing: &[RowKey]) -> Vec<Finding> {
    let Some(input) = facts.input.description() else { return Vec::new() };
    let topic = &facts.input.name;
    let topic_rows: Vec<_> = rows.iter().filter(|(key, _)| *key.topic == **topic).collect();
    let is_of_input = |key: &RowKey| *key.topic == **topic && TopicId(key.topic_id) == input.id;
    let mut findings = Vec::new();
    let has_own = topic_rows.iter().any(|(key, _)| is_of_input(key)) || changing.iter().any(is_of_input);
    if let Some((key, _)) = topic_rows.first()
        && !has_own
    {
        let theirs = TopicId(key.topic_id);
        findings.push(Finding::warning(
            format!(
                "the database has rows of this topology for another topic {topic:?}: theirs has the id {theirs}, that of \
                 this cluster {}",
                input.id
            ),
            "it was recreated, or the database belongs to another cluster: run does not find these rows, and what they \
             cover has its effect again; name another database or schema, or give the topology another name",
        ));
    }
    let is_changing = |partition| changing.iter().any(|key| is_of_input(key) && key.partition == partition);
    let mut differences = Differences::default();
    for partition in (0..input.partition_count).filter(|partition| !is_changing(*partition)) {
        let row = topic_rows.iter().find(|(key, _)| is_of_input(key) && key.partition == partition);
        differences.add(facts, partition, row.map(|(_, row)| row));
    }
    findings.extend(differences.findings(topic));
    findings
}

/// The numbers of partitions, by kind of difference.
#[derive(Default)]
struct Differences {
    missing: i32,
    behind: i32,
    foreign: i32,
    ahead: i32,
    pending: i32,
}

impl Differences {
    /// Compares a partition's row with the group's offset.
    fn add(&mut self, facts: &Facts, partition: i32, row: Option<&Row>) {
        let changelog_id = facts.changelog.description().map(|changelog| changelog.id.0);
        let token = row.and_then(|row| row.mark.token);
        if token.zip(changelog_id).is_some_and(|(token, id)| token.changelog_id != id) {
            self.foreign += 1;
            return;
        }
        let all = facts.committed.as_deref().unwrap_or_default();
        let committed = usize::try_from(partition).ok().and_then(|partition| all.get(partition)?.as_ref());
        let Some(committed) = committed else { return };
        let Ok(Some(OffsetMetadata { token: known, .. })) = OffsetMetadata::parse(&committed.metadata) else { return };
        let Some(row) = row else {
            self.missing += 1;
            return;
        };
        let recorded = RecordedTransaction {
            token: Some(&known),
            end: committed.offset,
            changelog_id: changelog_id.unwrap_or_default(),
        };
        match compare(row, recorded) {
            Relation::Same => {}
            Relation::OneAhead => self.pending += 1,
            Relation::Behind => self.behind += 1,
            Relation::Ahead => self.ahead += 1,
        }
    }

    fn findings(&self, topic: &str) -> Vec<Finding> {
        let Self { missing, behind, foreign, ahead, pending } = *self;
        let partitions_of = |count: i32| format!("{} of {topic:?}", counted(count, "partition"));
        let has_none =
            format!("the database has no row for {}, which Kafka knows as processed", partitions_of(missing));
        let is_behind = format!("the database is behind Kafka for {}", partitions_of(behind));
        let are_foreign = format!("the database's rows for {} are of another changelog", partitions_of(foreign));
        let is_ahead = format!("the database seems to be ahead of Kafka for {}", partitions_of(ahead));
        let is_pending = format!(
            "the database has committed a transaction that Kafka does not have, for {}",
            partitions_of(pending)
        );
        let all = [
            (missing, Finding::refused(has_none, BEHIND_HELP)),
            (behind, Finding::refused(is_behind, BEHIND_HELP)),
            (foreign, Finding::refused(are_foreign, AHEAD_HELP)),
            (ahead, Finding::warning(is_ahead, AHEAD_HELP)),
            (pending, Finding::note(is_pending, "run writes it to Kafka first")),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).map(|(_, finding)| finding).collect()
    }
}

#[cfg(test)]
mod tests;
