//! The same change events in Protobuf, by messages that have the fields of the Avro schema.

use std::fmt::Write as _;

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, OneofDescriptorProto};
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, Value};
use serde_json::Value as Json;

use super::envelope;
use crate::failure::{Context as _, Outcome, fail};

/// After the schema's id, for the first message of the schema.
const MESSAGE_INDEX: u8 = 0;
/// Byte 0, the schema's id, and the message's index.
pub const PREFIX_BYTES: usize = envelope::PREFIX_BYTES + 1;

/// A Protobuf schema whose first message is that of the records.
pub struct Schema {
    /// As it is registered.
    pub text: String,
    /// Of its first message.
    pub message: MessageDescriptor,
    id: u32,
}

impl Schema {
    /// The one with the fields of this Avro schema, a record. Records name it by `id`.
    pub fn of(avro: &str, id: u32) -> Outcome<Schema> {
        let mut messages = Vec::new();
        let first = add(&serde_json::from_str(avro)?, &mut messages)?;
        let text = text(&messages);
        let file = FileDescriptorProto {
            name: Some("envelope.proto".to_owned()),
            syntax: Some("proto3".to_owned()),
            message_type: messages,
            ..FileDescriptorProto::default()
        };
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_proto(file).context("a descriptor of the benchmark's own")?;
        let message = pool.get_message_by_name(&first).context("its first message")?;
        Ok(Schema { text, message, id })
    }

    /// A record that is given in JSON, with its prefix.
    pub fn written(&self, json: &[u8]) -> Outcome<Vec<u8>> {
        let mut bytes = envelope::prefix(self.id);
        bytes.push(MESSAGE_INDEX);
        bytes.extend(message(&self.message, &serde_json::from_slice(json)?)?.encode_to_vec());
        Ok(bytes)
    }
}

/// Adds a record's message, and those of the records in it. Returns its name.
fn add(record: &Json, messages: &mut Vec<DescriptorProto>) -> Outcome<String> {
    let (Some(name), Some(fields)) = (record["name"].as_str(), record["fields"].as_array()) else {
        fail!("not a record: {record}");
    };
    let place = messages.len();
    messages.push(DescriptorProto { name: Some(name.to_owned()), ..DescriptorProto::default() });
    for (number, field) in (1..).zip(fields) {
        let union = field["type"].as_array();
        let of = union.and_then(|union| union.iter().find(|branch| *branch != "null")).unwrap_or(&field["type"]);
        let (r#type, type_name) = match of["type"].as_str().or(of.as_str()) {
            Some("record") => (Type::Message, Some(add(of, messages)?)),
            Some("string") => (Type::String, None),
            Some("long") => (Type::Int64, None),
            Some("int") => (Type::Int32, None),
            Some("boolean") => (Type::Bool, None),
            Some(named) => (Type::Message, Some(named.to_owned())),
            None => fail!("not a type: {of}"),
        };
        let message = &mut messages[place];
        let mut descriptor = FieldDescriptorProto {
            name: field["name"].as_str().map(str::to_owned),
            number: Some(number),
            type_name: type_name.map(|name| format!(".{name}")),
            ..FieldDescriptorProto::default()
        };
        descriptor.set_type(r#type);
        descriptor.set_label(Label::Optional);
        if union.is_some() && r#type != Type::Message {
            descriptor.proto3_optional = Some(true);
            descriptor.oneof_index = Some(message.oneof_decl.len() as i32);
            let name = Some(format!("_{}", descriptor.name()));
            message.oneof_decl.push(OneofDescriptorProto { name, ..OneofDescriptorProto::default() });
        }
        message.field.push(descriptor);
    }
    Ok(name.to_owned())
}

fn text(messages: &[DescriptorProto]) -> String {
    let mut text = String::from("syntax = \"proto3\";\n");
    for message in messages {
        let _ = writeln!(text, "\nmessage {} {{", message.name());
        for field in &message.field {
            let label = if field.proto3_optional() { "optional " } else { "" };
            let of = match field.r#type() {
                Type::Message => field.type_name().trim_start_matches('.'),
                Type::String => "string",
                Type::Int64 => "int64",
                Type::Int32 => "int32",
                _ => "bool",
            };
            let _ = writeln!(text, "  {label}{of} {} = {};", field.name(), field.number());
        }
        text.push_str("}\n");
    }
    text
}

fn message(descriptor: &MessageDescriptor, json: &Json) -> Outcome<DynamicMessage> {
    let mut made = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        let json = &json[field.name()];
        let value = match field.kind() {
            _ if json.is_null() => continue,
            Kind::Message(inner) => Some(Value::Message(message(&inner, json)?)),
            Kind::String => json.as_str().map(|text| Value::String(text.to_owned())),
            Kind::Int64 => json.as_i64().map(Value::I64),
            Kind::Int32 => json.as_i64().and_then(|number| number.try_into().ok()).map(Value::I32),
            _ => json.as_bool().map(Value::Bool),
        };
        made.set_field(&field, value.context(format_args!("{} in JSON", field.full_name()))?);
    }
    Ok(made)
}
