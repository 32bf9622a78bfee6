//! A client: it asks one of the processes, gives up, and comes again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, LOCATION};
use http_body_util::{BodyExt, Full};
use ratchet::http::{Guard, Outcome};
use tokio::runtime::Handle;
use tower_service::Service;

use super::ledger::{Book, Given};
use super::run::TROUBLE;
use super::shop::Shop;
use super::world::{OUTSIDE, World};

/// What clients see of the processes; `None` of one that is not there.
pub type Proxies = Arc<Mutex<Vec<Option<(Handle, Guard<Shop>)>>>>;

/// Wants something done, and repeats its request until it knows what has become of it.
pub struct Client {
    pub world: World,
    pub book: Book,
    pub seen: Proxies,
    pub key: u64,
    /// Its own, of all clients.
    pub number: u64,
    pub refuses: bool,
}

impl Client {
    pub async fn insist(&self) {
        loop {
            match self.ask().await {
                Some(Outcome::Done | Outcome::Replayed) => return,
                // It is an answer as well; who is not content comes again.
                Some(Outcome::Unprotected) if self.world.chance(300) => return,
                // Nobody will ever know.
                Some(Outcome::InDoubt) if self.refuses && self.world.now() > TROUBLE => return,
                _ => self.world.sleep(OUTSIDE, self.world.up_to_ms(1_500)).await,
            }
        }
    }

    /// Sends the request to one of the processes. `None`: no answer.
    async fn ask(&self) -> Option<Outcome> {
        let processes = self.seen.lock().expect("no panic").len();
        let (process, asked_at) = (self.world.below(processes as u64) as usize, self.world.now());
        let (handle, mut guard) = self.seen.lock().expect("no panic")[process].clone()?;
        let request = Request::post("/charges").header("idempotency-key", self.key);
        let request = request.body(Full::new(Bytes::from_static(b"{}"))).expect("a request");
        let mut asked = handle.spawn(async move {
            let answer = guard.call(request).await.expect("it cannot fail");
            let (parts, body) = answer.into_parts();
            (parts, body.collect().await.expect("a body").to_bytes())
        });
        let patience = if self.world.chance(150) { self.world.up_to_ms(400) } else { Duration::from_secs(12) };
        // In this order: a seed always gives the same schedule.
        let answered = tokio::select! {
            biased;
            answered = &mut asked => answered,
            () = self.world.sleep(OUTSIDE, patience) => {
                asked.abort();
                self.book.lock().expect("no panic").reached.note("client gone");
                return None;
            }
        };
        let Ok((parts, body)) = answered else {
            self.book.lock().expect("no panic").reached.note("cut off");
            // Tokio ends a runtime's tasks in an order that depends on all tasks before: so all go on in their own order.
            self.world.sleep(OUTSIDE, Duration::from_micros(self.number)).await;
            return None;
        };
        let outcome = *parts.extensions.get::<Outcome>().expect("each answer has one");
        let mut book = self.book.lock().expect("no panic");
        book.reached.note(outcome.as_str());
        if outcome == Outcome::Replayed && parts.headers.contains_key(CONTENT_TYPE) {
            let said: serde_json::Value = serde_json::from_slice(&body).expect("a note in place of the body");
            book.reached.note(if said["sha256"].is_null() { "large, cut off" } else { "large, its digest" });
        }
        let run = parts.headers.get(LOCATION).map(|run| run.to_str().expect("text").parse().expect("a number"));
        let (asked, at) = (asked_at, self.world.now());
        book.given.push(Given { key: self.key, asked, at, outcome, run, process });
        Some(outcome)
    }
}
