//! Durations and sizes as people write them: `200ms`, `1h30m`, `30d`; `64MiB`, `2GB`. Exact, never a double.

use std::time::Duration;

/// Parses a duration into milliseconds: one or several numbers with `ms`, `s`, `m`, `h`, `d` or `w`, e.g. `1h30m`.
/// `None` if it is not one, or does not fit.
pub fn duration_ms(text: &str) -> Option<i64> {
    let mut total: i64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = leading_number(rest)?;
        let after = after.trim_start();
        let unit_length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_length);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        total = total.checked_add(i64::try_from(number).ok()?.checked_mul(unit_ms)?)?;
        rest = after.trim_start();
    }
    Some(total)
}

/// A duration as [`duration_ms`] reads it, in the largest unit that expresses it exactly.
pub fn show_duration_ms(ms: i64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let fitting = units.iter().find(|(_, unit_ms)| ms != 0 && ms % unit_ms == 0);
    fitting.map_or_else(|| format!("{ms}ms"), |(unit, unit_ms)| format!("{}{unit}", ms / unit_ms))
}

/// The same for a [`Duration`]; what is less than a millisecond is left out.
pub fn show_duration(duration: Duration) -> String {
    show_duration_ms(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// Parses a size into bytes: a whole number with `B`, `KB`, `MB`, `GB`, `TB` (1000s), `KiB`, `MiB`, `GiB`, `TiB`
/// (1024s), or without a unit, which means bytes; in upper or lower case. `None` if it is not one, or does not fit.
pub fn size_bytes(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text.trim())?;
    let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// A size as [`size_bytes`] reads it, in the largest 1024s unit that expresses it exactly.
pub fn show_size_bytes(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fitting = units.iter().find(|(_, unit)| bytes != 0 && bytes.is_multiple_of(*unit));
    fitting.map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// The digits at the front as a number, and what follows.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}
