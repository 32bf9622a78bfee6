//! Converts a setting's text to its type.

use std::net::SocketAddr;
use std::path::PathBuf;

use tracing_subscriber::EnvFilter;

use crate::yaml::{Placed, Reader, Shape, Text, units};

use super::registry;
use super::setting::Setting;

/// A takeover waits for the transaction timeout at worst; a transaction must end well before that.
const COMMIT_INTERVAL_MS_MAX: i64 = 5_000;

/// A setting to convert.
pub struct Typed<'a, 'r> {
    /// The setting.
    pub setting: &'a Setting,
    /// Reports its mistakes.
    pub reader: &'a mut Reader<'r>,
}

impl Typed<'_, '_> {
    fn convert<T>(&mut self, what: &str, example: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let name = &self.setting.name;
        let example = format!("{name}: {example}");
        let converted = self.reader.convert(name, &self.setting.text, Shape { what, example: &example }, parse);
        converted.map(|placed: Placed<T>| placed.value)
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        let chosen = self.reader.choose(&self.setting.name, &self.setting.text, choices);
        chosen.map(|placed| placed.value)
    }

    /// A whole number within these bounds.
    pub fn integer<T>(&mut self, min: T, max: T, example: T) -> Option<T>
    where
        T: Copy + std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let what = format!("a whole number from {min} to {max}");
        let parse = |text: &str| text.parse().ok().filter(|value| (min..=max).contains(value));
        self.convert(&what, &example.to_string(), parse)
    }

    /// A number of bytes within these bounds.
    pub fn size(&mut self, min: u64, max: u64, example: &str) -> Option<u64> {
        let mut what = format!("a size of at least {}", units::show_size_bytes(min));
        if max < u64::MAX {
            what += &format!(", at most {}", units::show_size_bytes(max));
        }
        self.convert(&what, example, |text| units::size_bytes(text).filter(|bytes| (min..=max).contains(bytes)))
    }

    /// How long a transaction may last, in milliseconds.
    pub fn interval_ms(&mut self) -> Option<u64> {
        self.duration_ms(1, "200ms")
    }

    /// How far apart commits begin, in milliseconds.
    pub fn spacing_ms(&mut self) -> Option<u64> {
        self.duration_ms(0, "5ms")
    }

    /// A duration from this many milliseconds on, as long as a transaction may last at most.
    fn duration_ms(&mut self, min: i64, example: &str) -> Option<u64> {
        let [least, most] = [min, COMMIT_INTERVAL_MS_MAX].map(units::show_duration_ms);
        let what = format!("a duration with its unit, from {least} to {most}");
        let parse = |text: &str| units::duration_ms(text).filter(|ms| (min..=COMMIT_INTERVAL_MS_MAX).contains(ms));
        self.convert(&what, example, parse)?.try_into().ok()
    }

    /// A folder's path.
    pub fn path(&mut self, example: &str) -> Option<PathBuf> {
        self.convert("a folder's path, without `~`", example, without_tilde)
    }

    /// A file's path.
    pub fn file(&mut self, example: &str) -> Option<PathBuf> {
        self.convert("a file's path, without `~`", example, without_tilde)
    }

    /// Any text.
    pub fn text(&mut self) -> Text {
        self.setting.text.value.clone()
    }

    /// An HTTP address.
    pub fn address(&mut self, example: &str) -> Option<String> {
        let what = "an address that begins with http:// or https://, without a user";
        let is_one = |text: &str| registry::is_address(text) && !text.contains(',');
        self.convert(what, example, |text| is_one(text).then(|| text.to_owned()))
    }

    /// HTTP addresses, separated by commas.
    pub fn addresses(&mut self, example: &str) -> Option<Vec<String>> {
        let what = "an address that begins with http:// or https://, without a user, or several such addresses \
                    separated by commas";
        self.convert(what, example, |text| {
            text.split(',').map(str::trim).map(|one| registry::is_address(one).then(|| one.to_owned())).collect()
        })
    }

    /// How long a request may take, in milliseconds.
    pub fn answer_ms(&mut self, example: &str) -> Option<u64> {
        let parse = |text: &str| units::duration_ms(text).filter(|ms| (100..=300_000).contains(ms));
        self.convert("a duration with its unit, from 100ms to 5m", example, parse)?.try_into().ok()
    }

    /// An address, or `None` for `off`.
    pub fn http(&mut self) -> Option<Option<SocketAddr>> {
        let parse = |text: &str| if text == "off" { Some(None) } else { text.parse().ok().map(Some) };
        self.convert("an address and a port, or `off`", "127.0.0.1:9464", parse)
    }

    /// A level, or a filter.
    pub fn level(&mut self) -> Option<String> {
        let text: &Text = &self.setting.text.value;
        let is_filter = text.reveal().contains(['=', ',']);
        if !is_filter {
            let levels = ["error", "warn", "info", "debug", "trace"].map(|level| (level, level));
            return self.choice(&levels).map(str::to_owned);
        }
        let parse = |text: &str| EnvFilter::try_new(text).ok().map(|_| text.to_owned());
        self.convert("a level, or a filter", "info,ratchet::engine=debug", parse)
    }
}

/// A path as it is. A tilde would not be expanded, and the user does not want a file or folder of that name.
fn without_tilde(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && !text.starts_with('~')).then(|| PathBuf::from(text))
}
