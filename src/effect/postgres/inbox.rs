//! The inbox: a row for each identity, in which every writer of it recognises what another has carried out.
//!
//! A record is new if its identity has no row, or if it has a version and the row has an older one or none. Rows are
//! written in the order of their identities, so that two sessions cannot wait for each other. Where a batch brings an
//! identity several times, its first occurrences go first, then its second ones, and so on: each has its own answer.

use std::collections::HashMap;

use tokio_postgres::{Client, Statement};

use super::class::Trouble;
use super::pipeline::{Answered, Value};
use super::quoting::quoted;
use super::settings::{Inbox, Settings};
use crate::effect::Effect;

/// How many rows are removed at once.
pub(super) const TIDY_ROWS_MAX: u64 = 1_000;

/// The prepared statements.
pub(super) struct InboxSql {
    /// Inserts, or raises versions.
    newer: Statement,
    /// Inserts only: for records without versions.
    first: Statement,
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
        // By its name: an index that is built beside it cannot come in between.
        let conflict = "on conflict on constraint inbox_pkey";
        let newer = format!(
            "{insert} {conflict} do update set version = excluded.version, seen_at = excluded.seen_at, \
             topology = excluded.topology where excluded.version is not null \
             and (inbox.version is null or inbox.version < excluded.version) returning identity"
        );
        let first = format!("{insert} {conflict} do nothing returning identity");
        // The lock is for this transaction: instances that come meanwhile have nothing to do. The condition stands twice:
        // a row that another renews at this moment is looked at again by the outer one alone.
        let is_old = "name = $1 and seen_at < clock_timestamp() - make_interval(secs => $2::float8 / 1000)";
        let tidy = format!(
            "delete from {table} where {is_old} and ctid = any(array(select ctid from {table} where {is_old} \
             and (select pg_try_advisory_xact_lock(hashtextextended('ratchet inbox ' || $1, 0))) limit {TIDY_ROWS_MAX}))"
        );
        let mut all = Vec::with_capacity(3);
        for sql in [&newer, &first, &tidy] {
            all.push(client.prepare(sql).await?);
        }
        let mut all = all.into_iter();
        let mut next = || all.next().ok_or_else(|| Trouble::lasting("a statement was not prepared"));
        Ok(Self {
            newer: next()?,
            first: next()?,
            tidy: next()?,
            name: inbox.name.clone(),
            topology: settings.topology.clone(),
            retention_ms: inbox.retention_ms,
        })
    }

    /// The statement for a round, and its values.
    pub fn round<'a>(&'a self, round: &'a Round<'a>) -> (&'a Statement, [Value<'a>; 4]) {
        let statement = if round.versions.iter().any(Option::is_some) { &self.newer } else { &self.first };
        let names = [Value::Text(&self.name), Value::Text(&self.topology)];
        let [name, topology] = names;
        (statement, [name, topology, Value::ByteList(&round.identities), Value::ByteList(&round.versions)])
    }
}

/// Records of different identities, in the order of these.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Round<'a> {
    /// The records' numbers.
    records: Vec<usize>,
    identities: Vec<Option<&'a [u8]>>,
    versions: Vec<Option<&'a [u8]>>,
}

impl Round<'_> {
    /// Marks the records that came back as new.
    pub fn mark(&self, answered: &Answered, is_new: &mut [bool]) -> Result<(), Trouble> {
        let mut at = 0;
        for row in &answered.rows {
            let identity: &[u8] = row.try_get(0)?;
            // They mostly come in the order in which they were sent.
            if self.identities.get(at) != Some(&Some(identity)) {
                let place = self.identities.binary_search(&Some(identity));
                at = place.map_err(|_| Trouble::lasting("the inbox returns an identity that was not sent"))?;
            }
            is_new[self.records[at]] = true;
            at += 1;
        }
        Ok(())
    }
}

/// The rounds in which these records, in their order, go into the inbox.
pub(super) fn rounds<'a>(records: impl Iterator<Item = Effect<'a>>) -> Vec<Round<'a>> {
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    let mut sorted = Vec::new();
    for (number, record) in records.enumerate() {
        let times = seen.entry(record.identity()).or_default();
        sorted.push((*times, record.identity(), number, record));
        *times += 1;
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
    fn rounds_keep_each_identitys_order_and_sort_by_identity() {
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
