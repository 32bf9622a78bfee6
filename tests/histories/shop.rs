//! A service that numbers the runs of each key, takes its time, and sometimes fails.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;

use super::record::{Clock, Operation};
use crate::proxy::service::{Answer, Service, answer};
use crate::random::mix;

/// The longest that it takes, in microseconds.
const WORK_MAX: u64 = 8_000;
/// One run in so many fails.
const FAILS: u64 = 12;

/// A run of a key.
struct Run {
    began: i64,
    ended: Option<i64>,
    is_kept: bool,
}

#[derive(Clone)]
pub struct Shop {
    runs: Arc<Mutex<HashMap<String, Vec<Run>>>>,
    clock: Clock,
    seed: u64,
}

/// The service as one proxy sees it.
pub struct Life {
    service: Service,
    /// When that proxy was killed: all that it has sent was sent before.
    killed: Arc<AtomicI64>,
}

impl Life {
    pub async fn begin(shop: &Shop) -> Self {
        let killed = Arc::new(AtomicI64::new(i64::MAX));
        let (shop, until) = (shop.clone(), Arc::clone(&killed));
        let service = Service::start(move |request| {
            let (shop, until) = (shop.clone(), Arc::clone(&until));
            async move {
                let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
                drop(request.into_body().collect().await);
                shop.run(key, until.load(Ordering::SeqCst)).await
            }
        })
        .await;
        Self { service, killed }
    }

    pub fn url(&self) -> String {
        self.service.url()
    }

    /// The proxy is killed now.
    pub fn end(self, shop: &Shop) {
        self.killed.store(shop.clock.now(), Ordering::SeqCst);
    }
}

impl Shop {
    pub fn new(seed: u64) -> Self {
        Self { runs: Arc::default(), clock: Clock::start(), seed }
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Runs a key; the client that asks for it was alive until then.
    async fn run(&self, key: String, alive_until: i64) -> Answer {
        let began = self.clock.now().min(alive_until);
        let number = {
            let mut all = self.runs.lock().unwrap();
            let runs = all.entry(key.clone()).or_default();
            runs.push(Run { began, ended: None, is_kept: true });
            runs.len()
        };
        let random = mix(self.seed ^ key.bytes().fold(number as u64, |sum, byte| mix(sum ^ u64::from(byte))));
        tokio::time::sleep(Duration::from_micros(random % WORK_MAX)).await;
        let is_kept = !mix(random).is_multiple_of(FAILS);
        let mut all = self.runs.lock().unwrap();
        let run = &mut all.get_mut(&key).expect("it was entered")[number - 1];
        (run.ended, run.is_kept) = (Some(self.clock.now()), is_kept);
        answer(if is_kept { 201 } else { 500 }, format!("{{\"run\":{number}}}"))
    }

    /// The runs of a key.
    pub fn runs(&self, key: &str) -> Vec<Operation> {
        let all = self.runs.lock().unwrap();
        let runs = all.get(key).into_iter().flatten().zip(1..);
        runs.map(|(run, number)| Operation::run(key, number, (run.began, run.ended), run.is_kept)).collect()
    }
}
