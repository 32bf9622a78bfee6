//! Compresses (packs) batches, with each codec's frame as Kafka's own clients write it, and reuses buffers.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use thiserror::Error;

use super::{Codec, HEAD_BYTES};

/// The bytes with which a frame of Java's snappy library (xerial) begins. The library's version and the lowest
/// version that can read the frame follow.
pub(super) const XERIAL_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
pub(super) const XERIAL_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// The size of the blocks that Java's library compresses.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;
/// The highest level of lz4. Up to it, librdkafka compresses in the same way; higher levels need another library.
const LZ4_LEVEL_MAX: i32 = 2;
const GZIP_LEVEL_MAX: i32 = 9;
/// The most bytes of the buffers that are kept for reuse. Batches are built in them, packed into them and sent from
/// them: a buffer that one step no longer needs is used by another step.
const BUFFERS_BYTES_MAX: usize = 8 << 20;

/// A level that is not available for its codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("level {level} is not available for {codec:?}")]
pub struct Unsupported {
    /// The codec.
    pub codec: Codec,
    /// The level.
    pub level: i32,
}

/// Compresses batches, and keeps their buffers for reuse once they are free. A writer has one for all its batches.
pub struct Packer {
    codec: Codec,
    level: Option<i32>,
    /// Created when it is first needed.
    zstd: Option<zstd_safe::CCtx<'static>>,
    /// For reuse.
    buffers: Vec<Vec<u8>>,
}

impl Packer {
    /// A packer that compresses with `codec` at `level`, `None` or -1 for the codec's default. The levels are 0 to 9
    /// for gzip, the levels of its library for zstd, 0 to 2 for lz4 (with the same result), and 0 for snappy.
    pub fn new(codec: Codec, level: Option<i32>) -> Result<Self, Unsupported> {
        let level = level.filter(|level| *level != -1);
        let is_available = |level: i32| match codec {
            Codec::None => true,
            Codec::Gzip => (0..=GZIP_LEVEL_MAX).contains(&level),
            Codec::Snappy => level == 0,
            Codec::Lz4 => (0..=LZ4_LEVEL_MAX).contains(&level),
            Codec::Zstd => (zstd_safe::min_c_level()..=zstd_safe::max_c_level()).contains(&level),
        };
        if let Some(level) = level.filter(|level| !is_available(*level)) {
            return Err(Unsupported { codec, level });
        }
        Ok(Self { codec, level, zstd: None, buffers: Vec::new() })
    }

    /// The codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Takes back the buffer of a batch that is no longer needed.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        let kept: usize = self.buffers.iter().map(Vec::capacity).sum();
        if kept + buffer.capacity() <= BUFFERS_BYTES_MAX {
            self.buffers.push(buffer);
        }
    }

    /// An empty buffer to build a batch in: the largest that is kept.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.take(|buffers| buffers.max_by_key(|(_, capacity)| *capacity))
    }

    /// Takes the kept buffer that `choose` selects by index and capacity, or a new buffer if none is kept.
    fn take(
        &mut self,
        choose: impl FnOnce(&mut dyn Iterator<Item = (usize, usize)>) -> Option<(usize, usize)>,
    ) -> Vec<u8> {
        let choice = choose(&mut self.buffers.iter().map(Vec::capacity).enumerate());
        let mut buffer = choice.map(|(index, _)| self.buffers.swap_remove(index)).unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Packs `records`, after space for the batch's head; `None` if the result is not smaller.
    pub(super) fn pack(&mut self, records: &[u8]) -> Option<Vec<u8>> {
        if self.codec == Codec::None {
            return None;
        }
        // The smallest buffer is used here: the largest remain for building.
        let mut into = self.take(|buffers| buffers.min_by_key(|(_, capacity)| *capacity));
        into.resize(HEAD_BYTES, 0);
        let packed = match self.codec {
            Codec::None => None,
            Codec::Gzip => gzip(records, self.level, into),
            Codec::Snappy => snappy(records, into),
            Codec::Lz4 => lz4(records, into),
            Codec::Zstd => self.zstd(records, into),
        };
        let packed = packed?;
        if packed.len() < HEAD_BYTES + records.len() {
            return Some(packed);
        }
        self.recycle(packed);
        None
    }

    fn zstd(&mut self, records: &[u8], mut into: Vec<u8>) -> Option<Vec<u8>> {
        if self.zstd.is_none() {
            self.zstd = zstd_safe::CCtx::try_create();
        }
        into.resize(HEAD_BYTES + zstd_safe::compress_bound(records.len()), 0);
        let room = into.get_mut(HEAD_BYTES..)?;
        let level = self.level.unwrap_or(zstd_safe::CLEVEL_DEFAULT);
        let len = self.zstd.as_mut()?.compress(room, records, level).ok()?;
        into.truncate(HEAD_BYTES + len);
        Some(into)
    }
}

fn gzip(records: &[u8], level: Option<i32>, into: Vec<u8>) -> Option<Vec<u8>> {
    let level = level.and_then(|level| u32::try_from(level).ok()).map_or(Compression::default(), Compression::new);
    let mut encoder = GzEncoder::new(into, level);
    encoder.write_all(records).ok()?;
    encoder.finish().ok()
}

/// Compresses in independent blocks: Java's reader accepts no others.
fn lz4(records: &[u8], into: Vec<u8>) -> Option<Vec<u8>> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, into);
    encoder.write_all(records).ok()?;
    encoder.finish().ok()
}

fn snappy(records: &[u8], mut into: Vec<u8>) -> Option<Vec<u8>> {
    into.extend_from_slice(&XERIAL_MAGIC);
    into.extend_from_slice(&XERIAL_VERSIONS);
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let at = into.len();
        into.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let (length, room) = into.get_mut(at..)?.split_first_chunk_mut::<4>()?;
        let len = encoder.compress(block, room).ok()?;
        *length = u32::try_from(len).ok()?.to_be_bytes();
        into.truncate(at + 4 + len);
    }
    Some(into)
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("codec", &self.codec).field("level", &self.level).finish_non_exhaustive()
    }
}
