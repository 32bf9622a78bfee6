//! A setting: a row of the tables of settings.

use super::draft::Draft;
use super::typed::Typed;
use super::worker::Config;
use crate::yaml::keys::Omitted;

/// A setting.
pub struct Key {
    /// Its name, e.g. `commit.interval`.
    pub name: &'static str,
    /// Its value if it is not set.
    pub default: Omitted,
    /// What it means, in Markdown.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test writes it into the documentation's table"))]
    pub about: &'static str,
    /// Reads it. A mistake is reported, and keeps the previous value.
    pub put: fn(&mut Draft, &mut Typed<'_, '_>),
    /// Its value as text; `None` if it is not in use.
    pub show: fn(&Config) -> Option<String>,
}

/// Sets the value; without one, which was reported as a mistake, keeps the previous value.
pub fn put<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}
