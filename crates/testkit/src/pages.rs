//! Pages of docs/ that runs write from their results.

use std::fs;

use crate::commit::commit;
use crate::kafka::checkout;

/// Writes the page `docs/NAME`; returns a line that says so.
pub fn write(name: &str, text: &str) -> String {
    let path = checkout().join("docs").join(name);
    let folder = path.parent().expect("it is in docs/");
    fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    format!("written: {}", path.display())
}

/// A line on when, where and from which sources a page's figures were produced.
pub fn colophon() -> String {
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("Of {date}, on a machine of {cores} cores; ratchet {}, commit `{}`.\n", env!("CARGO_PKG_VERSION"), commit())
}
