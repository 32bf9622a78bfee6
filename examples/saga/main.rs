//! A saga of three steps: reserve stock, charge the card, ship. If a later step is refused, the earlier ones are undone, in
//! reverse: the card is refunded, the stock released. The stock is in PostgreSQL; each of its steps is done exactly once.
//!
//! ```sh
//! DATABASE_URL=postgresql://localhost/shop SHOP_URL=http://localhost:8080 \
//!     cargo run --release --example saga -- --config config/ratchet.yaml examples/saga/orders.yaml
//! ```

use std::error::Error;

use ratchet::{Database, Record, Reply, StepError, Steps, Transaction};
use serde::Deserialize;

#[path = "../client/mod.rs"]
mod client;

#[derive(Clone, Deserialize)]
struct Order {
    id: String,
    item: String,
    quantity: i64,
}

async fn order(record: &Record, steps: &mut Steps) -> Result<Reply, StepError> {
    let order: Order = record.json()?;
    let url = std::env::var("SHOP_URL")?;
    let at = |what: &str| format!("{url}/{what}/{}", order.id);
    let body = format!("{{\"id\":\"{}\"}}", order.id);

    steps.transaction("reserve", async |tx| change_stock(tx, &order, -order.quantity).await).await?;
    let undo = order.clone();
    steps.compensate_by_transaction("release", async move |tx| change_stock(tx, &undo, undo.quantity).await);

    let charge = steps.call("charge", async |key| client::post(at("charge"), key, body.clone()).await).await?;
    let (refund, refund_body) = (at("refund"), body.clone());
    steps.compensate("refund", async move |key| client::post(refund, key, refund_body).await.map(drop));

    let shipment = steps.call("ship", async |key| client::post(at("ship"), key, body.clone()).await).await?;
    Ok(Reply::from(format!("{charge} {shipment}")))
}

/// Takes something from the stock, or puts it back. What is not there is refused.
async fn change_stock(tx: &Transaction<'_>, order: &Order, by: i64) -> Result<(), StepError> {
    let sql = "update stock set quantity = quantity + $2 where item = $1 and quantity + $2 >= 0";
    match tx.execute(sql, &[&order.item, &by]).await? {
        1 => Ok(()),
        _ => Err(StepError::rejected("out of stock")),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (worker, topology) = client::options()?;
    let database = Database::new(&std::env::var("DATABASE_URL")?)?;
    Ok(worker.postgres(database).handler(topology, order).logs().signals().run()?)
}
