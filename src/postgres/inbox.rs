//! The inbox: a row for each identity, by which every writer recognises records whose effects another has carried out.
//!
//! A record is new if its identity has no row, or if it has a version and the row has an older version or no version.
//! Rows are written in the order of their identities, so that two sessions cannot deadlock. If a batch contains an
//! identity several times, the first occurrences of all identities form the first round, the second ones the second,
//! and so on: each occurrence is judged on its own.

use std::collections::HashMap;

use tokio_postgres::{Client, Statement};

use super::class::Trouble;
use super::pipeline::{Response, Value};
use super::quoting::quoted;
use super::settings::{Inbox, Settings};
use crate::effect::Effect;

/// The maximum number of rows that one tidying removes.
pub(super) const TIDY_ROWS_MAX: u64 = 1_000;

/// The prepared statements.
pub(super) struct InboxSql {
    /// Inserts identities, or raises their versions.
    upsert_newer: Statement,
    /// Inserts identities only: for records without versions.
    insert_new: Statement,
    pub tidy: Statement,
    pub name: String,
    topology: String,
    pub retention_ms: Option<i64>,
}

impl InboxSql {
    pub async fn prepare(client: &Client, settings: &Settings, inbox: &Inbox) -> Result<Self, Trouble> {
        let table = format!("{}.inbox", quoted(&settings.schema));
        let insert = format!(
            "insert into {table} as inbox (name, identity, version, seen_at, topology) \
             select $1, k.identity, k.version, clock_timestamp(), $2 \
             from unnest($3::bytea[], $4::bytea[]) with ordinality as k (identity, version, n) order by k.n"
        );
        // By the constraint's name: an index that is being built beside it cannot be chosen.
        let conflict = "on conflict on constraint inbox_pkey";
        let upsert_newer = format!(
            "{insert} {conflict} do update set version = excluded.version, seen_at = excluded.seen_at, \
             topology = excluded.topology where excluded.version is not null \
             and (inbox.version is null or inbox.version < excluded.version) returning identity"
        );
        let insert_new = format!("{insert} {conflict} do nothing returning identity");
        // The lock lasts for this transaction: other instances remove nothing in the meantime. The condition appears
        // twice, because only the outer one is evaluated again for a row that another session updates at this moment.
        let is_old = "name = $1 and seen_at < clock_timestamp() - make_interval(secs => $2::float8 / 1000)";
        let tidy = format!(
            "delete from {table} where {is_old} and ctid = any(array(select ctid from {table} where {is_old} \
             and (select pg_try_advisory_xact_lock(hashtextextended('ratchet inbox ' || $1, 0))) limit {TIDY_ROWS_MAX}))"
        );
        let mut prepared = Vec::with_capacity(3);
        for sql in [&upsert_newer, &insert_new, &tidy] {
            prepared.push(client.prepare(sql).await?);
        }
        let mut prepared = prepared.into_iter();
        let mut next = || prepared.next().ok_or_else(|| Trouble::permanent("a statement was not prepared"));
        Ok(Self {
            upsert_newer: next()?,
            insert_new: next()?,
            tidy: next()?,
            name: inbox.name.clone(),
            topology: settings.topology.clone(),
            retention_ms: inbox.retention_ms,
        })
    }

    /// The statement for a round, and the statement's values.
    pub fn round<'a>(&'a self, round: &'a Round<'a>) -> (&'a Statement, [Value<'a>; 4]) {
        let statement = if round.versions.iter().any(Option::is_some) { &self.upsert_newer } else { &self.insert_new };
        let [name, topology] = [Value::Text(&self.name), Value::Text(&self.topology)];
        (statement, [name, topology, Value::ByteList(&round.identities), Value::ByteList(&round.versions)])
    }
}

/// Records of different identities, in the order of their identities.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Round<'a> {
    /// The records' numbers.
    records: Vec<usize>,
    identities: Vec<Option<&'a [u8]>>,
    versions: Vec<Option<&'a [u8]>>,
}

impl Round<'_> {
    /// Marks the records whose identities were returned as new.
    pub fn mark_new(&self, response: &Response, is_new: &mut [bool]) -> Result<(), Trouble> {
        let mut index = 0;
        for row in &response.rows {
            let identity: &[u8] = row.try_get(0)?;
            // Identities are mostly returned in the order in which they were sent.
            if self.identities.get(index) != Some(&Some(identity)) {
                let position = self.identities.binary_search(&Some(identity));
                index = position.map_err(|_| Trouble::permanent("the inbox returns an identity that was not sent"))?;
            }
            is_new[self.records[index]] = true;
            index += 1;
        }
        Ok(())
    }
}

/// The rounds in which these records, in their order, go into the inbox.
pub(super) fn rounds<'a>(records: impl Iterator<Item = Effect<'a>>) -> Vec<Round<'a>> {
    let mut occurrence_counts: HashMap<&[u8], usize> = HashMap::new();
    let mut sorted = Vec::new();
    for (number, record) in records.enumerate() {
        let occurrences = occurrence_counts.entry(record.identity()).or_default();
        sorted.push((*occurrences, record.identity(), number, record));
        *occurrences += 1;
    }
    sorted.sort_unstable_by_key(|&(round, identity, ..)| (round, identity));
    let mut rounds: Vec<Round<'a>> = Vec::new();
    for (round, identity, number, record) in sorted {
        if rounds.len() == round {
            rounds.push(Round::default());
        }
        let round = &mut rounds[round];
        round.records.push(number);
        round.identities.push(Some(identity));
        round.versions.push(record.version());
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;

    #[test]
    fn rounds_keep_the_order_of_each_identity_and_are_sorted_by_identity() {
        let mut effects = Effects::default();
        for (offset, identity, version) in [(1, "b", "1"), (2, "a", "1"), (3, "b", "2"), (4, "b", "0"), (5, "c", "1")] {
            effects.begin(offset, identity.as_bytes(), Some(version.as_bytes()));
        }
        let rounds = rounds(effects.iter());
        let records: Vec<_> = rounds.iter().map(|round| round.records.clone()).collect();
        assert_eq!(records, [vec![1, 0, 4], vec![2], vec![3]]);
        assert_eq!(rounds[0].identities, [Some(&b"a"[..]), Some(b"b"), Some(b"c")]);
        assert_eq!(rounds[2].versions, [Some(&b"0"[..])]);
    }
}
