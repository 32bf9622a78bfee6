//! Tasks' rows in the table `position`: the SQL that claims, reads and updates them.

use std::sync::Arc;

use tokio_postgres::{Client, Row as PgRow, Statement};

use super::class::Trouble;
use super::pipeline::Value;
use super::quoting::quoted;
use crate::effect::{Row, RowKey, RowMark, Step};
use crate::format::Token;

/// The message about a row in a format that this release does not write.
const UNREADABLE: &str = "a row of ratchet's table position holds a token or an id that cannot be read: it was \
                          written by another program or a later release; restore it, or run that release";

/// The prepared statements.
pub(super) struct RowSql {
    pub raise_epoch: Statement,
    pub insert: Statement,
    pub read_marks: Statement,
    update: Statement,
    redo: Statement,
}

impl RowSql {
    pub async fn prepare(client: &Client, schema: &str) -> Result<Self, Trouble> {
        let table = format!("{}.position", quoted(schema));
        let key = "topology = $1 and topic = $2 and topic_id = $3 and partition = $4";
        let columns = "epoch, token, former_token, next_offset, redo";
        let raise_epoch = format!(
            "update {table} set epoch = epoch + 1, changed_at = clock_timestamp() where {key} returning {columns}"
        );
        let insert = format!(
            "insert into {table} (topology, topic, topic_id, partition, epoch, next_offset, changed_at) \
             values ($1, $2, $3, $4, 1, 0, clock_timestamp()) on conflict do nothing returning {columns}"
        );
        let read_marks = format!(
            "select k.n::int, p.epoch, p.token \
             from unnest($1::text[], $2::text[], $3::text[], $4::int[]) with ordinality \
             as k (topology, topic, topic_id, partition, n) \
             join {table} p using (topology, topic, topic_id, partition)"
        );
        // The condition has the mark: if another owner has written the row since, no row is updated.
        let update = format!(
            "update {table} set token = $5, former_token = token, next_offset = $6, redo = $7, \
             changed_at = clock_timestamp() where {key} and epoch = $8 and token is not distinct from $9"
        );
        let redo = format!("update {table} set redo = $5 where {key} and token = $6");
        let mut prepared = Vec::with_capacity(5);
        for sql in [&raise_epoch, &insert, &read_marks, &update, &redo] {
            prepared.push(client.prepare(sql).await?);
        }
        let mut prepared = prepared.into_iter();
        let mut next = || prepared.next().ok_or_else(|| Trouble::permanent("a statement was not prepared"));
        Ok(Self { raise_epoch: next()?, insert: next()?, read_marks: next()?, update: next()?, redo: next()? })
    }

    /// The statement that writes a step's token, offset and redo to its row, and the statement's values.
    pub fn update<'a>(&'a self, step: &Step<'a>, redo: Option<&'a [u8]>) -> (&'a Statement, [Value<'a>; 9]) {
        let [topology, topic, id, partition] = key_values(step.key);
        let token = Value::Owned(step.token.to_string());
        let (next, epoch) = (Value::Owned(step.next.to_string()), Value::Owned(step.mark.epoch.to_string()));
        let former_token = step.mark.token.map_or(Value::Null, |token| Value::Owned(token.to_string()));
        (&self.update, [topology, topic, id, partition, token, next, Value::bytes(redo), epoch, former_token])
    }

    /// The statement that adds the redo to a step's row later, and the statement's values.
    pub fn redo<'a>(&'a self, step: &Step<'a>, redo: &'a [u8]) -> (&'a Statement, [Value<'a>; 6]) {
        let [topology, topic, id, partition] = key_values(step.key);
        let token = Value::Owned(step.token.to_string());
        (&self.redo, [topology, topic, id, partition, Value::Bytes(redo), token])
    }
}

pub(super) fn topic_id_hex(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

pub(super) fn key_values(key: &RowKey) -> [Value<'_>; 4] {
    [
        Value::Text(&key.topology),
        Value::Text(&key.topic),
        Value::Owned(topic_id_hex(key.topic_id)),
        Value::Owned(key.partition.to_string()),
    ]
}

pub(super) fn first_row(rows: &[PgRow]) -> Result<Option<Row>, Trouble> {
    rows.first().map(parse_row).transpose()
}

/// A row from the columns `epoch, token, former_token, next_offset, redo`.
fn parse_row(row: &PgRow) -> Result<Row, Trouble> {
    Ok(Row {
        mark: RowMark { epoch: row.try_get(0)?, token: parse_token(row.try_get(1)?)? },
        former: parse_token(row.try_get(2)?)?,
        redo: row.try_get(4)?,
        next: row.try_get(3)?,
    })
}

pub(super) fn parse_token(text: Option<&str>) -> Result<Option<Token>, Trouble> {
    text.map(|text| text.parse().map_err(|()| Trouble::permanent(UNREADABLE))).transpose()
}

/// All rows of a topology, of every topic; a redo is represented by an empty one.
pub(super) async fn topology_rows(
    client: &Client,
    schema: &str,
    topology: &str,
) -> Result<Vec<(RowKey, Row)>, Trouble> {
    let sql = format!(
        "select epoch, token, former_token, next_offset, case when redo is not null then ''::bytea end, topic, topic_id, \
         partition from {}.position where topology = $1::text order by topic, topic_id, partition",
        quoted(schema)
    );
    let rows = client.query(&sql, &[&topology]).await?;
    let topology: Arc<str> = topology.into();
    rows.iter()
        .map(|row| {
            let id = u128::from_str_radix(row.try_get(6)?, 16).map_err(|_| Trouble::permanent(UNREADABLE))?;
            let (topic, topic_id) = (Arc::from(row.try_get::<_, &str>(5)?), id.to_be_bytes());
            let key = RowKey { topology: Arc::clone(&topology), topic, topic_id, partition: row.try_get(7)? };
            Ok((key, parse_row(row)?))
        })
        .collect()
}
