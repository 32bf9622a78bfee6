//! Goal: records are read by Protobuf's rules, and no bytes do harm.

use proptest::prelude::*;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;

use super::plan::DEPTH_MAX;
use super::*;
use crate::dedup::logical::Shape;
use crate::dedup::steps::{Found, Steps};
use crate::schemas::protobuf::Schema;
use oracle::Json;

mod hostile;
mod oracle;
mod random;
mod values;

/// The value at each path.
type Values = Vec<Option<serde_json::Value>>;

fn read(schema: &Schema, paths: &[Vec<String>], record: &[u8], to: &mut Extracted) -> Result<Values, Undecodable> {
    let (steps, places) = Steps::new(paths);
    let plan = Plan::new(schema, schema.message(&[0]).unwrap(), &steps, 100);
    plan.read(record, to)?;
    Ok(places.into_iter().map(|place| value(to, place)).collect())
}

/// The value at a node, parsed from its own range.
fn value(extracted: &Extracted, node: usize) -> Option<serde_json::Value> {
    let json = extracted.json();
    let bytes = match extracted.found(node) {
        Found::Missing => return None,
        Found::Null => return Some(serde_json::Value::Null),
        Found::Bool(value) => return Some(value.into()),
        Found::Number { from, to } | Found::Composite { from, to } => &json[from..to],
        Found::Text { from, to, escaped } => {
            assert_eq!(escaped, json[from..to].contains(&b'\\'));
            &json[from - 1..to + 1]
        }
    };
    Some(serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(bytes))))
}

/// Compares the values at these paths with those that prost-reflect reads. Returns false if it cannot read the record.
fn check(
    seed: u64,
    schemas: &[Schema],
    of: &prost_reflect::MessageDescriptor,
    paths: &[Vec<String>],
    record: &[u8],
) -> bool {
    let mut to = Extracted::default();
    let read: Vec<_> = schemas.iter().map(|schema| read(schema, paths, record, &mut to)).collect();
    assert_eq!(read[0], read[1], "{seed}: a text and its descriptor");
    if oracle::is_misread(of, record) {
        return false;
    }
    let Ok(message) = DynamicMessage::decode(of.clone(), record) else { return false };
    let Some(json) = Json::of(&message) else { return false };
    let values =
        read[0].as_ref().unwrap_or_else(|e| panic!("{seed}: {paths:?} in {record:x?}: {e}\nexpected {json:?}"));
    for (path, value) in paths.iter().zip(values) {
        let expected = json.at(path);
        let is_same = match (expected, value) {
            (None, None) => true,
            (Some(expected), Some(value)) => expected.is(value),
            _ => false,
        };
        assert!(is_same, "{seed}: {path:?} in {record:x?}\nexpected {expected:?}\nread {value:?}");
    }
    true
}

fn random_case(seed: u64) -> (random::Random, [Schema; 2], prost_reflect::MessageDescriptor) {
    use base64::Engine;
    let mut random = random::Random(seed);
    let file = random::schema(&mut random);
    let text = random::text(&file);
    let from_text = Schema::parse(&text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let descriptor = base64::engine::general_purpose::STANDARD.encode(file.encode_to_vec());
    let from_descriptor = Schema::parse(&descriptor, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let root = random::root(&file);
    (random, [from_text, from_descriptor], root)
}

/// Records that prost-reflect does not read are not compared with it: they have to be few.
#[test]
fn most_random_records_can_be_compared() {
    let is_compared = |seed: &u64| {
        let (mut random, schemas, root) = random_case(*seed);
        let record = random::record(&mut random, &root, 0);
        check(*seed, &schemas, &root, &random::paths(&mut random, &root), &record)
    };
    let compared = (0..100).filter(is_compared).count();
    assert!(compared > 60, "{compared}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn records_are_read_as_prost_reflect_reads_them(seed in any::<u64>()) {
        let (mut random, schemas, root) = random_case(seed);
        for _ in 0..6 {
            let record = random::record(&mut random, &root, 0);
            let paths = random::paths(&mut random, &root);
            check(seed, &schemas, &root, &paths, &record);
        }
    }

    /// A broken record is read as by prost-reflect, if that can read it.
    #[test]
    fn broken_records_are_read_as_prost_reflect_reads_them(seed in any::<u64>()) {
        let (mut random, schemas, root) = random_case(seed);
        for _ in 0..3 {
            let record = random::record(&mut random, &root, 0);
            let paths = random::paths(&mut random, &root);
            for _ in 0..20 {
                let mut broken = record.clone();
                for _ in 0..random.below(3) + 1 {
                    match random.below(4) {
                        _ if broken.is_empty() => {}
                        0 => broken.truncate(random.below(broken.len())),
                        1 => drop(broken.remove(random.below(broken.len()))),
                        _ => {
                            let at = random.below(broken.len());
                            broken[at] ^= 1 << random.below(8);
                        }
                    }
                }
                check(seed, &schemas, &root, &paths, &broken);
            }
        }
    }
}
