//! Persisted bytes, whatever they are, are read or refused; and what was read is written so that it reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::format::{EntryRef, OffsetMetadata, PositionRecord, Redo, RedoWriter, StoreMeta};

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 5 {
        0 => {
            if let Ok(entry) = EntryRef::decode(bytes) {
                let mut written = Vec::new();
                entry.encode(&mut written);
                assert_eq!(EntryRef::decode(&written), Ok(entry));
            }
        }
        1 => {
            if let Ok(position) = PositionRecord::decode(bytes) {
                let written = position.encode();
                assert!(PositionRecord::is_readable(&written));
                assert_eq!(PositionRecord::decode(&written), Ok(position));
            }
        }
        2 => {
            if let Ok(meta) = StoreMeta::decode(bytes) {
                assert_eq!(StoreMeta::decode(&meta.encode()), Ok(meta));
            }
        }
        3 => {
            if let Ok(redo) = Redo::decode(bytes) {
                let mut written = RedoWriter::default();
                written.begin();
                redo.records().for_each(|record| written.push(record));
                assert_eq!(Redo::decode(written.finish(redo.began, redo.next)), Ok(redo));
            }
        }
        _ => {
            let Ok(text) = str::from_utf8(bytes) else { return };
            if let Ok(Some(metadata)) = OffsetMetadata::parse(text) {
                assert_eq!(OffsetMetadata::parse(&metadata.to_string()), Ok(Some(metadata)));
            }
        }
    }
});
