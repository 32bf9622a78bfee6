//! The terms of calls: how a topology that calls makes them, whomever it calls, and what becomes of them.
//!
//! What becomes of one call is decided by [`crate::effect::call`], by their [`Policy`].

use std::fmt;
use std::time::Duration;

use crate::dedup::{Action, Kind};
use crate::effect::call::Policy;

pub(in crate::topology) mod compile;
pub(in crate::topology) mod keys;
pub(in crate::topology) mod spec;

/// How many calls of a lane can be under way at most.
pub const IN_FLIGHT_MAX: usize = 1024;
/// The largest result that is kept, in bytes; of a larger one, the digest is.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// How calls are made, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long an attempt may take.
    pub timeout: Duration,
    /// How many calls of a lane are under way at most.
    pub in_flight: usize,
    /// How many calls of a lane are begun in a time at most.
    pub rate: Option<Rate>,
    /// How calls are made.
    pub policy: Policy,
    /// The action for a record that the provider, or ratchet before it, refuses: also for one that no request can be
    /// made of.
    pub on_rejected: Action,
    /// What becomes of a record that asks for something else under a key that was used.
    pub on_conflict: Action,
    /// Where what was answered goes.
    pub result: Option<Results>,
    /// What a duplicate gets.
    pub on_duplicate: OnDuplicate,
}

impl Terms {
    /// Whether a record of this kind makes a call. One that does not is remembered, and has no effect: a tombstone has no
    /// version of its own, so its call would have the key of the delete before it.
    pub const fn is_called_by(kind: Kind) -> bool {
        !matches!(kind, Kind::Tombstone)
    }
}

/// How many calls are begun in a time at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least 1.
    pub calls: u32,
    /// In what time.
    pub per: Duration,
}

impl Rate {
    const UNITS: &[(&str, Duration)] =
        &[("s", Duration::from_secs(1)), ("m", Duration::from_secs(60)), ("h", Duration::from_secs(3_600))];

    /// Reads `100/s`, `30/m` or `1000/h`; `None` if it is none of these.
    pub fn parse(text: &str) -> Option<Self> {
        let (calls, unit) = text.split_once('/')?;
        let (_, per) = Self::UNITS.iter().find(|(known, _)| *known == unit.trim())?;
        let calls = calls.trim_end();
        let is_number = !calls.is_empty() && calls.bytes().all(|byte| byte.is_ascii_digit());
        let calls: u32 = is_number.then(|| calls.parse().ok())?.filter(|calls| *calls > 0)?;
        Some(Self { calls, per: *per })
    }

    /// How many that are in a second.
    pub fn per_second(self) -> f64 {
        f64::from(self.calls) / self.per.as_secs_f64()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = Self::UNITS.iter().find(|(_, per)| *per == self.per).map_or("", |(unit, _)| unit);
        write!(f, "{}/{unit}", self.calls)
    }
}

/// Where what was answered goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// The topic.
    pub topic: String,
    /// The largest that is kept, in bytes, at most [`RESULT_BYTES_MAX`]; of a larger one, the digest is.
    pub max: usize,
}

/// What a duplicate gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDuplicate {
    /// Nothing.
    Drop,
    /// The result that the first one got.
    Result,
}

impl OnDuplicate {
    /// Both of them.
    pub const ALL: &[OnDuplicate] = &[OnDuplicate::Drop, OnDuplicate::Result];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Result => "result",
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a rate is read as it is written, and as nothing else.

    use super::*;

    #[test]
    fn rates_are_read_and_shown() {
        for (text, calls, seconds) in [("100/s", 100, 1), ("30/m", 30, 60), ("1000/h", 1000, 3_600), ("5 / s", 5, 1)] {
            let rate = Rate::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(rate, Rate { calls, per: Duration::from_secs(seconds) }, "{text}");
            assert_eq!(Rate::parse(&rate.to_string()), Some(rate));
        }
        for text in ["", "100", "/s", "0/s", "-1/s", "+1/s", "1.5/s", "100/d", "100/", "s/100", "99999999999/s"] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }
}
