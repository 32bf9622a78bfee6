//! A buffer of records in one byte vector. A record is named by its **place**, its start in the buffer. Its lengths,
//! key and value are adjacent, so that a lookup by place reads memory once.
//!
//! ```text
//! key length, value length, length of the space for the value | key | space for the value
//! ```
//!
//! A value that outgrows its space moves to the end of the buffer, as a record without a key, and its former space
//! holds the place of that record.

/// The size of a record's header, its three lengths.
const HEADER_BYTES: usize = 3 * NUMBER_BYTES;
/// The size of a length, and of a place.
const NUMBER_BYTES: usize = size_of::<u32>();
/// The value length of a deleted key.
const DELETED: u32 = u32::MAX;
/// The key length of a record that only holds a moved value.
const KEYLESS: u32 = u32::MAX;
/// The bit that is set in the length of a space if the value has moved out of it.
const MOVED: u32 = 1 << 31;

/// Records, in the order in which their keys were first written.
#[derive(Default)]
pub(super) struct RecordBuffer {
    bytes: Vec<u8>,
}

impl RecordBuffer {
    /// Appends a record; returns its place, which is its start in the buffer. Panics beyond 4 GiB, far above any bound
    /// of a transaction or a memtable.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> u32 {
        let place = self.end_place();
        let value_length = value.map_or(DELETED, stored_length_of);
        // The place of a moved value must fit.
        let space = value.map_or(0, <[u8]>::len).max(NUMBER_BYTES);
        self.put_header(stored_length_of(key), value_length, stored_length(space));
        self.bytes.extend_from_slice(key);
        self.put_value(value.unwrap_or_default(), space);
        place
    }

    /// Replaces a record's value: in place if it fits, which is usual, since an entry's versions mostly have the same
    /// size.
    pub fn set(&mut self, place: u32, value: Option<&[u8]>) {
        let header = place as usize;
        let value_length = value.map_or(DELETED, stored_length_of);
        self.bytes[header + NUMBER_BYTES..][..NUMBER_BYTES].copy_from_slice(&value_length.to_le_bytes());
        let Some(value) = value else { return };
        let (start, space) = self.value_space(place);
        if value.len() <= space {
            self.bytes[start..][..value.len()].copy_from_slice(value);
            return;
        }
        let moved_place = self.end_place();
        self.put_header(KEYLESS, 0, value_length);
        self.put_value(value, value.len());
        let (key_length, space_length) = (self.number(header), self.number(header + 2 * NUMBER_BYTES));
        self.bytes[header + 2 * NUMBER_BYTES..][..NUMBER_BYTES].copy_from_slice(&(space_length | MOVED).to_le_bytes());
        self.bytes[header + HEADER_BYTES + key_length as usize..][..NUMBER_BYTES]
            .copy_from_slice(&moved_place.to_le_bytes());
    }

    /// A record's key.
    pub fn key(&self, place: u32) -> &[u8] {
        &self.bytes[place as usize + HEADER_BYTES..][..self.number(place as usize) as usize]
    }

    /// A record's value, `None` if its key is deleted.
    pub fn value(&self, place: u32) -> Option<&[u8]> {
        let value_length = self.number(place as usize + NUMBER_BYTES);
        (value_length != DELETED).then(|| &self.bytes[self.value_space(place).0..][..value_length as usize])
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
            let space = self.number(place + 2 * NUMBER_BYTES) & !MOVED;
            let key_bytes = if key_length == KEYLESS { 0 } else { key_length as usize };
            next += HEADER_BYTES + key_bytes + space as usize;
            Some((place, key_length))
        });
        places.filter(|(_, key_length)| *key_length != KEYLESS).map(|(place, _)| place_at(place))
    }

    /// Reads a byte at the start of a record and one behind its key, so that the processor fetches the record. A record
    /// with a key of this length is fetched completely if it fills at most two lines of the processor's cache.
    pub fn touch(&self, place: u32, key_length: usize) -> u8 {
        let start = place as usize;
        self.bytes[start] ^ self.bytes.get(start + HEADER_BYTES + key_length).copied().unwrap_or_default()
    }

    /// The start and the length of the space for a record's value, wherever it has moved.
    fn value_space(&self, place: u32) -> (usize, usize) {
        let place = place as usize;
        let start = place + HEADER_BYTES + self.number(place) as usize;
        let space_length = self.number(place + 2 * NUMBER_BYTES);
        if space_length & MOVED == 0 {
            return (start, space_length as usize);
        }
        let moved_place = self.number(start) as usize;
        (moved_place + HEADER_BYTES, self.number(moved_place + 2 * NUMBER_BYTES) as usize)
    }

    /// The length or place that is stored at this index.
    fn number(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..].first_chunk().expect("a buffer holds whole records");
        u32::from_le_bytes(*bytes)
    }

    fn put_header(&mut self, key_length: u32, value_length: u32, space: u32) {
        for number in [key_length, value_length, space] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Appends a value, and zeros up to the length of its space.
    fn put_value(&mut self, value: &[u8], space: usize) {
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len() + space - value.len(), 0);
    }

    /// The place of the next record.
    fn end_place(&self) -> u32 {
        place_at(self.bytes.len())
    }

    /// The size of all records in bytes, including the former spaces of moved values.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that [`Self::clear`] keeps, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Reserves memory for this many bytes in total.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes.saturating_sub(self.bytes.len()));
    }

    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// The length of these bytes, in the form in which it is stored.
fn stored_length_of(bytes: &[u8]) -> u32 {
    stored_length(bytes.len())
}

fn stored_length(bytes: usize) -> u32 {
    let length = u32::try_from(bytes).ok().filter(|length| length & MOVED == 0);
    length.expect("keys and values are far below 2 GiB")
}

/// The place of the record that starts at this index.
fn place_at(start: usize) -> u32 {
    u32::try_from(start).expect("a transaction or a memtable is bounded far below 4 GiB")
}
