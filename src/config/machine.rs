//! How much memory this process may use: the smallest limit of its cgroups (version 2 or 1), or the machine's memory.

use std::path::{Path, PathBuf};

use super::Environment;

/// Assumed if nothing is known, as on systems other than Linux.
const UNKNOWN_BYTES: u64 = 2 << 30;
/// From this on, a limit of cgroup version 1 means none.
const NO_LIMIT_BYTES: u64 = 1 << 60;
const CGROUPS: &str = "/sys/fs/cgroup";

/// The memory that this process may use, in bytes.
pub fn memory_bytes(environment: &dyn Environment) -> u64 {
    let total = total_bytes(environment);
    let limit = cgroup_limits(environment).into_iter().filter(|limit| (1..NO_LIMIT_BYTES).contains(limit)).min();
    total.into_iter().chain(limit).min().unwrap_or(UNKNOWN_BYTES)
}

/// The machine's memory.
fn total_bytes(environment: &dyn Environment) -> Option<u64> {
    let text = read(environment, Path::new("/proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The limits of the process's cgroups and of those above them. A container may see its own cgroup at
/// the top, under a path that it cannot know, so the top is always read too.
fn cgroup_limits(environment: &dyn Environment) -> Vec<u64> {
    let own = read(environment, Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mut files = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if controllers.is_empty() {
            files.extend(upwards(path).map(|folder| Path::new(CGROUPS).join(folder).join("memory.max")));
        } else if controllers.split(',').any(|name| name == "memory") {
            let root = Path::new(CGROUPS).join("memory");
            files.extend(upwards(path).map(|folder| root.join(folder).join("memory.limit_in_bytes")));
        }
    }
    files.push(Path::new(CGROUPS).join("memory.max"));
    files.push(Path::new(CGROUPS).join("memory/memory.limit_in_bytes"));
    files.iter().filter_map(|file| read(environment, file)?.trim().parse().ok()).collect()
}

/// A cgroup's path and those above it, without the leading slash; none if it leads out of the tree.
fn upwards(path: &str) -> impl Iterator<Item = PathBuf> {
    let path = PathBuf::from(path.trim_start_matches('/'));
    let inside = !path.components().any(|part| part == std::path::Component::ParentDir);
    let folders: Vec<PathBuf> = if inside { path.ancestors().map(Path::to_owned).collect() } else { Vec::new() };
    folders.into_iter()
}

fn read(environment: &dyn Environment, path: &Path) -> Option<String> {
    String::from_utf8(environment.read_file(path).ok()?).ok()
}
