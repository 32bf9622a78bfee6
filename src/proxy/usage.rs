//! Reports the use of the bounds on clients: in metrics, and in a warning for each bound that has refused a client.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::http::proxying::Shares;
use crate::observe::{BoundMetrics, Metrics};

/// The interval between two reports.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest interval between two warnings about a bound.
const WARN: Duration = Duration::from_secs(30);

/// A bound, with the name of its setting.
pub struct Bound {
    name: &'static str,
    max: usize,
    shares: Arc<Shares>,
    metrics: BoundMetrics,
    /// The number of refusals at the last report, and at the last warning.
    counted: u64,
    told: u64,
    warned: Option<Instant>,
}

impl Bound {
    /// A bound with these shares.
    pub fn new(name: &'static str, max: usize, shares: &Arc<Shares>, metrics: &Metrics) -> Self {
        let metrics = metrics.bound(name, max);
        Self { name, max, shares: Arc::clone(shares), metrics, counted: 0, told: 0, warned: None }
    }

    fn look(&mut self, now: Instant) {
        let usage = self.shares.usage();
        self.metrics.used(usage.used);
        self.metrics.refused(usage.refused - std::mem::replace(&mut self.counted, usage.refused));
        let may_warn = self.warned.is_none_or(|warned| now.duration_since(warned) >= WARN);
        if usage.refused == self.told || !may_warn {
            return;
        }
        let refused = usage.refused - std::mem::replace(&mut self.told, usage.refused);
        self.warned = Some(now);
        let (client, most) = match usage.largest {
            Some((client, most)) => (Some(client.to_string()), Some(most)),
            None => (None, None),
        };
        let (bound, max, used) = (self.name, self.max, usage.used);
        tracing::warn!(
            bound,
            max,
            used,
            refused,
            client,
            most,
            "a limit, or one client's share of it, has been reached"
        );
    }
}

/// Reports until it is aborted.
pub async fn watch(mut bounds: Vec<Bound>) {
    loop {
        let now = Instant::now();
        bounds.iter_mut().for_each(|bound| bound.look(now));
        tokio::time::sleep(LOOK).await;
    }
}
