//! Folders of stores under test.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// In memory if the system has such a place: thousands of small files are created, and waiting for a disk
/// would show nothing here, where a crash is a copy.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Copies an open store's folder as a crash would leave it, once no background work changes it.
pub fn copy_as_it_is(from: &Path, to: &Path) {
    let listing = || -> io::Result<BTreeMap<_, _>> {
        let sized = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name(), entry.metadata()?.len()))
        };
        fs::read_dir(from)?.map(sized).collect()
    };
    let attempt = || -> io::Result<bool> {
        fs::create_dir_all(to)?;
        // A file may vanish between the listing of the folder and its copy: then the attempt has failed.
        let before = listing()?;
        for name in before.keys() {
            fs::copy(from.join(name), to.join(name))?;
        }
        Ok(listing()? == before)
    };
    for _ in 0..100 {
        if attempt().unwrap_or(false) {
            return;
        }
        fs::remove_dir_all(to).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} does not become quiet", from.display());
}
