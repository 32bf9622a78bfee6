//! Reads the values of properties as librdkafka does: of several names of a property the last one counts, an empty
//! value counts as unset, and numbers are decimal. Values that need librdkafka's leniency (octal numbers, text after a
//! number) are left to librdkafka: the wire (ratchet's own client) does not support them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::super::oauth::Source;
use super::super::super::properties::Properties;
use super::super::super::unsupported::Unsupported;
use super::table::{Class, look_up};
use crate::cluster::Contact;

/// The values of the properties that are set. No `Debug`: they may be secrets.
pub(super) struct Values<'a> {
    values: BTreeMap<&'static str, Value<'a>>,
    token_source: Option<&'a Arc<Source>>,
    contact: &'a Arc<Contact>,
}

#[derive(Clone, Copy)]
struct Value<'a> {
    /// The name by which the property was set.
    name: &'a str,
    text: &'a str,
    class: Class,
    is_set_by_user: bool,
}

impl<'a> Values<'a> {
    /// Reads these properties; an error if one of them is unknown to the wire.
    pub fn new(properties: &'a Properties) -> Result<Self, Unsupported> {
        let mut values = BTreeMap::new();
        for (name, text) in properties.iter() {
            let known = look_up(name);
            let (key, class) = known.ok_or_else(|| Unsupported::new(name, "the wire does not support it"))?;
            // librdkafka removes leading white space.
            let text = text.trim_ascii_start();
            match text.is_empty() {
                true => values.remove(key),
                false => {
                    values.insert(key, Value { name, text, class, is_set_by_user: properties.is_set_by_user(name) })
                }
            };
        }
        Ok(Self { values, token_source: properties.token_source(), contact: properties.contact() })
    }

    /// Checks that the wire supports all properties as they are set.
    pub fn check(&self, speaks_tls: bool) -> Result<(), Unsupported> {
        for Value { name, text, class, .. } in self.values.values() {
            let why = match class {
                Class::Applied | Class::Irrelevant => None,
                Class::Fixed(texts, _) if texts.iter().any(|fixed| fixed.eq_ignore_ascii_case(text)) => None,
                Class::TlsFallback(_) if !speaks_tls => None,
                Class::Fixed(_, why) | Class::Fallback(why) | Class::TlsFallback(why) => Some(*why),
            };
            if let Some(why) = why {
                return Err(Unsupported::new(name, why));
            }
        }
        Ok(())
    }

    /// What this process knows about the brokers' availability.
    pub fn contact(&self) -> &'a Arc<Contact> {
        self.contact
    }

    /// The source of tokens, if the properties request any.
    pub fn token_source(&self) -> Option<&'a Arc<Source>> {
        self.token_source
    }

    /// The value of the property with this key: see [`look_up`].
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).map(|value| value.text)
    }

    /// The value as one of these words, in lower case.
    pub fn word(&self, key: &str, words: &[&'static str], default: &'static str) -> Result<&'static str, Unsupported> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let found = words.iter().find(|word| word.eq_ignore_ascii_case(text));
        found.copied().ok_or_else(|| self.unsupported(key, "the wire does not support its value"))
    }

    /// Whether the property with this key was set by the user.
    pub fn is_set_by_user(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| value.is_set_by_user)
    }

    /// The value as a boolean.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, Unsupported> {
        let word = self.word(key, &["true", "t", "1", "false", "f", "0"], if default { "true" } else { "false" })?;
        Ok(matches!(word, "true" | "t" | "1"))
    }

    /// The value as a whole number in the range of C's `int`.
    pub fn number(&self, key: &str, default: i32) -> Result<i32, Unsupported> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let digits = text.trim_start_matches('-');
        // With a leading zero, librdkafka reads it as octal.
        let is_plain = digits == "0" || !digits.starts_with('0');
        let number = text.parse().ok().filter(|_| is_plain);
        number.ok_or_else(|| self.unsupported(key, "it is not a plain number"))
    }

    /// The value as a number of bytes or records.
    pub fn count(&self, key: &str, default: usize) -> Result<usize, Unsupported> {
        if self.text(key).is_none() {
            return Ok(default);
        }
        self.number(key, 0).map(|number| usize::try_from(number).unwrap_or(0))
    }

    /// The value as whole milliseconds.
    pub fn millis(&self, key: &str, default_ms: u64) -> Result<Duration, Unsupported> {
        let ms = match self.text(key) {
            Some(_) => u64::try_from(self.number(key, 0)?).unwrap_or(0),
            None => default_ms,
        };
        Ok(Duration::from_millis(ms))
    }

    /// The value as milliseconds with decimals.
    pub fn fractional_millis(&self, key: &str, default_ms: u64) -> Result<Duration, Unsupported> {
        let Some(text) = self.text(key) else { return Ok(Duration::from_millis(default_ms)) };
        let seconds = text.parse().map(|ms: f64| ms / 1e3).map(Duration::try_from_secs_f64);
        match seconds {
            Ok(Ok(duration)) => Ok(duration),
            _ => Err(self.unsupported(key, "it is not a plain number")),
        }
    }

    /// The error that the wire does not support this property as it is set, with the name by which it was set.
    pub fn unsupported(&self, key: &str, why: &'static str) -> Unsupported {
        Unsupported::new(self.values.get(key).map_or(key, |value| value.name), why)
    }
}
