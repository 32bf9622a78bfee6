//! Batches are unpacked within the bound whatever size they claim, and in all framings that clients write.

use std::io::Write;

use super::*;

/// The unpacked size of a bomb of a few kilobytes.
const BOMB_BYTES: usize = 64 << 20;
const MAX: usize = 1 << 20;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4(bytes: &[u8], info: lz4_flex::frame::FrameInfo) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xerial(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in blocks {
        frame.extend((block.len() as u32).to_be_bytes());
        frame.extend(block);
    }
    frame
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

/// A frame with its unpacked size, as one-shot compression writes it, or without, as a stream writes it.
fn zstd(bytes: &[u8], contains_size: bool) -> Vec<u8> {
    let mut packed = vec![0; zstd_safe::compress_bound(bytes.len()) + 64];
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(zstd_safe::CParameter::ContentSizeFlag(contains_size)).unwrap();
    let len = context.compress2(&mut packed[..], bytes).unwrap();
    packed.truncate(len);
    packed
}

fn unpack(codec: Codec, bytes: &[u8], max: usize) -> Result<Vec<u8>, UnpackError> {
    BoundedUnpacker::new(max).unpack(codec, bytes).map(|unpacked| unpacked.to_vec())
}

#[test]
fn bombs_are_refused() {
    let zeros = vec![0; BOMB_BYTES];
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    let linked = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Linked);
    let bombs = [
        (Codec::Gzip, gzip(&zeros)),
        (Codec::Gzip, gzip(&zeros[..MAX / 2 + 1]).repeat(2)),
        (Codec::Lz4, lz4(&zeros, lz4_flex::frame::FrameInfo::new())),
        (Codec::Lz4, lz4(&zeros, linked.block_size(lz4_flex::frame::BlockSize::Max4MB))),
        (Codec::Zstd, zstd(&zeros, true)),
        (Codec::Zstd, zstd(&zeros, false)),
        (Codec::Zstd, zstd(&zeros[..MAX / 2 + 1], false).repeat(2)),
        (Codec::Snappy, snappy(&zeros)),
        // A block that only claims 4 GiB, alone and in a frame; and blocks that are too large only together.
        (Codec::Snappy, claim.to_vec()),
        (Codec::Snappy, xerial(&[claim.to_vec()])),
        (Codec::Snappy, xerial(&vec![snappy(&zeros[..MAX / 2 + 1]); 2])),
        (Codec::None, zeros[..=MAX].to_vec()),
    ];
    for (number, (codec, bomb)) in bombs.iter().enumerate() {
        assert_eq!(unpack(*codec, bomb, MAX), Err(UnpackError::TooLarge), "bomb {number}, {codec:?}");
    }
}

#[test]
fn bound_is_exact() {
    let plain: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let packed = [
        (Codec::None, plain.clone()),
        (Codec::Gzip, gzip(&plain)),
        (Codec::Lz4, lz4(&plain, lz4_flex::frame::FrameInfo::new())),
        (Codec::Snappy, snappy(&plain)),
        (Codec::Snappy, xerial(&plain.chunks(5_000).map(snappy).collect::<Vec<_>>())),
        (Codec::Zstd, zstd(&plain, true)),
        (Codec::Zstd, zstd(&plain, false)),
    ];
    for (codec, bytes) in packed {
        assert_eq!(unpack(codec, &bytes, plain.len()).as_ref(), Ok(&plain), "{codec:?}");
        assert_eq!(unpack(codec, &bytes, plain.len() - 1), Err(UnpackError::TooLarge), "{codec:?}");
        assert_eq!(unpack(codec, &bytes, usize::MAX).as_ref(), Ok(&plain), "{codec:?}");
        assert_eq!(unpack(codec, &bytes, 0), Err(UnpackError::TooLarge), "{codec:?}");
    }
}

#[test]
fn invalid_output_of_a_codec_is_damaged() {
    let plain: Vec<u8> = (0..5_000_u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
    for (codec, bytes) in
        [(Codec::Gzip, gzip(&plain)), (Codec::Snappy, snappy(&plain)), (Codec::Zstd, zstd(&plain, true))]
    {
        for end in 0..bytes.len() {
            assert_eq!(unpack(codec, &bytes[..end], MAX), Err(UnpackError::Damaged), "{codec:?}, {end} bytes");
        }
    }
    for end in 1..16 {
        assert_eq!(unpack(Codec::Snappy, &xerial(&[snappy(&plain)])[..end], MAX), Err(UnpackError::Damaged));
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        assert_eq!(unpack(codec, &[0xff; 100], MAX), Err(UnpackError::Damaged), "{codec:?}");
    }
}

#[test]
fn batch_after_a_damaged_one_is_unpacked() {
    let plain = vec![5; 200_000];
    let mut unpack = BoundedUnpacker::new(MAX);
    for contains_size in [true, false] {
        let packed = zstd(&plain, contains_size);
        for _ in 0..2 {
            assert_eq!(unpack.unpack(Codec::Zstd, &packed[..packed.len() / 2]).err(), Some(UnpackError::Damaged));
            assert_eq!(*unpack.unpack(Codec::Zstd, &packed).unwrap(), *plain);
        }
    }
}

#[test]
fn batch_with_an_incomplete_payload_is_damaged() {
    // A frame that unpacks to fewer records than the head claims: the records were truncated before they were packed.
    let record = OwnedRecord { value: Some(vec![7; 100]), ..OwnedRecord::default() };
    let plain = batch(0, &[record.clone(), record], Codec::None, SEAL);
    let records = &plain[HEAD_BYTES..];
    for (codec, packed) in [(Codec::Gzip, gzip(&records[..records.len() / 2])), (Codec::Snappy, snappy(&records[..50]))]
    {
        let mut bytes = [&plain[..HEAD_BYTES], &packed].concat();
        bytes[8..LENGTH_END].copy_from_slice(&((HEAD_BYTES + packed.len() - LENGTH_END) as i32).to_be_bytes());
        rewrite(&mut bytes, CHECKED_FROM, &(codec.bits() | TRANSACTIONAL_BIT).to_be_bytes());
        let (found, error) = read(&bytes);
        assert!(found.len() < 2 && matches!(error, Some(Error::Damaged(_))), "{codec:?}: {error:?}");
    }
}

#[test]
fn unknown_codec_is_named() {
    let mut bytes = batch(0, &[OwnedRecord::default()], Codec::None, SEAL);
    for number in 5..8_i16 {
        rewrite(&mut bytes, CHECKED_FROM, &number.to_be_bytes());
        assert_eq!(read(&bytes), (vec![], Some(Error::Codec(number))));
    }
}

proptest! {
    #[test]
    fn any_bytes_unpack_within_the_bound(bytes in vec(any::<u8>(), 0..300), codec in codec(), max in 0..2_000_usize) {
        if let Ok(unpacked) = unpack(codec, &bytes, max) {
            prop_assert!(unpacked.len() <= max);
        }
    }

    #[test]
    fn damaged_frames_unpack_within_the_bound(
        plain in vec(0..4_u8, 0..3_000),
        codec in codec(),
        position: usize,
        byte: u8,
        max in 0..4_000_usize,
    ) {
        let mut packed = match codec {
            Codec::None => plain,
            Codec::Gzip => gzip(&plain),
            Codec::Snappy => xerial(&plain.chunks(700).map(snappy).collect::<Vec<_>>()),
            Codec::Lz4 => lz4(&plain, lz4_flex::frame::FrameInfo::new()),
            Codec::Zstd => zstd(&plain, byte & 1 == 0),
        };
        let position = position % packed.len().max(1);
        packed.iter_mut().skip(position).take(1).for_each(|target| *target = byte);
        if let Ok(unpacked) = unpack(codec, &packed, max) {
            prop_assert!(unpacked.len() <= max);
        }
    }
}
