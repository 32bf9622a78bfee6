//! The settings as YAML, as they are in force. What is secret is `***`.

use std::collections::BTreeMap;
use std::fmt;

use crate::yaml::text::MASK;
use crate::yaml::{Text, units};

use super::{ClusterKind, Config, Create, LogFormat};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cluster {
            ClusterKind::Kafka => writeln!(f, "cluster: kafka")?,
            ClusterKind::Embedded { dir, partitions } => {
                writeln!(f, "cluster: embedded")?;
                writeln!(f, "embedded:")?;
                self.line(f, "  ", "embedded.dir", &dir.display())?;
                self.line(f, "  ", "embedded.partitions", partitions)?;
            }
        }
        writeln!(f, "kafka:")?;
        properties(f, "  ", &self.kafka.common)?;
        for (side, own) in [("consumer", &self.kafka.consumer), ("producer", &self.kafka.producer)] {
            if !own.is_empty() {
                writeln!(f, "  {side}:")?;
                properties(f, "    ", own)?;
            }
        }
        self.line(f, "", "state_dir", &self.state_dir.display())?;
        self.line(f, "", "lanes", &self.lanes)?;
        self.line(f, "", "memory", &units::show_size_bytes(self.memory_bytes))?;
        self.line(f, "", "unpacked", &units::show_size_bytes(self.unpacked_bytes))?;
        writeln!(f, "commit:")?;
        let interval_ms = i64::try_from(self.commit.interval_ms).unwrap_or(i64::MAX);
        self.line(f, "  ", "commit.interval", &units::show_duration_ms(interval_ms))?;
        self.line(f, "  ", "commit.records", &self.commit.records_max)?;
        self.line(f, "  ", "commit.bytes", &units::show_size_bytes(self.commit.bytes_max as u64))?;
        match self.http {
            Some(address) => self.line(f, "", "http", &address)?,
            None => self.line(f, "", "http", &"off")?,
        }
        writeln!(f, "topics:")?;
        self.line(f, "  ", "topics.create", &self.topics.create.as_str())?;
        self.line(f, "  ", "topics.replication_factor", &self.topics.replication_factor)?;
        self.line(f, "  ", "topics.min_insync_replicas", &self.topics.min_insync_replicas)?;
        writeln!(f, "log:")?;
        self.line(f, "  ", "log.format", &self.log.format.as_str())?;
        self.line(f, "  ", "log.level", &self.log.level)
    }
}

/// As `Display`, so that no dump shows a secret.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Config {
    fn line(&self, f: &mut fmt::Formatter<'_>, indent: &str, name: &str, value: &dyn fmt::Display) -> fmt::Result {
        let key = name.rsplit('.').next().unwrap_or(name);
        if self.secrets.contains(name) {
            return writeln!(f, "{indent}{key}: {MASK}");
        }
        writeln!(f, "{indent}{key}: {value}")
    }
}

fn properties(f: &mut fmt::Formatter<'_>, indent: &str, properties: &BTreeMap<String, Text>) -> fmt::Result {
    properties.iter().try_for_each(|(name, text)| writeln!(f, "{indent}{name}: {text}"))
}

impl Create {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::All => "all",
            Self::None => "none",
        }
    }
}

impl LogFormat {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
