//! The logs that RocksDB writes, its MANIFEST and its write-ahead logs: whether one was damaged, in contrast to one that
//! ends in the middle of a record because the machine crashed.
//!
//! RocksDB itself takes some damage for such an end, and goes on without all that follows it: a wrong length at the end of a
//! MANIFEST, and anything at all in a write-ahead log. It then even deletes the files that it no longer knows of. (And
//! it never finishes reading a MANIFEST that contains a record of a kind found only in reused logs.) So a log is looked at before it is opened.
//!
//! **A MANIFEST** is damaged where a record cannot be read, unless it is the last and ends early.
//!
//! **A write-ahead log** is damaged where a record cannot be read that was synced: what was not may be lost, in any order. So
//! each batch [says](mark) up to and including which sequence number all was synced before it.
//!
//! **The bytes.** Blocks of 32 KiB; no piece of a record crosses the end of one. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | CRC-32C of what follows the length, masked |
//! | 2 | length of the content |
//! | 1 | kind: 1 a whole record, 2 its first piece, 3 one in the middle, 4 its last; 4 more each in a log that may be reused |
//! | 4 | in a log that may be reused: the number of the log |
//! | … | the content: of a write-ahead log a batch, which begins with its sequence number (8) and its count (4) |
//!
//! **Failure**: a file that is not there, or has another form, is left to RocksDB, which says so.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const BLOCK: usize = 32 << 10;
const HEAD: usize = 7;
/// In a log that may be reused.
const LONG_HEAD: usize = 11;
const MARK: &[u8; 8] = b"\xffsynced\xff";
/// With the sequence number.
const MARK_LENGTH: usize = 16;

/// Where a log is damaged.
#[derive(Debug, PartialEq, Eq)]
pub struct Damage {
    path: PathBuf,
    at: usize,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at byte {}", self.path.display(), self.at)
    }
}

/// What the last part of each batch says: that all up to and including this sequence number was synced.
pub fn mark(synced: u64) -> [u8; MARK_LENGTH] {
    let mut mark = [0; MARK_LENGTH];
    mark[..8].copy_from_slice(MARK);
    mark[8..].copy_from_slice(&synced.to_le_bytes());
    mark
}

/// Looks for damage in the logs of the database in `dir`, whose batches are marked. A folder that does not exist has no
/// damage.
///
/// # Errors
/// A file cannot be read.
pub fn check(dir: &Path) -> io::Result<Option<Damage>> {
    if !dir.exists() {
        return Ok(None);
    }
    Ok(check_manifest(dir)?.or(check_written(dir)?))
}

/// Looks for damage in the MANIFEST of the database in `dir`.
///
/// # Errors
/// A file cannot be read.
pub fn check_manifest(dir: &Path) -> io::Result<Option<Damage>> {
    let Some(current) = read(&dir.join("CURRENT"))? else { return Ok(None) };
    let name = String::from_utf8_lossy(&current);
    let path = dir.join(name.trim_end());
    let is_one = name.strip_prefix("MANIFEST-").is_some_and(|number| number.trim_end().parse::<u64>().is_ok());
    let Some(bytes) = is_one.then(|| read(&path)).transpose()?.flatten() else { return Ok(None) };
    let mut at = 0;
    loop {
        match next(&bytes, at, None) {
            Next::Piece(piece) => at = piece.end,
            Next::End => return Ok(None),
            Next::Bad(at) => return Ok((!ends_early(&bytes, at)).then_some(Damage { path, at })),
        }
    }
}

/// Looks for damage in the write-ahead logs of the database in `dir`, whose batches are marked.
///
/// # Errors
/// A file cannot be read.
pub fn check_written(dir: &Path) -> io::Result<Option<Damage>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        logs.extend(number.filter(|_| is_log).map(|number| (number, path)));
    }
    logs.sort();
    let (mut lost, mut next_batch): (Option<Damage>, Option<u64>) = (None, None);
    for (number, path) in logs {
        // Logs' numbers have 32 bits in their records.
        let (Some(bytes), number) = (read(&path)?, number as u32) else { continue };
        let mut at = 0;
        if lost.is_none() {
            let bad = walk(&bytes, number, &mut next_batch);
            (lost, at) = (bad.map(|at| Damage { path, at }), bad.map_or(bytes.len(), |at| at + 1));
        }
        if lost.is_none() {
            continue;
        }
        // Where nothing could be read before, the first batch that can be says what is lost.
        next_batch = next_batch.or_else(|| first_batch(&bytes, at, number)?.checked_sub(1));
        if next_batch.is_some_and(|lost| marks(&bytes, at, number).any(|synced| synced >= lost)) {
            return Ok(lost);
        }
    }
    Ok(None)
}

/// Goes through a log; where it cannot be read. `next_batch`: the sequence number of the first batch that is not whole.
fn walk(bytes: &[u8], number: u32, next_batch: &mut Option<u64>) -> Option<usize> {
    let (mut at, mut after) = (0, 0);
    loop {
        let piece = match next(bytes, at, Some(number)) {
            Next::Piece(piece) => piece,
            Next::End => return None,
            Next::Bad(at) => return Some(at),
        };
        if piece.is_first
            && let Some((sequence, count)) = batch(piece.content)
        {
            (*next_batch, after) = (Some(sequence), sequence + u64::from(count));
        }
        if piece.is_last {
            *next_batch = Some(after);
        }
        at = piece.end;
    }
}

/// A batch's sequence number and count.
fn batch(content: &[u8]) -> Option<(u64, u32)> {
    let (sequence, rest) = content.split_first_chunk()?;
    Some((u64::from_le_bytes(*sequence), u32::from_le_bytes(*rest.first_chunk()?)))
}

/// The sequence number of the first batch that can be read, from `at` on.
fn first_batch(bytes: &[u8], at: usize, number: u32) -> Option<u64> {
    let mut pieces = (at..bytes.len()).filter_map(|at| piece(bytes, at, Some(number)));
    pieces.find_map(|piece| batch(piece.content).filter(|_| piece.is_first)).map(|(sequence, _)| sequence)
}

/// What whole records of this log say was synced, from `at` on, wherever they begin. The end of a block may divide a mark.
fn marks(bytes: &[u8], at: usize, number: u32) -> impl Iterator<Item = u64> {
    let pieces = (at..bytes.len()).filter_map(move |at| piece(bytes, at, Some(number)));
    let mut before = Vec::new();
    pieces.filter_map(move |piece| {
        let mut content = if piece.is_first { Vec::new() } else { std::mem::take(&mut before) };
        content.extend_from_slice(&piece.content[piece.content.len().saturating_sub(MARK_LENGTH)..]);
        let (rest, synced) = content.split_last_chunk::<8>()?;
        let said = u64::from_le_bytes(*synced);
        let is_mark = piece.is_last && rest.ends_with(MARK);
        before = content;
        is_mark.then_some(said)
    })
}

/// A piece of a record that can be read.
struct Piece<'a> {
    content: &'a [u8],
    is_first: bool,
    is_last: bool,
    end: usize,
}

enum Next<'a> {
    Piece(Piece<'a>),
    End,
    /// It cannot be read from here on.
    Bad(usize),
}

/// The next piece of a log from `at` on; `number` where it may be reused.
fn next(bytes: &[u8], at: usize, number: Option<u32>) -> Next<'_> {
    let room = BLOCK - at % BLOCK;
    let block = bytes.get(at..bytes.len().min(at + room)).unwrap_or_default();
    // The end of a block that a head does not fit into, or of a log that was made longer than it is.
    let is_blank = block.iter().all(|byte| *byte == 0);
    match piece(bytes, at, number) {
        Some(piece) => Next::Piece(piece),
        None if at >= bytes.len() => Next::End,
        None if room < HEAD || (is_blank && room < LONG_HEAD) => next(bytes, at + room, number),
        None if bytes[at..].iter().all(|byte| *byte == 0) => Next::End,
        None => Next::Bad(at),
    }
}

/// The piece that begins at `at`, if there is one whose checksum is right.
fn piece(bytes: &[u8], at: usize, number: Option<u32>) -> Option<Piece<'_>> {
    let block = bytes.get(at..bytes.len().min(at + (BLOCK - at % BLOCK)))?;
    let kind = *block.get(HEAD - 1)?;
    let (kind, head) = match kind {
        1..=4 => (kind, HEAD),
        5..=8 if block.get(HEAD..LONG_HEAD)? == number?.to_le_bytes() => (kind - 4, LONG_HEAD),
        _ => return None,
    };
    let length = usize::from(u16::from_le_bytes([block[4], block[5]]));
    let content = is_right(block, head, length).then(|| &block[head..head + length])?;
    Some(Piece { content, is_first: matches!(kind, 1 | 2), is_last: matches!(kind, 1 | 4), end: at + head + length })
}

/// Whether the checksum is right of a piece that has this head and this many bytes of content.
fn is_right(block: &[u8], head: usize, length: usize) -> bool {
    let said = block.first_chunk().map(|said| u32::from_le_bytes(*said));
    let checked = block.get(HEAD - 1..head + length).map(crc32c::crc32c);
    said.is_some() && said == checked.map(|crc| crc.rotate_right(15).wrapping_add(0xa282_ead8))
}

/// Whether the piece at `at` is the last and has lost its end, instead of its right length.
fn ends_early(bytes: &[u8], at: usize) -> bool {
    let block = &bytes[at..bytes.len().min(at + (BLOCK - at % BLOCK))];
    let Some(head) = block.first_chunk::<HEAD>() else { return true };
    let length = u16::from_le_bytes([head[4], head[5]]);
    let is_cut_off = at + HEAD + usize::from(length) > bytes.len();
    let has_another = |bit: u32| is_right(block, HEAD, usize::from(length ^ (1 << bit)));
    is_cut_off && !(0..u16::BITS).any(has_another)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
