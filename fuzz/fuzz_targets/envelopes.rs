//! Records of any bytes under every preset: nothing panics, and what was forwarded as new is not new again.
//!
//! The input is a value, or a key and a value with `^` between them.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::dedup::{Model, Reason, Rules};
use ratchet_fuzz::topology::presets;
use ratchet_fuzz::world::{load, record};

const GENERIC: &str = "name: t\ninput: {topics: [t], key_format: json}\noutput: {topic: o}\non_null_value: forward\n\
    identity: [{first_of: [value.id, {fingerprint: value, except: [value.ts]}]}, {content: key}, {bucket: 1h}]\n\
    version: [{of: value.ts, as: timestamp}, {of: value.es, as: decimal}]\npartitioned_by_identity: true\n";

static RULES: LazyLock<Vec<Arc<Rules>>> = LazyLock::new(|| {
    let rules = |text: String| {
        let loaded = load(text.as_bytes()).unwrap_or_else(|mistakes| panic!("{text}: {mistakes}"));
        loaded.topology.rules
    };
    let preset = |name| format!("name: t\npreset: {name}\ninput: {{topics: [t]}}\noutput: {{topic: o}}\n");
    presets::names().map(preset).chain([GENERIC.to_owned()]).map(rules).collect()
});

fuzz_target!(|input: &[u8]| {
    let (key, value) = match input.iter().position(|byte| *byte == b'^') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (&b"{\"id\":1}"[..], input),
    };
    let is_new = |reason| matches!(reason, Reason::First | Reason::Newer | Reason::EpochChanged);
    for rules in RULES.iter() {
        let mut model = Model::new(Arc::clone(rules));
        let wall_ms = i64::MAX / 2;
        let first = model.judge(&record(0, Some(key), Some(value)), wall_ms);
        let _ = (model.identity(), model.version(), model.epoch(), model.against());
        let again = model.judge(&record(1, Some(key), Some(value)), wall_ms);
        assert!(!(is_new(first.reason) && is_new(again.reason)), "{first:?}, then {again:?}");
        model.judge(&record(2, Some(key), None), wall_ms);
        model.judge(&record(3, None, Some(value)), wall_ms);
    }
});
