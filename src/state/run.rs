//! A run of records in one byte vector, each with its key and value beside it: found by its place, it is where one look
//! into memory gets.
//!
//! ```text
//! key length, value length, room for the value | key | value
//! ```
//!
//! A value that outgrows its room moves to the end of the run, as a record without a key, and its room holds the new
//! place.

/// A record's three lengths.
const HEAD: usize = 3 * NUMBER;
const NUMBER: usize = size_of::<u32>();
/// The value length that means that the key is deleted.
const DELETED: u32 = u32::MAX;
/// The key length that means that only a value is here, which has moved.
const KEYLESS: u32 = u32::MAX;
/// Set in the size of the room: the value has moved.
const MOVED: u32 = 1 << 31;

/// Records, in the order in which their keys were first written.
#[derive(Default)]
pub(super) struct Run {
    bytes: Vec<u8>,
}

impl Run {
    /// Appends a record; returns its place. Panics beyond 4 GiB, far above any bound of a transaction or a memtable.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> u32 {
        let place = self.end();
        let value_length = value.map_or(DELETED, length);
        // There is always room for a place.
        let room = value.map_or(0, <[u8]>::len).max(NUMBER);
        self.put_head(length(key), value_length, length_of(room));
        self.bytes.extend_from_slice(key);
        self.put_value(value.unwrap_or_default(), room);
        place
    }

    /// Replaces a record's value: in place if it fits, as an entry's versions usually have the same size.
    pub fn set(&mut self, place: u32, value: Option<&[u8]>) {
        let head = place as usize;
        let value_length = value.map_or(DELETED, length);
        self.bytes[head + NUMBER..][..NUMBER].copy_from_slice(&value_length.to_le_bytes());
        let Some(value) = value else { return };
        let (start, room) = self.room(place);
        if value.len() <= room {
            self.bytes[start..][..value.len()].copy_from_slice(value);
            return;
        }
        let moved = self.end();
        self.put_head(KEYLESS, 0, value_length);
        self.put_value(value, value.len());
        let (key_length, size) = (self.number(head), self.number(head + 2 * NUMBER));
        self.bytes[head + 2 * NUMBER..][..NUMBER].copy_from_slice(&(size | MOVED).to_le_bytes());
        self.bytes[head + HEAD + key_length as usize..][..NUMBER].copy_from_slice(&moved.to_le_bytes());
    }

    /// A record's key.
    pub fn key(&self, place: u32) -> &[u8] {
        &self.bytes[place as usize + HEAD..][..self.number(place as usize) as usize]
    }

    /// A record's value, `None` if its key is deleted.
    pub fn value(&self, place: u32) -> Option<&[u8]> {
        let value_length = self.number(place as usize + NUMBER);
        (value_length != DELETED).then(|| &self.bytes[self.room(place).0..][..value_length as usize])
    }

    /// Every record's key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.places().map(|place| (self.key(place), self.value(place)))
    }

    /// Every record's place.
    pub fn places(&self) -> impl Iterator<Item = u32> {
        let mut next = 0;
        let places = std::iter::from_fn(move || {
            let place = next;
            let key_length = (place < self.bytes.len()).then(|| self.number(place))?;
            let room = self.number(place + 2 * NUMBER) & !MOVED;
            let with_key = if key_length == KEYLESS { 0 } else { key_length as usize };
            next += HEAD + with_key + room as usize;
            Some((place, key_length))
        });
        places.filter(|(_, key_length)| *key_length != KEYLESS).map(|(place, _)| place_at(place))
    }

    /// What is read of a record with a key of this length, if it fills no more than two lines of the processor's cache.
    pub fn touch(&self, place: u32, key_length: usize) -> u8 {
        let start = place as usize;
        self.bytes[start] ^ self.bytes.get(start + HEAD + key_length).copied().unwrap_or_default()
    }

    /// Where a record's value is or would be, and how much fits there.
    fn room(&self, place: u32) -> (usize, usize) {
        let place = place as usize;
        let start = place + HEAD + self.number(place) as usize;
        let size = self.number(place + 2 * NUMBER);
        if size & MOVED == 0 {
            return (start, size as usize);
        }
        let moved = self.number(start) as usize;
        (moved + HEAD, self.number(moved + 2 * NUMBER) as usize)
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..].first_chunk().expect("a run holds whole records");
        u32::from_le_bytes(*bytes)
    }

    fn put_head(&mut self, key_length: u32, value_length: u32, room: u32) {
        for number in [key_length, value_length, room] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn put_value(&mut self, value: &[u8], room: usize) {
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len() + room - value.len(), 0);
    }

    fn end(&self) -> u32 {
        place_at(self.bytes.len())
    }

    /// The bytes that records take, those of values that have moved included.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that is kept, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes room for so many bytes in all.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes.saturating_sub(self.bytes.len()));
    }

    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

fn length(bytes: &[u8]) -> u32 {
    length_of(bytes.len())
}

fn length_of(bytes: usize) -> u32 {
    let length = u32::try_from(bytes).ok().filter(|length| length & MOVED == 0);
    length.expect("keys and values are far below 2 GiB")
}

fn place_at(start: usize) -> u32 {
    u32::try_from(start).expect("a transaction or a memtable is bounded far below 4 GiB")
}
