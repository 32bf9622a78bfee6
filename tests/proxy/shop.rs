//! A service that counts the runs of each key on each path, and holds back those that say so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use super::service::{Service, answer};

/// What the service knows.
#[derive(Clone)]
pub struct Shop {
    runs: Arc<Mutex<HashMap<(String, String), usize>>>,
    /// Those that are held back may go on.
    pub may: Arc<Semaphore>,
}

/// The header that has the first run of a key held back.
pub const HELD: &str = "x-held";
/// The header that has every one held back.
pub const ALWAYS_HELD: &str = "x-always-held";

impl Shop {
    pub fn new() -> Shop {
        Shop { runs: Arc::default(), may: Arc::new(Semaphore::new(0)) }
    }

    /// Answers 201 with the number of the key's run.
    pub async fn open(&self) -> Service {
        let shop = self.clone();
        Service::start(move |request| {
            let shop = shop.clone();
            async move {
                let (head, body) = request.into_parts();
                drop(body.collect().await);
                let key = head.headers["idempotency-key"].to_str().unwrap().to_owned();
                let run = {
                    let mut runs = shop.runs.lock().unwrap();
                    let run = runs.entry((head.uri.path().to_owned(), key)).or_default();
                    *run += 1;
                    *run
                };
                if head.headers.contains_key(ALWAYS_HELD) || run == 1 && head.headers.contains_key(HELD) {
                    shop.may.acquire().await.unwrap().forget();
                }
                answer(201, format!("{{\"run\":{run}}}"))
            }
        })
        .await
    }

    /// How often it was run for a key.
    pub fn runs(&self, path: &str, key: &str) -> usize {
        self.runs.lock().unwrap().get(&(path.to_owned(), key.to_owned())).copied().unwrap_or_default()
    }

    /// How many keys it was run for, and how often in all.
    pub fn all(&self) -> (usize, usize) {
        let runs = self.runs.lock().unwrap();
        (runs.len(), runs.values().sum())
    }
}
