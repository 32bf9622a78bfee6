//! The settings of a handler: how long its steps may take, how many run at once, where their transactions are.

use std::time::Duration;

use crate::effect::call::KeyWindow;
use crate::effect::http::WallClock;
use crate::effect::postgres::steps::Database;

/// How handlers are run.
#[derive(Clone)]
pub struct Settings {
    /// How long the providers that a step calls honour its key; `None` if they honour no keys.
    pub window: Option<KeyWindow>,
    /// How long a step may take, together with the function's own work around it.
    pub timeout: Duration,
    /// The most functions of a lane that run at once.
    pub in_flight: usize,
    /// The most functions of a lane that begin in a second, and at most a tenth of that at once.
    pub rate: Option<f64>,
    /// The most bytes of a reply that are kept; `None` if replies are not wanted.
    pub result_max: Option<usize>,
    /// The database of steps' transactions; `None` if steps have no transactions.
    pub database: Option<Database>,
    /// The wall clock.
    pub clock: WallClock,
}
