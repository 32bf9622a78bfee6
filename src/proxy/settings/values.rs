//! Reads values of types that several keys have: a choice of words, a duration, a size.
//!
//! `None` means that the key is absent, or that its value is wrong; a wrong value is also reported to the reader.

use std::time::Duration;

use crate::yaml::{Fields, Reader, units};

/// The value of `key`: one of the words in `choices`, as the `T` beside it.
pub fn choice<T: Copy>(fields: &Fields<'_>, key: &str, choices: &[(&str, T)], reader: &mut Reader<'_>) -> Option<T> {
    fields.get(key).and_then(|field| reader.choice(field, choices)).map(|chosen| chosen.value)
}

/// A duration of `ms` milliseconds, which was read from a file and so is above zero.
pub fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

/// The value of `key`, a duration above zero.
pub fn optional_duration(fields: &Fields<'_>, key: &str, reader: &mut Reader<'_>) -> Option<Duration> {
    fields.get(key).and_then(|field| reader.duration_ms(field)).map(|ms| millis(ms.value))
}

/// The value of `key`, a duration above zero; `default_ms` if the key is absent or its value is wrong.
pub fn duration(fields: &Fields<'_>, key: &str, default_ms: u64, reader: &mut Reader<'_>) -> Duration {
    optional_duration(fields, key, reader).unwrap_or(Duration::from_millis(default_ms))
}

/// The value of `key`, a size from `min` to `max` bytes.
pub fn size(fields: &Fields<'_>, key: &str, (min, max): (u64, u64), reader: &mut Reader<'_>) -> Option<usize> {
    let parse = |text: &str| {
        let bytes = units::size_bytes(text).filter(|bytes| (min..=max).contains(bytes))?;
        usize::try_from(bytes).ok()
    };
    fields.get(key).and_then(|field| reader.parsed(field, parse)).map(|size| size.value)
}
