//! The effective settings as YAML. Secrets are shown as `***`.

use std::collections::BTreeMap;
use std::fmt;

use crate::yaml::Text;
use crate::yaml::text::MASK;

use super::key::Key;
use super::keys;
use super::registry;
use super::worker::Config;

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings(f, keys::CLUSTER)?;
        writeln!(f, "kafka:")?;
        properties(f, "  ", &self.kafka.common)?;
        for (side, own) in [("consumer", &self.kafka.consumer), ("producer", &self.kafka.producer)] {
            if !own.is_empty() {
                writeln!(f, "  {side}:")?;
                properties(f, "    ", own)?;
            }
        }
        self.settings(f, keys::WORKER)?;
        self.settings(f, registry::KEYS)
    }
}

/// Like `Display`, so that no dump shows a secret.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Config {
    /// Writes these settings; those of one section must be adjacent.
    fn settings(&self, f: &mut fmt::Formatter<'_>, keys: &[Key]) -> fmt::Result {
        let mut section = "";
        for key in keys {
            let Some(value) = (key.show)(self) else { continue };
            let value = if self.secrets.contains(key.name) { MASK.to_owned() } else { value };
            match key.name.split_once('.') {
                None => writeln!(f, "{}: {value}", key.name)?,
                Some((of, name)) => {
                    if of != section {
                        writeln!(f, "{of}:")?;
                        section = of;
                    }
                    writeln!(f, "  {name}: {value}")?;
                }
            }
        }
        Ok(())
    }
}

fn properties(f: &mut fmt::Formatter<'_>, indent: &str, properties: &BTreeMap<String, Text>) -> fmt::Result {
    properties.iter().try_for_each(|(name, text)| writeln!(f, "{indent}{name}: {text}"))
}
