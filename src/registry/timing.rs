//! The times of a registry's client.

use std::time::Duration;

/// When things are done again.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The first pause after a failure.
    pub pause_min: Duration,
    /// The longest pause after a failure.
    pub pause_max: Duration,
    /// The first pause before an absent schema is asked for again, at first; the second one is twice as long.
    pub absent_pause: Duration,
    /// How long a schema counts as absent.
    pub absent_for: Duration,
    /// How often schemas that are known are compared with what the registry has.
    pub compare: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            pause_min: Duration::from_millis(500),
            pause_max: Duration::from_secs(30),
            absent_pause: Duration::from_secs(1),
            absent_for: Duration::from_secs(60),
            compare: Duration::from_secs(3600),
        }
    }
}
