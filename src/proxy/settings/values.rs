//! Reads values of several keys: a choice of words, a duration, a size.

use std::time::Duration;

use crate::yaml::{Fields, Reader, units};

pub fn choice<T: Copy>(fields: &Fields<'_>, key: &str, choices: &[(&str, T)], reader: &mut Reader<'_>) -> Option<T> {
    fields.get(key).and_then(|field| reader.choice(field, choices)).map(|chosen| chosen.value)
}

pub fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

pub fn optional_duration(fields: &Fields<'_>, key: &str, reader: &mut Reader<'_>) -> Option<Duration> {
    fields.get(key).and_then(|field| reader.duration_ms(field)).map(|ms| millis(ms.value))
}

pub fn duration(fields: &Fields<'_>, key: &str, default_ms: u64, reader: &mut Reader<'_>) -> Duration {
    optional_duration(fields, key, reader).unwrap_or(Duration::from_millis(default_ms))
}

pub fn size(fields: &Fields<'_>, key: &str, (min, max): (u64, u64), reader: &mut Reader<'_>) -> Option<usize> {
    let parse = |text: &str| {
        let bytes = units::size_bytes(text).filter(|bytes| (min..=max).contains(bytes))?;
        usize::try_from(bytes).ok()
    };
    fields.get(key).and_then(|field| reader.parsed(field, parse)).map(|size| size.value)
}
