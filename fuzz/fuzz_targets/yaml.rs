//! A topology of any text: mistakes are told, never a panic; one that loads can judge a record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::dedup::Model;
use ratchet_fuzz::world::{load, record};

fuzz_target!(|text: &[u8]| {
    match load(text) {
        Ok(loaded) => {
            assert_eq!(loaded.topology.rules.problems(), []);
            let _ = loaded.topology.rules.digest();
            let mut model = Model::new(loaded.topology.rules.clone());
            for offset in 0..2 {
                model.judge(&record(offset, Some(b"{\"id\":1}"), Some(b"{\"id\":1,\"version\":2}")), 0);
            }
        }
        Err(mistakes) => assert!(!mistakes.to_string().is_empty()),
    }
});
