//! Goal: what was synced and cannot be read is damage, what was not is none, wherever in a log it was. How RocksDB itself
//! writes and reads these logs is tested with its own, by `state` and `cluster::embedded`.

use super::*;

const NUMBER: u32 = 7;
/// Pieces of records, as they stand in a log that may be reused.
const WHOLE: u8 = 5;
const FIRST: u8 = 6;
const LAST: u8 = 8;

fn piece(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut checked = vec![kind];
    checked.extend_from_slice(&NUMBER.to_le_bytes());
    checked.extend_from_slice(content);
    let masked = crc32c::crc32c(&checked).rotate_right(15).wrapping_add(0xa282_ead8);
    [&masked.to_le_bytes()[..], &u16::try_from(content.len()).unwrap().to_le_bytes(), &checked].concat()
}

/// A batch with one entry of so many bytes, which says up to where all was synced before.
fn batch(sequence: u64, synced: u64, length: usize) -> Vec<u8> {
    let entry = vec![b'x'; length];
    [&sequence.to_le_bytes()[..], &1_u32.to_le_bytes(), &entry, &mark(synced)].concat()
}

fn checked(log: &[u8]) -> Option<usize> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(format!("{NUMBER:06}.log")), log).unwrap();
    check(folder.path()).unwrap().map(|damage| damage.at)
}

fn log(batches: &[Vec<u8>]) -> Vec<u8> {
    batches.iter().flat_map(|batch| piece(WHOLE, batch)).collect()
}

#[test]
fn whole_log_and_missing_folder_are_not_damaged() {
    assert_eq!(checked(&log(&[batch(501, 500, 9), batch(502, 501, 9)])), None);
    assert_eq!(check(Path::new("/nowhere/at/all")).unwrap(), None);
}

/// After a power loss the first pages of a log may be missing, and later ones be there.
#[test]
fn hole_at_the_beginning_is_damage_only_if_it_was_synced() {
    for (synced, expected) in [(500, None), (501, Some(0)), (502, Some(0))] {
        let mut bytes = log(&[batch(501, 500, 9), batch(502, synced, 9)]);
        bytes[..20].fill(0);
        assert_eq!(checked(&bytes), expected, "synced up to {synced}");
    }
}

#[test]
fn hole_behind_what_can_be_read_is_damage_only_if_it_was_synced() {
    for (synced, is_damage) in [(501, false), (502, true)] {
        let (first, second, third) = (batch(501, 500, 9), batch(502, 501, 9), batch(503, synced, 9));
        let at = piece(WHOLE, &first).len();
        let mut bytes = log(&[first, second, third]);
        bytes[at + LONG_HEAD] ^= 1;
        assert_eq!(checked(&bytes), is_damage.then_some(at), "synced up to {synced}");
    }
}

/// A record that the end of a block divides, at each place within its mark.
#[test]
fn mark_in_two_pieces_counts() {
    for rest in 0..=MARK_LENGTH {
        let first = batch(501, 500, 9);
        let begun = piece(WHOLE, &first).len();
        // The second record's first piece ends with its block.
        let room = BLOCK - begun - LONG_HEAD;
        let second = batch(502, 501, room + rest - 8 - 4 - MARK_LENGTH);
        let (head, tail) = second.split_at(room);
        let mut bytes = [piece(WHOLE, &first), piece(FIRST, head), piece(LAST, tail)].concat();
        assert_eq!(checked(&bytes), None, "{rest} bytes");
        bytes[LONG_HEAD] ^= 1;
        assert_eq!(checked(&bytes), Some(0), "{rest} bytes of the second are in the next block");
    }
}
