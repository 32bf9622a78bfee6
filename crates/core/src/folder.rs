//! A folder for this user only, and the free space on its disk.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

const MODE: u32 = 0o700;

/// Creates `dir` and its missing parents, each for this user only.
///
/// # Errors
///
/// The system's.
pub fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(dir)
}

/// Closes `dir` to other users if it belongs to this user; another user's (a mounted volume) is left as it is.
///
/// # Errors
///
/// The system's.
pub fn close(dir: &Path) -> io::Result<()> {
    let found = fs::metadata(dir)?;
    if found.mode() & 0o777 != MODE && found.uid() == rustix::process::geteuid().as_raw() {
        fs::set_permissions(dir, Permissions::from_mode(MODE))?;
    }
    Ok(())
}

/// The free space for this user on the disk of `dir`, in bytes.
///
/// # Errors
///
/// The system's.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}
