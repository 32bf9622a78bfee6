//! Unpacks batches into reserved memory: gzip with zlib, lz4 and zstd with their libraries, snappy with
//! librdkafka's own code. These are what librdkafka itself is linked with, and malformed input is treated as it does:
//! a stream that ends early is unpacked as far as it goes.
//!
//! The size given in a header is a hint: memory is reserved and allocated for it, but never more than allowed.
//!
//! **Failure**: see [`Failure`]; no memory remains allocated.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::super::wire::headers::count_records;
use super::budget::{RECORD_OVERHEAD_BYTES, Rejection, Reservation};
use super::frames::{LZ4_MAGIC, gzip_size_hint, lz4_size_hint, snappy_chunk, snappy_size};

/// Minimum allocation.
const CAPACITY_MIN: usize = 1 << 10;
/// A window of 32 KiB, and automatic detection of a gzip or zlib header.
const GZIP_WINDOW: c_int = 15 + 32;
const LZ4F_VERSION: c_uint = 100;
/// `ZSTD_CONTENTSIZE_ERROR`.
const ZSTD_SIZE_ERROR: u64 = u64::MAX - 1;

// SAFETY: as declared in their headers. librdkafka uses the same libraries, so they are linked in any case.
unsafe extern "C" {
    fn LZ4F_createDecompressionContext(context: *mut *mut c_void, version: c_uint) -> usize;
    fn LZ4F_freeDecompressionContext(context: *mut c_void) -> usize;
    fn LZ4F_decompress(
        context: *mut c_void,
        to: *mut u8,
        to_size: *mut usize,
        from: *const u8,
        from_size: *mut usize,
        options: *const c_void,
    ) -> usize;
    fn LZ4F_isError(code: usize) -> c_uint;
    fn XXH32(input: *const c_void, size: usize, seed: c_uint) -> c_uint;
    fn ZSTD_decompressBound(from: *const c_void, size: usize) -> u64;
    fn rd_kafka_snappy_uncompress_iov(from: *const libc::iovec, count: c_int, size: usize, to: *mut c_char) -> c_int;
}

/// Why a batch was not unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// There is no room for it.
    Rejected(Rejection),
    /// It cannot be unpacked.
    Damaged,
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

/// An unpacked batch: memory from `malloc`, with its reservation.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub start: NonNull<u8>,
    pub len: usize,
    pub reservation: Reservation,
}

/// Reserves the memory that the records in `unpacked` will take besides their bytes.
pub(super) fn reserve_overhead(reservation: &mut Reservation, unpacked: &[u8]) -> Result<(), Rejection> {
    reservation.add(count_records(unpacked).saturating_mul(RECORD_OVERHEAD_BYTES))
}

/// Memory that is written to and grows.
struct Buffer {
    start: NonNull<u8>,
    capacity: usize,
    len: usize,
    reservation: Reservation,
}

impl Buffer {
    /// A buffer for the expected number of bytes.
    fn new(size_hint: usize) -> Result<Self, Failure> {
        let mut reservation = Reservation::new();
        let max = usize::try_from(reservation.max()).unwrap_or(usize::MAX);
        let capacity = size_hint.max(CAPACITY_MIN).min(max);
        reservation.add(capacity as u64)?;
        // SAFETY: the size is not zero, since a bound is not; the memory is owned.
        let start = NonNull::new(unsafe { libc::malloc(capacity) }).ok_or(Rejection::NoRoom)?;
        Ok(Self { start: start.cast(), capacity, len: 0, reservation })
    }

    /// The unused part: its start and length.
    fn spare(&self) -> (*mut u8, usize) {
        // SAFETY: `len` is at most the capacity.
        (unsafe { self.start.as_ptr().add(self.len) }, self.capacity - self.len)
    }

    /// Doubles the memory, up to the bound.
    fn grow(&mut self) -> Result<(), Failure> {
        let max = usize::try_from(self.reservation.max()).unwrap_or(usize::MAX);
        let capacity = self.capacity.saturating_mul(2).min(max);
        if capacity <= self.capacity {
            return Err(Rejection::TooLarge.into());
        }
        self.reservation.add((capacity - self.capacity) as u64)?;
        self.resize(capacity)
    }

    fn resize(&mut self, capacity: usize) -> Result<(), Failure> {
        // SAFETY: memory from `malloc` that is owned; if the call fails, it is unchanged.
        let start = unsafe { libc::realloc(self.start.as_ptr().cast(), capacity) };
        self.start = NonNull::new(start).ok_or(Rejection::NoRoom)?.cast();
        self.capacity = capacity;
        Ok(())
    }

    /// The bytes written, in memory cut to their size.
    fn finish(mut self) -> Result<Unpacked, Failure> {
        let capacity = self.len.max(1);
        let spare = (self.capacity - capacity.min(self.capacity)) as u64;
        self.resize(capacity)?;
        self.reservation.release(spare);
        // SAFETY: `len` bytes were written.
        let unpacked = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) };
        reserve_overhead(&mut self.reservation, unpacked)?;
        let (start, len, reservation) =
            (self.start, self.len, std::mem::replace(&mut self.reservation, Reservation::new()));
        std::mem::forget(self);
        Ok(Unpacked { start, len, reservation })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: memory from `malloc` that is owned.
        unsafe { libc::free(self.start.as_ptr().cast()) }
    }
}

/// A zlib stream, which must not move.
struct Inflater(Box<MaybeUninit<libz_sys::z_stream>>);

impl Inflater {
    fn new() -> Option<Self> {
        let mut stream = Box::new(MaybeUninit::zeroed());
        // SAFETY: zeros mean zlib's own allocator, and no input yet.
        let result = unsafe {
            let size = size_of::<libz_sys::z_stream>() as c_int;
            libz_sys::inflateInit2_(stream.as_mut_ptr(), GZIP_WINDOW, libz_sys::zlibVersion(), size)
        };
        (result == libz_sys::Z_OK).then_some(Self(stream))
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: it was initialised.
        unsafe { libz_sys::inflateEnd(self.0.as_mut_ptr()) };
    }
}

pub(super) fn gzip(input: &[u8]) -> Result<Unpacked, Failure> {
    let mut inflater = Inflater::new().ok_or(Rejection::NoRoom)?;
    let stream = inflater.0.as_mut_ptr();
    let mut buffer = Buffer::new(gzip_size_hint(input))?;
    // SAFETY: the stream is alive; zlib does not write to its input. It reads and writes within the given lengths.
    unsafe {
        (*stream).next_in = input.as_ptr().cast_mut();
        (*stream).avail_in = c_uint::try_from(input.len()).map_err(|_| Failure::Damaged)?;
    }
    loop {
        let (start, spare) = buffer.spare();
        let spare = c_uint::try_from(spare).unwrap_or(c_uint::MAX);
        // SAFETY: as above.
        let (result, left) = unsafe {
            (*stream).next_out = start;
            (*stream).avail_out = spare;
            (libz_sys::inflate(stream, libz_sys::Z_NO_FLUSH), (*stream).avail_out)
        };
        buffer.len += (spare - left) as usize;
        match result {
            libz_sys::Z_STREAM_END => break,
            libz_sys::Z_OK | libz_sys::Z_BUF_ERROR if left == 0 => buffer.grow()?,
            // The input has ended.
            libz_sys::Z_OK | libz_sys::Z_BUF_ERROR => break,
            _ => return Err(Failure::Damaged),
        }
    }
    buffer.finish()
}

/// lz4's context for unpacking a frame.
struct Lz4(*mut c_void);

impl Drop for Lz4 {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { LZ4F_freeDecompressionContext(self.0) };
    }
}

pub(super) fn lz4(input: &[u8]) -> Result<Unpacked, Failure> {
    let mut context = ptr::null_mut();
    // SAFETY: the out-pointer is valid; what it receives is owned.
    if unsafe { LZ4F_isError(LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION)) } != 0 {
        return Err(Rejection::NoRoom.into());
    }
    let context = Lz4(context);
    let mut buffer = Buffer::new(lz4_size_hint(input).ok_or(Failure::Damaged)?)?;
    let mut rest = input;
    while !rest.is_empty() {
        let (start, mut written) = buffer.spare();
        let (room, mut read) = (written, rest.len());
        // SAFETY: the context is alive; it reads and writes within the given sizes, and sets them to how far it got.
        let hint = unsafe { LZ4F_decompress(context.0, start, &mut written, rest.as_ptr(), &mut read, ptr::null()) };
        // SAFETY: only inspects the number.
        if unsafe { LZ4F_isError(hint) } != 0 {
            return Err(Failure::Damaged);
        }
        buffer.len += written;
        rest = &rest[read..];
        if hint == 0 {
            break;
        }
        if written == room && !rest.is_empty() && read == 0 {
            buffer.grow()?;
        } else if written == 0 && read == 0 {
            return Err(Failure::Damaged);
        }
    }
    // Bytes after a frame do not belong to it.
    if rest.is_empty() { buffer.finish() } else { Err(Failure::Damaged) }
}

/// Corrects the checksum of a frame's header, which clients and brokers before Kafka 0.10 got wrong.
pub(super) fn mend_lz4_head(frame: &mut [u8]) {
    let Some(flags) = frame.get(4).copied().filter(|_| frame.starts_with(&LZ4_MAGIC)) else { return };
    let at = if flags & 0x08 != 0 { 14 } else { 6 };
    if at < frame.len() {
        // SAFETY: that many bytes are there.
        let sum = unsafe { XXH32(frame[4..].as_ptr().cast(), at - 4, 0) };
        frame[at] = (sum >> 8) as u8;
    }
}

pub(super) fn zstd(input: &[u8]) -> Result<Unpacked, Failure> {
    // SAFETY: both only read the input, within its length.
    let (said, bound) = unsafe {
        let from = input.as_ptr().cast();
        (zstd_sys::ZSTD_getFrameContentSize(from, input.len()), ZSTD_decompressBound(from, input.len()))
    };
    if said == ZSTD_SIZE_ERROR || bound == ZSTD_SIZE_ERROR || bound == u64::MAX {
        return Err(Failure::Damaged);
    }
    let max = Reservation::new().max();
    if said < ZSTD_SIZE_ERROR && said > max {
        return Err(Rejection::TooLarge.into());
    }
    // Many small blocks, each of which could have been larger.
    if bound > max {
        return zstd_stream(input);
    }
    let mut buffer = Buffer::new(usize::try_from(bound).unwrap_or(usize::MAX))?;
    let (start, room) = buffer.spare();
    // SAFETY: it reads and writes within the given sizes; then the number is only inspected.
    let (written, failed) = unsafe {
        let written = zstd_sys::ZSTD_decompress(start.cast(), room, input.as_ptr().cast(), input.len());
        (written, zstd_sys::ZSTD_isError(written) != 0)
    };
    if failed {
        return Err(Failure::Damaged);
    }
    buffer.len = written;
    buffer.finish()
}

/// zstd's context for unpacking step by step.
struct Zstd(*mut zstd_sys::ZSTD_DStream);

impl Drop for Zstd {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { zstd_sys::ZSTD_freeDStream(self.0) };
    }
}

fn zstd_stream(input: &[u8]) -> Result<Unpacked, Failure> {
    // SAFETY: the result is owned.
    let stream = Zstd(unsafe { zstd_sys::ZSTD_createDStream() });
    if stream.0.is_null() {
        return Err(Rejection::NoRoom.into());
    }
    let mut buffer = Buffer::new(input.len().saturating_mul(4))?;
    let mut from = zstd_sys::ZSTD_inBuffer { src: input.as_ptr().cast(), size: input.len(), pos: 0 };
    loop {
        let (start, room) = buffer.spare();
        let mut to = zstd_sys::ZSTD_outBuffer { dst: start.cast(), size: room, pos: 0 };
        // SAFETY: the stream is alive; it reads and writes within the given sizes, and sets how far it got.
        let (hint, failed) = unsafe {
            let hint = zstd_sys::ZSTD_decompressStream(stream.0, &mut to, &mut from);
            (hint, zstd_sys::ZSTD_isError(hint) != 0)
        };
        if failed {
            return Err(Failure::Damaged);
        }
        buffer.len += to.pos;
        match hint {
            0 if from.pos == from.size => return buffer.finish(),
            _ if to.pos == room => buffer.grow()?,
            _ if from.pos == from.size => return Err(Failure::Damaged),
            _ => {}
        }
    }
}

/// Unpacks a snappy block.
///
/// # Safety
/// At `to` there is room for the size given in the block.
pub(super) unsafe fn snappy_block(block: &[u8], to: *mut c_char) -> bool {
    let from = libc::iovec { iov_base: block.as_ptr().cast_mut().cast(), iov_len: block.len() };
    // SAFETY: by the caller's promise; the input is only read.
    unsafe { rd_kafka_snappy_uncompress_iov(&from, 1, block.len(), to) == 0 }
}

/// Unpacks a single block, as librdkafka writes it.
pub(super) fn snappy(block: &[u8]) -> Result<Unpacked, Failure> {
    let size = snappy_size(block).ok_or(Failure::Damaged)?;
    let mut buffer = Buffer::new(size)?;
    if buffer.capacity < size {
        return Err(Rejection::TooLarge.into());
    }
    // SAFETY: there is room for `size` bytes.
    if !unsafe { snappy_block(block, buffer.spare().0.cast()) } {
        return Err(Failure::Damaged);
    }
    buffer.len = size;
    buffer.finish()
}

/// Unpacks the blocks that Java's library writes, without their header.
pub(super) fn snappy_chunks(chunks: &[u8]) -> Result<Unpacked, Failure> {
    let (mut rest, mut size) = (chunks, 0_usize);
    while !rest.is_empty() {
        let (block, behind) = snappy_chunk(rest).ok_or(Failure::Damaged)?;
        size = size.saturating_add(snappy_size(block).ok_or(Failure::Damaged)?);
        rest = behind;
    }
    let mut buffer = Buffer::new(size)?;
    if buffer.capacity < size {
        return Err(Rejection::TooLarge.into());
    }
    let mut rest = chunks;
    while let Some((block, behind)) = snappy_chunk(rest) {
        let (start, room) = buffer.spare();
        let size = snappy_size(block).filter(|size| *size <= room).ok_or(Failure::Damaged)?;
        // SAFETY: there is room for `size` bytes.
        if !unsafe { snappy_block(block, start.cast()) } {
            return Err(Failure::Damaged);
        }
        buffer.len += size;
        rest = behind;
    }
    buffer.finish()
}

#[cfg(test)]
mod tests;
