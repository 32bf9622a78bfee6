//! Reads a serialized `FileDescriptorProto`, as registries return it with `format=serialized`.
//!
//! It recurses as deep as declarations are nested, which [`NESTED_MAX`] bounds.

use super::file::{Enum, Features, Field, File, Literal, Message, NESTED_MAX, Type};
use super::graph::Scalar;
use super::lex;
use super::wire::{self, Cursor, Malformed};
use crate::schemas::SchemaError;

/// The value of a field of the descriptor.
#[derive(Clone, Copy)]
enum Value<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The file with this descriptor.
pub(super) fn parse<'t>(name: &'t str, bytes: &[u8]) -> Result<File<'t>, SchemaError> {
    let file = File { name, ..File::default() };
    let mut parser = Parser { file };
    parser.file(bytes)?;
    parser.file.settle();
    Ok(parser.file)
}

struct Parser<'t> {
    file: File<'t>,
}

impl Parser<'_> {
    #[cold]
    fn malformed(&self, malformed: &Malformed) -> SchemaError {
        self.file.error(0, format!("the text is neither a .proto file nor a descriptor in base64: {}", malformed.what))
    }

    /// Calls `take` with the number and the value of each field of a message.
    fn each<'b>(
        &mut self,
        bytes: &'b [u8],
        mut take: impl FnMut(&mut Self, u32, Value<'b>) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        let mut cursor = Cursor::new(bytes, 0);
        while !cursor.is_at_end() {
            let (number, wire) = cursor.key().map_err(|e| self.malformed(&e))?;
            let value = if wire == wire::VARINT {
                Value::Number(cursor.varint().map_err(|e| self.malformed(&e))?)
            } else {
                let (from, to) = cursor.value(number, wire, NESTED_MAX).map_err(|e| self.malformed(&e))?;
                if wire != wire::LENGTH {
                    continue;
                }
                Value::Bytes(&bytes[from..to])
            };
            take(self, number, value)?;
        }
        Ok(())
    }

    fn text(&self, bytes: &[u8]) -> Result<String, SchemaError> {
        String::from_utf8(bytes.to_vec()).map_err(|_| self.file.error(0, "a name in the descriptor is not UTF-8"))
    }

    fn file(&mut self, bytes: &[u8]) -> Result<(), SchemaError> {
        // The syntax applies to the whole file, and comes at the end of the descriptor.
        self.file.features = Features::PROTO2;
        self.each(bytes, |this, number, value| {
            if let (12, Value::Bytes(syntax)) = (number, value) {
                this.file.features = match syntax {
                    b"proto3" => Features::PROTO3,
                    b"editions" => Features::EDITIONS,
                    _ => Features::PROTO2,
                };
            }
            Ok(())
        })?;
        let mut features = self.file.features;
        self.options(bytes, 8, 50, &mut features)?;
        self.file.features = features;
        self.each(bytes, |this, number, value| {
            match (number, value) {
                (2, Value::Bytes(package)) => this.file.package = this.text(package)?,
                (3, Value::Bytes(import)) => {
                    let import = this.text(import)?;
                    this.file.imports.push(import);
                }
                (4, Value::Bytes(message)) => this.message(message, None, 0)?,
                (5, Value::Bytes(declared)) => this.enumeration(declared, None)?,
                _ => {}
            }
            Ok(())
        })
    }

    /// Reads the features of a declaration, which are field `number` of the options in its field `options`.
    fn options(&mut self, bytes: &[u8], options: u32, number: u32, to: &mut Features) -> Result<(), SchemaError> {
        self.each(bytes, |this, field, value| match value {
            Value::Bytes(value) if field == options => this.each(value, |this, field, value| match value {
                Value::Bytes(value) if field == number => this.each(value, |_, field, value| {
                    match (field, value) {
                        (1, Value::Number(presence)) => to.is_explicit = Some(presence != 2),
                        (5, Value::Number(encoding)) => to.is_delimited = Some(encoding == 2),
                        _ => {}
                    }
                    Ok(())
                }),
                _ => Ok(()),
            }),
            _ => Ok(()),
        })
    }

    fn message(&mut self, bytes: &[u8], parent: Option<usize>, depth: usize) -> Result<(), SchemaError> {
        if depth == NESTED_MAX {
            return Err(self.file.error(0, format!("messages are nested more than {NESTED_MAX} deep")));
        }
        let own = self.file.messages.len();
        let mut features = Features::default();
        self.options(bytes, 7, 12, &mut features)?;
        self.file.messages.push(Message { parent, features, ..Message::default() });
        self.each(bytes, |this, number, value| {
            match (number, value) {
                (1, Value::Bytes(name)) => this.file.messages[own].name = this.text(name)?,
                (2, Value::Bytes(field)) => this.field(field, own)?,
                (3, Value::Bytes(nested)) => this.message(nested, Some(own), depth + 1)?,
                (4, Value::Bytes(declared)) => this.enumeration(declared, Some(own))?,
                (7, Value::Bytes(options)) => this.each(options, |this, number, value| {
                    if let (7, Value::Number(is_entry)) = (number, value) {
                        this.file.messages[own].is_entry = is_entry != 0;
                    }
                    Ok(())
                })?,
                (8, Value::Bytes(oneof)) => {
                    let mut features = Features::default();
                    this.options(oneof, 2, 1, &mut features)?;
                    this.file.messages[own].oneofs.push(features);
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn field(&mut self, bytes: &[u8], message: usize) -> Result<(), SchemaError> {
        let mut parts = FieldParts::default();
        self.each(bytes, |this, number, value| {
            match (number, value) {
                (1, Value::Bytes(name)) => parts.name = this.text(name)?,
                // An int32: the bits above repeat its sign.
                (3, Value::Number(value)) => parts.number = i64::from(value as u32 as i32),
                (4, Value::Number(value)) => parts.label = value,
                (5, Value::Number(value)) => parts.of = value,
                (6, Value::Bytes(name)) => parts.type_name = this.text(name)?,
                (7, Value::Bytes(text)) => parts.default = Some(this.text(text)?),
                (9, Value::Number(value)) => parts.oneof = usize::try_from(value).ok(),
                (10, Value::Bytes(name)) => parts.json_name = Some(this.text(name)?),
                (17, Value::Number(value)) => parts.is_optional = value != 0,
                _ => {}
            }
            Ok(())
        })?;
        let mut features = Features::default();
        self.options(bytes, 8, 21, &mut features)?;
        if parts.of == GROUP {
            features.is_delimited = Some(true);
        }
        if parts.is_optional || parts.label == REQUIRED {
            features.is_explicit = Some(true);
        }
        let of = match Scalar::of_number(parts.of) {
            Some(scalar) => Type::Scalar(scalar),
            None if parts.type_name.is_empty() => {
                let what = format!("field `{}` of `{}` has no type", parts.name, self.file.messages[message].name);
                return Err(self.file.error(0, what));
            }
            None => Type::Named(parts.type_name),
        };
        let default = parts.default.map(|text| literal(&of, text));
        // `optional` in proto3 is a oneof with only this field.
        let oneof = parts.oneof.filter(|_| !parts.is_optional);
        let FieldParts { name, json_name, number, label, .. } = parts;
        let is_repeated = label == REPEATED;
        let field = Field { at: 0, name, json_name, number, is_repeated, of, features, oneof, default };
        self.file.messages[message].fields.push(field);
        Ok(())
    }

    fn enumeration(&mut self, bytes: &[u8], parent: Option<usize>) -> Result<(), SchemaError> {
        let mut declared = Enum { parent, ..Enum::default() };
        self.each(bytes, |this, number, value| {
            match (number, value) {
                (1, Value::Bytes(name)) => declared.name = this.text(name)?,
                (2, Value::Bytes(value)) => {
                    let mut pair = (String::new(), 0);
                    this.each(value, |this, number, value| {
                        match (number, value) {
                            (1, Value::Bytes(name)) => pair.0 = this.text(name)?,
                            // An int32, as above.
                            (2, Value::Number(value)) => pair.1 = value as u32 as i32,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    declared.values.push(pair);
                }
                _ => {}
            }
            Ok(())
        })?;
        self.file.enums.push(declared);
        Ok(())
    }
}

const REQUIRED: u64 = 2;
const REPEATED: u64 = 3;
const GROUP: u64 = 10;

/// The descriptor of a field.
#[derive(Default)]
struct FieldParts {
    name: String,
    json_name: Option<String>,
    number: i64,
    label: u64,
    of: u64,
    type_name: String,
    default: Option<String>,
    oneof: Option<usize>,
    is_optional: bool,
}

/// The literal of a default, which descriptors write as a string.
fn literal(of: &Type, text: String) -> Literal {
    match of {
        Type::Scalar(Scalar::String) => Literal::Text(text.into_bytes()),
        Type::Scalar(Scalar::Bytes) => Literal::Text(lex::unescape(&text).unwrap_or_else(|| text.into_bytes())),
        _ => match (text.parse(), text.parse()) {
            (Ok(integer), _) => Literal::Integer(integer),
            (_, Ok(float)) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => Literal::Float(float),
            _ => Literal::Word(text),
        },
    }
}
