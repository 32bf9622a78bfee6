//! A path that can be read is written so that it reads back as the same path.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::dedup::Path;

fuzz_target!(|text: &str| {
    if let Ok(path) = Path::parse(text) {
        let written = path.to_string();
        assert_eq!(Path::parse(&written), Ok(path), "written as {written}");
        assert!(!written.contains('\n'), "a line feed would end the line in the rules' canonical text");
    }
});
