//! From the layers' settings to the [`Config`]: each by its name to its type, then what they mean together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;

use crate::yaml::read::did_you_mean;
use crate::yaml::{Environment, File, Placed, Reader, Report, Shape, Text, units};

use super::kafka::{self, KafkaProperties};
use super::layers::{Said, Setting};
use super::{ClusterKind, Commit, Config, Create, Log, LogFormat, Takes, Topics, machine};

/// Every setting's name, but for the properties below `kafka`.
pub const NAMES: &[&str] = &[
    "cluster",
    "embedded.dir",
    "embedded.partitions",
    "state_dir",
    "lanes",
    "memory",
    "unpacked",
    "commit.interval",
    "commit.records",
    "commit.bytes",
    "http",
    "topics.create",
    "topics.replication_factor",
    "topics.min_insync_replicas",
    "log.format",
    "log.level",
];

/// Where Kafka is.
pub const BROKERS: &str = "kafka.bootstrap.servers";
/// The same by librdkafka's other name for it.
const BROKERS_TOO: &str = "kafka.metadata.broker.list";
/// Lanes that are taken by themselves.
const LANES_DEFAULT_MAX: usize = 4;
const LANES_MAX: usize = 64;
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// A record that may be as large has to come through.
const UNPACKED_BYTES_MIN: u64 = 20 << 20;
/// An ordinary batch has room, with what its records take beside their bytes: a mebibyte, Kafka's limit, by fifty.
const UNPACKED_BYTES_DEFAULT_MIN: u64 = 128 << 20;
/// Such a part of the memory, if that is more.
const UNPACKED_PARTS: u64 = 4;
/// A takeover waits for the transaction timeout at worst; a transaction must end well before it.
const COMMIT_INTERVAL_MS_MAX: i64 = 5_000;
const COMMIT_RECORDS_MAX: usize = 10_000_000;
const COMMIT_BYTES_MAX: usize = 1 << 30;
const PARTITIONS_MAX: i32 = 1_000;
/// Kafka's own type for it.
const REPLICAS_MAX: i32 = i16::MAX as i32;

/// Whether settings stand below this name.
pub fn is_section(name: &str) -> bool {
    let sides = ["kafka", "kafka.consumer", "kafka.producer"];
    sides.contains(&name)
        || NAMES.iter().any(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// The settings being put together.
struct Draft {
    config: Config,
    /// `None` where what was said of it is a mistake.
    embedded: Option<bool>,
    embedded_dir: PathBuf,
    embedded_partitions: i32,
    /// `None` where it follows the memory.
    unpacked_bytes: Option<u64>,
}

/// The config that these settings make; `None` if that could not be said, which is reported.
pub fn resolve(said: &Said, environment: &dyn Environment, takes: Takes<'_>, report: &mut Report) -> Option<Config> {
    let mut draft = Draft {
        config: defaults(environment),
        embedded: Some(false),
        embedded_dir: PathBuf::from("ratchet-topics"),
        embedded_partitions: 4,
        unpacked_bytes: None,
    };
    for setting in &said.settings {
        let mut reader = Reader { file: Arc::clone(&setting.file), environment, report };
        match setting.name.strip_prefix("kafka.") {
            Some(property) => apply_property(&mut draft.config.kafka, property, setting, &mut reader),
            None => {
                apply(&mut draft, setting, &mut reader);
                if setting.text.value.is_secret() {
                    draft.config.secrets.insert(setting.name.clone());
                } else {
                    draft.config.secrets.remove(&setting.name);
                }
            }
        }
    }
    check_together(&draft, said, takes, report);
    let Draft { mut config, embedded, embedded_dir: dir, embedded_partitions: partitions, unpacked_bytes } = draft;
    config.unpacked_bytes = unpacked_bytes.unwrap_or_else(|| unpacked_default_bytes(config.memory_bytes));
    if embedded == Some(true) {
        config.cluster = ClusterKind::Embedded { dir, partitions };
    }
    report.is_fine().then_some(config)
}

/// What compressed batches may unpack to, where it is not said.
fn unpacked_default_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / UNPACKED_PARTS).max(UNPACKED_BYTES_DEFAULT_MIN)
}

fn defaults(environment: &dyn Environment) -> Config {
    Config {
        cluster: ClusterKind::Kafka,
        kafka: KafkaProperties::default(),
        state_dir: PathBuf::from("ratchet-state"),
        lanes: environment.cores().clamp(1, LANES_DEFAULT_MAX),
        unpacked_bytes: 0,
        memory_bytes: (machine::memory_bytes(environment) / 2).max(MEMORY_BYTES_MIN),
        commit: Commit { interval_ms: 200, records_max: 100_000, bytes_max: 64 << 20 },
        http: Some(SocketAddr::from(([127, 0, 0, 1], 9464))),
        topics: Topics { create: Create::Internal, replication_factor: 3, min_insync_replicas: 2 },
        log: Log { format: LogFormat::Text, level: "info".to_owned() },
        warnings: Vec::new(),
        secrets: BTreeSet::new(),
    }
}

/// Puts one setting where it belongs.
fn apply(draft: &mut Draft, setting: &Setting, reader: &mut Reader<'_>) {
    let mut typed = Typed { setting, reader };
    let config = &mut draft.config;
    match setting.name.as_str() {
        "cluster" => draft.embedded = typed.choice(&[("kafka", false), ("embedded", true)]),
        "embedded.dir" => put(&mut draft.embedded_dir, typed.path("ratchet-topics")),
        "embedded.partitions" => put(&mut draft.embedded_partitions, typed.integer(1, PARTITIONS_MAX, 4)),
        "state_dir" => put(&mut config.state_dir, typed.path("/var/lib/ratchet")),
        "lanes" => put(&mut config.lanes, typed.integer(1, LANES_MAX, 2)),
        "memory" => put(&mut config.memory_bytes, typed.size(MEMORY_BYTES_MIN, u64::MAX, "512MiB")),
        "unpacked" => {
            put(&mut draft.unpacked_bytes, typed.size(UNPACKED_BYTES_MIN, u64::MAX, "256MiB").map(Some));
        }
        "commit.interval" => put(&mut config.commit.interval_ms, typed.interval_ms()),
        "commit.records" => put(&mut config.commit.records_max, typed.integer(1, COMMIT_RECORDS_MAX, 100_000)),
        "commit.bytes" => {
            let size = typed.size(1 << 10, COMMIT_BYTES_MAX as u64, "64MiB");
            put(&mut config.commit.bytes_max, size.and_then(|bytes| usize::try_from(bytes).ok()));
        }
        "http" => put(&mut config.http, typed.http()),
        "topics.create" => {
            let choices = [("internal", Create::Internal), ("all", Create::All), ("none", Create::None)];
            put(&mut config.topics.create, typed.choice(&choices));
        }
        "topics.replication_factor" => put(&mut config.topics.replication_factor, typed.integer(1, REPLICAS_MAX, 3)),
        "topics.min_insync_replicas" => put(&mut config.topics.min_insync_replicas, typed.integer(1, REPLICAS_MAX, 2)),
        "log.format" => {
            put(&mut config.log.format, typed.choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]))
        }
        "log.level" => put(&mut config.log.level, typed.level()),
        // The layers let only known names through; the tests go through all of them.
        other => unreachable!("no setting is named {other}"),
    }
}

/// Keeps the value before where there is none: its mistake is reported.
fn put<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

/// Puts a property on its side, unless it is ratchet's own.
fn apply_property(properties: &mut KafkaProperties, name: &str, setting: &Setting, reader: &mut Reader<'_>) {
    let (side, property) = match name.split_once('.') {
        Some(("consumer", property)) => (&mut properties.consumer, property),
        Some(("producer", property)) => (&mut properties.producer, property),
        _ => (&mut properties.common, name),
    };
    if let Some(reason) = kafka::owned_reason(property) {
        let message = format!("ratchet sets `{property}` itself: {reason}");
        reader.mistake(setting.text.place, message, "not yours to set", "remove it");
        return;
    }
    side.insert(property.to_owned(), setting.text.value.clone());
}

/// What the settings mean together.
fn check_together(draft: &Draft, said: &Said, takes: Takes<'_>, report: &mut Report) {
    let last = |name: &str| said.last(name);
    let topics = &draft.config.topics;
    if topics.min_insync_replicas > topics.replication_factor {
        let given = last("topics.replication_factor").or_else(|| last("topics.min_insync_replicas"));
        if let Some(setting) = given {
            let message = format!(
                "`topics.min_insync_replicas` is {}, more than `topics.replication_factor`, which is {}",
                topics.min_insync_replicas, topics.replication_factor
            );
            let help = "nothing could be written: set `topics.min_insync_replicas` to the same or less";
            report.mistake((&setting.file, setting.text.place), message, "here", help);
        }
    }
    if draft.embedded == Some(false) {
        let told = check_brokers(draft, said, report);
        let masked = Masked::new(said);
        check_properties(said, &masked, told, takes, report);
        check_transactions(&draft.config, said, &masked, report);
    }
}

/// What the settings stand in, without the values of any property: one whose name is mistyped may be a secret, and is
/// known to be none of the others only now.
struct Masked {
    files: Vec<(Arc<File>, Arc<File>)>,
}

impl Masked {
    fn new(said: &Said) -> Self {
        let mut files: Vec<(Arc<File>, Arc<File>)> = Vec::new();
        for Setting { file, .. } in &said.settings {
            if files.iter().any(|(known, _)| Arc::ptr_eq(known, file)) {
                continue;
            }
            let within = said.settings.iter().filter(|setting| Arc::ptr_eq(&setting.file, file));
            let properties = within.filter(|setting| setting.name.starts_with("kafka."));
            let places: Vec<_> = properties.map(|setting| setting.text.place).collect();
            files.push((Arc::clone(file), Arc::new(file.masked(&places))));
        }
        Self { files }
    }

    /// What this setting stands in.
    fn of<'a>(&'a self, setting: &'a Setting) -> &'a Arc<File> {
        let known = self.files.iter().find(|(known, _)| Arc::ptr_eq(known, &setting.file));
        known.map_or(&setting.file, |(_, masked)| masked)
    }
}

/// Whether each property is one that is taken, unless it was told already that it is not.
fn check_properties(said: &Said, masked: &Masked, told: Option<&Setting>, takes: Takes<'_>, report: &mut Report) {
    for setting in &said.settings {
        let Some(property) = setting.name.strip_prefix("kafka.") else { continue };
        let property =
            ["consumer.", "producer."].iter().find_map(|side| property.strip_prefix(side)).unwrap_or(property);
        let is_last = said.last(&setting.name).is_some_and(|last| std::ptr::eq(last, setting));
        let is_told = told.is_some_and(|told| told.name == setting.name) || kafka::owned_reason(property).is_some();
        if !is_last || is_told {
            continue;
        }
        if let Err(words) = takes(property, setting.text.value.reveal()) {
            let at = (masked.of(setting), setting.name_place);
            report.mistake(at, words, "not taken by librdkafka", "correct it, or remove it");
        }
    }
}

/// Whether a transaction ends by itself before the broker ends it.
fn check_transactions(config: &Config, said: &Said, masked: &Masked, report: &mut Report) {
    let named = ["kafka.producer.transaction.timeout.ms", "kafka.transaction.timeout.ms"];
    let Some(timeout) = named.iter().find_map(|name| said.last(name)) else { return };
    // what is no number is told by whoever takes it
    let Ok(timeout_ms) = timeout.text.value.reveal().trim().parse::<u64>() else { return };
    let interval_ms = config.commit.interval_ms;
    if timeout_ms / 2 >= interval_ms {
        return;
    }
    let show = |ms: u64| units::show_duration_ms(i64::try_from(ms).unwrap_or(i64::MAX));
    let after = if timeout.text.value.is_secret() { String::new() } else { format!(", after {}", show(timeout_ms)) };
    let given = said.last("commit.interval").unwrap_or(timeout);
    let at = (masked.of(given), given.text.place);
    let interval = show(interval_ms);
    let help = format!("raise `transaction.timeout.ms` to {} or more, or lower `commit.interval`", interval_ms * 2);
    if timeout_ms <= interval_ms {
        let message = format!(
            "a transaction lasts for `commit.interval`, which is {interval}, and the broker ends it before{after}: \
             `transaction.timeout.ms`"
        );
        report.mistake(at, message, "it would never be committed under load", help);
    } else {
        let message = format!(
            "`commit.interval` is {interval}, and the broker ends a transaction{after} (`transaction.timeout.ms`): there is \
             little time to commit it"
        );
        report.warning(at, message, "more than half of that time", help);
    }
}

/// Whether it is said where Kafka is; the property that was probably meant to, where that was told. Where a mistake that
/// was told hides it, it is not said to be missing, too.
fn check_brokers<'s>(draft: &Draft, said: &'s Said, report: &mut Report) -> Option<&'s Setting> {
    let names = [BROKERS, BROKERS_TOO].map(|name| name.strip_prefix("kafka.").unwrap_or(name));
    let properties = &draft.config.kafka.common;
    let is_given = names.iter().any(|name| properties.contains_key(*name));
    if is_given || [BROKERS, BROKERS_TOO, "cluster"].iter().any(|name| said.may_miss(name)) {
        return None;
    }
    // Any property may be given, so that one which is misspelt shows only here.
    for setting in &said.settings {
        let meant = setting.name.strip_prefix("kafka.").and_then(|property| did_you_mean(property, &names));
        if let Some(meant) = meant {
            let message = format!("`{}` does not say where Kafka is", setting.name);
            let label = format!("did you mean `{meant}`?");
            report.mistake((&setting.file, setting.name_place), message, label, format!("write `kafka.{meant}`"));
            return Some(setting);
        }
    }
    let help = "write `kafka: {bootstrap.servers: \"localhost:9092\"}` in the file, set RATCHET_KAFKA__BOOTSTRAP_SERVERS, or \
                give `--set kafka.bootstrap.servers=localhost:9092`; `ratchet test`, `replay` and `demo` need no Kafka";
    report.placeless("`kafka.bootstrap.servers` is missing: where is Kafka?".to_owned(), help);
    None
}

/// A setting's text as the types that there are.
struct Typed<'a, 'r> {
    setting: &'a Setting,
    reader: &'a mut Reader<'r>,
}

impl Typed<'_, '_> {
    fn convert<T>(&mut self, what: &str, example: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let name = &self.setting.name;
        let example = format!("{name}: {example}");
        let converted = self.reader.convert(name, &self.setting.text, Shape { what, example: &example }, parse);
        converted.map(|placed: Placed<T>| placed.value)
    }

    fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        let chosen = self.reader.choose(&self.setting.name, &self.setting.text, choices, &[]);
        chosen.map(|placed| placed.value)
    }

    fn integer<T>(&mut self, min: T, max: T, example: T) -> Option<T>
    where
        T: Copy + std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let what = format!("a whole number from {min} to {max}");
        let parse = |text: &str| text.parse().ok().filter(|value| (min..=max).contains(value));
        self.convert(&what, &example.to_string(), parse)
    }

    fn size(&mut self, min: u64, max: u64, example: &str) -> Option<u64> {
        let mut what = format!("a size of at least {}", units::show_size_bytes(min));
        if max < u64::MAX {
            what += &format!(", at most {}", units::show_size_bytes(max));
        }
        self.convert(&what, example, |text| units::size_bytes(text).filter(|bytes| (min..=max).contains(bytes)))
    }

    fn interval_ms(&mut self) -> Option<u64> {
        let what = format!("a duration with its unit, from 1ms to {}", units::show_duration_ms(COMMIT_INTERVAL_MS_MAX));
        let parse = |text: &str| units::duration_ms(text).filter(|ms| (1..=COMMIT_INTERVAL_MS_MAX).contains(ms));
        self.convert(&what, "200ms", parse)?.try_into().ok()
    }

    fn path(&mut self, example: &str) -> Option<PathBuf> {
        // Nobody expands a tilde here, and a folder of that name is not what is meant.
        let parse = |text: &str| (!text.is_empty() && !text.starts_with('~')).then(|| PathBuf::from(text));
        self.convert("a folder's path, without `~`", example, parse)
    }

    fn http(&mut self) -> Option<Option<SocketAddr>> {
        let parse = |text: &str| if text == "off" { Some(None) } else { text.parse().ok().map(Some) };
        self.convert("an address and a port, or `off`", "127.0.0.1:9464", parse)
    }

    fn level(&mut self) -> Option<String> {
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
