//! What compressed batches say about their own size, before any of them is unpacked.
//!
//! Anyone who may write to the input chooses these bytes: they are taken as a hint, and never as more than that.
//!
//! **Failure**: anything that is not such a header is `None`.

/// The first bytes of an lz4 frame.
pub const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// gzip's highest compression ratio, roughly.
const GZIP_RATIO_MAX: usize = 1032;

/// The size according to gzip's trailer, which has it modulo 4 GiB.
pub fn gzip_size_hint(input: &[u8]) -> usize {
    let guess = input.len().saturating_mul(4);
    let said = input.last_chunk::<4>().filter(|_| input.starts_with(&[0x1f, 0x8b]));
    let said = said.map(|size| u32::from_le_bytes(*size) as usize);
    said.filter(|size| *size <= input.len().saturating_mul(GZIP_RATIO_MAX)).unwrap_or(guess)
}

/// The most that a frame can unpack to: its header gives the size, or else its blocks give theirs. `None` if it is no
/// frame.
pub fn lz4_size_hint(frame: &[u8]) -> Option<usize> {
    if !frame.starts_with(&LZ4_MAGIC) {
        return None;
    }
    let number = |at: usize| frame.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let (flags, sizes) = (*frame.get(4)?, *frame.get(5)?);
    if flags & 0x08 != 0 {
        let said = u64::from_le_bytes(*frame.get(6..)?.first_chunk()?);
        // Zero means unknown.
        if said > 0 {
            return Some(usize::try_from(said).unwrap_or(usize::MAX));
        }
    }
    let block_bytes_max = 1_usize << (8 + 2 * u32::from(sizes >> 4 & 7));
    let head = 7 + if flags & 0x08 != 0 { 8 } else { 0 } + if flags & 0x01 != 0 { 4 } else { 0 };
    let checksum = if flags & 0x10 != 0 { 4 } else { 0 };
    let (mut at, mut size_hint) = (head, 0_usize);
    while let Some(size) = number(at).filter(|size| *size > 0) {
        let (stored, bytes) = (size >> 31 != 0, size & 0x7fff_ffff);
        // A stored block is no longer than the frame.
        size_hint = size_hint.saturating_add(if stored { bytes.min(frame.len()) } else { block_bytes_max });
        at = at.saturating_add(4 + checksum + bytes);
    }
    Some(size_hint)
}

/// The unpacked size given in a snappy block, which it has to have.
pub fn snappy_size(block: &[u8]) -> Option<usize> {
    let mut size = 0_u64;
    for (place, byte) in block.iter().take(5).enumerate() {
        size |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return u32::try_from(size).ok().map(|size| size as usize);
        }
    }
    None
}

/// The next of the blocks that Java's library writes, each after its length, and what follows it.
pub fn snappy_chunk(chunks: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = chunks.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}
