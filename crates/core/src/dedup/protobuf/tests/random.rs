//! Random schemas, as descriptors and as texts, and random records by them, also in forms that producers rarely write.

use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    MessageOptions, OneofDescriptorProto,
};
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

/// Numbers from a seed (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const SCALARS: [Type; 15] = [
    Type::Double,
    Type::Float,
    Type::Int64,
    Type::Uint64,
    Type::Int32,
    Type::Fixed64,
    Type::Fixed32,
    Type::Bool,
    Type::String,
    Type::Bytes,
    Type::Uint32,
    Type::Sfixed32,
    Type::Sfixed64,
    Type::Sint32,
    Type::Sint64,
];

const KNOWN: [&str; 11] = [
    "Any",
    "Timestamp",
    "Duration",
    "FieldMask",
    "Struct",
    "Value",
    "ListValue",
    "DoubleValue",
    "Int64Value",
    "StringValue",
    "BytesValue",
];

const IMPORTS: [&str; 6] = ["any", "timestamp", "duration", "field_mask", "struct", "wrappers"];

const MESSAGES: usize = 4;

/// A schema whose first message is `t.M0`.
pub(super) fn schema(random: &mut Random) -> FileDescriptorProto {
    let is_proto3 = random.one_in(2);
    let messages = (0..MESSAGES).map(|number| message(random, number, is_proto3));
    let value = |(name, number): (&str, i32)| EnumValueDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        ..EnumValueDescriptorProto::default()
    };
    FileDescriptorProto {
        name: Some("t.proto".to_owned()),
        package: Some("t".to_owned()),
        syntax: is_proto3.then(|| "proto3".to_owned()),
        dependency: IMPORTS.iter().map(|name| format!("google/protobuf/{name}.proto")).collect(),
        message_type: messages.collect(),
        enum_type: vec![EnumDescriptorProto {
            name: Some("E".to_owned()),
            value: [("E_ZERO", 0), ("E_TWO", 2), ("E_LESS", -1)].map(value).into(),
            ..EnumDescriptorProto::default()
        }],
        ..FileDescriptorProto::default()
    }
}

fn message(random: &mut Random, number: usize, is_proto3: bool) -> DescriptorProto {
    let mut message = DescriptorProto { name: Some(format!("M{number}")), ..DescriptorProto::default() };
    let mut optionals = Vec::new();
    let mut numbers: Vec<i32> = (1..20).chain([127, 128, 300, 20_000, 536_870_911]).collect();
    for place in 0..random.below(12) + 1 {
        let number = numbers.swap_remove(random.below(numbers.len()));
        let mut field = FieldDescriptorProto {
            name: Some(format!("f_{place}")),
            number: Some(number),
            label: Some(Label::Optional.into()),
            ..FieldDescriptorProto::default()
        };
        kind(random, &mut field);
        match random.below(10) {
            0..3 => field.label = Some(Label::Repeated.into()),
            3..5 => {
                field.oneof_index = Some(0);
                if message.oneof_decl.is_empty() {
                    message.oneof_decl.push(oneof("o"));
                }
            }
            5 => map(random, &mut message, &mut field),
            6 if !is_proto3 => group(random, &mut message, &mut field),
            7 if is_proto3 => optionals.push(place),
            7 => default(random, &mut field),
            _ => {}
        }
        message.field.push(field);
    }
    for place in optionals {
        let field = &mut message.field[place];
        field.proto3_optional = Some(true);
        field.oneof_index = Some(message.oneof_decl.len() as i32);
        message.oneof_decl.push(oneof(&format!("_f_{place}")));
    }
    message
}

fn oneof(name: &str) -> OneofDescriptorProto {
    OneofDescriptorProto { name: Some(name.to_owned()), ..OneofDescriptorProto::default() }
}

fn kind(random: &mut Random, field: &mut FieldDescriptorProto) {
    let (of, name) = match random.below(10) {
        0..6 => (random.of(&SCALARS), None),
        6 => (Type::Enum, Some(".t.E".to_owned())),
        7 => (Type::Message, Some(format!(".google.protobuf.{}", random.of(&KNOWN)))),
        _ => (Type::Message, Some(format!(".t.M{}", random.below(MESSAGES)))),
    };
    field.set_type(of);
    field.type_name = name;
}

fn map(random: &mut Random, message: &mut DescriptorProto, field: &mut FieldDescriptorProto) {
    let keys: Vec<_> =
        SCALARS.into_iter().filter(|key| !matches!(key, Type::Double | Type::Float | Type::Bytes)).collect();
    let key = random.of(&keys);
    let part = |name: &str, number| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        ..FieldDescriptorProto::default()
    };
    let mut value = part("value", 2);
    value.r#type = field.r#type;
    value.type_name = field.type_name.take();
    let mut key_field = part("key", 1);
    key_field.set_type(key);
    let name = format!("{}Entry", field.name().replace('_', "").to_uppercase());
    message.nested_type.push(DescriptorProto {
        name: Some(name.clone()),
        field: vec![key_field, value],
        options: Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
        ..DescriptorProto::default()
    });
    field.label = Some(Label::Repeated.into());
    field.set_type(Type::Message);
    field.type_name = Some(format!(".t.{}.{name}", message.name()));
}

/// A group's field is named after its message.
fn group(random: &mut Random, message: &mut DescriptorProto, field: &mut FieldDescriptorProto) {
    let name = format!("G{}", field.name().replace('_', ""));
    field.name = Some(name.to_lowercase());
    field.set_type(Type::Group);
    field.type_name = Some(format!(".t.{}.{name}", message.name()));
    if random.one_in(3) {
        field.label = Some(Label::Repeated.into());
    }
    let mut inner = FieldDescriptorProto {
        name: Some("x".to_owned()),
        number: Some(1),
        label: Some(Label::Optional.into()),
        ..FieldDescriptorProto::default()
    };
    kind(random, &mut inner);
    message.nested_type.push(DescriptorProto { name: Some(name), field: vec![inner], ..DescriptorProto::default() });
}

fn default(random: &mut Random, field: &mut FieldDescriptorProto) {
    let text = match field.r#type() {
        Type::Message | Type::Group => return,
        Type::Enum => "E_TWO",
        Type::Bool => "true",
        Type::String => "a default",
        Type::Bytes => "\\001b",
        Type::Double | Type::Float => random.of(&["1.5", "inf", "-inf", "nan", "-2", "1e+30"]),
        Type::Uint32 | Type::Uint64 | Type::Fixed32 | Type::Fixed64 => "4294967295",
        _ => "-7",
    };
    field.default_value = Some(text.to_owned());
}

/// The schema as a .proto text.
pub(super) fn text(file: &FileDescriptorProto) -> String {
    let mut out = format!("syntax = \"{}\";\npackage t;\n", file.syntax.as_deref().unwrap_or("proto2"));
    for import in &file.dependency {
        out += &format!("import \"{import}\";\n");
    }
    out += "enum E { E_ZERO = 0; E_TWO = 2; E_LESS = -1; }\n";
    for message in &file.message_type {
        out += &format!("message {} {{\n", message.name());
        let is_member = |field: &&FieldDescriptorProto| field.oneof_index.is_some() && !field.proto3_optional();
        let is_proto3 = file.syntax.is_some();
        for field in message.field.iter().filter(|field| !is_member(field)) {
            out += &field_text(message, field, is_proto3);
        }
        if message.field.iter().any(|field| is_member(&field)) {
            out += "oneof o {\n";
            for field in message.field.iter().filter(is_member) {
                out += &format!("{} {} = {};\n", type_text(field), field.name(), field.number());
            }
            out += "}\n";
        }
        out += "}\n";
    }
    out
}

fn type_text(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn field_text(message: &DescriptorProto, field: &FieldDescriptorProto, is_proto3: bool) -> String {
    let nested = message.nested_type.iter().find(|nested| field.type_name().ends_with(&format!(".{}", nested.name())));
    let (name, number) = (field.name(), field.number());
    let label = match field.label() {
        Label::Repeated => "repeated ",
        _ if !is_proto3 || field.proto3_optional() => "optional ",
        _ => "",
    };
    match nested {
        Some(entry) if field.r#type() == Type::Message && entry.options.is_some() => {
            format!("map<{}, {}> {name} = {number};\n", type_text(&entry.field[0]), type_text(&entry.field[1]))
        }
        Some(group) if field.r#type() == Type::Group => {
            let inner = &group.field[0];
            format!("{label}group {} = {number} {{ optional {} x = 1; }}\n", group.name(), type_text(inner))
        }
        _ => {
            let default = match (&field.default_value, field.r#type()) {
                (Some(text), Type::String | Type::Bytes) => format!(" [default = \"{text}\"]"),
                (Some(text), _) => format!(" [default = {text}]"),
                (None, _) => String::new(),
            };
            format!("{label}{} {name} = {number}{default};\n", type_text(field))
        }
    }
}

pub(super) fn root(file: &FileDescriptorProto) -> MessageDescriptor {
    let mut pool = DescriptorPool::global();
    pool.add_file_descriptor_proto(file.clone()).unwrap();
    pool.get_message_by_name("t.M0").unwrap()
}

/// A record of this message: its fields in any order, some of them several times.
pub(super) fn record(random: &mut Random, of: &MessageDescriptor, depth: usize) -> Vec<u8> {
    let fields: Vec<_> = of.fields().collect();
    let mut out = Vec::new();
    for _ in 0..random.below(if depth == 0 { 14 } else { 5 }) {
        if fields.is_empty() || random.one_in(12) {
            unknown(random, &mut out, depth);
        } else {
            occurrence(random, random_of(random.0, &fields), &mut out, depth);
        }
        random.next();
    }
    out
}

fn random_of(number: u64, fields: &[FieldDescriptor]) -> &FieldDescriptor {
    &fields[((number >> 7) % fields.len() as u64) as usize]
}

/// A field with a number that no schema here has.
fn unknown(random: &mut Random, out: &mut Vec<u8>, depth: usize) {
    const NUMBER: u64 = 77;
    match random.below(if depth < 3 { 5 } else { 4 }) {
        0 => {
            varint(NUMBER << 3, out);
            varint(random.next(), out);
        }
        1 => {
            varint(NUMBER << 3 | 1, out);
            out.extend_from_slice(&random.next().to_le_bytes());
        }
        2 => length_delimited(NUMBER as u32, b"unknown", out),
        3 => {
            varint(NUMBER << 3 | 5, out);
            out.extend_from_slice(&[1, 2, 3, 4]);
        }
        _ => {
            varint(NUMBER << 3 | 3, out);
            unknown(random, out, depth + 1);
            varint(NUMBER << 3 | 4, out);
        }
    }
}

fn varint(value: u64, out: &mut Vec<u8>) {
    prost_reflect::prost::encoding::encode_varint(value, out);
}

fn length_delimited(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn occurrence(random: &mut Random, field: &FieldDescriptor, out: &mut Vec<u8>, depth: usize) {
    let number = field.number();
    let key = |wire: u64, out: &mut Vec<u8>| varint(u64::from(number) << 3 | wire, out);
    match field.kind() {
        Kind::Message(message) => {
            let inner = if depth > 3 { Vec::new() } else { inner(random, &message, depth + 1) };
            if field.is_group() {
                key(3, out);
                out.extend_from_slice(&inner);
                key(4, out);
            } else {
                length_delimited(number, &inner, out);
            }
        }
        Kind::String => length_delimited(number, random.of(&["", "a", "é\"\n", "2", "two", "true"]).as_bytes(), out),
        Kind::Bytes => length_delimited(number, random.of(&[&b""[..], b"a", b"\xff\x00", b"abc"]), out),
        scalar => {
            let wire = match scalar {
                Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 1,
                Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => 5,
                _ => 0,
            };
            if field.is_list() && random.one_in(2) {
                let mut packed = Vec::new();
                (0..random.below(4)).for_each(|_| value(random, wire, &mut packed));
                length_delimited(number, &packed, out);
            } else {
                key(wire, out);
                value(random, wire, out);
            }
        }
    }
}

/// A message; times are mostly valid.
fn inner(random: &mut Random, of: &MessageDescriptor, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if matches!(of.full_name(), "google.protobuf.Timestamp" | "google.protobuf.Duration") && !random.one_in(8) {
        let seconds = random.next() % 300_000_000_000;
        varint(8, &mut out);
        varint(seconds, &mut out);
        let nanos = random.next() % 1_000_000_000;
        let unit = random.of(&[1, 1_000, 1_000_000, 1_000_000_000]);
        varint(16, &mut out);
        varint(nanos / unit * unit, &mut out);
        return out;
    }
    record(random, of, depth)
}

fn value(random: &mut Random, wire: u64, out: &mut Vec<u8>) {
    let any = random.next();
    let bits = match random.below(8) {
        0 => any,
        1 => 0,
        2 => (any % 5).wrapping_neg(),
        3 => f64::NAN.to_bits(),
        4 => f64::NEG_INFINITY.to_bits(),
        5 => (any as i32 as f64 / 64.0).to_bits(),
        _ => any % 4,
    };
    match wire {
        1 => out.extend_from_slice(&bits.to_le_bytes()),
        5 => out.extend_from_slice(&(bits as u32 ^ (bits >> 32) as u32).to_le_bytes()),
        _ => varint(bits, out),
    }
}

/// Paths into records of this message. Some lead nowhere, and some lead into each other.
pub(super) fn paths(random: &mut Random, of: &MessageDescriptor) -> Vec<Vec<String>> {
    let mut paths: Vec<_> = (0..random.below(5) + 1).map(|_| path(random, of)).collect();
    if random.one_in(6) {
        paths.push(Vec::new());
    }
    if let Some(first) = paths.first().filter(|first| !first.is_empty()) {
        let outer = first[..first.len() - 1].to_vec();
        paths.push(outer);
    }
    paths
}

fn path(random: &mut Random, of: &MessageDescriptor) -> Vec<String> {
    let mut steps = Vec::new();
    let mut at = of.clone();
    for _ in 0..random.below(4) + 1 {
        let fields: Vec<_> = at.fields().collect();
        if fields.is_empty() || random.one_in(10) {
            steps.push(random.of(&["0", "nothing", "a", "@type", "value"]).to_owned());
            continue;
        }
        let field = &fields[random.below(fields.len())];
        // The fields of well-known types are not in their JSON.
        steps.push(field.name().to_owned());
        let mut kind = field.kind();
        if field.is_list() && !random.one_in(4) {
            steps.push(random.below(3).to_string());
        } else if field.is_map() && !random.one_in(4) {
            steps.push(random.of(&["", "a", "é\"\n", "2", "0", "-1", "1", "3", "true", "false", "two"]).to_owned());
            if let Kind::Message(entry) = &kind {
                kind = entry.get_field(2).unwrap().kind();
            }
        }
        match kind {
            Kind::Message(inner) => at = inner,
            _ => break,
        }
    }
    steps
}
