//! A consumer with an inbox and an outbox: one transaction of PostgreSQL holds the message's key, what it changes, and the
//! event that it causes, in the columns of Debezium's outbox router. So a chain of services, each built like this one, does
//! everything exactly once from end to end.
//!
//! The inbox is ratchet's: the step's key is in the transaction (table `ratchet.step`).
//!
//! ```sh
//! DATABASE_URL=postgresql://localhost/bank \
//!     cargo run --release --example outbox -- --config config/ratchet.yaml examples/outbox/transfers.yaml
//! ```

use std::error::Error;

use ratchet::{Database, Record, StepError, Steps};
use serde::Deserialize;

#[path = "../client/mod.rs"]
#[allow(dead_code, reason = "nobody is called over HTTP")]
mod client;

#[derive(Deserialize)]
struct Transfer {
    id: String,
    account: String,
    amount: i64,
}

async fn transfer(record: &Record, steps: &mut Steps) -> Result<(), StepError> {
    let Transfer { id, account, amount } = record.json()?;
    steps
        .transaction("transfer", async |tx| {
            let sql = "update account set balance = balance + $2 where id = $1 returning balance";
            let Some(row) = tx.query_opt(sql, &[&account, &amount]).await? else {
                return Err(StepError::rejected("there is no such account"));
            };
            let balance: i64 = row.try_get(0)?;
            let payload = format!("{{\"transfer\":\"{id}\",\"account\":\"{account}\",\"balance\":{balance}}}");
            let sql = "insert into outbox (id, aggregatetype, aggregateid, type, payload) \
                       values (gen_random_uuid(), 'account', $1, 'BalanceChanged', $2)";
            tx.execute(sql, &[&account, &payload]).await?;
            Ok(())
        })
        .await
}

fn main() -> Result<(), Box<dyn Error>> {
    let (worker, topology) = client::options()?;
    let database = Database::new(&std::env::var("DATABASE_URL")?)?;
    Ok(worker.postgres(database).handler(topology, transfer).logs().signals().run()?)
}
