//! The batches of a fetched partition, and the fields in their heads.

use super::super::primitives::Reader;
use super::record::Records;
use super::{
    CHECKED_FROM, CONTROL_BIT, Codec, Error, HEAD_BYTES, LENGTH_END, MAGIC, STAMPED_BIT, TRANSACTIONAL_BIT, UNSET,
};

/// The position of a batch's magic, the number of its format; the same in every format so far.
const MAGIC_AT: usize = 16;

/// The whole batches of a partition's records, in order. A response may end mid-batch when it reaches its size limit:
/// that partial batch is not an item, but available from [`Batches::partial_batch`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
    /// The lowest valid base offset of the next batch.
    base_offset_min: i64,
}

impl<'a> Batches<'a> {
    /// The batches in a partition's `records` of a Fetch response.
    pub fn new(records: &'a [u8]) -> Self {
        Self { rest: records, base_offset_min: 0 }
    }

    /// The unread bytes. After the last whole batch: the beginning of a partial batch, or empty.
    pub fn partial_batch(&self) -> &'a [u8] {
        self.rest
    }

    fn read_next(&mut self) -> Option<Result<Batch<'a>, Error>> {
        let head = self.rest.get(..=MAGIC_AT)?;
        let magic = i8::from_be_bytes([*head.last()?]);
        if magic != MAGIC {
            return Some(Err(Error::Magic(magic)));
        }
        let length = self.rest.get(8..LENGTH_END)?.try_into().ok().map(i32::from_be_bytes)?;
        let Some(length) = usize::try_from(length).ok().filter(|length| LENGTH_END + length >= HEAD_BYTES) else {
            return Some(Err(Error::Damaged("its length is too short for a batch")));
        };
        let (bytes, rest) = self.rest.split_at_checked(LENGTH_END + length)?;
        let batch = Batch::read(bytes);
        if let Ok(batch) = &batch {
            if batch.base_offset < self.base_offset_min {
                return Some(Err(Error::OUT_OF_ORDER));
            }
            (self.rest, self.base_offset_min) = (rest, batch.last_offset.saturating_add(1));
        }
        Some(batch)
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, Error>;

    /// The next whole batch; `None` after an error.
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read_next();
        if let Some(Err(_)) = next {
            self.rest = &[];
        }
        next
    }
}

/// A batch, borrowed from its response. Its checksum is verified only by [`Batch::check`].
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The offset to which the records' deltas are added. After compaction, possibly no record has this offset.
    pub base_offset: i64,
    /// The last offset; the next batch begins after it. After compaction, possibly no record has this offset.
    pub last_offset: i64,
    /// The epoch of the leader that appended it.
    pub leader_epoch: i32,
    /// All attribute bits.
    pub attributes: i16,
    /// The timestamp to which the records' deltas are added.
    pub base_timestamp: i64,
    /// The maximum of the records' timestamps, or the time of the append ([`Batch::is_stamped`]).
    pub max_timestamp: i64,
    /// The id of its producer, -1 for none.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// The first record's sequence number, -1 for none.
    pub base_sequence: i32,
    /// How many records it has, after compaction possibly 0.
    pub count: i32,
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Reads the head of a whole batch of [`MAGIC`].
    fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let batch = Self::read_head(bytes).ok_or(Error::Damaged("its head is cut off"))?;
        if batch.base_offset < 0 || batch.last_offset < batch.base_offset {
            return Err(Error::Damaged("its offsets are negative or descending"));
        }
        if batch.count < 0 {
            return Err(Error::Damaged("its count of records is negative"));
        }
        Ok(batch)
    }

    fn read_head(bytes: &'a [u8]) -> Option<Self> {
        let mut head = Reader::new(bytes);
        let (base_offset, _length, leader_epoch) = (head.i64()?, head.i32()?, head.i32()?);
        let (_magic, _checksum, attributes) = (head.i8()?, head.u32()?, head.i16()?);
        let last_delta = i64::from(head.i32()?);
        Some(Self {
            base_offset,
            last_offset: base_offset.checked_add(last_delta).unwrap_or(-1),
            leader_epoch,
            attributes,
            base_timestamp: head.i64()?,
            max_timestamp: head.i64()?,
            producer_id: head.i64()?,
            producer_epoch: head.i16()?,
            base_sequence: head.i32()?,
            count: head.i32()?,
            bytes,
        })
    }

    /// Verifies the checksum. Before that, the other fields cannot be trusted.
    pub fn check(&self) -> Result<(), Error> {
        let is_checksum_right = || {
            let stored = self.bytes.get(CHECKED_FROM - 4..CHECKED_FROM)?.try_into().ok().map(u32::from_be_bytes)?;
            Some(crc32c::crc32c(self.bytes.get(CHECKED_FROM..)?) == stored)
        };
        if is_checksum_right() == Some(true) { Ok(()) } else { Err(Error::Damaged("its checksum is wrong")) }
    }

    /// How it is compressed.
    pub fn codec(&self) -> Result<Codec, Error> {
        Codec::from_attributes(self.attributes)
    }

    /// Whether it is part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether it holds a broker's control record, such as the end of a transaction, instead of data.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Whether the broker set one timestamp for all records when it appended the batch.
    pub fn is_stamped(&self) -> bool {
        self.attributes & STAMPED_BIT != 0
    }

    /// Whether its producer has an id.
    pub fn has_producer(&self) -> bool {
        self.producer_id > UNSET
    }

    /// All its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes after its head: the records, compressed by [`Batch::codec`].
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(HEAD_BYTES..).unwrap_or_default()
    }

    /// Its records, read from the unpacked [`Batch::payload`].
    pub fn records<'b>(&self, unpacked: &'b [u8]) -> Records<'b> {
        Records::new(self, unpacked)
    }

    /// Resumes reading the records: takes the earlier [`Records::rest`] and [`Records::left`], and the offset after the
    /// last record that was read, so that the order is still checked.
    pub fn records_from<'b>(&self, rest: &'b [u8], left: usize, next_offset: i64) -> Records<'b> {
        Records::resume(self, rest, left, next_offset)
    }

    /// The type of a control batch; `None` if compaction has emptied it.
    pub fn control(&self) -> Result<Option<Control>, Error> {
        if self.codec()? != Codec::None {
            return Err(Error::Damaged("a control batch is compressed"));
        }
        self.records(self.payload()).next().map(|record| Control::read(record?.key)).transpose()
    }
}

/// The type of a control batch (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The producer's transaction was aborted.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// Another type, by its number; irrelevant to readers.
    Other(i16),
}

impl Control {
    /// Reads the key of a control record: its version, then its type. Fields that later versions may add are ignored.
    fn read(key: Option<&[u8]>) -> Result<Self, Error> {
        let mut key = Reader::new(key.unwrap_or_default());
        let read = key.i16().zip(key.i16()).filter(|(version, _)| *version >= 0);
        let (_, kind) = read.ok_or(Error::Damaged("a control record has no type"))?;
        Ok(match kind {
            0 => Self::Abort,
            1 => Self::Commit,
            kind => Self::Other(kind),
        })
    }
}
