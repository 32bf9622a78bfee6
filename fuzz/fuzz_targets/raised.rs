//! An integer is raised to the greatest of those beside it (`at_least`), whatever stands there: never lowered, and right
//! where it can be said otherwise what is right.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::dedup::{Identity, Path, Reader, Reading, Rules, Scalar, Source, Version, VersionKind, VersionPart};
use ratchet_fuzz::world::record;
use serde_json::{Value, json};

static RULES: LazyLock<Arc<Rules>> = LazyLock::new(|| {
    let path = |text| Path::parse(text).expect("a path");
    let constant = Path { source: Source::Const(Scalar::Bool(true)), steps: Vec::new() };
    let part = VersionPart {
        at_least: Some([path("value.s")].into()),
        ..VersionPart::new(path("value.v"), VersionKind::Integer)
    };
    let rules = Rules::new(Identity::of_paths([constant]), Some(Version { parts: vec![part] }));
    Arc::new(rules)
});

/// The version's bytes, whose order is the versions'.
fn read(record_value: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(Arc::clone(&RULES));
    let mut arena = Vec::new();
    let Reading::Row(candidate) = reader.read(&record(0, None, Some(record_value)), &mut arena) else {
        return None;
    };
    Some(arena[candidate.version?].to_vec())
}

/// The greatest integer that stands there, where the text is a list of small ones and nulls.
fn greatest(text: &str) -> Option<Option<i64>> {
    let Ok(Value::Array(items)) = serde_json::from_str(text) else { return None };
    let mut greatest = None;
    for item in items {
        match item {
            Value::Null => {}
            Value::Number(number) => greatest = greatest.max(Some(number.as_i64()?)),
            _ => return None,
        }
    }
    Some(greatest)
}

fuzz_target!(|input: (i64, &str, bool)| {
    let (number, text, raw) = input;
    let alone = read(json!({ "v": number }).to_string().as_bytes()).expect("an integer is a version");
    // As text in the record, or as what the text says.
    let whole =
        if raw { format!("{{\"v\":{number},\"s\":{text}}}") } else { json!({ "v": number, "s": text }).to_string() };
    let raised = read(whole.as_bytes());
    // What is written raw may hold another `v`.
    if raw {
        return;
    }
    if let Some(raised) = &raised {
        assert!(*raised >= alone, "it was lowered");
    }
    if let Some(greatest) = greatest(text) {
        let expected = greatest.map_or(number, |greatest| number.max(greatest));
        assert_eq!(raised, read(json!({ "v": expected }).to_string().as_bytes()), "{number} and {text}");
    }
});
