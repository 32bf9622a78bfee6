//! Writes files that are packed as their names say: `.gz`, `.zst`, or not at all.
//!
//! **Failure**: errors of the file's. A file is whole only after [`Packer::finish`].

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use zstd_safe::{CCtx, InBuffer, OutBuffer};

/// How much packed text is held before it is written.
const BUFFER_BYTES: usize = 128 << 10;

/// Packs what is written to a file.
pub struct Packer<W: Write>(Packed<W>);

enum Packed<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(Zstd<W>),
}

impl<W: Write> Packer<W> {
    /// Writes to this file, which will have this name.
    pub fn new(name: &Path, file: W) -> Self {
        Self(match name.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => Packed::Gzip(GzEncoder::new(file, Compression::default())),
            Some("zst") => {
                let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
                Packed::Zstd(Zstd { file, context: CCtx::create(), buffer })
            }
            _ => Packed::Plain(file),
        })
    }

    /// Writes what is still held, and returns the file.
    pub fn finish(self) -> io::Result<W> {
        let mut file = match self.0 {
            Packed::Plain(file) => file,
            Packed::Gzip(packer) => packer.finish()?,
            Packed::Zstd(packer) => packer.finish()?,
        };
        file.flush()?;
        Ok(file)
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Packed::Plain(file) => file.write(bytes),
            Packed::Gzip(packer) => packer.write(bytes),
            Packed::Zstd(packer) => packer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Packed::Plain(file) => file.flush(),
            Packed::Gzip(packer) => packer.flush(),
            Packed::Zstd(packer) => packer.flush(),
        }
    }
}

struct Zstd<W> {
    file: W,
    context: CCtx<'static>,
    /// Where a call puts what it has packed.
    buffer: Box<[u8]>,
}

impl<W: Write> Zstd<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut input = InBuffer::around(bytes);
        while input.pos() < bytes.len() {
            self.step(|context, output| context.compress_stream(output, &mut input))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.step(|context, output| context.flush_stream(output))? > 0 {}
        self.file.flush()
    }

    fn finish(mut self) -> io::Result<W> {
        while self.step(|context, output| context.end_stream(output))? > 0 {}
        Ok(self.file)
    }

    /// Makes one call, and writes what it has packed; returns what the call does.
    fn step(
        &mut self,
        call: impl FnOnce(&mut CCtx<'static>, &mut OutBuffer<'_, [u8]>) -> zstd_safe::SafeResult,
    ) -> io::Result<usize> {
        let mut output = OutBuffer::around(&mut self.buffer[..]);
        let left = call(&mut self.context, &mut output);
        let left = left.map_err(|code| io::Error::other(format!("zstd: {}", zstd_safe::get_error_name(code))))?;
        let packed = output.pos();
        self.file.write_all(&self.buffer[..packed])?;
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: whatever is packed can be unpacked again.

    use std::io::Read as _;

    use super::super::packed::{Unpacked, unpack};
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_as_it_was() {
        let text: Vec<u8> = (0..300_000u32).flat_map(|number| number.to_string().into_bytes()).collect();
        for (name, magic) in [("a.jsonl", &b"0123"[..]), ("a.jsonl.gz", &[0x1f, 0x8b]), ("a.zst", &[0x28, 0xb5, 0x2f])]
        {
            for pieces in [1, 7, 100_000] {
                let mut packer = Packer::new(Path::new(name), Vec::new());
                for piece in text.chunks(text.len() / pieces) {
                    packer.write_all(piece).unwrap();
                }
                let packed = packer.finish().unwrap();
                assert!(packed.starts_with(magic), "{name}");
                let Unpacked { mut reader, .. } = unpack(Box::new(io::Cursor::new(packed))).unwrap().unwrap();
                let mut read = Vec::new();
                reader.read_to_end(&mut read).unwrap();
                assert!(read == text, "{name} in {pieces} pieces");
            }
        }
    }

    #[test]
    fn nothing_at_all_is_a_file_too() {
        for name in ["a", "a.gz", "a.zst"] {
            let packed = Packer::new(Path::new(name), Vec::new()).finish().unwrap();
            let Unpacked { mut reader, .. } = unpack(Box::new(io::Cursor::new(packed))).unwrap().unwrap();
            assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0, "{name}");
        }
    }
}
