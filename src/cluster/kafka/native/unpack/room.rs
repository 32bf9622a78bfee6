//! How much of what was unpacked may be in memory at once, and who has reserved it.
//!
//! Invariant: what is held is at most the bound, and an eighth of it for each thread. Each thread may reserve that much also
//! where others hold all there is: what a partition has fetched and cannot pass on holds up no other for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What librdkafka takes for a record beside its bytes.
pub(in super::super::super) const NOTE_BYTES: u64 = 400;
/// A thread that holds nothing may reserve such a part of the bound in any case.
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
pub(super) struct Reservation {
    room: &'static Room,
    own: Arc<AtomicU64>,
    bytes: u64,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Room")
    }
}

impl Reservation {
    /// Nothing yet, of the process's room.
    pub fn new() -> Self {
        Self::of(&ROOM, OWN.with(Arc::clone))
    }

    fn of(room: &'static Room, own: Arc<AtomicU64>) -> Self {
        Self { room, own, bytes: 0 }
    }

    /// The most that a reservation can come to.
    pub fn max(&self) -> u64 {
        self.room.max()
    }

    /// Reserves so much more.
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

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
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
        let (mut first, mut second) = (Reservation::of(room, Arc::default()), Reservation::of(room, Arc::default()));
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
        let mut all = Reservation::of(room, Arc::default());
        all.add(800).unwrap();
        let own = Arc::default();
        let (mut first, mut second) =
            (Reservation::of(room, Arc::clone(&own)), Reservation::of(room, Arc::clone(&own)));
        assert_eq!(first.add(60), Ok(()));
        assert_eq!(second.add(60), Err(Refusal::NoRoom), "together they are more than an eighth");
        assert_eq!(second.add(40), Ok(()));
    }
}
