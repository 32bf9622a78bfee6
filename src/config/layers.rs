//! Collects the settings from the file, the environment and `--set` in one list, later ones overriding earlier
//! ones, each with its place. A variable and a `--set` are treated as small files, so that a mistake in
//! them is shown in the same way.

use std::path::Path;
use std::sync::Arc;

use crate::yaml::read::{self, clipped, did_you_mean, listed};
use crate::yaml::tree::Entry;
use crate::yaml::{Environment, Field, File, Node, Place, Placed, Reader, Report, Shape, Text, Value, text};

use super::kafka::{self, BROKERS};
use super::keys::{self, is_section};
use super::registry;
use super::setting::{Collected, Setting};

/// The prefix of every variable.
const VARIABLE_PREFIX: &str = "RATCHET_";
/// Variables with these prefixes are not settings: those of the tests, the name of the file, and those that Kubernetes
/// sets for a service called ratchet.
const OTHERS: &[&str] = &["RATCHET_TEST_", "RATCHET_CRASH_", "RATCHET_CONFIG", "RATCHET_SERVICE_", "RATCHET_PORT"];

/// Collects the settings of all layers.
pub struct Layers<'a> {
    environment: &'a dyn Environment,
    report: &'a mut Report,
    collected: Collected,
}

impl<'a> Layers<'a> {
    /// No settings yet.
    pub fn new(environment: &'a dyn Environment, report: &'a mut Report) -> Self {
        Self { environment, report, collected: Collected::default() }
    }

    /// The collected settings.
    pub fn finish(self) -> Collected {
        self.collected
    }

    /// Notes that `name` could not be read.
    fn unread(&mut self, name: &str) {
        self.collected.unread.push(name.to_owned());
    }

    fn reader(&mut self, file: &Arc<File>) -> Reader<'_> {
        Reader { file: Arc::clone(file), environment: self.environment, report: self.report }
    }

    /// Adds the file's settings.
    pub fn read_file(&mut self, path: &Path) {
        let Some(file) = read::open(path, "a configuration's YAML file", self.environment, self.report) else {
            self.unread("");
            return;
        };
        let tree = crate::yaml::tree::parse(file.text());
        let mut secrets = Secrets::default();
        if let Ok(tree) = &tree {
            secrets.collect(tree, false);
        }
        let file = Arc::new(file.masked(&secrets.places(file.text())));
        let tree = match tree {
            Ok(tree) => tree,
            Err(error) => {
                self.report.mistake((&file, error.place), error.message, "here", error.help);
                self.unread("");
                return;
            }
        };
        match &tree.value {
            // A file with nothing but comments.
            _ if tree.is_null() => {}
            Value::Mapping(entries) => self.walk(entries, "", &file),
            _ => {
                let help = "begin with e.g. `cluster: kafka`";
                self.report.mistake(
                    (&file, tree.place),
                    "the file must be a mapping".to_owned(),
                    "not a mapping",
                    help,
                );
                self.unread("");
            }
        }
    }

    fn walk(&mut self, entries: &[Entry], prefix: &str, file: &Arc<File>) {
        for (index, entry) in entries.iter().enumerate() {
            let name = format!("{prefix}{}", entry.key);
            let example = format!("{name}: …");
            let shape = Shape { what: "a single value", example: &example };
            let field = Field { name: name.clone(), key_place: entry.key_place, node: &entry.node, shape };
            if entries[..index].iter().any(|other| other.key == entry.key) {
                self.twice(&name, entry.key_place, file);
            } else if let (Value::Mapping(entries), true) = (&entry.node.value, is_section(&name) || is_open(&name)) {
                self.walk(entries, &format!("{name}."), file);
            } else if is_section(&name) {
                // A section with everything commented out counts as absent.
                if !entry.node.is_null() {
                    let first = children(&format!("{name}.")).first().copied().unwrap_or("client.id");
                    let example = format!("{name}: {{{first}: …}}");
                    let shape = Shape { what: "a mapping", example: &example };
                    self.reader(file).wrong(&Field { shape, ..field });
                    self.unread(&name);
                }
            } else if let (Value::List(_), true) = (&entry.node.value, is_open(&name)) {
                let help = "write one text, with commas between its parts";
                self.report.mistake(
                    (file, field.place()),
                    format!("`{name}` must be a string"),
                    "this is a list",
                    help,
                );
                self.unread(&name);
            } else if is_open(&name) || keys::find(&name).is_some() {
                self.leaf(&field, file);
            } else {
                self.unknown(&name, prefix, entry, file);
            }
        }
    }

    fn leaf(&mut self, field: &Field<'_>, file: &Arc<File>) {
        let Some(text) = self.reader(file).text(field) else {
            self.unread(&field.name);
            return;
        };
        let given = |other: &Setting| other.name == field.name && Arc::ptr_eq(&other.file, file);
        if self.collected.settings.iter().any(given) {
            self.twice(&field.name, field.key_place, file);
            return;
        }
        let (name, name_place) = (field.name.clone(), field.key_place);
        self.push(Setting { name, name_place, text, file: Arc::clone(file) }, true);
    }

    fn twice(&mut self, name: &str, place: Place, file: &Arc<File>) {
        self.report.mistake((file, place), format!("`{name}` stands here twice"), "again", "remove one of them");
        self.unread(name);
    }

    fn unknown(&mut self, name: &str, prefix: &str, entry: &Entry, file: &Arc<File>) {
        let known = children(prefix);
        let meant = did_you_mean(&entry.key, &known);
        meant.iter().for_each(|meant| self.unread(&format!("{prefix}{meant}")));
        let (label, help) = match meant {
            Some(meant) => (format!("did you mean `{meant}`?"), format!("write `{meant}`")),
            None => ("nothing reads this".to_owned(), format!("remove it, or write one of {}", listed(&known))),
        };
        self.report.mistake((file, entry.key_place), format!("unknown key `{name}`"), label, help);
    }

    /// Adds a setting. A secret in clear text where others can read it is a mistake.
    fn push(&mut self, setting: Setting, readable: bool) {
        let is_secret =
            registry::is_secret(&setting.name) || setting.name.starts_with("kafka.") && kafka::is_secret(&setting.name);
        // Another message says that there is no such property, which matters more.
        let is_taken = !setting.name.ends_with("sasl.jaas.config");
        if is_secret && is_taken && readable && !setting.text.value.is_secret() {
            let variable = variable_of(&setting.name);
            let help = format!("write ${{env:NAME}} or ${{file:PATH}}, or set the environment variable {variable}");
            let message = format!("`{}` is a secret and must not be written out", setting.name);
            self.report.mistake((&setting.file, setting.text.place), message, "not shown", help);
        }
        let text = setting.text;
        let hides = is_secret || registry::names_a_user(text.value.reveal());
        let value = if hides { text.value.into_secret() } else { text.value };
        self.collected.settings.push(Setting { text: Placed { value, place: text.place }, ..setting });
    }

    /// Adds the environment's settings.
    pub fn read_variables(&mut self) {
        let mut variables = self.environment.variables();
        variables.sort();
        for (variable, value) in variables {
            let Some(rest) = variable.strip_prefix(VARIABLE_PREFIX) else { continue };
            // Compose files and the like leave an unset variable empty.
            if value.is_empty() || OTHERS.iter().any(|other| variable.starts_with(other)) {
                continue;
            }
            let name = name_of(rest);
            // A misspelt name may stand for a secret.
            let hidden = hides(&name, &value);
            let shown = if hidden { text::MASK } else { &value };
            let file = Arc::new(File::new("the environment", format!("{variable}={shown}")));
            if !is_known(&name) {
                self.unknown_variable(&variable, &file);
                continue;
            }
            let place = Place { start: variable.len() + 1, length: shown.len() };
            let text = Placed { value: Text::plain(value), place };
            let name_place = Place { start: 0, length: variable.len() };
            self.push(Setting { name, name_place, text, file }, false);
        }
    }

    fn unknown_variable(&mut self, variable: &str, file: &Arc<File>) {
        let names: Vec<(String, &str)> = suggested().map(|name| (variable_of(name), name)).collect();
        let known: Vec<&str> = names.iter().map(|(variable, _)| variable.as_str()).collect();
        let message = format!("`{variable}` is not a setting");
        let at = (file, Place { start: 0, length: variable.len() });
        match did_you_mean(variable, &known) {
            Some(meant) if near(variable, meant) => {
                names.iter().filter(|(known, _)| known == meant).for_each(|(_, name)| self.unread(name));
                self.report.mistake(
                    at,
                    message,
                    format!("did you mean `{meant}`?"),
                    format!("set `{meant}`, or unset this one"),
                );
            }
            _ if variable.contains("__") => {
                let help = "unset it; `__` separates levels, e.g. `RATCHET_COMMIT__INTERVAL` for `commit.interval`";
                self.report.mistake(at, message, "nothing reads this", help);
            }
            _ => self.report.warning(at, message, "nothing reads this", "unset it, or correct its name"),
        }
    }

    /// Adds the settings given with `--set`.
    pub fn read_sets(&mut self, sets: &[String]) {
        for set in sets {
            let (name, value) = set.split_once('=').unwrap_or((set, ""));
            let shown =
                if hides(name, value) && !value.is_empty() { format!("{name}={}", text::MASK) } else { set.clone() };
            let file = Arc::new(File::new("--set", shown));
            let start = (name.len() + 1).min(file.text().len());
            let value_place = Place::new(start, file.text().len());
            let name_place = Place { start: 0, length: name.len() };
            if !set.contains('=') {
                let message = format!("`--set {}` has no `=`", clipped(name));
                self.report.mistake(
                    (&file, name_place),
                    message,
                    "name and value belong here",
                    "write e.g. `--set lanes=2`",
                );
                self.unread(name);
                continue;
            }
            if !is_known(name) {
                let meant = did_you_mean(name, &suggested().collect::<Vec<_>>());
                meant.iter().for_each(|meant| self.unread(meant));
                let (label, help) = match meant {
                    Some(meant) => (format!("did you mean `{meant}`?"), format!("write `--set {meant}=…`")),
                    None => (
                        "nothing reads this".to_owned(),
                        format!("the settings are {} and `kafka.…`", listed(&keys::names())),
                    ),
                };
                self.report.mistake((&file, name_place), format!("`{}` is not a setting", clipped(name)), label, help);
                continue;
            }
            // Read as if it were in a file, so that `${env:NAME}` works here too.
            let node = Node { value: Value::Scalar { text: value.to_owned(), plain: false }, place: value_place };
            let example = format!("--set {name}=…");
            let shape = Shape { what: "a single value", example: &example };
            let field = Field { name: name.to_owned(), key_place: name_place, node: &node, shape };
            match self.reader(&file).text(&field) {
                Some(text) => self.push(Setting { name: name.to_owned(), name_place, text, file }, true),
                None => self.unread(name),
            }
        }
    }
}

/// Whether any key is allowed below this name: for `kafka` and everything in it.
fn is_open(name: &str) -> bool {
    name == "kafka" || name.starts_with("kafka.")
}

/// Whether a setting may have this name.
fn is_known(name: &str) -> bool {
    let property = name.strip_prefix("kafka.").filter(|property| !property.is_empty());
    keys::find(name).is_some() || property.is_some_and(|property| !matches!(property, "consumer" | "producer"))
}

/// Whether a value must not be shown: its setting may hold secrets, or it looks like an address with a user.
fn hides(name: &str, value: &str) -> bool {
    kafka::is_secret(name) || registry::is_secret(name) || registry::names_a_user(value) || !is_known(name)
}

/// The names to suggest for a misspelt one; of the properties, only the required one.
fn suggested() -> impl Iterator<Item = &'static str> {
    keys::all().map(|key| key.name).chain([BROKERS])
}

/// The keys right below `prefix`.
fn children(prefix: &str) -> Vec<&'static str> {
    let mut keys: Vec<&str> = Vec::new();
    let below = keys::all().map(|key| key.name).chain(["kafka"]).filter_map(|name| name.strip_prefix(prefix));
    for key in below.filter_map(|rest| rest.split('.').next()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// The setting that a variable stands for, without its prefix.
fn name_of(variable: &str) -> String {
    let lower = variable.to_lowercase();
    let levels: Vec<&str> = lower.split("__").collect();
    match levels.as_slice() {
        ["kafka", property @ ..] => format!("kafka.{}", property.join(".").replace('_', ".")),
        _ => levels.join("."),
    }
}

/// The variable that stands for a setting.
pub fn variable_of(name: &str) -> String {
    let levels = match name.strip_prefix("kafka.") {
        Some(property) => match property.split_once('.') {
            Some((side @ ("consumer" | "producer"), property)) => {
                format!("kafka__{side}__{}", property.replace('.', "_"))
            }
            _ => format!("kafka__{}", property.replace('.', "_")),
        },
        None => name.replace('.', "__"),
    };
    format!("{VARIABLE_PREFIX}{}", levels.to_uppercase())
}

/// Whether a variable is a known one misspelt, and not another program's: compared without the common prefix.
fn near(variable: &str, known: &str) -> bool {
    let rest = |name: &str| name.strip_prefix(VARIABLE_PREFIX).unwrap_or_default().to_owned();
    did_you_mean(&rest(variable), &[&rest(known)]).is_some()
}

/// The places of secrets in clear text in a file, to mask them before any mistake is shown.
#[derive(Default)]
struct Secrets {
    /// Values of properties with secret names.
    values: Vec<Place>,
    /// The start of such properties' names.
    names: Vec<usize>,
}

impl Secrets {
    /// Collects the secrets in the tree. A value that only refers to the secret may be shown.
    fn collect(&mut self, node: &Node, inside: bool) {
        match &node.value {
            Value::Scalar { text, .. } if inside => {
                let names_only =
                    text.starts_with("${") && text.find('}') == Some(text.len() - 1) && !text.contains(":-");
                if !names_only {
                    self.values.push(node.place);
                }
            }
            Value::Scalar { text, .. } if registry::names_a_user(text) => self.values.push(node.place),
            Value::Scalar { .. } => {}
            Value::List(items) => items.iter().for_each(|item| self.collect(item, inside)),
            Value::Mapping(entries) => {
                for entry in entries {
                    let key = entry.key.to_lowercase();
                    let is_secret = kafka::is_secret(&key) || registry::is_secret_key(&key);
                    if is_secret {
                        self.names.push(entry.key_place.start);
                    }
                    self.collect(&entry.node, inside || is_secret);
                }
            }
        }
    }

    /// The places to mask: the values, and, if a secret's name is in something else (a comment, an unclosed
    /// quote, a string that is not YAML), the rest of its line and the lines below that are indented
    /// further.
    fn places(&self, text: &str) -> Vec<Place> {
        let mut places = self.values.clone();
        let mut secret_indent = None;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.len();
            let indent = line.len() - line.trim_start().len();
            let is_understood = self.names.iter().any(|name| (start..end).contains(name));
            if kafka::is_secret(&line.to_lowercase()) && !is_understood {
                secret_indent = Some(indent);
                places.push(Place::new(start + line.find(':').map_or(0, |colon| colon + 1), end));
            } else if secret_indent.is_some_and(|secret| indent > secret || line.trim().is_empty()) {
                places.push(Place::new(start, end));
            } else {
                secret_indent = None;
            }
            start = end;
        }
        places
    }
}
