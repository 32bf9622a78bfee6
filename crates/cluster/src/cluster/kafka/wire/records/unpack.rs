//! Unpacks batches within a bound, since a producer can send a few kilobytes that unpack to gigabytes.

use std::fmt;
use std::io::Read;
use std::ops::Deref;

use thiserror::Error;

use super::Codec;
use super::pack::{XERIAL_MAGIC, XERIAL_VERSIONS};

/// Why a batch was not unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnpackError {
    /// The batch unpacks to more bytes than are ever allowed: refetching does not help.
    #[error("the record batch exceeds the allowed size when unpacked")]
    TooLarge,
    /// Other batches hold too much memory at present: a later attempt may succeed.
    #[error("there is not enough memory at present to unpack the record batch")]
    NoRoom,
    /// The payload is not valid output of its codec.
    #[error("the record batch cannot be unpacked")]
    Damaged,
}

/// Unpacks batches. Each implementation sets its own bound.
pub trait Unpack: Send {
    /// Unpacks `bytes`, the payload of a batch.
    fn unpack(&mut self, codec: Codec, bytes: &[u8]) -> Result<Unpacked, UnpackError>;
}

/// An unpacked batch. If it counts against a bound, it counts until it is dropped.
pub struct Unpacked(Box<dyn AsRef<[u8]> + Send + Sync>);

impl Unpacked {
    /// Wraps the owner of the bytes.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Box::new(bytes))
    }
}

impl Deref for Unpacked {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unpacked({} bytes)", self.len())
    }
}

/// Unpacks each batch within a bound of its own: for batches that a writer has packed itself. Fetched batches count
/// against one bound for the whole process instead.
pub struct BoundedUnpacker {
    bytes_max: usize,
    /// zstd's context, kept for the next batch, since a new one would need much memory.
    zstd_context: Option<zstd_safe::DCtx<'static>>,
}

impl BoundedUnpacker {
    /// Allows each batch at most `bytes_max` unpacked bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, zstd_context: None }
    }
}

impl fmt::Debug for BoundedUnpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedUnpacker").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl Unpack for BoundedUnpacker {
    fn unpack(&mut self, codec: Codec, bytes: &[u8]) -> Result<Unpacked, UnpackError> {
        let max = self.bytes_max;
        let unpacked = match codec {
            Codec::None if bytes.len() > max => Err(UnpackError::TooLarge),
            Codec::None => Ok(bytes.to_vec()),
            Codec::Gzip => read_all(flate2::bufread::MultiGzDecoder::new(bytes), bytes.len(), max),
            Codec::Lz4 => read_all(lz4_flex::frame::FrameDecoder::new(bytes), bytes.len(), max),
            Codec::Snappy => snappy(bytes, max),
            Codec::Zstd => self.unpack_zstd(bytes),
        };
        unpacked.map(Unpacked::new)
    }
}

impl BoundedUnpacker {
    fn unpack_zstd(&mut self, bytes: &[u8]) -> Result<Vec<u8>, UnpackError> {
        let mut context = self.zstd_context.take().or_else(zstd_safe::DCtx::try_create).ok_or(UnpackError::NoRoom)?;
        let unpacked = zstd(&mut context, bytes, self.bytes_max)?;
        // The context is not kept after an error: it would continue the damaged frame.
        self.zstd_context = Some(context);
        Ok(unpacked)
    }
}

/// The assumed ratio of unpacked to packed bytes, for the size of the first allocation.
const RATIO_GUESS: usize = 4;

fn read_all(from: impl Read, packed_bytes: usize, max: usize) -> Result<Vec<u8>, UnpackError> {
    let mut unpacked = Vec::with_capacity(packed_bytes.saturating_mul(RATIO_GUESS).min(max));
    let read = from.take((max as u64).saturating_add(1)).read_to_end(&mut unpacked);
    read.map_err(|_| UnpackError::Damaged)?;
    if unpacked.len() > max { Err(UnpackError::TooLarge) } else { Ok(unpacked) }
}

/// Strips the head that Java's snappy library (xerial) writes. Blocks remain, each preceded by its length. `None` if
/// the bytes do not begin with such a head.
pub fn strip_xerial(bytes: &[u8]) -> Option<&[u8]> {
    bytes.strip_prefix(&XERIAL_MAGIC)?.get(XERIAL_VERSIONS.len()..)
}

/// Unpacks snappy blocks in the frame of Java's library, each preceded by its length; or a single block, as librdkafka
/// writes it.
fn snappy(bytes: &[u8], max: usize) -> Result<Vec<u8>, UnpackError> {
    let mut blocks = Vec::new();
    match strip_xerial(bytes) {
        None => blocks.push(bytes),
        Some(mut rest) => {
            while !rest.is_empty() {
                let (length, after) = rest.split_first_chunk::<4>().ok_or(UnpackError::Damaged)?;
                let length = u32::from_be_bytes(*length) as usize;
                let (block, after) = after.split_at_checked(length).ok_or(UnpackError::Damaged)?;
                blocks.push(block);
                rest = after;
            }
        }
    }
    let mut size = 0_usize;
    for block in &blocks {
        size = size.saturating_add(snap::raw::decompress_len(block).map_err(|_| UnpackError::Damaged)?);
    }
    if size > max {
        return Err(UnpackError::TooLarge);
    }
    let (mut unpacked, mut at) = (vec![0; size], 0);
    for block in blocks {
        let room = unpacked.get_mut(at..).unwrap_or_default();
        at += snap::raw::Decoder::new().decompress(block, room).map_err(|_| UnpackError::Damaged)?;
    }
    Ok(unpacked)
}

/// Unpacks zstd frames step by step: their heads need not contain their unpacked size.
fn zstd(context: &mut zstd_safe::DCtx<'_>, bytes: &[u8], max: usize) -> Result<Vec<u8>, UnpackError> {
    const ROOM_MIN: usize = 1 << 10;
    let content_bytes = zstd_safe::get_frame_content_size(bytes).map_err(|_| UnpackError::Damaged)?;
    let first_size = bytes.len().saturating_mul(RATIO_GUESS).max(ROOM_MIN);
    let first_size = content_bytes.map_or(first_size, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if content_bytes.is_some() && first_size > max {
        return Err(UnpackError::TooLarge);
    }
    let mut from = zstd_safe::InBuffer::around(bytes);
    let (mut unpacked, mut len) = (vec![0; first_size.min(max)], 0);
    loop {
        let mut to = zstd_safe::OutBuffer::around(unpacked.get_mut(len..).unwrap_or_default());
        let hint = context.decompress_stream(&mut to, &mut from).map_err(|_| UnpackError::Damaged)?;
        len += to.pos();
        let (is_full, is_used_up) = (len == unpacked.len(), from.pos() == bytes.len());
        match hint {
            // The end of a frame.
            0 if is_used_up => break,
            _ if is_full && len == max => return Err(UnpackError::TooLarge),
            _ if is_full => unpacked.resize(len.saturating_mul(2).clamp(ROOM_MIN, max), 0),
            _ if is_used_up => return Err(UnpackError::Damaged),
            _ => {}
        }
    }
    unpacked.truncate(len);
    Ok(unpacked)
}
