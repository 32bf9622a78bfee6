//! Claims tasks' rows and reads them, on a session's connection.

use super::class::Trouble;
use super::connection::Connection;
use super::pipeline::Value;
use super::positions::{found, hex, key_values, token};
use crate::effect::{Claimed, Mark, RowKey};

/// Begins a transaction, as [`super::connection::BEGIN`] does, that does not wait for another's transaction for long.
const BEGIN_CLAIM: &str =
    "begin isolation level read committed; select pg_backend_pid(); set local lock_timeout = '250ms'";
/// How often a claim begins again where a row appears or goes at the same moment.
const CLAIM_ATTEMPTS_MAX: u32 = 5;

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
