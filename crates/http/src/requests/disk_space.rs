//! The disk space of the database of requests: its bound, if one is set, and whether a disk that was full has room
//! again.
//!
//! **The bound** is on the size of the database's files. Between two measurements the bytes that were written are
//! added, so that exceeding the bound is noticed. A store that has reached its bound counts as full until its files are
//! clearly below it: otherwise it would alternate between full and not full every few requests. Removing entries frees
//! room only when files are compacted, and RocksDB normally does that only after new writes; a store that refuses new
//! requests therefore starts a compaction itself. The store spends at most a tenth of the time on compactions.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::database::{DATABASE_DIR, Database};
use super::writer::now;
use crate::request::Error;

/// A full store takes new requests again below `bound - bound / MARGIN`.
const MARGIN: u64 = 20;
/// The shortest interval between two measurements while the bound seems to be reached.
const MEASURE_PAUSE: Duration = Duration::from_millis(100);
/// The pause between two compactions: at least this long, and this many times as long as the last compaction took.
const COMPACTION_PAUSE: Duration = Duration::from_secs(5);
const COMPACTION_PAUSE_FACTOR: u32 = 9;
/// The file that is written as a trial, to find out whether there is room. It is as large as the log, which opening the
/// database writes into another file, plus [`TRIAL_EXTRA_BYTES`].
const TRIAL_FILE: &str = "room";
const TRIAL_EXTRA_BYTES: u64 = 4 << 20;
const TRIAL_PIECE_BYTES: usize = 64 << 10;

/// The bound on the disk space, and the space in use.
pub(super) struct DiskSpace {
    dir: PathBuf,
    bytes_max: Option<u64>,
    /// The size of the files when it was last measured, and the bytes that were written since.
    measured_bytes: u64,
    written_since: u64,
    measured_at: Option<Instant>,
    is_full: bool,
    /// Whether removed entries may still take room in the files.
    has_removed: bool,
    /// The thread that compacts, which returns the duration of the compaction.
    compacting: Option<JoinHandle<Duration>>,
    compact_after: Option<Instant>,
}

impl DiskSpace {
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            bytes_max: None,
            measured_bytes: 0,
            written_since: 0,
            measured_at: None,
            is_full: false,
            // An earlier process may have removed entries.
            has_removed: true,
            compacting: None,
            compact_after: None,
        }
    }

    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        (self.bytes_max, self.measured_bytes, self.measured_at) = (Some(bytes_max), bytes_used(&self.dir), None);
    }

    /// Adds bytes that were written.
    pub fn add_written(&mut self, bytes: usize) {
        self.written_since = self.written_since.saturating_add(bytes as u64);
    }

    /// Records that entries were removed.
    pub fn note_removal(&mut self) {
        self.has_removed = true;
    }

    /// The error for new requests if the bound is reached. Logs when that changes.
    pub fn refusal(&mut self) -> Option<Error> {
        let max = self.bytes_max?;
        let full_from = if self.is_full { max - max / MARGIN } else { max };
        let is_recent = |measured_at: &Instant| measured_at.elapsed() < MEASURE_PAUSE;
        if self.measured_bytes.saturating_add(self.written_since) >= full_from
            && !self.measured_at.as_ref().is_some_and(is_recent)
        {
            (self.measured_bytes, self.written_since, self.measured_at) = (bytes_used(&self.dir), 0, Some(now()));
        }
        let is_full = self.measured_bytes.saturating_add(self.written_since) >= full_from;
        if is_full != std::mem::replace(&mut self.is_full, is_full) {
            let bytes = self.measured_bytes;
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
    pub fn compact_if_due(&mut self, database: &Arc<Database>) {
        if self.compacting.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(duration) = self.compacting.take().and_then(|ended| ended.join().ok())
        {
            self.compact_after = Some(now() + COMPACTION_PAUSE.max(duration * COMPACTION_PAUSE_FACTOR));
        }
        let is_due = self.compact_after.is_none_or(|after| now() >= after);
        if !self.is_full || !self.has_removed || !is_due || self.compacting.is_some() {
            return;
        }
        let database = Arc::clone(database);
        let compact = move || {
            let began = now();
            database.compact();
            began.elapsed()
        };
        match thread::Builder::new().name("requests-compact".to_owned()).spawn(compact) {
            Ok(thread) => (self.compacting, self.has_removed) = (Some(thread), false),
            Err(error) => tracing::warn!(%error, "the store could not be compacted: no thread could be started"),
        }
    }

    /// Stops the compaction in the background.
    pub fn stop_compaction(&mut self, database: &Database) {
        if let Some(thread) = self.compacting.take() {
            database.stop_background_work();
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// The size of the database's files, as far as they can be inspected.
pub(super) fn bytes_used(dir: &Path) -> u64 {
    let Ok(files) = fs::read_dir(dir.join(DATABASE_DIR)) else { return 0 };
    // A file may be gone by now.
    let sizes = files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.blocks() * 512);
    sizes.sum()
}

/// Whether there is room to reopen the database, which writes its log's contents into another file. If the system
/// reports enough room, a file is written as a trial, since this user may have less. Otherwise there is no trial: it
/// would take the last of the room from other programs.
pub(super) fn has_room_to_reopen(dir: &Path) -> bool {
    // The file of an earlier trial takes room itself.
    let _ = remove_trial(dir);
    let trial = bytes_to_reopen(dir).and_then(|bytes| {
        let disk = rustix::fs::statvfs(dir)?;
        // Some file systems, such as those in user space, report no sizes.
        let has_room = disk.f_blocks == 0 || disk.f_bavail.saturating_mul(disk.f_frsize) >= bytes;
        if has_room { try_to_fill(&dir.join(TRIAL_FILE), bytes) } else { Err(io::ErrorKind::StorageFull.into()) }
    });
    let _ = remove_trial(dir);
    trial.is_ok()
}

/// Removes the file of a trial, which a crash may have left behind.
pub(super) fn remove_trial(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(TRIAL_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The disk space that reopening the database needs.
fn bytes_to_reopen(dir: &Path) -> io::Result<u64> {
    let mut bytes = TRIAL_EXTRA_BYTES;
    for file in fs::read_dir(dir.join(DATABASE_DIR))?.flatten() {
        if file.path().extension().is_some_and(|extension| extension == "log") {
            bytes += file.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// Writes a file of this size.
fn try_to_fill(path: &Path, bytes: u64) -> io::Result<()> {
    // Random bytes: zeros might take no room.
    let piece: Vec<u8> = (0..TRIAL_PIECE_BYTES).map(|_| rand::random()).collect();
    let mut file = fs::File::create(path)?;
    for _ in 0..bytes.div_ceil(TRIAL_PIECE_BYTES as u64) {
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
        let mut disk_space = DiskSpace::new(folder.path().to_owned());
        disk_space.set_bytes_max(100);
        let mut is_full_at = |bytes: u64| {
            // Set as if it had just been measured.
            (disk_space.measured_bytes, disk_space.written_since, disk_space.measured_at) = (bytes, 0, Some(now()));
            disk_space.refusal().is_some()
        };
        assert!(!is_full_at(97) && !is_full_at(99), "it has never been full");
        assert!(is_full_at(100));
        assert!(is_full_at(99) && is_full_at(95), "it is full until it is below 95 %");
        assert!(!is_full_at(94));
        assert!(!is_full_at(99), "it takes new requests up to the bound");
        assert!(is_full_at(101));
    }
}
