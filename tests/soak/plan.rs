//! How long the soak takes, and how much of everything there is.

use std::time::Duration;

/// Length and load of a soak.
#[derive(Clone, Debug)]
pub struct Plan {
    pub duration: Duration,
    /// Records written a second, over all partitions.
    pub rate: u64,
}

/// Partitions of the input.
pub const PARTITIONS: i32 = 6;
/// How many things the load is about: each comes up often, as a duplicate, older or newer. Bounded, and so is the
/// state.
pub const IDENTITIES: usize = 20_000;
/// How many instances are at work: the first is never harmed, so that growth within a process can be seen.
pub const INSTANCES_MIN: usize = 2;
pub const INSTANCES_MAX: usize = 5;
/// The setting `memory` of each instance.
pub const MEMORY_BYTES: u64 = 256 << 20;

const RATE: u64 = 500;

impl Plan {
    /// From `HOURS` and `RATE`.
    pub fn from_environment() -> Result<Plan, String> {
        let hours: f64 = read("HOURS", 1.0)?;
        let rate = read("RATE", RATE)?;
        if !(0.001..=1000.0).contains(&hours) || rate == 0 {
            return Err(format!("HOURS={hours} RATE={rate}: both must be above 0; hours may be fractions"));
        }
        Ok(Plan { duration: Duration::from_secs_f64(hours * 3600.0), rate })
    }
}

fn read<T: std::str::FromStr>(name: &str, usual: T) -> Result<T, String> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().map_err(|_| format!("{name}={text:?} is not a number")),
        _ => Ok(usual),
    }
}
