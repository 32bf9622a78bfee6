//! Persisted bytes, whatever they are, are read or refused; and what was read is written so that it reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::format::request::{Answer, RequestEntry};
use ratchet_fuzz::format::{
    Acknowledgement, Command, CommandId, EntryRef, JournalWriter, OffsetMetadata, PositionRecord, Redo, RedoWriter,
    Remembered, StoreMeta,
};

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 10 {
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
            let Ok(text) = str::from_utf8(bytes) else { return };
            if let Ok(Some(metadata)) = OffsetMetadata::parse(text) {
                assert_eq!(OffsetMetadata::parse(&metadata.to_string()), Ok(Some(metadata)));
            }
        }
        4 => {
            if let Ok(remembered) = Remembered::decode(bytes) {
                let mut written = Vec::new();
                remembered.encode(&mut written);
                assert_eq!(Remembered::decode(&written), Ok(remembered));
                let journal = remembered.reservation.map(|reservation| reservation.journal).unwrap_or_default();
                let mut again = JournalWriter::default();
                assert!(journal.steps().all(|step| again.push(step)));
                assert_eq!(again.as_journal(), journal);
            }
        }
        5 => {
            if let Ok((position, calls)) = PositionRecord::decode_with_calls(bytes) {
                let written = position.encode_with(&calls);
                assert!(PositionRecord::is_readable(&written));
                assert_eq!(PositionRecord::decode_with_calls(&written), Ok((position, calls)));
            }
        }
        6 => {
            if let Ok(command) = Command::decode(bytes) {
                assert_eq!(Command::decode(&command.encode()), Ok(command));
            }
        }
        7 => {
            if let Ok(said) = Acknowledgement::decode(bytes) {
                assert_eq!(Acknowledgement::decode(&said.encode()), Ok(said));
            }
            if let Some((id, topic, partition)) = CommandId::of_acknowledgement(bytes) {
                let key = id.key_of_acknowledgement(topic, partition);
                assert_eq!(CommandId::of_acknowledgement(key.as_bytes()), Some((id, topic, partition)));
            }
        }
        8 => {
            let bytes = bytes::Bytes::copy_from_slice(bytes);
            if let Ok(answer) = Answer::decode(&bytes) {
                assert_eq!(Answer::decode(&answer.encode().into()), Ok(answer));
            }
            if let Ok(entry) = RequestEntry::decode(&bytes) {
                assert_eq!(RequestEntry::decode(&entry.encode().into()), Ok(entry));
            }
        }
        _ => {
            if let Ok(redo) = Redo::decode(bytes) {
                let mut written = RedoWriter::default();
                written.begin();
                redo.records().for_each(|record| written.push(record));
                assert_eq!(Redo::decode(written.finish(redo.began, redo.next)), Ok(redo));
            }
        }
    }
});
