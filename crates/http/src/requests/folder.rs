//! The folder in which a store keeps its requests: it has a marker file, and is locked while the store is open.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::folder;
use crate::lock::FileLock;
use crate::request::Error;

/// The file that marks the folder, and its text.
const MARKER_FILE: &str = ".ratchet-requests";
const MARKER_TEXT: &str = "This folder belongs to ratchet: it holds the answers to HTTP requests that must not be carried out twice.\n\
    They exist nowhere else. Keep nothing else here.\n";
const LOCK_FILE: &str = "lock";

/// Refuses a folder without the marker.
pub(super) fn expect_marker(dir: &Path) -> Result<(), Error> {
    if dir.join(MARKER_FILE).exists() {
        return Ok(());
    }
    Err(Error::Refused(format!("{} holds no requests: no proxy has used it as its store", dir.display())))
}

/// Creates the folder if necessary, closes it to other users (if it is this user's), marks it as a store's, and locks
/// it.
pub(super) fn lock(dir: &Path) -> Result<FileLock, Error> {
    let store_error = |error: io::Error| from_io(dir, &error);
    folder::make(dir).and_then(|()| folder::close(dir)).map_err(store_error)?;
    let marker = dir.join(MARKER_FILE);
    if !marker.exists() {
        let mut entries = fs::read_dir(dir).map_err(store_error)?;
        let is_foreign = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() != "lost+found");
        if entries.any(is_foreign) {
            return Err(Error::Refused(format!(
                "{} is not empty and holds no requests; name an empty or a new folder",
                dir.display()
            )));
        }
        let mut file = fs::File::create(&marker).map_err(store_error)?;
        file.write_all(MARKER_TEXT.as_bytes()).and_then(|()| file.sync_all()).map_err(store_error)?;
    }
    // `Unavailable`, since the other process may end.
    FileLock::try_take(&dir.join(LOCK_FILE)).map_err(store_error)?.ok_or_else(|| {
        Error::Unavailable(format!(
            "{} is in use by another process; stop that process, or name another folder; to share a store, use \
             PostgreSQL or Redis",
            dir.display()
        ))
    })
}

fn from_io(path: &Path, error: &io::Error) -> Error {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Error::Full(text),
        _ => Error::Refused(text),
    }
}
