//! The timing of a registry's client.

use std::time::Duration;

/// The pauses before requests are repeated.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The first pause after a failure.
    pub pause_min: Duration,
    /// The longest pause after a failure.
    pub pause_max: Duration,
    /// The pause before the registry is asked again for a schema that it does not have; the second pause is twice as
    /// long.
    pub absent_pause: Duration,
    /// How long a schema counts as absent before it is requested again.
    pub absent_for: Duration,
    /// How often known schemas are compared with those of the registry.
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
