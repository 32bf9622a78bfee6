//! Tasks' rows: claiming, reading and updating them.

use std::sync::Arc;

use tokio_postgres::{Client, Row as Found, Statement};

use super::class::Trouble;
use super::connection::Connection;
use super::pipeline::Value;
use super::quoted;
use crate::effect::{Claimed, Mark, Row, RowKey, Step};
use crate::format::Token;

/// Begins a transaction; the first answer is the server's process.
pub(super) const BEGIN: &str = "begin isolation level read committed; select pg_backend_pid()";
/// The same for a claim, which does not wait for another's transaction for long.
const BEGIN_CLAIM: &str =
    "begin isolation level read committed; select pg_backend_pid(); set local lock_timeout = '250ms'";
/// How often a claim begins again where a row appears or goes at the same moment.
const CLAIM_ATTEMPTS_MAX: u32 = 5;

/// What is said of a row that is not as this release writes rows.
const UNREADABLE: &str = "a row of ratchet's table position holds a token or an id that cannot be read: somebody else has \
                          written it, or a later release; put it back, or run that release";

/// The prepared statements.
pub(super) struct RowSql {
    raise: Statement,
    insert: Statement,
    look: Statement,
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
        // With the mark: whoever has written the row since the last transaction makes this one find nothing.
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

fn hex(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

fn key_values(key: &RowKey) -> [Value<'_>; 4] {
    [
        Value::Text(&key.topology),
        Value::Text(&key.topic),
        Value::Written(hex(key.topic_id)),
        Value::Written(key.partition.to_string()),
    ]
}

/// Raises the epoch of a task's row, or inserts the row.
pub(super) async fn claim(connection: &Connection, key: &RowKey, may_insert: bool) -> Result<Option<Claimed>, Trouble> {
    let begun = connection.one(|pipeline| pipeline.simple((), BEGIN_CLAIM)).await?;
    connection.check_process(&begun)?;
    let mut claimed = None;
    for _ in 0..CLAIM_ATTEMPTS_MAX {
        let rows = &connection.rows;
        let raised = connection.one(|pipeline| pipeline.query((), &rows.raise, key_values(key))).await?;
        claimed = found(&raised.rows)?;
        if claimed.is_some() || !may_insert {
            break;
        }
        let inserted = connection.one(|pipeline| pipeline.query((), &rows.insert, key_values(key))).await?;
        claimed = found(&inserted.rows)?;
        if claimed.is_some() {
            break;
        }
    }
    connection.one(|pipeline| pipeline.simple((), "commit")).await?;
    match claimed {
        None if may_insert => Err(Trouble::passing(format!("the row of {key} comes and goes"))),
        None => Ok(None),
        Some(row) => Ok(Some(Claimed { former_epoch: row.mark.epoch - 1, row })),
    }
}

fn found(rows: &[Found]) -> Result<Option<Row>, Trouble> {
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

fn token(text: Option<&str>) -> Result<Option<Token>, Trouble> {
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

/// Reads rows.
pub(super) async fn look(connection: &Connection, keys: &[RowKey]) -> Result<Vec<Option<Mark>>, Trouble> {
    let text = |part: fn(&RowKey) -> String| keys.iter().map(part).collect::<Vec<_>>();
    let (topologies, topics) = (text(|key| key.topology.to_string()), text(|key| key.topic.to_string()));
    let ids = text(|key| hex(key.topic_id));
    let partitions: Vec<i32> = keys.iter().map(|key| key.partition).collect();
    let values =
        [Value::TextList(&topologies), Value::TextList(&topics), Value::TextList(&ids), Value::Numbers(&partitions)];
    // Not by `Connection::one`, whose requests outlive what is borrowed here.
    let mut pipeline = connection.pipeline();
    pipeline.query((), &connection.rows.look, values);
    let Some(((), answered)) = pipeline.next().await else { return Ok(Vec::new()) };
    let mut marks = vec![None; keys.len()];
    for found in answered.map_err(|trouble| connection.explained(trouble))?.rows {
        let number: i32 = found.try_get(0)?;
        let mark = Mark { epoch: found.try_get(1)?, token: token(found.try_get(2)?)? };
        let place = usize::try_from(number - 1).ok().and_then(|number| marks.get_mut(number));
        *place.ok_or_else(|| Trouble::lasting("the server numbers rows in its own way"))? = Some(mark);
    }
    Ok(marks)
}
