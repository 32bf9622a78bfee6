//! Builds the graph: finds the imported files, and the declaration that each name stands for.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::file::{self, File, Literal, PACKAGE_NAMES_MAX};
use super::graph::{Constant, Enum, Field, Graph, Many, Message, Scalar, Type};
use super::names::push_camel_case;
use super::{descriptor, known, text, wire};
use crate::schemas::SchemaError;

/// The scope around all packages.
const ROOT: usize = 0;

/// Parses a schema and its imports, and resolves all names.
pub(super) fn resolve(text: &str, references: &[(&str, &str)]) -> Result<Graph, SchemaError> {
    let (files, missing) = load(text, references)?;
    let mut scopes = Scopes::default();
    let package = files.first().map_or_else(Box::default, |file| file.package.as_str().into());
    let mut graph = Graph { package, ..Graph::default() };
    for file in &files {
        scopes.add(file, &mut graph)?;
    }
    // The messages of the first file have the first numbers.
    let first = files.first().map_or(&[][..], |file| &file.messages);
    for (number, message) in first.iter().enumerate() {
        match message.parent {
            Some(parent) => graph.messages[parent].nested.push(number),
            None => graph.roots.push(number),
        }
    }
    let mut resolver = Resolver { scopes, graph, missing, message: 0 };
    for file in &files {
        resolver.file(file)?;
    }
    let mut packages = files.iter().flat_map(|file| file.messages.iter().map(|_| file.package.as_str()));
    for message in &mut resolver.graph.messages {
        message.known = known::known(packages.next().unwrap_or_default(), message);
    }
    known::check(&mut resolver.graph.messages);
    Ok(resolver.graph)
}

/// The schema and the files that it imports, itself first, and the names of missing imports.
fn load<'t>(text: &'t str, references: &[(&'t str, &'t str)]) -> Result<(Vec<File<'t>>, Vec<String>), SchemaError> {
    let known: HashMap<&str, (&'t str, &'t str)> =
        references.iter().map(|(name, text)| (*name, (*name, *text))).collect();
    let mut files = vec![parse("", text)?];
    let mut missing = Vec::new();
    let mut loaded = HashSet::new();
    let mut next = 0;
    while next < files.len() {
        for import in std::mem::take(&mut files[next].imports) {
            match known.get(import.as_str()).copied().or_else(|| known::file(&import)) {
                Some((name, text)) if loaded.insert(name) => files.push(parse(name, text)?),
                Some(_) => {}
                None => missing.push(import),
            }
        }
        next += 1;
    }
    Ok((files, missing))
}

/// A .proto text has blanks and semicolons, unless it is empty; base64 has neither.
fn parse<'t>(name: &'t str, text: &'t str) -> Result<File<'t>, SchemaError> {
    let trimmed = text.trim();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\n' | b'\r');
    if trimmed.is_empty() || !trimmed.bytes().all(is_base64) {
        return text::parse(name, text);
    }
    let base64: Vec<u8> = trimmed.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    match STANDARD.decode(base64) {
        Ok(bytes) => descriptor::parse(name, &bytes),
        Err(_) => text::parse(name, text),
    }
}

/// The declaration that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declaration {
    /// A package, or an outer package.
    Package,
    Message(usize),
    Enum(usize),
}

/// The names of all files, as a tree.
#[derive(Default)]
struct Scopes<'f> {
    /// The scope of each name, by the scope around it and the name.
    names: HashMap<(usize, &'f str), usize>,
    /// By scope: the scope around it, and its declaration. The first is the [`ROOT`].
    nodes: Vec<(usize, Declaration)>,
    /// By message: its scope.
    of_messages: Vec<usize>,
}

impl<'f> Scopes<'f> {
    /// Adds the declarations of a file, and reserves their places in the graph.
    fn add(&mut self, file: &'f File<'_>, graph: &mut Graph) -> Result<(), SchemaError> {
        if self.nodes.is_empty() {
            self.nodes.push((ROOT, Declaration::Package));
        }
        if file.package.split('.').count() > PACKAGE_NAMES_MAX {
            return Err(file.error(0, format!("the package's name has more than {PACKAGE_NAMES_MAX} parts")));
        }
        let mut package = ROOT;
        for name in file.package.split('.').filter(|name| !name.is_empty()) {
            package = self.declare(package, name, Declaration::Package).map_err(|e| file.error(0, e))?;
        }
        let from = self.of_messages.len();
        for message in &file.messages {
            let parent = message.parent.map_or(package, |parent| self.of_messages[from + parent]);
            let what = Declaration::Message(graph.messages.len());
            let scope = self.declare(parent, &message.name, what).map_err(|e| file.error(message.at, e))?;
            self.of_messages.push(scope);
            let (name, is_entry, is_of_field) = (message.name.as_str().into(), message.is_entry, message.is_of_field);
            graph.messages.push(Message { name, is_entry, is_of_field, ..Message::default() });
        }
        for declared in &file.enums {
            let parent = declared.parent.map_or(package, |parent| self.of_messages[from + parent]);
            let what = Declaration::Enum(graph.enums.len());
            self.declare(parent, &declared.name, what).map_err(|e| file.error(declared.at, e))?;
            graph.enums.push(Enum::of(&declared.values, is_null(&file.package, declared)));
        }
        Ok(())
    }

    /// Declares a name; returns its scope. Only packages may be declared several times.
    fn declare(&mut self, parent: usize, name: &'f str, what: Declaration) -> Result<usize, String> {
        if let Some(known) = self.names.get(&(parent, name)) {
            let is_package = what == Declaration::Package && self.nodes[*known].1 == Declaration::Package;
            return if is_package { Ok(*known) } else { Err(format!("`{name}` is declared twice")) };
        }
        let scope = self.nodes.len();
        self.nodes.push((parent, what));
        self.names.insert((parent, name), scope);
        Ok(scope)
    }

    /// The message or the enum that a name in a scope stands for: the innermost one.
    fn find(&self, scope: usize, name: &str) -> Option<Declaration> {
        if let Some(absolute) = name.strip_prefix('.') {
            return self.below(ROOT, absolute);
        }
        let mut scope = scope;
        loop {
            if let Some(what) = self.below(scope, name) {
                return Some(what);
            }
            if scope == ROOT {
                return None;
            }
            scope = self.nodes[scope].0;
        }
    }

    fn below(&self, scope: usize, name: &str) -> Option<Declaration> {
        let mut scope = scope;
        for step in name.split('.') {
            scope = *self.names.get(&(scope, step))?;
        }
        Some(self.nodes[scope].1).filter(|what| *what != Declaration::Package)
    }
}

fn is_null(package: &str, declared: &file::Enum) -> bool {
    package == "google.protobuf" && declared.name == "NullValue" && declared.parent.is_none()
}

impl Enum {
    fn of(values: &[(String, i32)], is_null: bool) -> Self {
        let mut symbols: Vec<_> = values.iter().map(|(name, number)| (*number, name.as_str().into())).collect();
        // Stable: the first name of a number stays the first.
        symbols.sort_by_key(|(number, _)| *number);
        Self { symbols, default: values.first().map_or(0, |(_, number)| *number), is_null }
    }
}

struct Resolver<'f> {
    scopes: Scopes<'f>,
    graph: Graph,
    /// The names of missing imports.
    missing: Vec<String>,
    /// The number of the message that is filled next.
    message: usize,
}

impl Resolver<'_> {
    /// Fills the messages of a file. Files come in their order.
    fn file(&mut self, file: &File<'_>) -> Result<(), SchemaError> {
        let from = self.message;
        for message in &file.messages {
            let of_fields = message.fields.iter().map(|field| self.field(file, from, message, field));
            let mut fields = of_fields.collect::<Result<Vec<_>, _>>()?;
            if message.is_entry && !is_entry(&mut fields) {
                return Err(file.error(message.at, format!("`{}` is not the entry of a map", message.name)));
            }
            let mut names = HashSet::new();
            if let Some(field) = message.fields.iter().find(|field| !names.insert(field.name.as_str())) {
                let what = format!("`{}` has two fields named `{}`", message.name, field.name);
                return Err(file.error(field.at, what));
            }
            let mut numbers = HashSet::new();
            if let Some(field) = message.fields.iter().find(|field| !numbers.insert(field.number)) {
                let what = format!("`{}` has two fields with the number {}", message.name, field.number);
                return Err(file.error(field.at, what));
            }
            fields.sort_by_key(|field| field.number);
            let mut firsts = HashMap::new();
            for (i, field) in fields.iter_mut().enumerate() {
                // So far, this is the number of the oneof.
                field.group = match field.group {
                    NO_ONEOF => i,
                    oneof => *firsts.entry(oneof).or_insert(i),
                };
            }
            self.graph.messages[self.message].fields = fields;
            self.message += 1;
        }
        Ok(())
    }

    /// Resolves a field of the current message. `from` is the number of the first message of its file.
    fn field(
        &self,
        file: &File<'_>,
        from: usize,
        message: &file::Message,
        field: &file::Field,
    ) -> Result<Field, SchemaError> {
        let error = |what: String| file.error(field.at, format!("the field `{}` {what}", field.name));
        let number = u32::try_from(field.number).ok().filter(|number| (1..=wire::NUMBER_MAX).contains(number));
        let Some(number) = number else {
            return Err(error(format!(
                "has the number {}, which is not between 1 and {}",
                field.number,
                wire::NUMBER_MAX
            )));
        };
        let mut many = if field.is_repeated { Many::List } else { Many::One };
        let of = match &field.of {
            file::Type::Scalar(scalar) => Type::Scalar(*scalar),
            file::Type::Named(name) => match self.scopes.find(self.scopes.of_messages[self.message], name) {
                Some(Declaration::Message(inner)) => {
                    let is_entry = inner
                        .checked_sub(from)
                        .and_then(|inner| file.messages.get(inner))
                        .is_some_and(|inner| inner.is_entry && inner.parent == Some(self.message - from));
                    if is_entry && many == Many::List {
                        many = Many::Map;
                    }
                    let is_delimited = field.features.is_delimited == Some(true);
                    let is_group = is_delimited && !is_entry && !message.is_entry;
                    if is_group { Type::Group(inner) } else { Type::Message(inner) }
                }
                Some(Declaration::Enum(of)) => Type::Enum(of),
                Some(Declaration::Package) | None => return Err(error(self.not_found(name))),
            },
        };
        let is_explicit = field.features.is_explicit == Some(true);
        let default = match (many, &field.default) {
            (Many::One, Some(literal)) => {
                let default = self.constant(of, literal);
                Some(default.ok_or_else(|| error("has a default that does not fit its type".to_owned()))?)
            }
            (Many::One, None) if message.is_entry || !is_explicit && field.oneof.is_none() => self.zero(of),
            _ => None,
        };
        let json_name = field.json_name.clone().unwrap_or_else(|| json_name(&field.name));
        let (name, json_name) = (field.name.as_str().into(), json_name.into());
        Ok(Field { number, name, json_name, of, many, group: field.oneof.unwrap_or(NO_ONEOF), default })
    }

    fn not_found(&self, name: &str) -> String {
        let what = format!("has the type `{name}`, which is not declared");
        match &self.missing[..] {
            [] => what,
            missing => format!("{what}; not among the references: `{}`", missing.join("`, `")),
        }
    }

    /// The value of an absent field of this type, if it is a scalar.
    fn zero(&self, of: Type) -> Option<Constant> {
        match of {
            Type::Scalar(scalar) => Some(scalar.zero()),
            Type::Enum(of) => Some(signed(self.graph.enums[of].default.into())),
            Type::Message(_) | Type::Group(_) => None,
        }
    }

    /// The value of a declared default; `None` if it does not fit the type.
    fn constant(&self, of: Type, literal: &Literal) -> Option<Constant> {
        use Scalar::*;
        let scalar = match (of, literal) {
            (Type::Scalar(scalar), _) => scalar,
            (Type::Enum(of), Literal::Word(word)) => {
                let symbols = &self.graph.enums[of].symbols;
                let number = symbols.iter().find(|(_, symbol)| **symbol == **word).map(|(number, _)| *number);
                return number.map(|number| signed(number.into()));
            }
            _ => return None,
        };
        match (scalar, literal) {
            (Int32 | Sint32 | Sfixed32, Literal::Integer(value)) => {
                i32::try_from(*value).ok().map(|value| signed(value.into()))
            }
            (Int64 | Sint64 | Sfixed64, Literal::Integer(value)) => i64::try_from(*value).ok().map(signed),
            (Uint32 | Fixed32, Literal::Integer(value)) => {
                u32::try_from(*value).ok().map(|value| Constant::Bits(value.into()))
            }
            (Uint64 | Fixed64, Literal::Integer(value)) => u64::try_from(*value).ok().map(Constant::Bits),
            (Bool, Literal::Word(word)) => match word.as_str() {
                "true" => Some(Constant::Bits(1)),
                "false" => Some(Constant::Bits(0)),
                _ => None,
            },
            (String, Literal::Text(text)) => {
                std::str::from_utf8(text).ok().map(|text| Constant::Bytes(text.as_bytes().into()))
            }
            (Bytes, Literal::Text(text)) => Some(Constant::Bytes(text.as_slice().into())),
            (Double, literal) => float(literal).map(|value| Constant::Bits(value.to_bits())),
            // Rounded to the nearest float.
            (Float, literal) => float(literal).map(|value| Constant::Bits((value as f32).to_bits().into())),
            _ => None,
        }
    }
}

const NO_ONEOF: usize = usize::MAX;

fn signed(value: i64) -> Constant {
    Constant::Bits(value.cast_unsigned())
}

fn float(literal: &Literal) -> Option<f64> {
    match literal {
        // Rounded to the nearest double.
        Literal::Integer(value) => Some(*value as f64),
        Literal::Float(value) => Some(*value),
        Literal::Word(word) => match word.as_str() {
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            "nan" | "-nan" => Some(f64::NAN),
            _ => None,
        },
        _ => None,
    }
}

/// Whether these are the fields of a map's entry; sorts them: the key, then the value.
fn is_entry(fields: &mut [Field]) -> bool {
    fields.sort_by_key(|field| field.number);
    let [key, value] = fields else { return false };
    let is_key = match key.of {
        Type::Scalar(scalar) => !matches!(scalar, Scalar::Double | Scalar::Float | Scalar::Bytes),
        _ => false,
    };
    is_key && (key.number, key.many) == (1, Many::One) && (value.number, value.many) == (2, Many::One)
}

/// The JSON name of a field that declares none.
fn json_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    push_camel_case(name, false, &mut out);
    out
}
