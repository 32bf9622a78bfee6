//! Formats figures for the page.

use crate::stats::Spread;

/// The median, with minimum and maximum if there are several figures.
pub fn with_range(spread: Spread, write: impl Fn(f64) -> String) -> String {
    let (middle, low, high) = (write(spread.median), write(spread.low), write(spread.high));
    if low == high { middle } else { format!("{middle} ({low} to {high})") }
}

/// A number with thousands separators.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with one decimal.
pub fn one(number: f64) -> String {
    format!("{number:.1}")
}

/// A number with two decimals.
pub fn two(number: f64) -> String {
    format!("{number:.2}")
}

/// Microseconds as milliseconds.
pub fn milliseconds(us: f64) -> String {
    let ms = us / 1000.0;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}
