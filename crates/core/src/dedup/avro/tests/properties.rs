//! Goal: in random records that apache-avro writes by random schemas, a plan finds the values at random paths, however
//! arrays and maps are divided into blocks. Broken records do no harm.

use apache_avro::types::Value as Avro;
use apache_avro::writer::datum::GenericDatumWriter;
use apache_avro::{Days, Decimal, Duration, Millis, Months, Uuid};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A type.
#[derive(Clone, Debug)]
enum Ty {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Uuid,
    FixedUuid,
    Timestamp,
    Date,
    Duration,
    Decimal(u32),
    FixedDecimal,
    Fixed(usize),
    Enum(usize),
    Record(Vec<Ty>),
    Array(Box<Ty>),
    Map(Box<Ty>),
    /// Null, and perhaps others.
    Union(bool, Vec<Ty>),
}

fn types() -> impl Strategy<Value = Ty> {
    let leaf = prop_oneof![
        Just(Ty::Null),
        Just(Ty::Boolean),
        Just(Ty::Int),
        Just(Ty::Long),
        Just(Ty::Float),
        Just(Ty::Double),
        Just(Ty::Bytes),
        Just(Ty::Text),
        Just(Ty::Uuid),
        Just(Ty::FixedUuid),
        Just(Ty::Timestamp),
        Just(Ty::Date),
        Just(Ty::Duration),
        (0..4_u32).prop_map(Ty::Decimal),
        Just(Ty::FixedDecimal),
        (0..5_usize).prop_map(Ty::Fixed),
        (1..5_usize).prop_map(Ty::Enum),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..6).prop_map(Ty::Record),
            1 => inner.clone().prop_map(|items| Ty::Array(Box::new(items))),
            1 => inner.clone().prop_map(|values| Ty::Map(Box::new(values))),
            2 => (any::<bool>(), prop::collection::vec(inner, 0..4)).prop_map(|(first, others)| union(first, others)),
        ]
    })
}

/// A union has no two branches of one unnamed type, and no unions.
fn union(null_first: bool, branches: Vec<Ty>) -> Ty {
    let mut kinds = Vec::new();
    let fits = |branch: &Ty| {
        let kind = match branch {
            Ty::Null | Ty::Union(..) => return false,
            Ty::Int | Ty::Date => 1,
            Ty::Long | Ty::Timestamp => 2,
            Ty::Bytes | Ty::Decimal(_) => 3,
            Ty::Text | Ty::Uuid => 4,
            Ty::Boolean => 5,
            Ty::Float => 6,
            Ty::Double => 7,
            Ty::Array(_) => 8,
            Ty::Map(_) => 9,
            // Named types, but the crate allows one branch of each logical type.
            Ty::FixedUuid => 10,
            Ty::Duration => 11,
            Ty::FixedDecimal => 12,
            _ => return true,
        };
        let is_new = !kinds.contains(&kind);
        kinds.push(kind);
        is_new
    };
    Ty::Union(null_first, branches.into_iter().filter(fits).collect())
}

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    fn word(&mut self) -> String {
        let words = ["", "a", "käse", "x\"y\\", "line\nfeed", "0", "3", "a longer text of a few words"];
        words[self.below(words.len())].to_owned()
    }

    /// Of any size.
    fn long(&mut self) -> i64 {
        let shift = self.below(64);
        self.next().cast_signed() >> shift
    }
}

/// The schema's text; `names` numbers the names.
fn text(of: &Ty, names: &mut usize) -> Value {
    let mut named = |kind: &str, more: Value| {
        *names += 1;
        let mut object = json!({"type": kind, "name": format!("N{names}")});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    match of {
        Ty::Null => json!("null"),
        Ty::Boolean => json!("boolean"),
        Ty::Int => json!("int"),
        Ty::Long => json!({"type": "long"}),
        Ty::Float => json!("float"),
        Ty::Double => json!("double"),
        Ty::Bytes => json!("bytes"),
        Ty::Text => json!("string"),
        Ty::Uuid => json!({"type": "string", "logicalType": "uuid"}),
        Ty::Timestamp => json!({"type": "long", "logicalType": "timestamp-micros"}),
        Ty::Date => json!({"type": "int", "logicalType": "date"}),
        Ty::Decimal(scale) => json!({"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": scale}),
        Ty::FixedUuid => named("fixed", json!({"size": 16, "logicalType": "uuid"})),
        Ty::Duration => named("fixed", json!({"size": 12, "logicalType": "duration"})),
        Ty::FixedDecimal => named("fixed", json!({"size": 8, "logicalType": "decimal", "precision": 18, "scale": 3})),
        Ty::Fixed(size) => named("fixed", json!({"size": size})),
        Ty::Enum(count) => {
            let symbols: Vec<_> = (0..*count).map(|i| format!("S{i}")).collect();
            named("enum", json!({"symbols": symbols}))
        }
        Ty::Record(fields) => {
            let mut object = named("record", json!({}));
            let field =
                |(i, of)| json!({"name": format!("f{i}"), "aliases": [format!("g{i}")], "type": text(of, names)});
            object["fields"] = fields.iter().enumerate().map(field).collect();
            object
        }
        Ty::Array(items) => json!({"type": "array", "items": text(items, names)}),
        Ty::Map(values) => json!({"type": "map", "values": text(values, names)}),
        Ty::Union(null_first, others) => {
            let mut branches: Vec<_> = others.iter().map(|of| text(of, names)).collect();
            branches.insert(if *null_first { 0 } else { branches.len() }, json!("null"));
            branches.into()
        }
    }
}

/// A value of the crate, its JSON, and its bytes with random blocks.
struct Sample {
    avro: Avro,
    json: Value,
    bytes: Vec<u8>,
}

fn sample(of: &Ty, dice: &mut Dice) -> Sample {
    let (avro, json, bytes) = match of {
        Ty::Null => (Avro::Null, Value::Null, Vec::new()),
        Ty::Boolean => {
            let value = dice.below(2) == 1;
            (Avro::Boolean(value), json!(value), vec![u8::from(value)])
        }
        Ty::Int | Ty::Date => {
            let value = dice.long() as i32;
            let avro = if matches!(of, Ty::Int) { Avro::Int(value) } else { Avro::Date(value) };
            (avro, json!(value), long(value.into()))
        }
        Ty::Long | Ty::Timestamp => {
            let value = dice.long();
            let avro = if matches!(of, Ty::Long) { Avro::Long(value) } else { Avro::TimestampMicros(value) };
            (avro, json!(value), long(value))
        }
        Ty::Float => {
            let value = f32::from(dice.next() as i16) / 4.0;
            (Avro::Float(value), json!(value), value.to_le_bytes().to_vec())
        }
        Ty::Double => {
            let value = f64::from(dice.next() as i32) / 4.0;
            (Avro::Double(value), json!(value), value.to_le_bytes().to_vec())
        }
        Ty::Bytes => {
            let length = dice.below(6);
            let value = dice.bytes(length);
            (Avro::Bytes(value.clone()), json!(base64(&value)), prefixed(&value))
        }
        Ty::Text => {
            let value = dice.word();
            (Avro::String(value.clone()), json!(value), prefixed(&value))
        }
        Ty::Uuid | Ty::FixedUuid => {
            let value = Uuid::from_slice(&dice.bytes(16)).unwrap();
            let text = value.to_string();
            let bytes = if matches!(of, Ty::Uuid) { prefixed(&text) } else { value.as_bytes().to_vec() };
            (Avro::Uuid(value), json!(text), bytes)
        }
        Ty::Duration => {
            let [months, days, millis] = [0; 3].map(|_: u32| dice.next() as u32);
            let value = Duration::new(Months::new(months), Days::new(days), Millis::new(millis));
            let json = json!({"months": months, "days": days, "millis": millis});
            (Avro::Duration(value), json, <[u8; 12]>::from(value).to_vec())
        }
        Ty::Decimal(scale) => {
            let value = i64::from(dice.next() as i32);
            let unscaled = minimal(value);
            (Avro::Decimal(Decimal::from(&unscaled)), decimal(value, *scale), prefixed(&unscaled))
        }
        Ty::FixedDecimal => {
            let value = i64::from(dice.next() as i32);
            let unscaled = value.to_be_bytes();
            (Avro::Decimal(Decimal::from(&unscaled)), decimal(value, 3), unscaled.to_vec())
        }
        Ty::Fixed(size) => {
            let value = dice.bytes(*size);
            (Avro::Fixed(*size, value.clone()), json!(base64(&value)), value)
        }
        Ty::Enum(count) => {
            let value = dice.below(*count);
            let symbol = format!("S{value}");
            (Avro::Enum(value as u32, symbol.clone()), json!(symbol), long(value as i64))
        }
        composite => return sample_composite(composite, dice),
    };
    Sample { avro, json, bytes }
}

fn sample_composite(of: &Ty, dice: &mut Dice) -> Sample {
    match of {
        Ty::Record(fields) => {
            let samples: Vec<_> = fields.iter().map(|field| sample(field, dice)).collect();
            let named = |(i, sample): (usize, &Sample)| (format!("f{i}"), sample.json.clone());
            let json = Value::Object(samples.iter().enumerate().map(named).collect());
            let bytes = samples.iter().flat_map(|sample| sample.bytes.clone()).collect();
            let named = |(i, sample): (usize, Sample)| (format!("f{i}"), sample.avro);
            Sample { avro: Avro::Record(samples.into_iter().enumerate().map(named).collect()), json, bytes }
        }
        Ty::Array(items) => {
            let count = dice.below(5);
            let samples: Vec<_> = (0..count).map(|_| sample(items, dice)).collect();
            let json = samples.iter().map(|sample| sample.json.clone()).collect();
            let bytes = blocks(samples.iter().map(|sample| sample.bytes.clone()).collect(), dice);
            Sample { avro: Avro::Array(samples.into_iter().map(|sample| sample.avro).collect()), json, bytes }
        }
        Ty::Map(values) => {
            let keys: std::collections::BTreeSet<_> = (0..dice.below(5)).map(|_| dice.word()).collect();
            let samples: Vec<_> = keys.into_iter().map(|key| (key, sample(values, dice))).collect();
            let json = Value::Object(samples.iter().map(|(key, sample)| (key.clone(), sample.json.clone())).collect());
            let entry = |(key, sample): &(String, Sample)| [prefixed(key), sample.bytes.clone()].concat();
            let bytes = blocks(samples.iter().map(entry).collect(), dice);
            let avro = Avro::Map(samples.into_iter().map(|(key, sample)| (key, sample.avro)).collect());
            Sample { avro, json, bytes }
        }
        Ty::Union(null_first, others) => {
            let branch = dice.below(others.len() + 1);
            let null = if *null_first { 0 } else { others.len() };
            let inner = if branch == null {
                sample(&Ty::Null, dice)
            } else {
                sample(&others[branch - usize::from(*null_first)], dice)
            };
            let bytes = [long(branch as i64), inner.bytes].concat();
            Sample { avro: Avro::Union(branch as u32, Box::new(inner.avro)), json: inner.json, bytes }
        }
        _ => unreachable!("no composite"),
    }
}

/// Items in random blocks, some with their sizes.
fn blocks(mut items: Vec<Vec<u8>>, dice: &mut Dice) -> Vec<u8> {
    let mut out = Vec::new();
    while !items.is_empty() {
        let count = 1 + dice.below(items.len());
        let bytes = items.drain(..count).collect::<Vec<_>>().concat();
        if dice.below(2) == 1 {
            out.extend(long(-(count as i64)));
            out.extend(long(bytes.len() as i64));
        } else {
            out.extend(long(count as i64));
        }
        out.extend(bytes);
    }
    out.push(0);
    out
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(bytes)
}

/// An integer in as few bytes as possible.
fn minimal(value: i64) -> Vec<u8> {
    let mut bytes = value.to_be_bytes().to_vec();
    while bytes.len() > 1 && (bytes[0] == 0 && bytes[1] < 0x80 || bytes[0] == 0xff && bytes[1] >= 0x80) {
        bytes.remove(0);
    }
    bytes
}

fn decimal(value: i64, scale: u32) -> Value {
    json!(value as f64 / 10_f64.powi(scale as i32))
}

/// Random steps into a value or beyond it; sometimes by aliases of fields.
fn random_path(json: &Value, of: &Ty, dice: &mut Dice, steps: &mut Vec<String>) {
    if dice.below(4) == 0 {
        return;
    }
    match (of, json) {
        (Ty::Union(_, others), _) => {
            // The branch matters only for aliases.
            let length = json.as_object().map_or(0, serde_json::Map::len);
            let fits = others.iter().find(|of| matches!(of, Ty::Record(fields) if fields.len() == length));
            let any = others.first().unwrap_or(&Ty::Null);
            random_path(json, fits.unwrap_or(any), dice, steps);
        }
        (Ty::Record(fields), Value::Object(object)) if !fields.is_empty() => {
            let field = dice.below(fields.len());
            let name = format!("f{field}");
            let inner = object.get(&name).unwrap_or(&Value::Null);
            steps.push(if dice.below(4) == 0 { format!("g{field}") } else { name });
            random_path(inner, &fields[field], dice, steps);
        }
        (Ty::Array(items), Value::Array(array)) => {
            let number = dice.below(6);
            steps.push(number.to_string());
            random_path(array.get(number).unwrap_or(&Value::Null), items, dice, steps);
        }
        (Ty::Map(values), Value::Object(object)) => {
            let key = dice.word();
            let inner = object.get(&key).unwrap_or(&Value::Null).clone();
            steps.push(key);
            random_path(&inner, values, dice, steps);
        }
        (Ty::Duration, _) => steps.push(["months", "days", "millis", "f0"][dice.below(4)].to_owned()),
        _ => steps.push("f0".to_owned()),
    }
}

/// The value at these steps. A field and its alias have the same number.
fn at<'v>(json: &'v Value, steps: &[String]) -> Option<&'v Value> {
    let Some((first, rest)) = steps.split_first() else { return Some(json) };
    let inner = match json {
        Value::Object(object) => {
            let by_alias = || object.get(&format!("f{}", first.strip_prefix('g')?));
            object.get(first).or_else(by_alias)
        }
        Value::Array(array) => array.get(first.parse::<usize>().ok()?),
        _ => None,
    };
    at(inner?, rest)
}

/// Whether values are the same, however their numbers are written.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => a == b || x.as_f64() == y.as_f64() && !(x.is_i64() && y.is_i64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b,
    }
}

/// A random record, and random paths.
fn cases() -> impl Strategy<Value = (String, Sample, Vec<Vec<String>>, Dice)> {
    (types(), any::<u64>()).prop_map(|(of, seed)| {
        let mut dice = Dice(seed | 1);
        let text = text(&of, &mut 0).to_string();
        let sample = sample(&of, &mut dice);
        let mut paths = Vec::new();
        for _ in 0..1 + dice.below(6) {
            let mut path = Vec::new();
            random_path(&sample.json, &of, &mut dice, &mut path);
            paths.push(path);
        }
        (text, sample, paths, dice)
    })
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.json, self.bytes)
    }
}

impl std::fmt::Debug for Dice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dice({})", self.0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_apache_avro_writes_is_found((text, sample, paths, _) in cases()) {
        let reference = apache_avro::Schema::parse_str(&text).unwrap();
        let writer = GenericDatumWriter::builder(&reference).build().unwrap();
        let written = writer.write_value_to_vec(sample.avro.clone()).unwrap();
        let mut reader = Reader::of(&schema(&text), &paths, DEPTH);
        for bytes in [&written, &sample.bytes] {
            let found = reader.read(bytes).unwrap();
            for (path, found) in paths.iter().zip(found) {
                let found = found.map(|json| serde_json::from_str::<Value>(&json).unwrap());
                let expected = at(&sample.json, path);
                let is_same = match (&found, expected) {
                    (Some(found), Some(expected)) => is_same(found, expected),
                    (found, expected) => found.is_none() && expected.is_none(),
                };
                prop_assert!(is_same, "{path:?}: {found:?} instead of {expected:?} in {} by {text}", sample.json);
                prop_assert!(expected.is_none() || schema(&text).has(path), "{path:?} leads to something in {text}");
            }
        }
    }

    #[test]
    fn broken_records_do_no_harm((text, sample, paths, mut dice) in cases()) {
        let schema = schema(&text);
        let mut some = Reader::of(&schema, &paths, DEPTH);
        let mut all = Reader::of(&schema, &[Vec::new()], DEPTH);
        for until in 0..sample.bytes.len() {
            prop_assert!(some.read(&sample.bytes[..until]).is_err() && all.read(&sample.bytes[..until]).is_err());
        }
        prop_assert!(some.read(&[&sample.bytes[..], &[0]].concat()).is_err());
        for at in 0..sample.bytes.len().min(200) {
            let mut bytes = sample.bytes.clone();
            bytes[at] ^= 1 << dice.below(8);
            let found = some.read(&bytes);
            // If the whole record can be read, so can each part of it.
            if let Ok(whole) = all.read(&bytes) {
                let whole: Value = serde_json::from_str(&whole[0].clone().unwrap()).unwrap();
                let found = found.unwrap();
                for (path, found) in paths.iter().zip(found) {
                    let found = found.map(|json| serde_json::from_str::<Value>(&json).unwrap());
                    prop_assert_eq!(found.as_ref(), super::properties::at(&whole, path));
                }
            }
        }
    }
}
