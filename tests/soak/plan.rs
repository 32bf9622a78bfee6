//! How long the soak takes, and how much of everything there is.

use std::time::Duration;

/// What a soak is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    pub duration: Duration,
    /// Records written a second, over all partitions.
    pub rate: u64,
}

/// Partitions of the input.
pub const PARTITIONS: i32 = 6;
/// Things that the load is about: each comes back often, as a duplicate, late or newer. Bounded, so that the state is.
pub const IDENTITIES: usize = 20_000;
/// Instances at work: the first is never harmed, so that what grows in a process can be seen.
pub const INSTANCES_MIN: usize = 2;
pub const INSTANCES_MAX: usize = 5;
/// What each instance is given, the setting `memory`.
pub const MEMORY_BYTES: u64 = 256 << 20;

const RATE: u64 = 500;

impl Plan {
    /// From `HOURS` and `RATE`.
    pub fn from_environment() -> Result<Plan, String> {
        let hours: f64 = read("HOURS", 1.0)?;
        let rate = read("RATE", RATE)?;
        if !(0.001..=1000.0).contains(&hours) || rate == 0 {
            return Err(format!("HOURS={hours} RATE={rate}: hours are above 0, fractions allowed, and so is the rate"));
        }
        Ok(Plan { duration: Duration::from_secs_f64(hours * 3600.0), rate })
    }
}

fn read<T: std::str::FromStr>(name: &str, usual: T) -> Result<T, String> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().map_err(|_| format!("{name}={text:?} is no number")),
        _ => Ok(usual),
    }
}
