//! The priority of RocksDB's background threads.
//!
//! A compaction can wait, records cannot: if the cores are busy, lanes go first. But not always: if compactions
//! never ran, every lookup would have to check ever more files. So their threads get about a third of a lane's
//! share when both want a core. RocksDB's own setting is a niceness of 19, which would give them next to nothing.

/// How much nicer compaction threads are than the process.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;
/// RocksDB's system name for its low-priority threads, which compact.
#[cfg(target_os = "linux")]
const NAME: &str = "rocksdb:low";

/// Lowers the priority of the existing compaction threads. They belong to the process, not to one store.
#[cfg(target_os = "linux")]
pub(super) fn let_compactions_yield() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    // The whole process may have been started with a niceness.
    let Ok(own) = rustix::process::getpriority_process(None) else { return };
    for thread in threads.flatten() {
        let is_named = std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with(NAME));
        let number = thread.file_name().to_str().and_then(|number| number.parse().ok());
        if let Some(thread) = number.filter(|_| is_named).and_then(rustix::process::Pid::from_raw)
            && let Err(error) = rustix::process::setpriority_process(Some(thread), own + NICENESS)
        {
            tracing::debug!(%error, "compactions keep their priority");
        }
    }
}

/// On other systems, threads cannot be found by name.
#[cfg(not(target_os = "linux"))]
pub(super) fn let_compactions_yield() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::state::memory::COMPACTION_THREADS;
    use crate::state::{Memory, Store};

    #[test]
    fn compaction_threads_are_nicer_than_others() {
        let dir = tempfile::tempdir().unwrap();
        let _store = Store::open(&dir.path().join("store"), &Memory::new(64 << 20)).unwrap();
        let (mut compacting, mut flushing) = (Vec::new(), Vec::new());
        for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            // The fields after the name, which is in parentheses and may contain spaces: niceness is the 17th of them.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let niceness: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap();
            if name.starts_with("rocksdb:low") {
                compacting.push(niceness);
            } else if name.starts_with("rocksdb:high") {
                flushing.push(niceness);
            }
        }
        // Flush threads are as nice as the process; no thread is nicer than 19.
        assert!(!flushing.is_empty(), "those of high priority flush");
        let expected = (flushing[0] + NICENESS).min(19);
        assert!(flushing.iter().all(|nice| *nice == flushing[0]), "{flushing:?}");
        // RocksDB has started no additional ones for the store.
        assert_eq!(compacting, [expected; COMPACTION_THREADS as usize]);
    }
}
