//! Honest statistics for few samples: the median with minimum and maximum.

use serde::{Deserialize, Serialize};

/// A median and its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median; for an even number of samples, the mean of the two in the middle.
    pub median: f64,
    /// The minimum.
    pub low: f64,
    /// The maximum.
    pub high: f64,
}

impl Spread {
    /// The spread of these samples, `None` if there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut samples: Vec<f64> = samples.into_iter().filter(|sample| sample.is_finite()).collect();
        samples.sort_by(f64::total_cmp);
        let (low, high) = (*samples.first()?, *samples.last()?);
        let half = samples.len() / 2;
        let median =
            if samples.len() % 2 == 1 { samples[half] } else { f64::midpoint(samples[half - 1], samples[half]) };
        Some(Spread { median, low, high })
    }
}
