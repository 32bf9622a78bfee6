//! The disk space of the database of requests: its bound, if one is set, and whether a disk that was full has room
//! again.
//!
//! **The bound** is on the size of the database's files. Between two measurements the bytes that were written are
//! added, so that exceeding the bound is noticed. A store that has reached its bound counts as full until its files are
//! clearly below it: otherwise it would alternate between full and not full every few requests. Removing entries frees
//! room only when files are compacted, and RocksDB normally does that only after new writes; a store that refuses these
//! therefore starts a compaction itself. It spends at most a tenth of the time on compactions.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::database::{DATABASE, Database};
use super::writer::start;
use crate::request::Error;

/// A full store takes new requests again once it is below the bound by one part in this many.
const MARGIN: u64 = 20;
/// The shortest interval between two measurements while the bound seems to be reached.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The pause between two compactions: at least this long, and this many times as long as the last compaction took.
const COMPACT_PAUSE: Duration = Duration::from_secs(5);
const COMPACT_PAUSE_TIMES: u32 = 9;
/// The file that is written to find out whether there is room. Its size is that of the log, which opening the database
/// writes into another file, plus [`TRIAL_BYTES`].
const TRIAL: &str = "room";
const TRIAL_BYTES: u64 = 4 << 20;
const TRIAL_PIECE: usize = 64 << 10;

/// The bound, and how much of it is taken.
pub(super) struct Room {
    dir: PathBuf,
    bytes_max: Option<u64>,
    /// The size when it was last measured; `written` is what was written since.
    measured: u64,
    written: u64,
    looked: Option<Instant>,
    is_full: bool,
    /// Whether removed entries may still be in the files.
    has_removed: bool,
    compacting: Option<JoinHandle<Duration>>,
    compact_after: Option<Instant>,
}

impl Room {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            bytes_max: None,
            measured: 0,
            written: 0,
            looked: None,
            is_full: false,
            // An earlier process may have removed entries.
            has_removed: true,
            compacting: None,
            compact_after: None,
        }
    }

    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        (self.bytes_max, self.measured, self.looked) = (Some(bytes_max), bytes(&self.dir), None);
    }

    /// Adds bytes that were written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes as u64);
    }

    /// Records that entries were removed.
    pub fn removed(&mut self) {
        self.has_removed = true;
    }

    /// Why no new requests are taken; `None` if there is room. Logs when that changes.
    pub fn refusal(&mut self) -> Option<Error> {
        let max = self.bytes_max?;
        let full_from = if self.is_full { max - max / MARGIN } else { max };
        let is_known = |looked: &Instant| looked.elapsed() < LOOK_PAUSE;
        if self.measured.saturating_add(self.written) >= full_from && !self.looked.as_ref().is_some_and(is_known) {
            (self.measured, self.written, self.looked) = (bytes(&self.dir), 0, Some(start()));
        }
        let is_full = self.measured.saturating_add(self.written) >= full_from;
        if is_full != std::mem::replace(&mut self.is_full, is_full) {
            let bytes = self.measured;
            match is_full {
                true => tracing::warn!(bytes, max, "the store has reached its bound: it takes no new requests"),
                false => {
                    tracing::info!(bytes, max, "the store is clearly below its bound: it takes new requests again")
                }
            }
        }
        is_full.then(|| {
            Error::Full(format!(
                "{} has reached its bound of {max} bytes: raise the bound, or shorten the retention",
                self.dir.display()
            ))
        })
    }

    /// Compacts the files in the background, if no new requests are taken and entries were removed.
    pub fn compact(&mut self, database: &Arc<Database>) {
        if self.compacting.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(took) = self.compacting.take().and_then(|ended| ended.join().ok())
        {
            self.compact_after = Some(start() + COMPACT_PAUSE.max(took * COMPACT_PAUSE_TIMES));
        }
        let is_due = self.compact_after.is_none_or(|after| start() >= after);
        if !self.is_full || !self.has_removed || !is_due || self.compacting.is_some() {
            return;
        }
        let database = Arc::clone(database);
        let compact = move || {
            let began = start();
            database.compact();
            began.elapsed()
        };
        match thread::Builder::new().name("requests-compact".to_owned()).spawn(compact) {
            Ok(thread) => (self.compacting, self.has_removed) = (Some(thread), false),
            Err(error) => tracing::warn!(%error, "the store could not be compacted: no thread could be started"),
        }
    }

    /// Stops the compaction in the background.
    pub fn end(&mut self, database: &Database) {
        if let Some(thread) = self.compacting.take() {
            database.cancel();
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// The size of those of the database's files that can be inspected.
pub(super) fn bytes(dir: &Path) -> u64 {
    let Ok(files) = fs::read_dir(dir.join(DATABASE)) else { return 0 };
    // A file may be gone by now.
    let sizes = files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.blocks() * 512);
    sizes.sum()
}

/// Whether there is room to reopen the database, which writes what its log holds. If the system reports enough room, a
/// file is written as a trial, since this user may have less. Otherwise there is no trial: it would take the last of
/// the room from other programs.
pub(super) fn is_there(dir: &Path) -> bool {
    // A file that is left of an earlier trial takes room itself.
    let _ = remove_trial(dir);
    let is_there = wanted(dir).and_then(|bytes| {
        let disk = rustix::fs::statvfs(dir)?;
        // Some file systems, such as those in user space, report no sizes.
        let has_room = disk.f_blocks == 0 || disk.f_bavail.saturating_mul(disk.f_frsize) >= bytes;
        if has_room { try_to_fill(&dir.join(TRIAL), bytes) } else { Err(io::ErrorKind::StorageFull.into()) }
    });
    let _ = remove_trial(dir);
    is_there.is_ok()
}

/// Removes the file of a trial that a crash has interrupted.
pub(super) fn remove_trial(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(TRIAL)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How much room reopening the database needs.
fn wanted(dir: &Path) -> io::Result<u64> {
    let mut bytes = TRIAL_BYTES;
    for file in fs::read_dir(dir.join(DATABASE))?.flatten() {
        if file.path().extension().is_some_and(|kind| kind == "log") {
            bytes += file.metadata()?.len();
        }
    }
    Ok(bytes)
}

fn try_to_fill(path: &Path, bytes: u64) -> io::Result<()> {
    // Random bytes: zeros might take no room.
    let piece: Vec<u8> = (0..TRIAL_PIECE).map(|_| rand::random()).collect();
    let mut file = fs::File::create(path)?;
    for _ in 0..bytes.div_ceil(TRIAL_PIECE as u64) {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_store_takes_no_new_requests_until_it_is_clearly_below_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path().to_owned());
        room.set_bytes_max(100);
        let mut is_full_at = |bytes: u64| {
            // Set as if it had just been measured.
            (room.measured, room.written, room.looked) = (bytes, 0, Some(start()));
            room.refusal().is_some()
        };
        assert!(!is_full_at(97) && !is_full_at(99), "it has never been full");
        assert!(is_full_at(100));
        assert!(is_full_at(99) && is_full_at(95), "it is full until it is below 95 %");
        assert!(!is_full_at(94));
        assert!(!is_full_at(99), "it takes new requests up to the bound");
        assert!(is_full_at(101));
    }
}
