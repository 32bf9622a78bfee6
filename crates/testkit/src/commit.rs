//! The commit a run was built from, for pages that keep its results.

use std::process::Command;

/// The commit that is checked out, as `git describe --always --dirty` names it; `unknown` if git fails.
pub fn commit() -> String {
    let described = ["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"];
    let output = Command::new("git").args(described).output();
    let output = output.ok().filter(|output| output.status.success());
    let name = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
