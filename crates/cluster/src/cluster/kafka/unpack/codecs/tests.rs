//! Goal: each codec unpacks what was packed, and reports damaged input.

use super::*;

// SAFETY: as declared in its header.
unsafe extern "C" {
    fn LZ4F_compressFrame(to: *mut u8, room: usize, from: *const u8, size: usize, options: *const c_void) -> usize;
}

type Unpack = fn(&[u8]) -> Result<Unpacked, Failure>;

/// Some text that repeats itself, and some that does not.
fn plain() -> Vec<u8> {
    let mut state = 7_u32;
    let noise = (0..100_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    noise.chain(std::iter::repeat_n(b'x', 3_000_000)).collect()
}

fn gzipped(plain: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; plain.len() + 1_000];
    let mut stream = Box::new(MaybeUninit::<libz_sys::z_stream>::zeroed());
    let stream = stream.as_mut_ptr();
    // SAFETY: zlib is given the length of each side.
    unsafe {
        let size = size_of::<libz_sys::z_stream>() as c_int;
        let (level, method) = (6, libz_sys::Z_DEFLATED);
        let version = libz_sys::zlibVersion();
        assert_eq!(libz_sys::deflateInit2_(stream, level, method, 15 + 16, 8, 0, version, size), libz_sys::Z_OK);
        ((*stream).next_in, (*stream).avail_in) = (plain.as_ptr().cast_mut(), plain.len() as c_uint);
        ((*stream).next_out, (*stream).avail_out) = (packed.as_mut_ptr(), packed.len() as c_uint);
        assert_eq!(libz_sys::deflate(stream, libz_sys::Z_FINISH), libz_sys::Z_STREAM_END);
        packed.truncate(packed.len() - (*stream).avail_out as usize);
        libz_sys::deflateEnd(stream);
    }
    packed
}

fn lz4ed(plain: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; plain.len() + 100_000];
    // SAFETY: it is given the length of each side.
    let len =
        unsafe { LZ4F_compressFrame(packed.as_mut_ptr(), packed.len(), plain.as_ptr(), plain.len(), ptr::null()) };
    packed.truncate(len);
    packed
}

fn zstded(plain: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; plain.len() + 100_000];
    // SAFETY: it is given the length of each side.
    let len = unsafe {
        zstd_sys::ZSTD_compress(packed.as_mut_ptr().cast(), packed.len(), plain.as_ptr().cast(), plain.len(), 3)
    };
    packed.truncate(len);
    packed
}

/// Blocks, each after its length, of one literal each.
fn snapped(plain: &[u8]) -> Vec<u8> {
    let block = |bytes: &[u8]| {
        let size = bytes.len() as u16;
        let mut block = vec![(size & 0x7f) as u8 | 0x80, (size >> 7 & 0x7f) as u8 | 0x80, (size >> 14) as u8, 61 << 2];
        block.extend((size - 1).to_le_bytes());
        block.extend(bytes);
        [&(block.len() as u32).to_be_bytes()[..], &block].concat()
    };
    plain.chunks(30_000).flat_map(block).collect()
}

fn unpacked(unpack: Unpack, packed: &[u8]) -> Result<Vec<u8>, Failure> {
    let unpacked = unpack(packed)?;
    // SAFETY: that many bytes were written, and are freed once.
    let bytes = unsafe {
        let bytes = std::slice::from_raw_parts(unpacked.start.as_ptr(), unpacked.len).to_vec();
        libc::free(unpacked.start.as_ptr().cast());
        bytes
    };
    Ok(bytes)
}

#[test]
fn packed_data_unpacks_to_the_original() {
    for plain in [plain(), vec![b'x'; 3], Vec::new()] {
        let packed: [(Unpack, Vec<u8>); 5] = [
            (gzip, gzipped(&plain)),
            (lz4, lz4ed(&plain)),
            (zstd, zstded(&plain)),
            (zstd_stream, zstded(&plain)),
            (snappy_chunks, snapped(&plain)),
        ];
        for (place, (unpack, packed)) in packed.into_iter().enumerate() {
            let found = unpacked(unpack, &packed);
            assert!(found.is_ok_and(|found| found == plain), "number {place}, {} bytes", plain.len());
        }
    }
}

#[test]
fn damaged_data_is_reported() {
    let plain = plain();
    let packed: [(Unpack, Vec<u8>); 5] = [
        (gzip, gzipped(&plain)),
        (lz4, lz4ed(&plain)),
        (zstd, zstded(&plain)),
        (zstd_stream, zstded(&plain)),
        (snappy_chunks, snapped(&plain)),
    ];
    for (place, (unpack, packed)) in packed.into_iter().enumerate() {
        let noise: Vec<u8> = packed.iter().map(|byte| byte ^ 0x5a).collect();
        assert_eq!(unpacked(unpack, &noise), Err(Failure::Damaged), "number {place}");
    }
}

#[test]
fn wrong_checksum_in_an_old_frame_header_is_corrected() {
    let plain = plain();
    let packed = lz4ed(&plain);
    let mut broken = packed.clone();
    broken[6] ^= 0xff;
    assert_eq!(unpacked(lz4, &broken), Err(Failure::Damaged));
    mend_lz4_head(&mut broken);
    assert_eq!(broken, packed);
    mend_lz4_head(&mut []);
}

#[test]
fn header_with_excessive_size_gets_no_memory_for_it() {
    let mut packed = gzipped(b"short");
    let at = packed.len() - 4;
    packed[at..].fill(0xff);
    assert!(gzip_size_hint(&packed) < 1_000);
    // A snappy block that gives 4 GiB.
    assert_eq!(snappy_size(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some(u32::MAX as usize));
    assert_eq!(snappy_size(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
}
