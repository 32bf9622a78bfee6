//! Record batches, the form in which records are sent, stored and fetched (magic 2, KIP-98): read in place, and built
//! in the buffer from which they are sent.
//!
//! ```text
//! at  0  base offset i64         of the first record; set by the broker
//!     8  length i32              of the bytes after it
//!    12  leader epoch i32        of the leader that appended it; set by the broker
//!    16  magic i8                2
//!    17  checksum u32            CRC-32C of the bytes after it
//!    21  attributes i16          bits 0-2 codec, 3 stamped by the broker, 4 transactional, 5 control, 6 delete horizon
//!    23  last offset i32         difference from the base offset
//!    27  base timestamp i64      milliseconds; -1 for none
//!    35  maximum timestamp i64   or the time of the append, if the broker stamps
//!    43  producer id i64         -1 for none
//!    51  producer epoch i16
//!    53  base sequence i32
//!    57  count i32
//!    61  records                 compressed together
//! record: length varint · attributes i8 · timestamp varlong and offset varint, both as differences · key and value,
//!         each after its length varint, -1 for null · count varint of headers, each a name and a value like these
//! ```
//!
//! - [`Batches`] and [`Batch`] read a partition's part of a response, [`Records`] the records of a batch
//! - [`AbortedFilter`] skips aborted transactions, as a reader with read_committed has to
//! - [`BatchBuilder`] builds a batch; a [`Packer`] compresses
//! - [`Unpack`] unpacks, within a bound
//!
//! Invariants: no memory is allocated for a single record. A fetched batch is passed on only if its checksum is right
//! ([`Batch::check`]), unless `check.crcs` is off. The checksum does not cover the base offset and the leader epoch,
//! which brokers set, so the order of batches is checked. A record that cannot be read is an error; it is never
//! skipped.
//!
//! **Failure**: an [`enum@Error`] describes what is wrong with the batch; no later batch is read.

use thiserror::Error;

mod aborted;
mod batch;
mod builder;
mod pack;
mod record;
mod unpack;

pub use aborted::{AbortedFilter, AbortedTransaction};
pub use batch::{Batch, Batches, Control};
pub use builder::{BatchBuilder, BatchProducer, RECORD_HEAD_BYTES_MAX, TooLarge};
pub use pack::{Packer, Unsupported};
pub use record::{RawHeaders, RawRecord, Records};
pub use unpack::{BoundedUnpacker, Unpack, UnpackError, Unpacked, strip_xerial};

/// The bytes of a batch before its records.
pub const HEAD_BYTES: usize = 61;
/// The position of the first byte that the length counts.
const LENGTH_END: usize = 12;
/// The position of the first byte that the checksum covers.
const CHECKED_FROM: usize = 21;
/// The batch format that is read and written.
const MAGIC: i8 = 2;
/// What stands for no producer, no timestamp or no sequence, and as a length for null.
pub const UNSET: i64 = -1;

const CODEC_BITS: i16 = 0x07;
const STAMPED_BIT: i16 = 0x08;
const TRANSACTIONAL_BIT: i16 = 0x10;
const CONTROL_BIT: i16 = 0x20;

/// The defect of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// It is inconsistent, or its checksum is wrong: refetching helps if it was damaged in transit.
    #[error("the record batch is damaged: {0}")]
    Damaged(&'static str),
    /// It is in another message format, such as those before Kafka 0.11.
    #[error(
        "the record batch is in message format {0}; the wire reads only format 2, that of Kafka 0.11 and later: set \
         `data_path: librdkafka`"
    )]
    Magic(i8),
    /// It is compressed with an unknown codec.
    #[error("the record batch is compressed with unknown codec {0}")]
    Codec(i16),
}

/// How a batch is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// snappy, in the frame of Java's library or without a frame.
    Snappy,
    /// A frame of lz4.
    Lz4,
    /// Frames of zstd (KIP-110).
    Zstd,
}

impl Error {
    /// A batch is out of order: its base offset is wrong, or the preceding batch's is.
    pub const OUT_OF_ORDER: Self = Self::Damaged("its base offset is below the end of the preceding batch");
}

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    fn from_attributes(attributes: i16) -> Result<Self, Error> {
        match attributes & CODEC_BITS {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zstd),
            number => Err(Error::Codec(number)),
        }
    }

    fn bits(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

#[cfg(test)]
mod tests;
