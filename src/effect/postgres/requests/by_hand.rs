//! What people see of the table, and decide about its rows. A row that a service has locked is about to be answered: it is
//! looked at again, and left alone if it stays so.

use tokio_postgres::types::ToSql;

use super::sql;
use super::{LOCKED_LOOKS_MAX, LOCKED_PAUSE, Open, Requests, quoted, said};
use crate::effect::postgres::class::Trouble;
use crate::request::by_hand::{Decision, Listed, Seen, SeenAs, Settle, Settled};
use crate::request::{Id, Reply, Token};

impl Settle for Requests {
    fn list<'a>(&'a self, wanted: &'a Listed) -> Reply<'a, Vec<Seen>> {
        Box::pin(async {
            let open = self.any().await?;
            let seen = open.list(&quoted(&self.place.schema), wanted).await;
            said(open, seen)
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        Box::pin(async move {
            let open = self.any().await?;
            let settled = open.settle(&quoted(&self.place.schema), id, decision, token).await;
            said(open, settled)
        })
    }
}

impl Open {
    async fn list(&self, schema: &str, wanted: &Listed) -> Result<Vec<Seen>, Trouble> {
        let max = i64::try_from(wanted.max).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 3] = [&wanted.answered, &wanted.begins, &max];
        let rows = self.client.query(&sql::list(schema), &parameters).await?;
        rows.iter().map(seen).collect()
    }

    async fn settle(&self, schema: &str, id: Id, decision: &Decision, token: Token) -> Result<Settled, Trouble> {
        let mut pause = LOCKED_PAUSE;
        for look in 0..LOCKED_LOOKS_MAX {
            if look > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            if let Some(settled) = self.change(schema, id, decision, token).await? {
                return Ok(settled);
            }
            let row = self.client.query_opt(&sql::see(schema), &[&&id.0[..]]).await?;
            let Some(row) = row else { return Ok(Settled::Unknown) };
            let Seen { state, lease_until_ms, .. } = seen(&row)?;
            match (state, decision) {
                (SeenAs::UnderWay, _) => {
                    return Ok(Settled::UnderWay { lease_until_ms: lease_until_ms.unwrap_or_default() });
                }
                (SeenAs::Answered, Decision::Answer(_)) => return Ok(Settled::Already),
                // It should have been changed, and is locked.
                (SeenAs::Answered, Decision::Forget) | (SeenAs::InDoubt, _) => {}
            }
        }
        Err(Trouble::passing("the request's row is locked: a service's transaction has it"))
    }

    /// Changes the row, if it may be and nobody has it.
    async fn change(
        &self,
        schema: &str,
        id: Id,
        decision: &Decision,
        token: Token,
    ) -> Result<Option<Settled>, Trouble> {
        match decision {
            Decision::Answer(answer) => {
                let parameters: [&(dyn ToSql + Sync); 3] = [&&id.0[..], &&token.0[..], &answer.encode()];
                let changed = self.client.execute(&sql::answer(schema), &parameters).await?;
                Ok((changed == 1).then_some(Settled::Answered))
            }
            Decision::Forget => {
                let Some(row) = self.client.query_opt(&sql::forget(schema), &[&&id.0[..]]).await? else {
                    return Ok(None);
                };
                let was = if row.try_get(0)? { SeenAs::Answered } else { SeenAs::InDoubt };
                Ok(Some(Settled::Forgotten(was)))
            }
        }
    }
}

fn seen(row: &tokio_postgres::Row) -> Result<Seen, Trouble> {
    let id: &[u8] = row.try_get(0)?;
    let id = id.try_into().map_err(|_| Trouble::lasting("a row of the table `request` is not as it was written"))?;
    let state = match (row.try_get(1)?, row.try_get(2)?) {
        (true, _) => SeenAs::Answered,
        (false, true) => SeenAs::InDoubt,
        (false, false) => SeenAs::UnderWay,
    };
    Ok(Seen { id: Id(id), state, lease_until_ms: row.try_get(3)?, until_ms: row.try_get(4)? })
}
