//! A payment with recovery points: authorise, capture, send a receipt. Whatever is killed and whenever, each of the three
//! happens once: a handler that is run again gets the outcomes of its steps, and goes on after them.
//!
//! ```sh
//! PAYMENTS_URL=http://localhost:8080 \
//!     cargo run --release --example payment -- --config config/ratchet.yaml examples/payment/payments.yaml
//! ```

use std::error::Error;

use ratchet::{Record, Reply, StepError, Steps};
use serde::{Deserialize, Serialize};

#[path = "../client/mod.rs"]
mod client;

#[derive(Deserialize)]
struct Payment {
    id: String,
    amount: u64,
}

/// What the topic for results gets.
#[derive(Serialize)]
struct Paid {
    authorisation: String,
    capture: String,
    receipt: String,
}

async fn pay(record: &Record, steps: &mut Steps) -> Result<Reply, StepError> {
    let Payment { id, amount } = record.json()?;
    let url = std::env::var("PAYMENTS_URL")?;
    let body = || format!("{{\"id\":\"{id}\",\"amount\":{amount}}}");
    let authorisation =
        steps.call("authorise", async |key| client::post(format!("{url}/authorise/{id}"), key, body()).await).await?;
    let capture =
        steps.call("capture", async |key| client::post(format!("{url}/capture/{id}"), key, body()).await).await?;
    let receipt =
        steps.call("receipt", async |key| client::post(format!("{url}/receipt/{id}"), key, body()).await).await?;
    Reply::json(&Paid { authorisation, capture, receipt })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (worker, topology) = client::options()?;
    Ok(worker.handler(topology, pay).logs().signals().run()?)
}
