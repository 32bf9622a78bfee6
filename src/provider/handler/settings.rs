//! The settings of a handler: how long its steps may take, how many run at once, and the database of their
//! transactions.

use std::time::Duration;

use crate::effect::call::KeyWindow;
use crate::postgres::steps::Database;
use crate::provider::http::WallClock;

/// How handlers are run.
#[derive(Clone)]
pub struct Settings {
    /// How long the systems that steps call honour the steps' keys, by which they recognise repetitions; `None` if they
    /// honour no keys.
    pub key_window: Option<KeyWindow>,
    /// How long a step may take, together with the function's own work before and after it.
    pub timeout: Duration,
    /// The most runs of the function at once, in each lane (one of the worker's threads that process records).
    pub in_flight: usize,
    /// The most runs of the function that a lane begins in a second. A burst has at most a tenth of that number, or one
    /// run if that is more.
    pub rate: Option<f64>,
    /// The most bytes of a reply that are kept; `None` if replies are not wanted.
    pub reply_bytes_max: Option<usize>,
    /// The database of steps' transactions; `None` if steps have no transactions.
    pub database: Option<Database>,
    /// The wall clock.
    pub clock: WallClock,
}
