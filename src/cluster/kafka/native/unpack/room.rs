//! How much of what was unpacked may be in memory at once, and who has claimed it.
//!
//! Invariant: what is held is at most the bound, and an eighth of it for each thread. Each thread may claim that much also
//! where others hold all there is: what a partition has fetched and cannot pass on holds up no other for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What librdkafka takes for a record beside its bytes.
pub(in super::super::super) const NOTE_BYTES: u64 = 400;
/// Attributes, two differences, and the lengths of key, value and headers.
const RECORD_BYTES_MIN: usize = 6;
/// A thread that holds nothing may claim such a part of the bound in any case.
const PARTS: u64 = 8;

/// The process's. Clients that are not ratchet's are not bounded, as long as there are no others.
pub(super) static ROOM: Room = Room::new();

thread_local! {
    /// What batches that this thread has unpacked hold.
    static OWN: Arc<AtomicU64> = Arc::default();
}

/// Why a batch was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) enum Refusal {
    /// It unpacks to more than all that there may be.
    TooLarge,
    /// Others hold too much of it at present.
    NoRoom,
}

/// Memory for what is unpacked.
pub(super) struct Room {
    max: AtomicU64,
    held: AtomicU64,
}

impl Room {
    const fn new() -> Self {
        Self { max: AtomicU64::new(u64::MAX), held: AtomicU64::new(0) }
    }

    /// Sets the bound.
    pub fn allow(&self, bytes: u64) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    /// The bound.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
}

/// A part of the room, given back when it is dropped, on whichever thread.
#[derive(Debug)]
pub(super) struct Claim {
    room: &'static Room,
    own: Arc<AtomicU64>,
    bytes: u64,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Room")
    }
}

impl Claim {
    /// Nothing yet, of the process's room.
    pub fn new() -> Self {
        Self::of(&ROOM, OWN.with(Arc::clone))
    }

    fn of(room: &'static Room, own: Arc<AtomicU64>) -> Self {
        Self { room, own, bytes: 0 }
    }

    /// The most that a claim can come to.
    pub fn max(&self) -> u64 {
        self.room.max()
    }

    /// Claims so much more.
    pub fn add(&mut self, bytes: u64) -> Result<(), Refusal> {
        let (max, wanted) = (self.max(), self.bytes.saturating_add(bytes));
        if wanted > max {
            return Err(Refusal::TooLarge);
        }
        let held = self.room.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let own = self.own.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.bytes = wanted;
        if held > max && own > max / PARTS {
            self.give_back(bytes);
            return Err(Refusal::NoRoom);
        }
        Ok(())
    }

    /// Gives so much of it back, or all of it if that is less.
    pub fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.room.held.fetch_sub(bytes, Ordering::Relaxed);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// How many records stand in what a batch unpacks to, as far as it can be told: each takes memory beside its bytes. A batch
/// is a row of records, each behind its length; before Kafka 0.11, of messages, each behind its offset and its length. No
/// record is as short as an offset's first byte would say.
pub(super) fn count_records(unpacked: &[u8]) -> u64 {
    match record(unpacked) {
        Some(_) => count(unpacked, record),
        None => count(unpacked, message),
    }
}

fn count(mut rest: &[u8], next: fn(&[u8]) -> Option<&[u8]>) -> u64 {
    let mut records = 0;
    while let Some(behind) = next(rest) {
        records += 1;
        rest = behind;
    }
    records
}

/// What stands behind the first record.
fn record(bytes: &[u8]) -> Option<&[u8]> {
    let (mut value, mut place) = (0_u64, 0);
    loop {
        let byte = *bytes.get(place)?;
        value |= u64::from(byte & 0x7f) << (7 * place);
        place += 1;
        if byte < 0x80 {
            break;
        }
        // A length has five bytes at the most.
        if place == 5 {
            return None;
        }
    }
    // In zigzag: what is odd is negative.
    let length = usize::try_from(value >> 1).ok().filter(|length| value & 1 == 0 && *length >= RECORD_BYTES_MIN)?;
    bytes.get(place..)?.get(length..)
}

/// What stands behind the first message.
fn message(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.get(8..12)?.try_into().ok().map(u32::from_be_bytes)?;
    bytes.get(12..)?.get(usize::try_from(length).ok()?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(max: u64) -> &'static Room {
        let room = Box::leak(Box::new(Room::new()));
        room.allow(max);
        room
    }

    #[test]
    fn what_is_beyond_all_room_is_told_from_what_has_no_room_now() {
        let room = room(800);
        let (mut first, mut second) = (Claim::of(room, Arc::default()), Claim::of(room, Arc::default()));
        assert_eq!(first.add(801), Err(Refusal::TooLarge));
        assert_eq!(first.add(800), Ok(()));
        assert_eq!(first.add(1), Err(Refusal::TooLarge));
        assert_eq!(second.add(101), Err(Refusal::NoRoom));
        drop(first);
        assert_eq!(second.add(101), Ok(()));
        second.give_back(u64::MAX);
        assert_eq!(room.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_others_hold_holds_up_no_small_batch() {
        let room = room(800);
        let mut all = Claim::of(room, Arc::default());
        all.add(800).unwrap();
        let own = Arc::default();
        let (mut first, mut second) = (Claim::of(room, Arc::clone(&own)), Claim::of(room, Arc::clone(&own)));
        assert_eq!(first.add(60), Ok(()));
        assert_eq!(second.add(60), Err(Refusal::NoRoom), "together they are more than an eighth");
        assert_eq!(second.add(40), Ok(()));
    }

    #[test]
    fn records_are_counted_in_both_forms() {
        // Length 6, in zigzag: attributes, times, no key, no value, no headers.
        let record = [12, 0, 0, 0, 1, 1, 0];
        assert_eq!(count_records(&record.repeat(1_000)), 1_000);
        let mut message = vec![0; 8];
        message.extend(14_u32.to_be_bytes());
        message.extend([7; 14]);
        assert_eq!(count_records(&message.repeat(1_000)), 1_000);
        // A length of two bytes.
        let long: Vec<u8> = [0x80, 0x02].into_iter().chain([0; 128]).collect();
        assert_eq!(count_records(&long.repeat(3)), 3);
    }

    #[test]
    fn what_is_no_row_of_records_ends_the_count() {
        for broken in [&[][..], &[1], &[0x80], &[0xff; 64], &[40, 0]] {
            assert_eq!(count_records(broken), 0, "{broken:?}");
        }
        // One record whose value could be taken for many messages.
        let zeros: Vec<u8> = [0x80, 0x02].into_iter().chain([0; 128]).collect();
        assert_eq!(count_records(&zeros), 1);
    }
}
