//! Which sources a run is of, for pages that keep what it has found.

use std::process::Command;

/// The commit that is checked out, as `git describe --always --dirty` names it; `unknown` where nobody can tell.
pub fn commit() -> String {
    let described = ["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"];
    let asked = Command::new("git").args(described).output();
    let told = asked.ok().filter(|output| output.status.success());
    let name = told.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
