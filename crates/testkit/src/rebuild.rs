//! `ratchet changelog rebuild`, run as an administrator would.

use std::path::Path;
use std::process::Command;

use crate::built;
use crate::job::Job;
use crate::until::{DEADLINE, within};

/// `ratchet changelog rebuild` with this state folder and these further arguments, killed at `crash_at`.
pub fn rebuild(job: &Job, state: &Path, more: &[&str], crash_at: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new(built::ratchet());
    command.args(["changelog", "rebuild", &job.name]).arg(job.write_topology());
    command.arg("--from-store").arg("--config").arg(job.write_config("rebuild", state)).args(more);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
        command.env_remove(name);
    }
    command.envs(crash_at.map(|point| ("RATCHET_CRASH_AT", point)));
    let output = command.output().expect("the program can be started");
    // Errors are wrapped; where depends on the length of their paths.
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().map(|line| line.trim_start_matches([' ', '│'])).collect();
    (output.status.code(), lines.join(" "))
}

/// The same, once the group has no members any more.
pub fn once_empty(job: &Job, state: &Path) -> (Option<i32>, String) {
    within(DEADLINE, "the group to be empty", || {
        let (code, said) = rebuild(job, state, &[], None);
        (!said.contains("has members")).then_some((code, said))
    })
}
