//! Lists requests and settles them for an operator: gives a request that is in doubt an answer, or forgets a request.
//! If a service's transaction has locked a request's row, the service's response is about to be stored: the row is
//! checked again after a pause, and is not changed while it stays locked.

use tokio_postgres::types::ToSql;

use super::super::quoting::quoted;
use super::{LOCKED_ATTEMPTS_MAX, LOCKED_PAUSE, Requests, StoreConnection, finish_call, unexpected_outcome};
use crate::postgres::class::Trouble;
use crate::request::operator::{Decision, ListFilter, ListedRequest, RequestStatus, Settle, Settled};
use crate::request::{Id, Reply, Token};

impl Settle for Requests {
    fn list<'a>(&'a self, filter: &'a ListFilter) -> Reply<'a, Vec<ListedRequest>> {
        Box::pin(async {
            let connection = self.next_connection().await?;
            let requests = connection.list(&quoted(&self.location.schema), filter).await;
            finish_call(connection, requests)
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        Box::pin(async move {
            let connection = self.next_connection().await?;
            let settled = connection.settle(&quoted(&self.location.schema), id, decision, token).await;
            finish_call(connection, settled)
        })
    }
}

impl StoreConnection {
    async fn list(&self, schema: &str, filter: &ListFilter) -> Result<Vec<ListedRequest>, Trouble> {
        let max = i64::try_from(filter.max).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 3] = [&filter.includes_answered, &filter.id_prefix, &max];
        let sql = format!("select * from {schema}.list_requests($1, $2, $3)");
        let rows = self.client.query(&sql, &parameters).await?;
        rows.iter().map(read_request).collect()
    }

    async fn settle(&self, schema: &str, id: Id, decision: &Decision, token: Token) -> Result<Settled, Trouble> {
        let answer = match decision {
            Decision::Answer(answer) => Some(answer.encode()),
            Decision::Forget => None,
        };
        let parameters: [&(dyn ToSql + Sync); 3] = [&&id.0[..], &&token.0[..], &answer];
        let sql = format!("select outcome, lease_until_ms from {schema}.settle_request($1, $2, $3)");
        let mut pause = LOCKED_PAUSE;
        for attempt in 0..LOCKED_ATTEMPTS_MAX {
            if attempt > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let row = self.client.query_one(&sql, &parameters).await?;
            return Ok(match row.try_get(0)? {
                "answered" => Settled::Answered,
                "forgotten" => Settled::Forgotten(RequestStatus::InDoubt),
                "answer_forgotten" => Settled::Forgotten(RequestStatus::Answered),
                // It has an answer already.
                "already" => Settled::AlreadyAnswered,
                // Its lease lasts: a process may still be carrying it out.
                "under_way" => Settled::UnderWay { lease_until_ms: row.try_get(1)? },
                "unknown" => Settled::Unknown,
                "locked" => continue,
                other => return Err(unexpected_outcome(other)),
            });
        }
        Err(Trouble::transient("the request's row is locked: a service's transaction has it"))
    }
}

/// A request from a row of `list_requests`.
fn read_request(row: &tokio_postgres::Row) -> Result<ListedRequest, Trouble> {
    let id: &[u8] = row.try_get(0)?;
    let id =
        id.try_into().map_err(|_| Trouble::permanent("a row of the table `request` has an id of a wrong length"))?;
    let state = match (row.try_get(1)?, row.try_get(2)?) {
        (true, _) => RequestStatus::Answered,
        (false, true) => RequestStatus::InDoubt,
        (false, false) => RequestStatus::UnderWay,
    };
    // `until_ms`: until when the request is remembered.
    Ok(ListedRequest { id: Id(id), state, lease_until_ms: row.try_get(3)?, remembered_until_ms: row.try_get(4)? })
}
