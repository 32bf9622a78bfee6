//! Compressed captures, recognised by their first bytes and not by their names. gzip and zstd are unpacked; other
//! formats are rejected by name.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// The first bytes of compressed files.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Formats that are recognised but not unpacked.
const OTHERS: &[(&[u8], &str)] = &[
    (b"BZh", "bzip2"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4"),
    (&[0xff, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y'], "snappy"),
    (b"PK\x03\x04", "zip"),
];

const BUFFER_BYTES: usize = 256 << 10;

/// Counts what is read.
pub struct Counted<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(to)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// The content of a file or of standard input, unpacked.
pub struct Unpacked {
    /// Its bytes.
    pub reader: BufReader<Box<dyn Read>>,
    /// If it is compressed: how many bytes were read from the file itself.
    pub taken: Option<Rc<Cell<u64>>>,
}

/// Unpacks a file that begins like a compressed one; `Err` with the format's name if it is not supported.
pub fn unpack(mut file: Box<dyn Read>) -> io::Result<Result<Unpacked, &'static str>> {
    let head = head(&mut file)?;
    if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Ok(Err(name));
    }
    let (is_gzip, is_zstd) = (head.starts_with(GZIP), head.starts_with(ZSTD));
    let bytes = Rc::new(Cell::new(head.len() as u64));
    let whole = io::Cursor::new(head).chain(Counted { inner: file, bytes: Rc::clone(&bytes) });
    let buffered = |reader: Box<dyn Read>| BufReader::with_capacity(BUFFER_BYTES, reader);
    let reader: Box<dyn Read> = match (is_gzip, is_zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, whole))),
        (_, true) => Box::new(Zstd::new(BufReader::with_capacity(BUFFER_BYTES, whole))),
        _ => return Ok(Ok(Unpacked { reader: buffered(Box::new(whole)), taken: None })),
    };
    Ok(Ok(Unpacked { reader: buffered(reader), taken: Some(bytes) }))
}

/// Reads enough of the beginning to recognise the format; it may arrive byte by byte.
fn head(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let magics = || OTHERS.iter().map(|(magic, _)| *magic).chain([GZIP, ZSTD]);
    while magics().any(|magic| magic.len() > head.len() && magic.starts_with(&head)) {
        let mut next = [0];
        match file.read(&mut next) {
            Ok(0) => break,
            Ok(_) => head.extend(next),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(head)
}

/// Unpacks zstd, in one frame or several.
struct Zstd<R> {
    packed: R,
    context: DCtx<'static>,
    /// Whether a frame has started and not ended.
    is_open: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(packed: R) -> Self {
        Self { packed, context: DCtx::create(), is_open: false }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let packed = self.packed.fill_buf()?;
            let is_end = packed.is_empty();
            let (mut input, mut output) = (InBuffer::around(packed), OutBuffer::around(&mut *to));
            let wanted = self.context.decompress_stream(&mut output, &mut input);
            let wanted = wanted.map_err(|code| {
                io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {}", zstd_safe::get_error_name(code)))
            })?;
            let (taken, given) = (input.pos(), output.pos());
            self.packed.consume(taken);
            if taken + given > 0 {
                self.is_open = wanted > 0;
            }
            if given > 0 || to.is_empty() {
                return Ok(given);
            }
            if is_end {
                return if self.is_open { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(0) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a compressed capture is unpacked whatever its structure, or an error says what is wrong.

    use std::io::Write;

    use super::*;

    /// Returns a byte at a time, as a slow pipe may.
    struct Slow(io::Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let length = to.len().min(1);
            self.0.read(&mut to[..length])
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; zstd_safe::compress_bound(text.len())];
        let length = zstd_safe::compress(&mut packed[..], text, 3).unwrap();
        packed.truncate(length);
        packed
    }

    fn read(file: &[u8]) -> io::Result<Vec<u8>> {
        let slow = Slow(io::Cursor::new(file.to_vec()));
        let Unpacked { mut reader, taken } = unpack(Box::new(slow))?.unwrap();
        let mut text = Vec::new();
        reader.read_to_end(&mut text)?;
        assert!(taken.is_none_or(|taken| taken.get() == file.len() as u64), "all of the file was read");
        Ok(text)
    }

    #[test]
    fn several_members_or_frames_are_unpacked_as_one_text() {
        let long: Vec<u8> = (0..1_000_000u32).flat_map(|number| number.to_string().into_bytes()).collect();
        for pack in [gzip as fn(&[u8]) -> Vec<u8>, zstd] {
            let packed = [pack(b"first\n"), pack(b""), pack(&long)].concat();
            assert!(read(&packed).unwrap() == [b"first\n".to_vec(), long.clone()].concat());
        }
        for plain in [&b"{\"a\":1}\n"[..], b"", b"B", b"P", &[0x1f], &[0x28, 0xb5]] {
            assert_eq!(read(plain).unwrap(), plain);
        }
    }

    #[test]
    fn truncated_or_damaged_file_is_an_error() {
        for packed in [gzip(b"some text that is long enough"), zstd(b"some text that is long enough")] {
            let end = packed.len() - 3;
            assert_eq!(read(&packed[..end]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            let mut damaged = packed;
            damaged[4..].fill(0xff);
            assert!(read(&damaged).is_err());
        }
    }

    #[test]
    fn unsupported_format_is_named() {
        for (magic, name) in OTHERS {
            let file = [magic, &b"and more"[..]].concat();
            assert_eq!(unpack(Box::new(io::Cursor::new(file))).unwrap().err(), Some(*name));
        }
    }
}
