//! Turns the layers' settings into the [`Config`]: converts each to its type, then checks them together.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::yaml::keys::Omitted;
use crate::yaml::read::did_you_mean;
use crate::yaml::{Environment, Explained, File, Place, Placed, Reader, Report, Text, units};

use super::draft::Draft;
use super::kafka::{self, BROKERS, KafkaProperties};
use super::registry::{self, SchemaRegistry};
use super::setting::{Collected, Setting};
use super::typed::Typed;
use super::worker::{ClusterKind, Commit, Config, Create, DataPath, Log, LogFormat, TopicSettings};
use super::{keys, machine};

/// librdkafka's other name for the brokers' addresses.
const BROKERS_TOO: &str = "kafka.metadata.broker.list";
/// Maximum default of `lanes`.
const LANES_DEFAULT_MAX: usize = 4;
/// Minimum default of `unpacked`: room for an ordinary batch with its records' overhead: a mebibyte, Kafka's limit,
/// compressed by a factor of fifty.
const UNPACKED_BYTES_DEFAULT_MIN: u64 = 128 << 20;
/// The default of `unpacked` is `memory` divided by this, if that is more.
const UNPACKED_PARTS: u64 = 4;

/// Checks a Kafka property by name and value. The error says why librdkafka rejects it and what to write instead, without
/// containing the value.
pub type CheckProperty<'a> = &'a dyn Fn(&str, &str) -> Result<(), Explained>;

/// The config for these settings; `None` after mistakes, which are reported. Without `check_property`, the settings of
/// the cluster are not checked together.
pub fn resolve(
    collected: &Collected,
    environment: &dyn Environment,
    check_property: Option<CheckProperty<'_>>,
    report: &mut Report,
) -> Option<Config> {
    let mut draft = defaults(environment, report);
    for setting in &collected.settings {
        let mut reader = Reader { file: Arc::clone(&setting.file), environment, report };
        match setting.name.strip_prefix("kafka.") {
            Some(property) => apply_property(&mut draft.config.kafka, property, setting, &mut reader),
            None => {
                apply(&mut draft, setting, reader);
                if setting.text.value.is_secret() {
                    draft.config.secrets.insert(setting.name.clone());
                } else {
                    draft.config.secrets.remove(&setting.name);
                }
            }
        }
    }
    check_together(&draft, collected, check_property, report);
    let Draft { mut config, embedded, embedded_dir: dir, embedded_partitions: partitions, unpacked_bytes } = draft;
    config.unpacked_bytes = unpacked_bytes.unwrap_or_else(|| unpacked_default_bytes(config.memory_bytes));
    if embedded == Some(true) {
        config.cluster = ClusterKind::Embedded { dir, partitions };
    }
    report.is_fine().then_some(config)
}

/// The default of `unpacked`.
fn unpacked_default_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / UNPACKED_PARTS).max(UNPACKED_BYTES_DEFAULT_MIN)
}

/// The defaults: those in the table, and those that depend on the machine.
fn defaults(environment: &dyn Environment, report: &mut Report) -> Draft {
    let config = Config {
        cluster: ClusterKind::Kafka,
        kafka: KafkaProperties::default(),
        data_path: DataPath::Auto,
        state_dir: PathBuf::new(),
        lanes: environment.cores().clamp(1, LANES_DEFAULT_MAX),
        unpacked_bytes: 0,
        memory_bytes: (machine::memory_bytes(environment) / 2).max(keys::MEMORY_BYTES_MIN),
        commit: Commit { interval_ms: 0, spacing_ms: 0, records_max: 0, bytes_max: 0 },
        http: None,
        topics: TopicSettings { create: Create::None, replication_factor: 0, min_insync_replicas: 0 },
        tables_create: false,
        schema_registry: SchemaRegistry::default(),
        schemas_dir: None,
        log: Log { format: LogFormat::Text, level: String::new() },
        warnings: Vec::new(),
        secrets: BTreeSet::new(),
    };
    let (embedded_dir, embedded_partitions, unpacked_bytes) = (PathBuf::new(), 0, None);
    let mut draft = Draft { config, embedded: Some(false), embedded_dir, embedded_partitions, unpacked_bytes };
    for key in keys::all() {
        let Omitted::Is(value) = key.default else { continue };
        let file = Arc::new(File::new("the defaults", value.to_owned()));
        let place = Place { start: 0, length: value.len() };
        let text = Placed { value: Text::plain(value.to_owned()), place };
        let setting = Setting { name: key.name.to_owned(), name_place: place, text, file: Arc::clone(&file) };
        apply(&mut draft, &setting, Reader { file, environment, report });
    }
    draft
}

/// Applies a setting. The layers only let known names through.
fn apply(draft: &mut Draft, setting: &Setting, mut reader: Reader<'_>) {
    if let Some(key) = keys::find(&setting.name) {
        (key.put)(draft, &mut Typed { setting, reader: &mut reader });
    }
}

/// Adds a property to the common, consumer or producer properties, unless ratchet sets it itself.
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

/// Checks the settings together.
fn check_together(
    draft: &Draft,
    collected: &Collected,
    check_property: Option<CheckProperty<'_>>,
    report: &mut Report,
) {
    let last = |name: &str| collected.last(name);
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
    registry::check(&draft.config.schema_registry, collected, report);
    if let (Some(check_property), Some(false)) = (check_property, draft.embedded) {
        let reported = check_brokers(draft, collected, report);
        let masked = Masked::new(collected, check_property);
        check_properties(collected, &masked, reported, check_property, report);
        check_transactions(&draft.config, collected, &masked, report);
    }
}

/// The settings' files, in which the values of possibly secret properties are masked. A property that librdkafka does not
/// know may be a password under a misspelt name.
struct Masked {
    files: Vec<(Arc<File>, Arc<File>)>,
}

impl Masked {
    fn new(collected: &Collected, check_property: CheckProperty<'_>) -> Self {
        let is_shown = |setting: &&Setting| {
            let property = property_of(setting).unwrap_or_default();
            !kafka::may_be_secret(property) && check_property(property, setting.text.value.reveal()).is_ok()
        };
        let mut files: Vec<(Arc<File>, Arc<File>)> = Vec::new();
        for Setting { file, .. } in &collected.settings {
            if files.iter().any(|(known, _)| Arc::ptr_eq(known, file)) {
                continue;
            }
            let within = collected.settings.iter().filter(|setting| Arc::ptr_eq(&setting.file, file));
            let properties = within.filter(|setting| setting.name.starts_with("kafka."));
            let hidden = properties.filter(|setting| !is_shown(setting));
            let places: Vec<_> = hidden.map(|setting| setting.text.place).collect();
            files.push((Arc::clone(file), Arc::new(file.masked(&places))));
        }
        Self { files }
    }

    /// This setting's file.
    fn of<'a>(&'a self, setting: &'a Setting) -> &'a Arc<File> {
        let known = self.files.iter().find(|(known, _)| Arc::ptr_eq(known, &setting.file));
        known.map_or(&setting.file, |(_, masked)| masked)
    }
}

/// The property that a setting gives, by librdkafka's name.
fn property_of(setting: &Setting) -> Option<&str> {
    let property = setting.name.strip_prefix("kafka.")?;
    Some(["consumer.", "producer."].iter().find_map(|side| property.strip_prefix(side)).unwrap_or(property))
}

/// Checks each property, unless it was reported already.
fn check_properties(
    collected: &Collected,
    masked: &Masked,
    reported: Option<&Setting>,
    check_property: CheckProperty<'_>,
    report: &mut Report,
) {
    for setting in &collected.settings {
        let Some(property) = property_of(setting) else { continue };
        let is_last = collected.last(&setting.name).is_some_and(|last| std::ptr::eq(last, setting));
        let is_reported =
            reported.is_some_and(|reported| reported.name == setting.name) || kafka::owned_reason(property).is_some();
        if !is_last || is_reported {
            continue;
        }
        if let Err(Explained { message, label, help }) = check_property(property, setting.text.value.reveal()) {
            report.mistake((masked.of(setting), setting.name_place), message, label, help);
        }
    }
}

/// Checks that transactions end before the broker ends them.
fn check_transactions(config: &Config, collected: &Collected, masked: &Masked, report: &mut Report) {
    let named = ["kafka.producer.transaction.timeout.ms", "kafka.transaction.timeout.ms"];
    let Some(timeout) = named.iter().find_map(|name| collected.last(name)) else { return };
    // if it is not a number, `check_properties` reports it
    let Ok(timeout_ms) = timeout.text.value.reveal().trim().parse::<u64>() else { return };
    let interval_ms = config.commit.interval_ms;
    if timeout_ms / 2 >= interval_ms {
        return;
    }
    let show = |ms: u64| units::show_duration(Duration::from_millis(ms));
    let after = if timeout.text.value.is_secret() { String::new() } else { format!(", after {}", show(timeout_ms)) };
    let given = collected.last("commit.interval").unwrap_or(timeout);
    let at = (masked.of(given), given.text.place);
    let interval = show(interval_ms);
    let help = format!(
        "raise `transaction.timeout.ms` to {} or more, or lower `commit.interval`",
        interval_ms.saturating_mul(2)
    );
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

/// Checks that the brokers are given, unless a reported mistake may be why they are missing. Returns the setting that
/// was reported as misspelt, if any.
fn check_brokers<'s>(draft: &Draft, collected: &'s Collected, report: &mut Report) -> Option<&'s Setting> {
    let names = [BROKERS, BROKERS_TOO].map(|name| name.strip_prefix("kafka.").unwrap_or(name));
    let properties = &draft.config.kafka.common;
    let is_given = names.iter().any(|name| properties.contains_key(*name));
    if is_given || [BROKERS, BROKERS_TOO, "cluster"].iter().any(|name| collected.may_miss(name)) {
        return None;
    }
    // Any property is allowed, so a misspelt one is only noticed here.
    for setting in &collected.settings {
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
