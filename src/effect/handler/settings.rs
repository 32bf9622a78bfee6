//! The settings of a handler: how long its steps may take, how many run at once, where their transactions are.

use std::time::Duration;

use crate::effect::call::KeyWindow;
use crate::effect::http::WallClock;
use crate::effect::postgres::steps::Database;

/// How handlers are run.
#[derive(Clone)]
pub struct Settings {
    /// How long the providers that a step calls honour its key; `None` if they honour none.
    pub window: Option<KeyWindow>,
    /// How long a step may take, and what the function does around it.
    pub timeout: Duration,
    /// How many functions of a lane run at once, at most.
    pub in_flight: usize,
    /// How many functions of a lane begin in a second, at most; a tenth of that at once.
    pub rate: Option<f64>,
    /// Up to how many bytes of a reply are kept; `None` if nobody wants it.
    pub result_max: Option<usize>,
    /// The database of steps' transactions; `None` if steps have no transactions.
    pub database: Option<Database>,
    /// The wall clock.
    pub clock: WallClock,
}
