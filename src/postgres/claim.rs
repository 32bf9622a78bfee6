//! Claims tasks' rows, and reads their marks.

use super::class::Trouble;
use super::connection::Connection;
use super::pipeline::Value;
use super::positions::{first_row, key_values, parse_token, topic_id_hex};
use crate::effect::{ClaimedRow, RowKey, RowMark};

/// Begins a transaction as [`super::connection::BEGIN`] does, but with a short wait for locks.
const BEGIN_CLAIM: &str =
    "begin isolation level read committed; select pg_backend_pid(); set local lock_timeout = '250ms'";
/// The number of attempts of a claim whose row is inserted or deleted by others at the same moment.
const CLAIM_ATTEMPTS_MAX: u32 = 5;

/// Raises the epoch of a task's row, or inserts the row.
pub(super) async fn claim(
    connection: &Connection,
    key: &RowKey,
    may_insert: bool,
) -> Result<Option<ClaimedRow>, Trouble> {
    let response = connection.request(|pipeline| pipeline.simple((), BEGIN_CLAIM)).await?;
    connection.check_process(&response)?;
    let mut claimed = None;
    for _ in 0..CLAIM_ATTEMPTS_MAX {
        let rows = &connection.rows;
        let raised = connection.request(|pipeline| pipeline.query((), &rows.raise_epoch, key_values(key))).await?;
        claimed = first_row(&raised.rows)?;
        if claimed.is_some() || !may_insert {
            break;
        }
        let inserted = connection.request(|pipeline| pipeline.query((), &rows.insert, key_values(key))).await?;
        claimed = first_row(&inserted.rows)?;
        if claimed.is_some() {
            break;
        }
    }
    connection.request(|pipeline| pipeline.simple((), "commit")).await?;
    match claimed {
        None if may_insert => {
            Err(Trouble::transient(format!("the row of {key} is being inserted and deleted by others")))
        }
        None => Ok(None),
        Some(row) => Ok(Some(ClaimedRow { former_epoch: row.mark.epoch - 1, row })),
    }
}

/// Reads the marks of these rows; `None` for a row that does not exist.
pub(super) async fn read_marks(connection: &Connection, keys: &[RowKey]) -> Result<Vec<Option<RowMark>>, Trouble> {
    let text = |part: fn(&RowKey) -> String| keys.iter().map(part).collect::<Vec<_>>();
    let (topologies, topics) = (text(|key| key.topology.to_string()), text(|key| key.topic.to_string()));
    let ids = text(|key| topic_id_hex(key.topic_id));
    let partitions: Vec<i32> = keys.iter().map(|key| key.partition).collect();
    let values =
        [Value::TextList(&topologies), Value::TextList(&topics), Value::TextList(&ids), Value::Numbers(&partitions)];
    // Not by `Connection::request`: its requests would have to outlive the values borrowed here.
    let mut pipeline = connection.pipeline();
    pipeline.query((), &connection.rows.read_marks, values);
    let Some(((), response)) = pipeline.next().await else { return Ok(Vec::new()) };
    let mut marks = vec![None; keys.len()];
    for row in response.map_err(|trouble| connection.with_end_reason(trouble))?.rows {
        let number: i32 = row.try_get(0)?;
        let mark = RowMark { epoch: row.try_get(1)?, token: parse_token(row.try_get(2)?)? };
        let slot = usize::try_from(number - 1).ok().and_then(|number| marks.get_mut(number));
        *slot.ok_or_else(|| Trouble::permanent("the server has returned a row number that was not requested"))? =
            Some(mark);
    }
    Ok(marks)
}
