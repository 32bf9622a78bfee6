//! The priority of RocksDB's background threads.
//!
//! RocksDB merges its files in the background (compaction). A compaction can wait, records cannot: if the cores are
//! busy, lanes, the threads that process records, take precedence. But compactions must not starve: otherwise every
//! lookup would have to check ever more files. So when a compaction thread and a lane compete for a core, the
//! compaction thread gets about a third of the lane's share. RocksDB's own setting, a niceness of 19, would leave it
//! next to nothing.

/// The niceness of compaction threads, relative to the process's.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;
/// The prefix of the names of RocksDB's low-priority threads, which run compactions.
#[cfg(target_os = "linux")]
const THREAD_NAME: &str = "rocksdb:low";

/// Lowers the priority of the existing compaction threads. They belong to the process, not to one store.
#[cfg(target_os = "linux")]
pub(super) fn lower_compaction_priority() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    // The whole process may have been started with a niceness.
    let Ok(own_niceness) = rustix::process::getpriority_process(None) else { return };
    for thread in threads.flatten() {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        let is_compaction = name.is_ok_and(|name| name.starts_with(THREAD_NAME));
        let number = thread.file_name().to_str().and_then(|number| number.parse().ok());
        if let Some(thread) = number.filter(|_| is_compaction).and_then(rustix::process::Pid::from_raw)
            && let Err(error) = rustix::process::setpriority_process(Some(thread), own_niceness + NICENESS)
        {
            tracing::debug!(%error, "the priority of a compaction thread could not be lowered");
        }
    }
}

/// On other systems, threads cannot be found by name.
#[cfg(not(target_os = "linux"))]
pub(super) fn lower_compaction_priority() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::state::memory::COMPACTION_THREADS;
    use crate::state::{Memory, Store};

    #[test]
    fn compaction_threads_have_a_lower_priority_than_flush_threads() {
        let dir = tempfile::tempdir().unwrap();
        let _store = Store::open(&dir.path().join("store"), &Memory::new(64 << 20)).unwrap();
        let (mut compacting, mut flushing) = (Vec::new(), Vec::new());
        for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            // Niceness is the 17th field after the name, which is in parentheses and may contain spaces.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let niceness: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap();
            if name.starts_with("rocksdb:low") {
                compacting.push(niceness);
            } else if name.starts_with("rocksdb:high") {
                flushing.push(niceness);
            }
        }
        // Flush threads are as nice as the process; no thread is nicer than 19.
        assert!(!flushing.is_empty(), "RocksDB flushes on its high-priority threads");
        let expected = (flushing[0] + NICENESS).min(19);
        assert!(flushing.iter().all(|nice| *nice == flushing[0]), "{flushing:?}");
        // RocksDB has started no additional compaction threads for the store.
        assert_eq!(compacting, [expected; COMPACTION_THREADS as usize]);
    }
}
