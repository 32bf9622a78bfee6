//! The part of `ratchet check` for schemas: where they come from and, with `--online`, which paths of a topology the
//! latest schemas of its topics lack.

use std::time::Duration;

use super::show::show;
use super::wanted::{is_in_key, wants};
use crate::cli::Failure;
use crate::cli::inputs;
use crate::cli::stderr::say;
use crate::config::Config;
use crate::dedup::{Format, Path};
use crate::engine::preflight::finding::{Finding, Severity};
use crate::observe::Metrics;
use crate::registry::Registry;
use crate::schemas::{Language, Schemas as _, Sources, Written, avro, protobuf};
use crate::topology::{Loaded, Topology};
use crate::worker;

/// How long the check waits for the latest version of a subject.
const WAIT: Duration = Duration::from_secs(10);

/// Where the schemas of a topology's records come from; `None` if its formats have no schemas.
pub fn line(topology: &Topology, config: &Config) -> Option<String> {
    if !topology.rules.reads_schemas() {
        return None;
    }
    let urls = &config.schema_registry.urls;
    let folder = config.schemas_dir.as_ref().map(|dir| format!("the folder {}", dir.display()));
    let registry = (!urls.is_empty()).then(|| format!("the registry at {}", urls.join(" or ")));
    Some(match (folder, registry) {
        (Some(folder), Some(registry)) => format!("from {folder}, then from {registry}"),
        (Some(one), None) | (None, Some(one)) => format!("from {one}"),
        (None, None) => {
            "from nowhere: run would refuse to start without `schema_registry.url` or `schemas.dir`".to_owned()
        }
    })
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Shown {
    /// How many paths are not in the latest schemas, or cannot be looked up because a schema cannot be used.
    pub lacking: usize,
    /// How many requests the registry did not answer: `run` would wait for it.
    pub unanswered: usize,
}

/// The latest schemas of topics.
#[derive(Debug)]
pub struct Latest {
    /// `None` if the schemas are in a folder only.
    registry: Option<Registry>,
    sources: Sources,
    /// Whether the registry has not answered. It is not asked again.
    is_down: bool,
}

impl Latest {
    /// The schemas of the sources that the settings name; `None` if no topology needs schemas.
    ///
    /// # Errors
    /// As in a run: the settings cannot be used, or name no source.
    pub fn open(loaded: &[Loaded], config: &Config) -> Result<Option<Self>, Failure> {
        let mut reading: Vec<Topology> =
            loaded.iter().filter(|one| one.topology.rules.reads_schemas()).map(|one| one.topology.clone()).collect();
        let metrics = Metrics::new();
        worker::give_schemas(&mut reading, config, &metrics).map_err(inputs::failed)?;
        let Some(sources) = reading.first().map(|topology| topology.schemas.clone()) else { return Ok(None) };
        let has_registry = !config.schema_registry.urls.is_empty();
        let registry = has_registry.then(|| Registry::open(&config.schema_registry, &metrics)).transpose();
        let registry = registry.map_err(|message| inputs::failed(worker::Error::Schemas(message)))?;
        Ok(Some(Self { registry, sources, is_down: false }))
    }

    /// The latest schema of a subject, with its name for messages; `None` if the subject does not exist.
    fn of(&self, subject: &str) -> Result<Option<(String, Written)>, String> {
        let Some(registry) = &self.registry else {
            let written = self.sources.of_subject(subject);
            return Ok(written.map(|written| (format!("the folder's {subject}"), Written::clone(&written))));
        };
        let latest = registry.latest(subject, WAIT)?;
        Ok(latest.map(|latest| {
            let version = latest.version.map_or("the latest version".to_owned(), |number| format!("version {number}"));
            (format!("{version} of {subject}"), latest.written)
        }))
    }

    /// Compares a topology with the latest schemas of these topics, and shows all findings.
    pub fn compare(&mut self, Loaded { topology, path, .. }: &Loaded, topics: &[&str]) -> Shown {
        let mut shown = Shown::default();
        if !topology.rules.reads_schemas() {
            return shown;
        }
        let mut findings = Vec::new();
        for topic in topics {
            findings.extend(self.compare_topic(topology, topic, &mut shown.unanswered));
        }
        shown.lacking = findings.iter().filter(|finding| finding.is_refused()).count();
        let verdict = match shown.lacking {
            // Schemas may be missing that the registry was not asked for.
            0 if self.is_down => "not known",
            0 => "fine",
            _ => "refused",
        };
        say(format_args!("{}: by the latest schemas: {verdict}\n", path.display()));
        findings.iter().for_each(show);
        shown
    }

    fn compare_topic(&mut self, topology: &Topology, topic: &str, unanswered: &mut usize) -> Vec<Finding> {
        let mut findings = Vec::new();
        let rules = &topology.rules;
        let mut documents: [Option<Document>; 2] = [None, None];
        let parts = [("key", rules.key_format), ("value", rules.value_format)];
        for ((part, format), document) in parts.into_iter().zip(&mut documents) {
            let subject = format!("{topic}-{part}");
            if !format.has_schemas() || self.is_down {
                continue;
            }
            match self.of(&subject) {
                Ok(Some((name, written))) => match Document::new(name, &written, format) {
                    Ok(parsed) => *document = Some(parsed),
                    Err(finding) => findings.push(finding),
                },
                Ok(None) => findings.push(Finding::note(
                    format!("there is no schema {subject}: the topology's paths cannot be looked up"),
                    "serializers register schemas under such names unless they are told otherwise \
                     (`value.subject.name.strategy`); records are read nevertheless, by the ids that they carry",
                )),
                Err(why) => {
                    // The check waits only once for a registry that does not answer.
                    (self.is_down, *unanswered) = (true, *unanswered + 1);
                    findings.push(Finding::of(Severity::Warning, why, "run waits until the registry answers"));
                }
            }
        }
        findings.extend(lacking(topology, &documents));
        findings
    }
}

/// A schema in which paths can be looked up.
#[derive(Debug)]
struct Document {
    /// Its name for messages: `version 3 of payments-value`.
    name: String,
    schema: Schema,
}

#[derive(Debug)]
enum Schema {
    Avro(avro::Schema),
    Protobuf(protobuf::Schema),
    /// Has every path: a JSON Schema may allow fields that it does not name.
    Json,
}

impl Document {
    fn new(name: String, written: &Written, format: Format) -> Result<Self, Finding> {
        let language = written.language;
        if let Some(expected) = format.language().filter(|expected| *expected != language) {
            let message = format!("{name} is written in {}, not in {}", language.as_str(), expected.as_str());
            return Err(Finding::refused(message, "name its format under `input`, or write `auto`"));
        }
        let schema = match language {
            Language::Avro => {
                let references: Vec<&str> = written.references.iter().map(|(_, text)| text.as_str()).collect();
                avro::Schema::parse(&written.text, &references).map(Schema::Avro)
            }
            Language::Protobuf => {
                let references: Vec<(&str, &str)> =
                    written.references.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                protobuf::Schema::parse(&written.text, &references).map(Schema::Protobuf)
            }
            Language::JsonSchema => Ok(Schema::Json),
        };
        let unusable =
            |error| Finding::refused(format!("{name} cannot be used: {error}"), "records with this schema are invalid");
        match schema {
            Ok(schema) => Ok(Self { name, schema }),
            Err(error) => Err(unusable(error)),
        }
    }

    /// Whether these steps can lead to a value; in Protobuf, in any of the messages that a record may be.
    fn has(&self, steps: &[String]) -> bool {
        match &self.schema {
            _ if steps.is_empty() => true,
            Schema::Avro(schema) => schema.has(steps),
            Schema::Protobuf(schema) => (0..)
                .take_while(|&number| schema.message(&[number]).is_some())
                .any(|number| schema.has(&[number], steps)),
            Schema::Json => true,
        }
    }
}

/// One finding for each path that is not in the schema of the key or the value.
fn lacking(topology: &Topology, [key, value]: &[Option<Document>; 2]) -> Vec<Finding> {
    let of = |path: &Path| is_in_key(path).and_then(|is_key| if is_key { key.as_ref() } else { value.as_ref() });
    let has = |path: &Path| of(path).is_none_or(|document| document.has(&path.steps));
    let mut named: Vec<Path> = Vec::new();
    let mut findings = Vec::new();
    for want in wants(topology) {
        let lacking = want.lacking(&has);
        let has_several = want.any_of.len() > 1;
        for path in lacking {
            let Some(document) = of(path).filter(|_| !named.contains(path)) else { continue };
            named.push(path.clone());
            let message = format!("`{path}` is not in {}", document.name);
            let help = match (want.is_needed, has_several) {
                (false, _) => "the preset uses it only in records that have it",
                (true, true) => "the alternatives that the topology names are not there either",
                (true, false) => "compare it with the schema's fields; in records with this schema, it is missing",
            };
            let severity = if want.is_needed { Severity::Refused } else { Severity::Note };
            findings.push(Finding::of(severity, message, help));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    //! Goal: paths are looked up in schemas of any language, and unusable schemas are reported.

    use super::*;

    fn document(language: Language, text: &str, format: Format) -> Result<Document, String> {
        let document = Document::new("version 3 of t-value".to_owned(), &Written::alone(language, text), format);
        document.map_err(|finding| finding.message)
    }

    fn has(document: &Document, steps: &[&str]) -> bool {
        document.has(&steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn paths_are_looked_up_in_any_language() {
        let avro = r#"{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}"#;
        let avro = document(Language::Avro, avro, Format::Auto).unwrap();
        assert!(has(&avro, &["id"]) && has(&avro, &[]) && !has(&avro, &["no"]));
        let two = "syntax = \"proto3\"; message A { int64 a = 1; } message B { A b = 1; }";
        let two = document(Language::Protobuf, two, Format::Protobuf).unwrap();
        assert!(has(&two, &["a"]) && has(&two, &["b", "a"]) && !has(&two, &["c"]), "a record may be either message");
        assert!(has(&document(Language::JsonSchema, "{}", Format::JsonSchema).unwrap(), &["any"]));
    }

    #[test]
    fn schema_that_is_malformed_or_in_another_language_is_refused() {
        let error = document(Language::JsonSchema, "{}", Format::Avro).unwrap_err();
        assert_eq!(error, "version 3 of t-value is written in JSON Schema, not in Avro");
        let error = document(Language::Avro, r#"{"type": "record"}"#, Format::Avro).unwrap_err();
        assert!(error.starts_with("version 3 of t-value cannot be used: "), "{error}");
    }
}
