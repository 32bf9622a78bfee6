//! Goal: schemas are read as protoc reads them, and errors name their places.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type as Kind};
use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto};

use super::*;

mod hostile;

fn parse(text: &str) -> Schema {
    Schema::parse(text, &[]).unwrap()
}

/// An error and its place.
fn text_of(error: &SchemaError) -> String {
    format!("{} ({})", error.what, error.at)
}

fn error(text: &str) -> String {
    text_of(&Schema::parse(text, &[]).unwrap_err())
}

fn has(schema: &Schema, path: &str) -> bool {
    let steps: Vec<_> = path.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect();
    schema.has(&[0], &steps)
}

/// The fields of the first message, in words.
fn fields(schema: &Schema) -> Vec<String> {
    let graph = schema.graph();
    let name = |of: Type| match of {
        Type::Scalar(scalar) => format!("{scalar:?}").to_lowercase(),
        Type::Enum(of) => format!("enum {}", graph.enums[of].symbols.len()),
        Type::Message(of) => format!("message {}", graph.messages[of].name),
        Type::Group(of) => format!("group {}", graph.messages[of].name),
    };
    let default = |field: &Field| match &field.default {
        None => String::new(),
        Some(Constant::Bits(bits)) => format!(" = {}", bits.cast_signed()),
        Some(Constant::Bytes(bytes)) => format!(" = {:?}", String::from_utf8_lossy(bytes)),
    };
    let of = |field: &Field| {
        let many = if field.many == Many::One { String::new() } else { format!("{:?} of ", field.many) };
        format!("{} {} ({}): {many}{}{}", field.number, field.name, field.group, name(field.of), default(field))
    };
    graph.messages[schema.message(&[0]).unwrap()].fields.iter().map(of).collect()
}

#[test]
fn built_in_files_can_be_read() {
    for name in known::names() {
        let schema = Schema::parse(&format!("import \"{name}\";"), &[]);
        assert!(schema.is_ok(), "{name}: {:?}", schema.err());
    }
    let known = |import: &str, of: &str| {
        let schema = parse(&format!("syntax = \"proto3\"; import \"{import}\"; message M {{ {of} f = 1; }}"));
        let graph = schema.graph();
        match graph.messages[0].fields[0].of {
            Type::Message(of) => graph.messages[of].known,
            _ => Known::None,
        }
    };
    for (import, of, expected) in [
        ("google/protobuf/any.proto", "google.protobuf.Any", Known::Any),
        ("google/protobuf/timestamp.proto", ".google.protobuf.Timestamp", Known::Timestamp),
        ("google/protobuf/duration.proto", "google.protobuf.Duration", Known::Duration),
        ("google/protobuf/field_mask.proto", "google.protobuf.FieldMask", Known::FieldMask),
        ("google/protobuf/wrappers.proto", "google.protobuf.UInt64Value", Known::Wrapper),
        ("google/protobuf/wrappers.proto", "google.protobuf.BytesValue", Known::Wrapper),
        ("google/protobuf/struct.proto", "google.protobuf.Struct", Known::Struct),
        ("google/protobuf/struct.proto", "google.protobuf.Value", Known::Value),
        ("google/protobuf/struct.proto", "google.protobuf.ListValue", Known::ListValue),
        ("confluent/type/decimal.proto", "confluent.type.Decimal", Known::Decimal),
        ("confluent/types/decimal.proto", "confluent.type.Decimal", Known::Decimal),
        ("google/type/money.proto", "google.type.Money", Known::None),
    ] {
        assert_eq!(known(import, of), expected, "{of}");
    }
}

#[test]
fn presence_of_proto2_proto3_and_editions() {
    let proto2 = r#"
        message M {
            optional int32 a = 1; required string b = 2; repeated int32 c = 3; optional int32 d = 4 [default = -5];
            optional M e = 5; optional group Part = 6 { optional int32 x = 1; }
            enum E { ONE = 1; ZERO = 0; UNO = 1; option allow_alias = true; }
            optional E f = 7; optional E g = 8 [default = UNO]; oneof h { int32 i = 9; string j = 10 [default = "x"]; }
        }"#;
    assert_eq!(
        fields(&parse(proto2)),
        [
            "1 a (0): int32",
            "2 b (1): string",
            "3 c (2): List of int32",
            "4 d (3): int32 = -5",
            "5 e (4): message M",
            "6 part (5): group Part",
            "7 f (6): enum 3",
            "8 g (7): enum 3 = 1",
            "9 i (8): int32",
            "10 j (8): string = \"x\"",
        ],
    );
}

#[test]
fn presence_of_proto3() {
    let proto3 = r#"
        syntax = "proto3";
        package a.b;
        message M {
            int32 a = 1; optional int32 b = 2; M c = 3; repeated string d = 4; E e = 5; map<uint64, E> f = 6;
            oneof g { bytes h = 7; a.b.M.Inner i = 9; } string j = 8; .a.b.M.Inner.Deep k = 10 [json_name = "kk"];
            enum E { ZERO = 0; ONE = 1; }
            message Inner { message Deep { E e = 1; } }
        }"#;
    let expected = [
        "1 a (0): int32 = 0",
        "2 b (1): int32",
        "3 c (2): message M",
        "4 d (3): List of string",
        "5 e (4): enum 2 = 0",
        "6 f (5): Map of message FEntry",
        "7 h (6): bytes",
        "8 j (7): string = \"\"",
        "9 i (6): message Inner",
        "10 k (9): message Deep",
    ];
    assert_eq!(fields(&parse(proto3)), expected);
}

/// The descriptor is protoc's, of this very file.
#[test]
fn editions_are_read_from_texts_and_from_descriptors() {
    let expected = [
        "1 id (0): int64 = 0",
        "2 note (1): string = \"none\"",
        "3 must (2): int32",
        "4 line (3): group Line",
        "5 whole (4): message Line",
        "6 lines (5): Map of message LinesEntry",
        "7 list (6): List of group Line",
        "8 numbers (7): List of int32",
        "9 a (8): string",
        "10 b (8): group Line",
    ];
    for text in [include_str!("tests/edition.proto"), include_str!("tests/edition.base64")] {
        let schema = parse(text);
        assert_eq!(fields(&schema), expected, "{text}");
        let line = schema.named("Order.Line").unwrap();
        let Type::Message(entry) = schema.graph().messages[0].fields[5].of else { panic!("a map") };
        assert_eq!(schema.graph().messages[entry].fields[1].of, Type::Message(line), "maps are never delimited");
    }
}

#[test]
fn everything_that_protoc_accepts_is_accepted() {
    let text = r#"
        // A comment; /* not another */
        /* A longer
           one */
        syntax = 'pro' "to3";
        import public "google/protobuf/timestamp.proto"; import weak "nowhere.proto"; ;
        option java_package = "com.x"; option (my.option).deep.(other) = { a: "}" b { c: [1, 2] } };
        option optimize_for = SPEED; option (my.number) = -1.5e+3;
        package x.y;
        service S { rpc Get(M) returns (stream M) { option (google.api.http) = { get: "/v1/{name}" }; }
          rpc Put(M) returns (M); }
        extend google.protobuf.FieldOptions { string my = 50000; }
        message message { }
        message M {
            reserved 5, 7 to 9, 100 to max; reserved "old", "older"; option deprecated = true;
            extensions 1000 to 1999 [declaration = { number: 1000, full_name: ".x" }];
            string string = 1; bool message = 2; int32 enum = 3; 
            M oneof = 4 [deprecated = true, (my) = "a" 'b', (o).p = { x: 1 }];
            map < string , x.y.message > map = 0x0a; double syntax = 013; repeated float rpc = 12 [packed = false];
            oneof kind { option (my.oneof) = true; int64 group = 13; .x.y.M.N to = 14; }
            message N { google.protobuf.Timestamp at = 1; }
            enum E { option allow_alias = true; A = 0 [(x) = 1]; B = -1; C = 0x1; reserved 5 to 6; }
            ;
        };"#;
    let schema = parse(text);
    let numbers = schema.graph().messages[schema.message(&[1]).unwrap()].fields.iter().map(|field| field.number);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 10, 11, 12, 13, 14]);
    assert!(schema.has(&[1], &["to".to_owned(), "at".to_owned()]));
    let edition =
        "edition = \"2024\"; import option \"a.proto\"; export message A { local enum B { C = 0; } B b = 1; }";
    assert_eq!(fields(&parse(edition)), ["1 b (0): enum 1"]);
    // An empty file, and one that begins with a byte order mark.
    assert_eq!(parse("").message(&[0]), None);
    assert!(parse("\u{feff}message A {}").message(&[0]).is_some());
}

#[test]
fn features_count_for_what_is_in_their_scope() {
    let text = r#"
        edition = "2023";
        message A {
            int32 before = 1; B b = 2;
            option features = { field_presence: IMPLICIT, json_format: ALLOW };
            int32 own = 3 [features.field_presence = EXPLICIT];
            oneof c { int32 d = 4; }
            message B { int32 e = 1 [features = { field_presence: EXPLICIT }]; int32 f = 2; }
            B g = 5 [features.message_encoding = DELIMITED];
            option (features_of.mine) = { field_presence: EXPLICIT };
        }
        message C { int32 h = 1; }"#;
    let schema = parse(text);
    assert_eq!(
        fields(&schema),
        ["1 before (0): int32 = 0", "2 b (1): message B", "3 own (2): int32", "4 d (3): int32", "5 g (4): group B",]
    );
    let absent = |indexes: &[i32]| {
        let message = &schema.graph().messages[schema.message(indexes).unwrap()];
        message.fields.iter().map(|field| field.default.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(absent(&[0, 0]), [false, true]);
    assert_eq!(absent(&[1]), [false]);
}

#[test]
fn references_are_found_by_the_names_that_they_are_imported_by() {
    let main = "syntax = \"proto3\"; package a; import \"b/c.proto\"; message M { c.N n = 1; E e = 2; }";
    let reference = "syntax = \"proto3\"; package a.c; import 'd.proto'; message N { D d = 1; }";
    let deep = "syntax = \"proto3\"; message D { int32 x = 1; } ";
    let own = "syntax = \"proto3\"; package a; enum E { ZERO = 0; }";
    let reference = reference.replace("import 'd.proto';", "import 'd.proto'; import 'e.proto';");
    let all = [("e.proto", own), ("d.proto", deep), ("b/c.proto", &*reference), ("unused.proto", "this is no schema")];
    let schema = Schema::parse(main, &all).unwrap();
    assert!(has(&schema, "n.d.x"));
    let missing = Schema::parse(main, &all[1..]).unwrap_err();
    assert_eq!(
        text_of(&missing),
        "the field `e` has the type `E`, which is not declared; not among the references: `e.proto` \
         (line 1, column 76)"
    );
    let broken = [("e.proto", own), ("d.proto", "message D {\n  int32 x = y;\n}"), ("b/c.proto", &*reference)];
    let broken = Schema::parse(main, &broken).unwrap_err();
    assert_eq!(text_of(&broken), "expected the field's number (line 2, column 13 of `d.proto`)");
    // The innermost name counts, and a reference is preferred to what is built in.
    let inner =
        "message A { message B { optional int32 x = 1; } optional B b = 1; } message B { optional int32 y = 1; }";
    assert!(has(&parse(inner), "b.x") && !has(&parse(inner), "b.y"));
    let own = "package google.protobuf; message Timestamp { optional string text = 1; }";
    let main = "import 'google/protobuf/timestamp.proto'; message M { optional google.protobuf.Timestamp at = 1; }";
    assert!(has(&Schema::parse(main, &[("google/protobuf/timestamp.proto", own)]).unwrap(), "at.text"));
}

#[test]
fn paths_lead_to_fields_by_either_name() {
    let schema = parse(
        r#"syntax = "proto3";
        import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";
        import "google/protobuf/timestamp.proto";
        message M { int32 order_id = 1; repeated M list = 2; map<int32, M> by_id = 3; google.protobuf.Any any = 4;
          google.protobuf.Struct free = 5; google.protobuf.Timestamp at = 6; google.protobuf.ListValue values = 7; }"#,
    );
    for path in
        ["", "order_id", "orderId", "list.0.list.7.order_id", "byId.12.at", "any.@type", "free.x.0.y", "values.0.x"]
    {
        assert!(has(&schema, path), "{path}");
    }
    for path in ["x", "order_id.x", "list.order_id", "list.00", "at.seconds", "any.x", "values.x", "by_id.1.x"] {
        assert!(!has(&schema, path), "{path}");
    }
    assert!(!schema.has(&[], &[]) && !schema.has(&[1], &[]) && !schema.has(&[-1], &[]) && !schema.has(&[0, 0], &[]));
}

/// A message's name, or the two that it may be.
fn at(schema: &Schema, indexes: &[i32]) -> String {
    let name = |message: usize| &*schema.graph().messages[message].name;
    match schema.at(indexes) {
        At::Message(message) => name(message).to_owned(),
        At::Nothing => "nothing".to_owned(),
        At::Either(one, other) => format!("{} or {}", name(one), name(other)),
    }
}

#[test]
fn indexes_count_messages_with_those_that_fields_declare_or_without() {
    let text = "message A { map<int32, int32> m = 1; optional group G = 2 {} message B { message C {} } message D {} } \
                extend X { optional group H = 1 {} } message E {}";
    let schema = parse(text);
    for (indexes, expected) in [
        (&[0][..], "A"),
        (&[0, 0], "B"),
        (&[0, 1], "G or D"),
        (&[0, 2], "B"),
        (&[0, 3], "D"),
        (&[0, 4], "nothing"),
        (&[0, 0, 0], "C"),
        (&[0, 2, 0], "C"),
        (&[1], "H or E"),
        (&[2], "E"),
        (&[3], "nothing"),
        (&[0, i32::MAX], "nothing"),
        (&[-1], "nothing"),
        (&[], "nothing"),
    ] {
        assert_eq!(at(&schema, indexes), expected, "{indexes:?}");
        let is_one = !expected.contains(" or ") && expected != "nothing";
        assert_eq!(schema.message(indexes).is_some(), is_one, "{indexes:?}");
    }
}

#[test]
fn names_are_found_with_the_package_and_without() {
    let schema = parse("package a.b; message M { map<int32, int32> m = 1; message N {} } message N {}");
    let name = |name: &str| schema.named(name).map(|number| (number, &*schema.graph().messages[number].name));
    for (with, without) in [("a.b.M", "M"), (".a.b.N", "N"), ("a.b.M.N", "M.N")] {
        assert_eq!(name(with), name(without), "{with}");
        assert!(name(with).is_some(), "{with}");
    }
    assert_ne!(name("M.N"), name("N"));
    for none in ["", ".", "a", "a.b", "b.M", "c.M", "a.b.a.b.M", "N.M", "M.", "M.MEntry"] {
        assert_eq!(name(none), None, "{none}");
    }
}

/// As AWS Glue's serializer sorts descriptors, with the entries of maps.
#[test]
fn places_among_sorted_names_count_all_messages() {
    let schema = parse("package p; message C {} message A { message N {} map<int32, int32> m = 1; message B {} }");
    let name = |place| schema.sorted(place).map(|number| &*schema.graph().messages[number].name);
    assert_eq!([0, 1, 2, 3, 4, 5].map(name), [Some("A"), Some("B"), None, Some("N"), Some("C"), None]);
}

/// The text is the one that Confluent's client for Java registers for `map<string, B> m = 1;`.
#[test]
fn map_may_be_a_list_of_messages_that_say_that_they_are_entries() {
    let schema = parse(
        r#"syntax = "proto3"; package p; message A { repeated .p.A.MEntry m = 1; string x = 2;
             message MEntry { option map_entry = true; string key = 1; .p.A.B value = 2; }
             message B { int32 n = 1; } }"#,
    );
    assert!(has(&schema, "m.any.n") && !has(&schema, "m.0.key") && !has(&schema, "m.any.value"));
    assert_eq!(fields(&schema)[0], "1 m (0): Map of message MEntry");
    // The entry is declared, and so it is counted, but no record is one.
    let name = |indexes: &[i32]| schema.message(indexes).map(|message| &*schema.graph().messages[message].name);
    assert_eq!([name(&[0, 0]), name(&[0, 1]), name(&[0, 2])], [None, Some("B"), None]);
    let other = "message A { message E { option map_entry = false; optional int32 key = 1; } repeated E e = 1; }";
    assert!(has(&parse(other), "e.0.key"));
    let none = "message A { repeated E e = 1; message E { option map_entry = true; int32 x = 1; } }";
    assert!(error(none).starts_with("`E` is not the entry of a map"));
}

#[test]
fn errors_say_where_and_what() {
    for (text, expected) in [
        ("syntax = \"proto4\";", "unknown syntax \"proto4\" (line 1, column 10)"),
        ("edition = \"1999\";", "unknown edition \"1999\" (line 1, column 11)"),
        ("message A {\n  int32 x 1;\n}", "expected `=` (line 2, column 11)"),
        ("message A { int32 x = 1;", "expected a field or a declaration (line 1, column 25)"),
        ("message A { /* ", "an unterminated comment (line 1, column 13)"),
        ("import \"a\n\";", "an unterminated string (line 1, column 8)"),
        ("message A { int32 é = 1; }", "an unexpected character (line 1, column 19)"),
        ("message A { string x = 1 [default = \"\\q\"]; }", "an unknown escape (line 1, column 37)"),
        ("message A { int32 x = 09; }", "not a number (line 1, column 23)"),
        (
            "{\"type\": \"record\"}",
            "expected a declaration: `message`, `enum`, `import`, `option`, `service` or `extend` (line 1, column 1)",
        ),
        ("message A { B x = 1; }", "the field `x` has the type `B`, which is not declared (line 1, column 15)"),
        (
            "message A { int32 x = 536870912; }",
            "the field `x` has the number 536870912, which is not between 1 and 536870911 (line 1, column 19)",
        ),
        ("message A { int32 x = 1; int32 y = 1; }", "`A` has two fields with the number 1 (line 1, column 32)"),
        ("message A { int32 x = 1; int32 x = 2; }", "`A` has two fields named `x` (line 1, column 32)"),
        ("message A {}\nenum A {}", "`A` is declared twice (line 2, column 6)"),
        (
            "message A { optional int32 x = 1 [default = 3000000000]; }",
            "the field `x` has a default that does not fit its type (line 1, column 28)",
        ),
        ("message A { map<float, int32> x = 1; }", "`XEntry` is not the entry of a map (line 1, column 13)"),
        (
            "bm90IGEgZGVzY3JpcHRvcg==",
            "the text is neither a .proto file nor a descriptor in base64: \
             an unknown wire type (the descriptor)",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
}

fn descriptor(file: &FileDescriptorProto) -> String {
    STANDARD.encode(file.encode_to_vec())
}

#[test]
fn descriptors_are_read_as_texts_are() {
    let field = |name: &str, number, label: Label, kind: Kind| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(label.into()),
        r#type: Some(kind.into()),
        ..FieldDescriptorProto::default()
    };
    let default = |text: &str, field: FieldDescriptorProto| FieldDescriptorProto {
        default_value: Some(text.to_owned()),
        ..field
    };
    let message = |fields| DescriptorProto { name: Some("M".to_owned()), field: fields, ..DescriptorProto::default() };
    let file = |syntax: Option<&str>, message| FileDescriptorProto {
        syntax: syntax.map(str::to_owned),
        message_type: vec![message],
        ..FileDescriptorProto::default()
    };
    let fields_of = |file: &FileDescriptorProto| fields(&parse(&descriptor(file)));
    let proto2 = file(
        None,
        message(vec![
            default("-3", field("a", 1, Label::Optional, Kind::Sint64)),
            default("\\001\\xffx", field("b", 2, Label::Optional, Kind::Bytes)),
            default("\\n", field("c", 3, Label::Optional, Kind::String)),
            default("-inf", field("d", 4, Label::Optional, Kind::Float)),
            default("true", field("e", 5, Label::Optional, Kind::Bool)),
            field("f", 6, Label::Repeated, Kind::Uint32),
        ]),
    );
    let float = i64::from(f32::NEG_INFINITY.to_bits());
    assert_eq!(
        fields_of(&proto2),
        [
            "1 a (0): sint64 = -3".to_owned(),
            "2 b (1): bytes = \"\\u{1}\u{fffd}x\"".to_owned(),
            "3 c (2): string = \"\\\\n\"".to_owned(),
            format!("4 d (3): float = {float}"),
            "5 e (4): bool = 1".to_owned(),
            "6 f (5): List of uint32".to_owned(),
        ]
    );
    let optional = |oneof, is_optional, field: FieldDescriptorProto| FieldDescriptorProto {
        oneof_index: Some(oneof),
        proto3_optional: Some(is_optional),
        ..field
    };
    let proto3 = file(
        Some("proto3"),
        message(vec![
            field("a", 1, Label::Optional, Kind::Int32),
            optional(1, true, field("b", 2, Label::Optional, Kind::Int32)),
            optional(0, false, field("c", 3, Label::Optional, Kind::Int32)),
            optional(0, false, field("d", 4, Label::Optional, Kind::Int32)),
        ]),
    );
    assert_eq!(fields_of(&proto3), ["1 a (0): int32 = 0", "2 b (1): int32", "3 c (2): int32", "4 d (2): int32"]);
    let nameless = file(None, message(vec![field("a", 1, Label::Optional, Kind::Message)]));
    assert_eq!(error(&descriptor(&nameless)), "field `a` of `M` has no type (the descriptor)");
}
