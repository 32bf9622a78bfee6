//! Reports the use of the bounds on clients: in metrics, and in a warning about each bound that has refused a client.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::http::proxying::Shares;
use crate::observe::{BoundMetrics, Metrics};

/// The interval between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval between two warnings about a bound.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

/// A bound, with the name of its setting.
pub struct Bound {
    name: &'static str,
    max: usize,
    shares: Arc<Shares>,
    metrics: BoundMetrics,
    /// The number of refusals at the last report, and at the last warning.
    reported_refusals: u64,
    warned_refusals: u64,
    warned_at: Option<Instant>,
}

impl Bound {
    /// A bound with these shares.
    pub fn new(name: &'static str, max: usize, shares: &Arc<Shares>, metrics: &Metrics) -> Self {
        let metrics = metrics.bound(name, max);
        Self {
            name,
            max,
            shares: Arc::clone(shares),
            metrics,
            reported_refusals: 0,
            warned_refusals: 0,
            warned_at: None,
        }
    }

    fn report(&mut self, now: Instant) {
        let usage = self.shares.usage();
        self.metrics.used(usage.used);
        self.metrics.refused(usage.refused - std::mem::replace(&mut self.reported_refusals, usage.refused));
        let may_warn = self.warned_at.is_none_or(|warned_at| now.duration_since(warned_at) >= WARNING_INTERVAL);
        if usage.refused == self.warned_refusals || !may_warn {
            return;
        }
        let refused = usage.refused - std::mem::replace(&mut self.warned_refusals, usage.refused);
        self.warned_at = Some(now);
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
        bounds.iter_mut().for_each(|bound| bound.report(now));
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}
