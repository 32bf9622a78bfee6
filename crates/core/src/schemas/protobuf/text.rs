//! Reads .proto texts: proto2, proto3 and editions.
//!
//! It accepts what protoc accepts, and skips what no reader needs: services, extensions (they are unknown fields),
//! reserved numbers, and most options. It recurses as deep as declarations are nested, which [`NESTED_MAX`] bounds.

use super::file::{Enum, Features, Field, File, Literal, Message, NESTED_MAX, Type};
use super::graph::Scalar;
use super::lex::Token;
use super::names::push_camel_case;
use super::parser::{Parser, Setting};
use crate::schemas::SchemaError;

/// The file with this text.
pub(super) fn parse<'t>(name: &'t str, text: &'t str) -> Result<File<'t>, SchemaError> {
    let mut parser = Parser::new(name, text)?;
    parser.file()?;
    parser.file.settle();
    Ok(parser.file)
}

/// The scope around a declaration.
#[derive(Clone, Copy)]
struct Scope {
    /// The message; `None` for the file.
    message: Option<usize>,
    depth: usize,
}

/// The label before a field's type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    None,
    Optional,
    Required,
    Repeated,
}

impl<'t> Parser<'t> {
    fn file(&mut self) -> Result<(), SchemaError> {
        self.file.features = self.syntax()?;
        let scope = Scope { message: None, depth: 0 };
        loop {
            let next = self.next;
            match next {
                Token::End => return Ok(()),
                Token::Symbol(';') => self.advance()?,
                Token::Word("import") => self.import()?,
                Token::Word("package") => {
                    self.advance()?;
                    self.file.package = self.full_name("the package's name")?;
                    self.expect(';')?;
                }
                Token::Word("service") => {
                    self.advance()?;
                    self.word("the service's name")?;
                    self.skip_braces()?;
                }
                Token::Word(_) if self.declaration(scope)? => {}
                _ => {
                    return self
                        .expected("a declaration: `message`, `enum`, `import`, `option`, `service` or `extend`");
                }
            }
        }
    }

    fn syntax(&mut self) -> Result<Features, SchemaError> {
        let is_edition = self.is_at_word("edition");
        if !is_edition && !self.is_at_word("syntax") {
            return Ok(Features::PROTO2);
        }
        self.advance()?;
        self.expect('=')?;
        let at = self.at;
        let version = self.utf8_string()?;
        self.expect(';')?;
        match (is_edition, version.as_str()) {
            (false, "proto2") => Ok(Features::PROTO2),
            (false, "proto3") => Ok(Features::PROTO3),
            (true, "2023" | "2024" | "2026") => Ok(Features::EDITIONS),
            (false, _) => Err(self.file.error(at, format!("unknown syntax {version:?}"))),
            (true, _) => Err(self.file.error(at, format!("unknown edition {version:?}"))),
        }
    }

    fn import(&mut self) -> Result<(), SchemaError> {
        self.advance()?;
        if !self.passes_word("public")? && !self.passes_word("weak")? {
            self.passes_word("option")?;
        }
        let name = self.utf8_string()?;
        self.file.imports.push(name);
        self.expect(';')
    }

    /// Reads a declaration that may be in a file or in a message; returns false if the next tokens are not one.
    fn declaration(&mut self, scope: Scope) -> Result<bool, SchemaError> {
        // Visibility, since edition 2024.
        let is_marked = self.is_at_word("export") || self.is_at_word("local");
        if is_marked && matches!(self.second(), Token::Word("message" | "enum")) {
            self.advance()?;
        }
        let names = matches!(self.second(), Token::Word(_));
        match self.next {
            Token::Word("message") if names => {
                self.advance()?;
                self.message(scope)?;
            }
            Token::Word("enum") if names => {
                self.advance()?;
                self.enumeration(scope)?;
            }
            Token::Word("extend") => {
                self.advance()?;
                self.full_name("the extended message's name")?;
                // No reader needs its fields, but a group in it declares a message.
                self.extension(scope)?;
            }
            Token::Word("option") => {
                let setting = self.option()?;
                match scope.message.and_then(|message| self.file.messages.get_mut(message)) {
                    // protoc rejects this option, but Confluent's client for Java registers maps with it.
                    Some(message) if setting.name == "map_entry" => {
                        message.is_entry = matches!(&setting.value, Literal::Word(value) if value == "true");
                    }
                    Some(message) => apply(&setting, &mut message.features),
                    None => apply(&setting, &mut self.file.features),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn extension(&mut self, scope: Scope) -> Result<(), SchemaError> {
        self.expect('{')?;
        while !self.passes('}')? {
            if !self.passes(';')? {
                self.field(scope, None)?;
            }
        }
        Ok(())
    }

    /// Reads a message from its name on.
    fn message(&mut self, scope: Scope) -> Result<(), SchemaError> {
        let at = self.at;
        let name = self.word("the message's name")?.to_owned();
        self.file.messages.push(Message { at, name, parent: scope.message, ..Message::default() });
        self.body(self.file.messages.len() - 1, scope)
    }

    /// Reads the body of the message with this number.
    fn body(&mut self, message: usize, scope: Scope) -> Result<(), SchemaError> {
        if scope.depth == NESTED_MAX {
            return Err(self.error(format!("messages are nested more than {NESTED_MAX} deep")));
        }
        self.expect('{')?;
        let inner = Scope { message: Some(message), depth: scope.depth + 1 };
        while !self.passes('}')? {
            let next = self.next;
            match next {
                Token::Symbol(';') => self.advance()?,
                Token::Word("extensions" | "reserved") if !matches!(self.second(), Token::Symbol('.')) => {
                    self.skip_statement()?;
                }
                Token::Word("oneof") if matches!(self.second(), Token::Word(_)) => {
                    self.advance()?;
                    self.oneof(inner, message)?;
                }
                Token::Word(_) if self.declaration(inner)? => {}
                Token::Word(_) | Token::Symbol('.') => {
                    let field = self.field(inner, None)?;
                    self.file.messages[message].fields.push(field);
                }
                _ => return self.expected("a field or a declaration"),
            }
        }
        Ok(())
    }

    fn oneof(&mut self, scope: Scope, message: usize) -> Result<(), SchemaError> {
        self.word("the oneof's name")?;
        self.expect('{')?;
        let number = self.file.messages[message].oneofs.len();
        self.file.messages[message].oneofs.push(Features::default());
        while !self.passes('}')? {
            if self.is_at_word("option") {
                let setting = self.option()?;
                apply(&setting, &mut self.file.messages[message].oneofs[number]);
            } else if !self.passes(';')? {
                let field = self.field(scope, Some(number))?;
                self.file.messages[message].fields.push(field);
            }
        }
        Ok(())
    }

    fn label(&mut self) -> Result<Label, SchemaError> {
        let label = match self.next {
            Token::Word("optional") => Label::Optional,
            Token::Word("required") => Label::Required,
            Token::Word("repeated") => Label::Repeated,
            _ => return Ok(Label::None),
        };
        self.advance()?;
        Ok(label)
    }

    fn field(&mut self, scope: Scope, oneof: Option<usize>) -> Result<Field, SchemaError> {
        let label = self.label()?;
        if self.is_at_word("map") && self.second() == Token::Symbol('<') {
            return self.map(scope);
        }
        if self.is_at_word("group") && matches!(self.second(), Token::Word(_)) {
            return self.group(scope, label, oneof);
        }
        let of = self.full_name("a field's type")?;
        let at = self.at;
        let name = self.word("the field's name")?.to_owned();
        let mut field = Field {
            at,
            name,
            json_name: None,
            number: self.number()?,
            is_repeated: label == Label::Repeated,
            of: Scalar::of_keyword(&of).map_or(Type::Named(of), Type::Scalar),
            features: Features::default(),
            oneof,
            default: None,
        };
        self.settings(&mut field)?;
        if matches!(label, Label::Optional | Label::Required) {
            field.features.is_explicit = Some(true);
        }
        self.expect(';')?;
        Ok(field)
    }

    fn number(&mut self) -> Result<i64, SchemaError> {
        self.expect('=')?;
        self.integer("the field's number")
    }

    /// Reads the options of a field, if there are any.
    fn settings(&mut self, field: &mut Field) -> Result<(), SchemaError> {
        if !self.passes('[')? {
            return Ok(());
        }
        while !self.passes(']')? {
            let at = self.at;
            let setting = self.setting()?;
            match (setting.name.as_str(), &setting.value) {
                ("default", _) => field.default = Some(setting.value),
                ("json_name", Literal::Text(text)) => {
                    let name = String::from_utf8(text.clone());
                    field.json_name = Some(name.map_err(|_| self.file.error(at, "this string is not UTF-8"))?);
                }
                _ => apply(&setting, &mut field.features),
            }
            if !self.passes(',')? && !self.is_at(']') {
                return self.expected("`,` or `]`");
            }
        }
        Ok(())
    }

    /// Reads a map, and adds the message of its entries.
    fn map(&mut self, scope: Scope) -> Result<Field, SchemaError> {
        let from = self.at;
        self.advance()?;
        self.expect('<')?;
        let mut part = |number, name: &str| -> Result<Field, SchemaError> {
            let at = self.at;
            let of = self.full_name("a type")?;
            let of = Scalar::of_keyword(&of).map_or(Type::Named(of), Type::Scalar);
            self.expect(if number == 1 { ',' } else { '>' })?;
            let features = Features::default();
            let (name, json_name, is_repeated, oneof, default) = (name.to_owned(), None, false, None, None);
            Ok(Field { at, name, json_name, number, is_repeated, of, features, oneof, default })
        };
        let fields = vec![part(1, "key")?, part(2, "value")?];
        let at = self.at;
        let name = self.word("the field's name")?.to_owned();
        let entry = entry_name(&name);
        let of = Type::Named(entry.clone());
        let number = self.number()?;
        let mut field = Field {
            at,
            name,
            json_name: None,
            number,
            is_repeated: true,
            of,
            features: Features::default(),
            oneof: None,
            default: None,
        };
        self.settings(&mut field)?;
        self.expect(';')?;
        let parent = scope.message;
        let entry = Message { at: from, name: entry, parent, fields, ..Message::default() };
        self.file.messages.push(Message { is_entry: true, is_of_field: true, ..entry });
        Ok(field)
    }

    /// Reads a group, and adds its message.
    fn group(&mut self, scope: Scope, label: Label, oneof: Option<usize>) -> Result<Field, SchemaError> {
        self.advance()?;
        let at = self.at;
        let of = self.word("the group's name")?.to_owned();
        let number = self.number()?;
        let mut field = Field {
            at,
            name: of.to_ascii_lowercase(),
            json_name: None,
            number,
            is_repeated: label == Label::Repeated,
            of: Type::Named(of.clone()),
            features: Features { is_explicit: None, is_delimited: Some(true) },
            oneof,
            default: None,
        };
        self.settings(&mut field)?;
        let parent = scope.message;
        self.file.messages.push(Message { at, name: of, parent, is_of_field: true, ..Message::default() });
        self.body(self.file.messages.len() - 1, scope)?;
        Ok(field)
    }

    fn enumeration(&mut self, scope: Scope) -> Result<(), SchemaError> {
        let at = self.at;
        let name = self.word("the enum's name")?.to_owned();
        self.expect('{')?;
        let mut values = Vec::new();
        while !self.passes('}')? {
            match self.next {
                Token::Symbol(';') => self.advance()?,
                Token::Word("option") if self.second() != Token::Symbol('=') => drop(self.option()?),
                Token::Word("reserved") if self.second() != Token::Symbol('=') => self.skip_statement()?,
                Token::Word(symbol) => {
                    self.advance()?;
                    self.expect('=')?;
                    let at = self.at;
                    let number = self.integer("the value's number")?;
                    let number = i32::try_from(number);
                    values.push((
                        symbol.to_owned(),
                        number.map_err(|_| self.file.error(at, "a number of more than 32 bits"))?,
                    ));
                    self.skip_statement()?;
                }
                _ => return self.expected("a value of the enum"),
            }
        }
        self.file.enums.push(Enum { at, name, parent: scope.message, values });
        Ok(())
    }
}

/// Applies an option that sets features.
fn apply(setting: &Setting, features: &mut Features) {
    match (&setting.value, setting.name.strip_prefix("features")) {
        (Literal::Word(value), Some(name)) => features.set(name.strip_prefix('.').unwrap_or_default(), value),
        (Literal::Aggregate(words), Some("")) => words.iter().for_each(|(name, value)| features.set(name, value)),
        _ => {}
    }
}

/// The name of the message of a map's entries.
fn entry_name(field: &str) -> String {
    let mut name = String::with_capacity(field.len() + 5);
    push_camel_case(field, true, &mut name);
    name + "Entry"
}
