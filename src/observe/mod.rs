//! What people and machines see of a running job: metrics, health and logs.
//!
//! - [`Metrics`]: counters, gauges and histograms, rendered in Prometheus' text format
//! - [`Health`]: which lanes have joined and which tasks are being restored for the first time
//! - [`http`]: serves both over HTTP, in its own thread
//! - [`logs`]: one line per event to standard error, as text or JSON
//! - [`pace`]: the rate of long work, and the time that it still takes
//!
//! Invariants: nothing here can hold up a lane (no call waits for the network or a client), no
//! label takes its values from records, and no secret is ever shown: this room is never given one.

pub mod health;
pub mod http;
pub mod logs;
pub mod metrics;
pub mod pace;

pub use health::{Check, Health};
pub use metrics::{
    Asked, BoundMetrics, BrokersSeen, CallMetrics, GateMetrics, KeptSeries, LaneMetrics, LongWork, Metrics,
    OneConnection, OneRequest, Outcomes, Phase, RouteMetrics, SchemaMetrics, Settled, SinkMetrics, StoreMetrics,
    TaskMetrics, TransactionResult, Work,
};
pub use pace::Pace;
