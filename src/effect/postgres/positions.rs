//! Tasks' rows: the SQL that claims, reads and updates them.

use std::sync::Arc;

use tokio_postgres::{Client, Row as Found, Statement};

use super::class::Trouble;
use super::pipeline::Value;
use super::quoting::quoted;
use crate::effect::{Mark, Row, RowKey, Step};
use crate::format::Token;

/// What is said of a row that is not as this release writes rows.
const UNREADABLE: &str = "a row of ratchet's table position holds a token or an id that cannot be read: somebody else has \
                          written it, or a later release; put it back, or run that release";

/// The prepared statements.
pub(super) struct RowSql {
    pub raise: Statement,
    pub insert: Statement,
    pub look: Statement,
    update: Statement,
    redo: Statement,
}

impl RowSql {
    pub async fn prepare(client: &Client, schema: &str) -> Result<Self, Trouble> {
        let table = format!("{}.position", quoted(schema));
        let key = "topology = $1 and topic = $2 and topic_id = $3 and partition = $4";
        let columns = "epoch, token, former_token, next_offset, redo";
        let raise = format!(
            "update {table} set epoch = epoch + 1, changed_at = clock_timestamp() where {key} returning {columns}"
        );
        let insert = format!(
            "insert into {table} (topology, topic, topic_id, partition, epoch, next_offset, changed_at) \
             values ($1, $2, $3, $4, 1, 0, clock_timestamp()) on conflict do nothing returning {columns}"
        );
        let look = format!(
            "select k.n::int, p.epoch, p.token \
             from unnest($1::text[], $2::text[], $3::text[], $4::int[]) with ordinality \
             as k (topology, topic, topic_id, partition, n) \
             join {table} p using (topology, topic, topic_id, partition)"
        );
        // With the mark: if another has written the row since the last transaction, this one finds nothing.
        let update = format!(
            "update {table} set token = $5, former_token = token, next_offset = $6, redo = $7, \
             changed_at = clock_timestamp() where {key} and epoch = $8 and token is not distinct from $9"
        );
        let redo = format!("update {table} set redo = $5 where {key} and token = $6");
        let mut all = Vec::with_capacity(5);
        for sql in [&raise, &insert, &look, &update, &redo] {
            all.push(client.prepare(sql).await?);
        }
        let mut all = all.into_iter();
        let mut next = || all.next().ok_or_else(|| Trouble::lasting("a statement was not prepared"));
        Ok(Self { raise: next()?, insert: next()?, look: next()?, update: next()?, redo: next()? })
    }

    /// The statement that gives a step's row its token, and its values.
    pub fn update<'a>(&'a self, step: &Step<'a>, redo: Option<&'a [u8]>) -> (&'a Statement, [Value<'a>; 9]) {
        let [topology, topic, id, partition] = key_values(step.key);
        let token = Value::Written(step.token.to_string());
        let (next, epoch) = (Value::Written(step.next.to_string()), Value::Written(step.mark.epoch.to_string()));
        let before = step.mark.token.map_or(Value::Null, |token| Value::Written(token.to_string()));
        (&self.update, [topology, topic, id, partition, token, next, Value::bytes(redo), epoch, before])
    }

    /// The statement that gives a step's row its redo later, and its values.
    pub fn redo<'a>(&'a self, step: &Step<'a>, redo: &'a [u8]) -> (&'a Statement, [Value<'a>; 6]) {
        let [topology, topic, id, partition] = key_values(step.key);
        let token = Value::Written(step.token.to_string());
        (&self.redo, [topology, topic, id, partition, Value::Bytes(redo), token])
    }
}

pub(super) fn hex(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

pub(super) fn key_values(key: &RowKey) -> [Value<'_>; 4] {
    [
        Value::Text(&key.topology),
        Value::Text(&key.topic),
        Value::Written(hex(key.topic_id)),
        Value::Written(key.partition.to_string()),
    ]
}

pub(super) fn found(rows: &[Found]) -> Result<Option<Row>, Trouble> {
    rows.first().map(read).transpose()
}

/// A row from its first columns.
fn read(found: &Found) -> Result<Row, Trouble> {
    Ok(Row {
        mark: Mark { epoch: found.try_get(0)?, token: token(found.try_get(1)?)? },
        former: token(found.try_get(2)?)?,
        redo: found.try_get(4)?,
        next: found.try_get(3)?,
    })
}

pub(super) fn token(text: Option<&str>) -> Result<Option<Token>, Trouble> {
    text.map(|text| text.parse().map_err(|()| Trouble::lasting(UNREADABLE))).transpose()
}

/// All rows of a topology, whatever topics they are of; their redos' contents are left out.
pub(super) async fn all(client: &Client, schema: &str, topology: &str) -> Result<Vec<(RowKey, Row)>, Trouble> {
    let sql = format!(
        "select epoch, token, former_token, next_offset, case when redo is not null then ''::bytea end, topic, topic_id, \
         partition from {}.position where topology = $1::text order by topic, topic_id, partition",
        quoted(schema)
    );
    let found = client.query(&sql, &[&topology]).await?;
    let topology: Arc<str> = topology.into();
    found
        .iter()
        .map(|row| {
            let id = u128::from_str_radix(row.try_get(6)?, 16).map_err(|_| Trouble::lasting(UNREADABLE))?;
            let (topic, topic_id) = (Arc::from(row.try_get::<_, &str>(5)?), id.to_be_bytes());
            let key = RowKey { topology: Arc::clone(&topology), topic, topic_id, partition: row.try_get(7)? };
            Ok((key, read(row)?))
        })
        .collect()
}
