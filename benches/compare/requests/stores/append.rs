//! The least that a folder can cost which keeps what it was told: entries at the end of a file, each synced before its
//! caller hears of it. One thread takes all that wait, writes them at once and syncs once.
//!
//! The file's space is reserved at first, as RocksDB does it for its log: so a sync has less of the file system to write.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::failure::{Context as _, Failure, Outcome};
use crate::live::pace::histogram;

/// About what the store's log has of an answer: its entry, twice its id, and what else stands around them.
pub const ENTRY_BYTES: usize = 400;
/// More than is written in a run.
const RESERVED_BYTES: i64 = 256 << 20;
/// How many entries are written at once, as in the store.
const BATCH_MAX: usize = 512;

/// A file that is being written. It is closed when this is dropped.
pub struct Append(Sender<Waiting>);

struct Waiting {
    entry: [u8; ENTRY_BYTES],
    reply: oneshot::Sender<std::io::Result<()>>,
}

impl Append {
    /// A new file in this folder.
    pub fn open(folder: &Path) -> Outcome<Append> {
        let file = create(folder)?;
        let (sender, waiting) = channel();
        std::thread::spawn(move || write(file, &waiting));
        Ok(Append(sender))
    }

    /// Appends an entry, and waits until it is on the disk.
    pub async fn append(&self, number: u64) -> Outcome<()> {
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&number.to_be_bytes());
        let (reply, written) = oneshot::channel();
        let gone = || Failure("the thread that appends has ended".to_owned());
        self.0.send(Waiting { entry, reply }).map_err(|_| gone())?;
        Ok(written.await.map_err(|_| gone())??)
    }
}

/// The median time of one entry and its sync if nobody else writes, in microseconds, measured for `length`.
pub fn alone(folder: &Path, length: Duration) -> Outcome<u64> {
    let (mut file, mut took_us, began) = (create(folder)?, histogram(), Instant::now());
    while began.elapsed() < length {
        let at = Instant::now();
        file.write_all(&[0; ENTRY_BYTES]).and_then(|()| file.sync_data())?;
        took_us.saturating_record(at.elapsed().as_micros() as u64);
    }
    Ok(took_us.value_at_quantile(0.5))
}

fn create(folder: &Path) -> Outcome<File> {
    fs::create_dir_all(folder).context(folder.display())?;
    let file = File::create(folder.join("entries"))?;
    // SAFETY: a plain system call on an open file.
    if unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, RESERVED_BYTES) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(file)
}

fn write(mut file: File, waiting: &Receiver<Waiting>) {
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    while let Ok(first) = waiting.recv() {
        let all = std::iter::once(first).chain(waiting.try_iter()).take(BATCH_MAX);
        for Waiting { entry, reply } in all {
            bytes.extend_from_slice(&entry);
            replies.push(reply);
        }
        let written = file.write_all(&bytes).and_then(|()| file.sync_data());
        bytes.clear();
        for reply in replies.drain(..) {
            // An error has no copy, but its kind does.
            let _ = reply.send(written.as_ref().copied().map_err(|error| error.kind().into()));
        }
    }
}
