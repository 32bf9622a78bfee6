//! RocksDB's background threads among the process's others.
//!
//! A compaction can wait, records cannot: where the cores are busy, lanes go first. But not always: a compaction that
//! never ran would leave ever more files for every look-up to ask. So its threads get about a third of a lane's
//! share, which on full cores is still several times what compactions take. RocksDB's own setting would give them
//! next to nothing.

/// The niceness of threads that compact.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;
/// What RocksDB calls the threads of its low priority, which compact, to the system.
#[cfg(target_os = "linux")]
const NAME: &str = "rocksdb:low";

/// Lowers the priority of the threads that there are. They are the process's, not one store's.
#[cfg(target_os = "linux")]
pub(super) fn let_compactions_yield() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    for thread in threads.flatten() {
        let is_named = std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with(NAME));
        let number = thread.file_name().to_str().and_then(|number| number.parse().ok());
        if let Some(thread) = number.filter(|_| is_named).and_then(rustix::process::Pid::from_raw)
            && let Err(error) = rustix::process::setpriority_process(Some(thread), NICENESS)
        {
            tracing::debug!(%error, "compactions keep their priority");
        }
    }
}

/// Other systems' threads have no priorities of their own.
#[cfg(not(target_os = "linux"))]
pub(super) fn let_compactions_yield() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::state::Memory;

    #[test]
    fn threads_that_compact_are_nicer_than_others() {
        let _memory = Memory::new(64 << 20);
        let mut compacting = 0;
        for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            // The fields after the name, in brackets, which may hold blanks: the niceness is the 17th of them.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let niceness: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap();
            if name.starts_with("rocksdb:low") {
                compacting += 1;
                assert_eq!(niceness, NICENESS, "{name}");
            } else if name.starts_with("rocksdb:high") {
                assert_eq!(niceness, 0, "{name}");
            }
        }
        assert!(compacting > 0, "no thread compacts");
    }
}
