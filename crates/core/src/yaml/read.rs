//! Reads a tree's nodes as the expected types. Every mistake goes to the report, with what to write instead; what could
//! not be read is `None`, and reading continues.

use std::path::Path;
use std::sync::Arc;

use super::keys::Mapping;
use super::report::{File, Place, Report};
use super::text::{Error, Text, substitute};
use super::tree::{self, Node, Value};
use super::{Environment, units};

/// Maximum length of a word that is compared with others: longer ones are not typing mistakes.
const COMPARED_CHARS_MAX: usize = 64;

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub place: Place,
}

/// What a value should look like.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// In words, e.g. `a duration`.
    pub what: &'a str,
    /// As one would write it, e.g. `retention: 30d`.
    pub example: &'a str,
}

/// A value with its key.
#[derive(Clone, Debug)]
pub struct Field<'n> {
    /// The keys that lead to it, e.g. `input.topics`.
    pub name: String,
    /// The place of its key.
    pub key_place: Place,
    /// The value.
    pub node: &'n Node,
    /// What it should look like.
    pub shape: Shape<'n>,
}

impl<'n> Field<'n> {
    /// An item of the list under this key.
    pub fn item(&self, node: &'n Node) -> Self {
        Self { name: self.name.clone(), key_place: node.place, node, shape: self.shape }
    }

    /// The same field with another description in words.
    pub fn described(&self, what: &'n str) -> Self {
        Self { shape: Shape { what, ..self.shape }, ..self.clone() }
    }

    /// The place of the value, or of its key if there is no value.
    pub fn place(&self) -> Place {
        if self.node.place.length == 0 { self.key_place } else { self.node.place }
    }
}

/// What is wrong with a word that many people try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What is wrong.
    pub message: String,
    /// The label at its place.
    pub label: String,
    /// What to write instead.
    pub help: String,
}

/// A mapping's values by their keys.
#[derive(Clone, Debug)]
pub struct Fields<'n> {
    /// The keys that lead to the mapping, with a dot at the end, or empty.
    prefix: String,
    /// The place of the mapping's key.
    pub place: Place,
    mapping: &'static Mapping,
    fields: Vec<(String, Field<'n>)>,
    /// The keys that unknown ones were probably meant to be, and their places.
    meant: Vec<(String, Place)>,
}

impl<'n> Fields<'n> {
    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&Field<'n>> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, field)| field)
    }

    /// The place of an unknown key that was reported as a misspelt `key`: `key` then only seems to be missing.
    pub fn misspelt(&self, key: &str) -> Option<Place> {
        self.meant.iter().find(|(meant, _)| meant == key).map(|(_, place)| *place)
    }

    /// The value under `key`. If there is none, that is a mistake, unless a misspelt one was already reported.
    pub fn require(&self, key: &str, reader: &mut Reader<'_>) -> Option<&Field<'n>> {
        let field = self.get(key);
        if field.is_none() && self.misspelt(key).is_none() {
            let example = self.mapping.key(key).map_or("", |key| key.example);
            let message = format!("`{}{key}` is missing", self.prefix);
            reader.mistake(self.place, message, "it belongs in here", format!("write e.g. `{example}`"));
        }
        field
    }
}

/// Opens the file at `path`; `what` says in words what it should be.
pub fn open(path: &Path, what: &str, environment: &dyn Environment, report: &mut Report) -> Option<Arc<File>> {
    let name = path.display();
    let bytes = match environment.read_file(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            report.placeless(format!("{name} cannot be read: {error}"), format!("give the path of {what}"));
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(Arc::new(File::new(name.to_string(), text))),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
            report.placeless(format!("{name} is not UTF-8: see line {line}"), "save it as UTF-8");
            None
        }
    }
}

/// Reads one file's nodes.
pub struct Reader<'a> {
    /// The file being read.
    pub file: Arc<File>,
    /// Resolves `${env:NAME}` and `${file:PATH}`.
    pub environment: &'a dyn Environment,
    /// Where mistakes go.
    pub report: &'a mut Report,
}

impl Reader<'_> {
    /// Reports a mistake at a place in this file.
    pub fn mistake(&mut self, place: Place, message: String, label: impl Into<String>, help: impl Into<String>) {
        self.report.mistake((&self.file, place), message, label, help);
    }

    /// The file's tree.
    pub fn parse(&mut self) -> Option<Node> {
        let file = Arc::clone(&self.file);
        self.parse_text(file.text())
    }

    /// The tree of the file's text, of which [`Reader::file`] may have less to show.
    pub fn parse_text(&mut self, text: &str) -> Option<Node> {
        match tree::parse(text) {
            Ok(node) => Some(node),
            Err(error) => {
                self.mistake(error.place, error.message, "here", error.help);
                None
            }
        }
    }

    /// The whole file as a mapping.
    pub fn root<'n>(&mut self, node: &'n Node, mapping: &'static Mapping, shape: Shape<'_>) -> Option<Fields<'n>> {
        if node.is_null() {
            // An empty file has no place to point at.
            let message = format!("{} is empty, it must be {}", self.file.name(), shape.what);
            self.report.placeless(message, format!("begin with e.g. `{}`", shape.example));
            return None;
        }
        let Value::Mapping(entries) = &node.value else {
            let message = format!("the file must be {}", shape.what);
            self.mistake(
                node.place,
                message,
                format!("this is {}", kind(node)),
                format!("begin with e.g. `{}`", shape.example),
            );
            return None;
        };
        let mut fields = self.entries(node, String::new(), Place::default(), mapping);
        // The value of a misspelt key is read too, so that its own mistakes are reported at once. This is done only for
        // top-level keys: deeper down, words are short and alike, and what was meant is less certain.
        for (meant, place) in fields.meant.clone() {
            let entry = entries.iter().find(|entry| entry.key_place == place);
            let key = mapping.key(&meant).filter(|_| fields.get(&meant).is_none());
            if let Some((entry, key)) = entry.zip(key) {
                let field = Field { name: meant.clone(), key_place: place, node: &entry.node, shape: key.shape() };
                fields.fields.push((meant, field));
            }
        }
        Some(fields)
    }

    /// A field as a mapping.
    pub fn fields<'n>(&mut self, field: &Field<'n>, mapping: &'static Mapping) -> Option<Fields<'n>> {
        let Value::Mapping(_) = &field.node.value else {
            self.wrong(field);
            return None;
        };
        Some(self.entries(field.node, format!("{}.", field.name), field.key_place, mapping))
    }

    fn entries<'n>(&mut self, node: &'n Node, prefix: String, place: Place, mapping: &'static Mapping) -> Fields<'n> {
        let mut fields = Fields { prefix, place, mapping, fields: Vec::new(), meant: Vec::new() };
        let Value::Mapping(entries) = &node.value else { return fields };
        for entry in entries {
            let name = format!("{}{}", fields.prefix, entry.key);
            let Some(key) = mapping.key(&entry.key) else {
                let meant = self.unknown_key(&name, &entry.key, entry.key_place, mapping);
                fields.meant.extend(meant.map(|meant| (meant.to_owned(), entry.key_place)));
                continue;
            };
            if let Some(first) = fields.get(&entry.key) {
                let (line, _) = self.file.line_column(first.key_place.start);
                let message = format!("`{name}` stands here twice");
                let label = format!("it was given on line {line} already");
                self.mistake(entry.key_place, message, label, "remove one of them");
            } else {
                let field = Field { name, key_place: entry.key_place, node: &entry.node, shape: key.shape() };
                fields.fields.push((entry.key.clone(), field));
            }
        }
        fields
    }

    /// Reports an unknown key, and returns the one that was probably meant.
    fn unknown_key(&mut self, name: &str, key: &str, place: Place, mapping: &Mapping) -> Option<&'static str> {
        let known = mapping.names();
        let meant = did_you_mean(key, &known).filter(|_| key != "<<");
        let (label, help) = match (key, meant) {
            ("<<", _) => ("merge keys are not read".to_owned(), "write the keys out".to_owned()),
            (_, Some(meant)) => (format!("did you mean `{meant}`?"), format!("write `{meant}`")),
            (_, None) => ("nothing reads this".to_owned(), format!("remove it, or write one of {}", listed(&known))),
        };
        self.mistake(place, format!("unknown key `{name}`"), label, help);
        meant
    }

    /// Reports that a field's value is not what it should be.
    pub fn wrong(&mut self, field: &Field<'_>) {
        let shape = field.shape;
        let label =
            if field.node.is_null() { "it has no value".to_owned() } else { format!("this is {}", kind(field.node)) };
        let message = format!("`{}` must be {}", field.name, shape.what);
        let help = match &field.node.value {
            // What is left of an unquoted `{topic}`.
            Value::Mapping(entries) if entries.len() == 1 && entries[0].node.place.length == 0 => {
                format!(
                    "braces make a mapping; if they are part of a string, put it into quotes: \"{{{}}}\"",
                    entries[0].key
                )
            }
            _ => format!("write e.g. `{}`", shape.example),
        };
        self.mistake(field.place(), message, label, help);
    }

    /// Reports that a string is not what it should be; a secret is not shown.
    pub fn wrong_text(&mut self, name: &str, text: &Placed<Text>, shape: Shape<'_>) {
        let label = match text.value.is_secret() {
            true => "what it stands for is not".to_owned(),
            false => format!("`{}` is not", clipped(text.value.reveal())),
        };
        let message = format!("`{name}` must be {}", shape.what);
        self.mistake(text.place, message, label, format!("write e.g. `{}`", shape.example));
    }

    /// A field's text with substitutions made, neither null nor empty.
    pub fn text(&mut self, field: &Field<'_>) -> Option<Placed<Text>> {
        let shape = field.shape;
        let Value::Scalar { text, .. } = &field.node.value else {
            self.wrong(field);
            return None;
        };
        if field.node.is_null() {
            self.wrong(field);
            return None;
        }
        match substitute(text, self.environment) {
            Ok(text) if text.reveal().is_empty() => {
                let message = format!("`{}` must be {}", field.name, shape.what);
                self.mistake(field.place(), message, "this is empty", format!("write e.g. `{}`", shape.example));
                None
            }
            Ok(value) => Some(Placed { value, place: field.place() }),
            Err(error) => {
                self.mistake(field.place(), format!("`{}`: {error}", field.name), "needed here", error.help());
                None
            }
        }
    }

    /// An address: like [`Reader::text`], but where nothing is connected to, `placeholder` stands for one whose
    /// variable is not set or whose file cannot be read.
    pub fn address(&mut self, field: &Field<'_>, placeholder: &str) -> Option<Placed<Text>> {
        if let Value::Scalar { text, .. } = &field.node.value
            && !self.environment.connects()
            && matches!(substitute(text, self.environment), Err(Error::NotSet(_) | Error::File { .. }))
        {
            return Some(Placed { value: Text::secret(placeholder), place: field.place() });
        }
        self.text(field)
    }

    /// A text converted by `parse`, which returns `None` for a wrong one.
    pub fn convert<T>(
        &mut self,
        name: &str,
        text: &Placed<Text>,
        shape: Shape<'_>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Placed<T>> {
        let value = parse(text.value.reveal());
        if value.is_none() {
            self.wrong_text(name, text, shape);
        }
        value.map(|value| Placed { value, place: text.place })
    }

    /// A field's text converted by `parse`, which returns `None` for a wrong one.
    pub fn parsed<T>(&mut self, field: &Field<'_>, parse: impl Fn(&str) -> Option<T>) -> Option<Placed<T>> {
        let text = self.text(field)?;
        self.convert(&field.name, &text, field.shape, parse)
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, field: &Field<'_>) -> Option<Placed<bool>> {
        self.parsed(field, |text| text.parse().ok())
    }

    /// A duration above zero, in milliseconds.
    pub fn duration_ms(&mut self, field: &Field<'_>) -> Option<Placed<i64>> {
        let text = self.text(field)?;
        self.duration_of(field, &text)
    }

    /// A field's text as a duration above zero, in milliseconds.
    pub fn duration_of(&mut self, field: &Field<'_>, text: &Placed<Text>) -> Option<Placed<i64>> {
        if units::duration_ms(text.value.reveal()) == Some(0) && !text.value.is_secret() {
            let message = format!("`{}` must be longer than no time at all", field.name);
            self.mistake(text.place, message, "this is 0", format!("write e.g. `{}`", field.shape.example));
            return None;
        }
        self.convert(&field.name, text, field.shape, |text| units::duration_ms(text).filter(|ms| *ms > 0))
    }

    /// A field as one of a few words.
    pub fn choice<T: Copy>(&mut self, field: &Field<'_>, choices: &[(&str, T)]) -> Option<Placed<T>> {
        self.choice_or(field, choices, |_| None)
    }

    /// The same, with `explain` for words that are not among them.
    pub fn choice_or<T: Copy>(
        &mut self,
        field: &Field<'_>,
        choices: &[(&str, T)],
        explain: impl Fn(&str) -> Option<Explained>,
    ) -> Option<Placed<T>> {
        let (what, example) = describe_choice(&field.name, choices);
        let shape = Shape { what: &what, example: &example };
        let text = self.text(&Field { shape, ..field.clone() })?;
        let word = text.value.reveal();
        let is_none = !text.value.is_secret() && choices.iter().all(|(known, _)| *known != word);
        if let Some(Explained { message, label, help }) = is_none.then(|| explain(word)).flatten() {
            self.mistake(text.place, message, label, help);
            return None;
        }
        self.choose(&field.name, &text, choices)
    }

    /// A text as one of a few words.
    pub fn choose<T: Copy>(&mut self, name: &str, text: &Placed<Text>, choices: &[(&str, T)]) -> Option<Placed<T>> {
        let word = text.value.reveal();
        if let Some((_, value)) = choices.iter().find(|(known, _)| *known == word) {
            return Some(Placed { value: *value, place: text.place });
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let key = last_key(name);
        if text.value.is_secret() {
            let (what, example) = describe_choice(name, choices);
            self.wrong_text(name, text, Shape { what: &what, example: &example });
        } else {
            let (label, help) = match did_you_mean(word, &words) {
                Some(meant) => (format!("did you mean `{meant}`?"), format!("write `{key}: {meant}`")),
                None => ("not one of those".to_owned(), format!("write {}", listed(&words))),
            };
            self.mistake(text.place, format!("`{name}` cannot be `{}`", clipped(word)), label, help);
        }
        None
    }

    /// A list's items, at least one.
    pub fn list<'n>(&mut self, field: &Field<'n>) -> Option<Vec<Field<'n>>> {
        let shape = field.shape;
        match &field.node.value {
            Value::List(items) if !items.is_empty() => Some(items.iter().map(|item| field.item(item)).collect()),
            Value::List(_) => {
                let message = format!("`{}` must be {}", field.name, shape.what);
                self.mistake(field.place(), message, "this is empty", format!("write e.g. `{}`", shape.example));
                None
            }
            _ => {
                self.wrong(field);
                None
            }
        }
    }
}

/// What a choice should look like: in words, and as an example.
fn describe_choice<T>(name: &str, choices: &[(&str, T)]) -> (String, String) {
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    (
        format!("one of {}", listed(&words)),
        format!("{}: {}", last_key(name), words.first().copied().unwrap_or_default()),
    )
}

/// The last of the keys that lead to a value.
fn last_key(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// What a node is, in words.
fn kind(node: &Node) -> &'static str {
    match &node.value {
        _ if node.is_null() => "null",
        Value::Scalar { .. } => "a single value",
        Value::List(_) => "a list",
        Value::Mapping(_) => "a mapping",
    }
}

/// A text shortened for an error message.
pub fn clipped(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    if line.len() == text.len() && line.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    line.chars().take(CHARS_MAX).chain(['…']).collect()
}

/// Words as a list of alternatives.
pub fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The word that was probably meant.
pub fn did_you_mean<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    if word.chars().count() > COMPARED_CHARS_MAX {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let wanted = plain(word);
    let distances = words.iter().map(|known| (strsim::damerau_levenshtein(&wanted, &plain(known)), *known));
    let (distance, meant) = distances.min_by_key(|(distance, _)| *distance)?;
    // A third of the letters may be wrong, and one in a short word.
    (distance <= (meant.chars().count() / 3).max(1)).then_some(meant)
}
