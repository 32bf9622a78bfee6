//! The functions that librdkafka calls instead of its own: see `build.rs`. Each has the signature in its header.
//!
//! librdkafka makes a buffer from the result at once, on the same thread: the reservation then moves to that
//! buffer, and is released when librdkafka frees it.
//!
//! **Failure**: reported as librdkafka's own functions do; the reason is kept by [`super::note`].

use std::arch::global_asm;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::super::errors::Code;
use super::budget::Reservation;
use super::codecs::{self, Failure, Unpacked};
use super::frames;

/// What Java's library writes before its first snappy block: librdkafka has removed it.
const SNAPPY_HEAD_BYTES: usize = 16;
/// Negative `errno` values, as in librdkafka's snappy code.
const NO_MEMORY: c_int = -libc::ENOMEM;
const NO_INPUT: c_int = -libc::EIO;

// With `--wrap`, `__real_X` is the original X. Weak: if the linker was not given that option, there is no such symbol,
// and nobody calls these functions.
global_asm!(
    ".weak __real_rd_kafka_buf_new_shadow",
    ".pushsection .data.rel.ro.ratchet_unpack,\"aw\",@progbits",
    ".p2align 3",
    ".globl ratchet_real_rd_kafka_buf_new_shadow",
    "ratchet_real_rd_kafka_buf_new_shadow: .quad __real_rd_kafka_buf_new_shadow",
    ".popsection",
);

// SAFETY: as declared in `rdkafka_buf.h`.
/// Frees a buffer's memory.
type Free = unsafe extern "C" fn(*mut c_void);
/// Makes a buffer from existing memory.
type NewShadow = unsafe extern "C" fn(*const c_void, usize, Option<Free>) -> *mut c_void;

// SAFETY: the symbol above.
unsafe extern "C" {
    static ratchet_real_rd_kafka_buf_new_shadow: Option<NewShadow>;
}

/// What was unpacked last on this thread and is not yet in a buffer: its address, once known, and its
/// reservation.
struct Last {
    start: usize,
    reservation: Reservation,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    /// The memory of the last buffer that librdkafka made on this thread.
    static SHADOWED: Cell<(*const c_void, usize)> = const { Cell::new((ptr::null(), 0)) };
}

/// Makes a call, and returns the memory of the last buffer that librdkafka made for it on this thread: address and
/// length. `None` if it made none, or if the linker does not redirect that call here.
pub(in super::super) fn shadowed<T>(call: impl FnOnce() -> T) -> (T, Option<(*const u8, usize)>) {
    SHADOWED.set((ptr::null(), 0));
    let result = call();
    let (start, len) = SHADOWED.get();
    (result, (!start.is_null()).then_some((start.cast(), len)))
}

/// The reservations of buffers, by address.
static RESERVATIONS: LazyLock<Mutex<HashMap<usize, Reservation>>> = LazyLock::new(Mutex::default);

fn reservations() -> MutexGuard<'static, HashMap<usize, Reservation>> {
    RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(last: Option<Last>) {
    // An earlier one never got into a buffer: librdkafka met an error in between.
    LAST.set(last);
}

/// Passes what was unpacked to librdkafka, or notes why there is nothing.
fn hand_over(compressed_bytes: usize, result: Result<Unpacked, Failure>) -> Result<(*mut c_void, usize), Failure> {
    keep(None);
    let Unpacked { start, len, reservation } = result.inspect_err(|failure| note(compressed_bytes, *failure))?;
    keep(Some(Last { start: start.addr().get(), reservation }));
    Ok((start.as_ptr().cast(), len))
}

fn note(compressed_bytes: usize, failure: Failure) {
    if let Failure::Rejected(rejection) = failure {
        super::note(compressed_bytes, rejection);
    }
}

/// # Safety
/// `start` is null, or that many bytes are there and do not change during `'a`.
unsafe fn input<'a>(start: *const c_void, len: usize) -> &'a [u8] {
    // SAFETY: by the caller's promise.
    if start.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(start.cast(), len) } }
}

/// # Safety
/// As called by librdkafka: the input has the given length, and the out-pointer is valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_gz_decompress(from: *const c_void, len: c_int, to_len: *mut u64) -> *mut c_void {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: by the caller's promise.
    match hand_over(len, codecs::gzip(unsafe { input(from, len) })) {
        Ok((start, unpacked)) => {
            // SAFETY: by the caller's promise.
            unsafe { *to_len = unpacked as u64 };
            start
        }
        Err(_) => ptr::null_mut(),
    }
}

/// # Safety
/// As called by librdkafka: the input has the given length and may be written to, and the out-pointers are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_lz4_decompress(
    _broker: *mut c_void,
    proper_head: c_int,
    _offset: i64,
    from: *mut c_char,
    len: usize,
    to: *mut *mut c_void,
    to_len: *mut usize,
) -> Code {
    if proper_head == 0 && !from.is_null() {
        // SAFETY: by the caller's promise.
        codecs::mend_lz4_head(unsafe { std::slice::from_raw_parts_mut(from.cast(), len) });
    }
    // SAFETY: by the caller's promise.
    let unpacked = codecs::lz4(unsafe { input(from.cast_const().cast(), len) });
    // SAFETY: by the caller's promise.
    unsafe { store_result(hand_over(len, unpacked), to, to_len) }
}

/// # Safety
/// As called by librdkafka: the input has the given length, and the out-pointers are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_zstd_decompress(
    _broker: *mut c_void,
    from: *mut c_char,
    len: usize,
    to: *mut *mut c_void,
    to_len: *mut usize,
) -> Code {
    // SAFETY: by the caller's promise.
    let unpacked = codecs::zstd(unsafe { input(from.cast_const().cast(), len) });
    // SAFETY: by the caller's promise.
    unsafe { store_result(hand_over(len, unpacked), to, to_len) }
}

/// # Safety
/// Both pointers are valid.
unsafe fn store_result(
    result: Result<(*mut c_void, usize), Failure>,
    to: *mut *mut c_void,
    to_len: *mut usize,
) -> Code {
    let (start, len, code) = match result {
        Ok((start, len)) => (start, len, Code::RD_KAFKA_RESP_ERR_NO_ERROR),
        Err(_) => (ptr::null_mut(), 0, Code::RD_KAFKA_RESP_ERR__BAD_COMPRESSION),
    };
    // SAFETY: by the caller's promise.
    unsafe {
        *to = start;
        *to_len = len;
    }
    code
}

/// # Safety
/// As called by librdkafka: the input has the given length, there is room for the message, and the out-pointer is
/// valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_snappy_java_uncompress(
    from: *const c_char,
    len: usize,
    to_len: *mut usize,
    message: *mut c_char,
    message_size: usize,
) -> *mut c_char {
    // SAFETY: by the caller's promise.
    let unpacked = codecs::snappy_chunks(unsafe { input(from.cast(), len) });
    match hand_over(len.saturating_add(SNAPPY_HEAD_BYTES), unpacked) {
        Ok((start, unpacked)) => {
            // SAFETY: by the caller's promise.
            unsafe { *to_len = unpacked };
            start.cast()
        }
        Err(_) => {
            if message_size > 0 {
                // SAFETY: by the caller's promise.
                unsafe { *message = 0 };
            }
            ptr::null_mut()
        }
    }
}

/// librdkafka gets the size first, allocates memory, and calls the next function to unpack into it.
///
/// # Safety
/// As called by librdkafka: the input has the given length, and the out-pointer is valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_snappy_uncompressed_length(
    from: *const c_char,
    len: usize,
    to_len: *mut usize,
) -> bool {
    keep(None);
    // SAFETY: by the caller's promise.
    let Some(size) = frames::snappy_size(unsafe { input(from.cast(), len) }) else { return false };
    let mut reservation = Reservation::new();
    if let Err(rejection) = reservation.add(size as u64) {
        super::note(len, rejection);
        return false;
    }
    keep(Some(Last { start: 0, reservation }));
    // SAFETY: by the caller's promise.
    unsafe { *to_len = size };
    true
}

/// # Safety
/// As called by librdkafka: the input has the given length, and there is room for the unpacked size that it gives.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_snappy_uncompress(from: *const c_char, len: usize, to: *mut c_char) -> c_int {
    let last = LAST.take();
    // SAFETY: by the caller's promise.
    let block = unsafe { input(from.cast(), len) };
    let Some((size, Last { mut reservation, .. })) = frames::snappy_size(block).zip(last) else { return NO_INPUT };
    // SAFETY: by the caller's promise.
    if !unsafe { codecs::snappy_block(block, to) } {
        return NO_INPUT;
    }
    // SAFETY: that many bytes were written.
    if let Err(rejection) = codecs::reserve_overhead(&mut reservation, unsafe { input(to.cast_const().cast(), size) }) {
        super::note(len, rejection);
        return NO_MEMORY;
    }
    keep(Some(Last { start: to.addr(), reservation }));
    0
}

/// # Safety
/// As called by librdkafka: that many bytes are there, to be freed with `free`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_rd_kafka_buf_new_shadow(
    start: *const c_void,
    len: usize,
    free: Option<Free>,
) -> *mut c_void {
    // SAFETY: a symbol that nobody writes to.
    let real = unsafe { ratchet_real_rd_kafka_buf_new_shadow }.expect("a wrapped function has the real one");
    SHADOWED.set((start, len));
    let mut free = free;
    let unpacked = LAST.with_borrow_mut(|last| last.take_if(|last| last.start == start.addr()));
    if let Some(Last { reservation, .. }) = unpacked {
        reservations().insert(start.addr(), reservation);
        free = Some(free_unpacked);
    }
    // SAFETY: by the caller's promise.
    unsafe { real(start, len, free) }
}

/// Frees what was unpacked, and releases its reservation.
unsafe extern "C" fn free_unpacked(start: *mut c_void) {
    // The reservation goes last: nobody else may have it before the memory is free.
    let reservation = reservations().remove(&start.addr());
    // SAFETY: memory from `malloc`, which librdkafka frees once.
    unsafe { libc::free(start) };
    drop(reservation);
}
