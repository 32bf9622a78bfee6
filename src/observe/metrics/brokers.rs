//! What is seen of Kafka's brokers: asked for whenever the metrics are rendered, so that silence is seen whatever this
//! process is doing or waiting for.

use std::sync::{Mutex, PoisonError};

use prometheus::{Gauge, IntCounter, Registry};

use super::register::VALID;

/// What was seen of the brokers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BrokersSeen {
    /// When one last answered, in milliseconds since the epoch; when the process began, if none ever has.
    pub heard_ms: i64,
    /// How many attempts there were to open a connection to one.
    pub attempts: u64,
}

type Ask = Box<dyn Fn() -> BrokersSeen + Send + Sync>;

/// Not registered before somebody can say anything: the embedded cluster and the proxy have no brokers.
pub(super) struct Families {
    registry: Registry,
    shown: Mutex<Option<Shown>>,
}

struct Shown {
    ask: Ask,
    heard: Gauge,
    attempts: IntCounter,
    /// The attempts of earlier runs of this process.
    former_attempts: u64,
}

impl Families {
    pub fn new(registry: &Registry) -> Self {
        Self { registry: registry.clone(), shown: Mutex::default() }
    }

    pub fn ask(&self, seen: impl Fn() -> BrokersSeen + Send + Sync + 'static) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let ask: Ask = Box::new(seen);
        match &mut *shown {
            Some(shown) => {
                shown.former_attempts += (shown.ask)().attempts;
                shown.ask = ask;
            }
            None => {
                let heard = Gauge::new(
                    "ratchet_last_broker_response_timestamp_seconds",
                    "When a broker last answered; when the process began, if none ever has.",
                )
                .expect(VALID);
                let attempts = IntCounter::new(
                    "ratchet_broker_connection_attempts_total",
                    "Attempts to open a connection to a broker.",
                )
                .expect(VALID);
                self.registry.register(Box::new(heard.clone())).expect(VALID);
                self.registry.register(Box::new(attempts.clone())).expect(VALID);
                *shown = Some(Shown { ask, heard, attempts, former_attempts: 0 });
            }
        }
    }

    pub fn update(&self) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Shown { ask, heard, attempts, former_attempts }) = &*shown else { return };
        let seen = ask();
        heard.set(seen.heard_ms as f64 / 1000.0);
        attempts.inc_by((former_attempts + seen.attempts).saturating_sub(attempts.get()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::Metrics;
    use super::BrokersSeen;

    #[test]
    fn brokers_are_shown_once_there_are_any_and_as_they_are_then() {
        let (metrics, attempts) = (Metrics::new(), Arc::new(AtomicU64::new(3)));
        assert!(!metrics.render().contains("broker"), "there are none");
        let count = Arc::clone(&attempts);
        let seen = move || BrokersSeen { heard_ms: 1_500, attempts: count.load(Ordering::Relaxed) };
        metrics.brokers(|| BrokersSeen { heard_ms: 1_000, attempts: 10 });
        // A further run of the same process counts from 0.
        metrics.brokers(seen);
        for (count, expected) in [(3, 13), (8, 18)] {
            attempts.store(count, Ordering::Relaxed);
            let said = metrics.render();
            assert!(said.contains("ratchet_last_broker_response_timestamp_seconds 1.5\n"), "{said}");
            assert!(said.contains(&format!("ratchet_broker_connection_attempts_total {expected}\n")), "{said}");
        }
    }
}
