//! Reports the use of the bounds on what clients may take of the proxy, such as its connections: in metrics, and in a
//! warning about each bound that has refused a client.
//!
//! A client's **share** is the part of a bound that the client has taken. A client is refused when the bound is used
//! up, or when its own share may not grow any more (see [`Shares`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::http::proxying::Shares;
use crate::observe::{BoundMetrics, Metrics};

/// The interval between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval between two warnings about a bound.
const WARNING_INTERVAL: Duration = Duration::from_secs(30);

/// A bound, and what was last reported of it.
pub struct Bound {
    /// The name of its setting.
    name: &'static str,
    max: usize,
    /// What each client has of it, and the number of refusals so far.
    shares: Arc<Shares>,
    metrics: BoundMetrics,
    /// The number of refusals at the last report.
    reported_refusals: u64,
    /// The number of refusals at the last warning.
    warned_refusals: u64,
    warned_at: Option<Instant>,
}

impl Bound {
    /// The bound `max`, from which clients take these shares; `name` is its setting.
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

    /// Updates the metrics. Warns if there were refusals since the last warning, at most once in [`WARNING_INTERVAL`].
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
        // The client with the largest share, and the size of that share.
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

/// Reports on these bounds until the task that runs this is aborted.
pub async fn watch(mut bounds: Vec<Bound>) {
    loop {
        let now = Instant::now();
        bounds.iter_mut().for_each(|bound| bound.report(now));
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}
