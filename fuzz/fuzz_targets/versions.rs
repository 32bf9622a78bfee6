//! Versions of any kind: their bytes' order is theirs, also in a tuple, and two are equal if and only if their bytes are.
#![no_main]

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::dedup::{
    Format, Identity, Path, Reader, Reading, Rules, Scalar, Source, Version, VersionKind, VersionPart,
};
use ratchet_fuzz::world::record;

fn rules(kinds: &[VersionKind]) -> Arc<Rules> {
    let constant = Path { source: Source::Const(Scalar::Bool(true)), steps: Vec::new() };
    let value = Path { source: Source::Value, steps: Vec::new() };
    let parts = kinds.iter().map(|kind| VersionPart::new(value.clone(), *kind)).collect();
    let mut rules = Rules::new(Identity::of_paths([constant]), Some(Version { parts }));
    rules.value_format = Format::Bytes;
    Arc::new(rules)
}

static RULES: LazyLock<Vec<Arc<Rules>>> = LazyLock::new(|| {
    let single = VersionKind::ALL.iter().map(|kind| rules(&[*kind]));
    let pairs = VersionKind::ALL.iter().map(|kind| rules(&[*kind, VersionKind::Text]));
    single.chain(pairs).collect()
});

fn read(rules: &Arc<Rules>, text: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader::new(Arc::clone(rules));
    let mut arena = Vec::new();
    let Reading::Row(candidate) = reader.read(&record(0, None, Some(text)), &mut arena) else { return None };
    let version = arena[candidate.version?].to_vec();
    assert!(!reader.describe_version(&version).is_empty());
    Some(version)
}

/// The order of two texts by another way, where there is a short one.
fn naive(kind: VersionKind, a: &[u8], b: &[u8]) -> Option<Ordering> {
    let number = |text| std::str::from_utf8(text).ok()?.parse::<i128>().ok();
    match kind {
        VersionKind::Integer => Some(number(a)?.cmp(&number(b)?)),
        VersionKind::Text => Some(a.cmp(b)),
        _ => None,
    }
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (choice, a, b) = input;
    let rules = &RULES[usize::from(choice) % RULES.len()];
    let (Some(first), Some(second)) = (read(rules, a), read(rules, b)) else { return };
    let parts = &rules.version.as_ref().expect("they have one").parts;
    if parts.len() == 1
        && let Some(expected) = naive(parts[0].kind, a, b)
    {
        assert_eq!(first.cmp(&second), expected);
    }
    if a == b {
        assert_eq!(first, second);
    }
    if parts.len() == 2 {
        // In a tuple with the text itself, the text decides only where the rest is equal.
        let alone = &RULES[usize::from(choice) % RULES.len() - VersionKind::ALL.len()];
        let expected = read(alone, a).cmp(&read(alone, b)).then(a.cmp(b));
        assert_eq!(first.cmp(&second), expected, "{parts:?}");
    }
});
