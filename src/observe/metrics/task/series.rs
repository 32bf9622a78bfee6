//! The series of all tasks, and which partitions have any: a partition's end with its last handle.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Registry};

use crate::dedup::{Reason, Verdict};
use crate::observe::metrics::long_work::LongWork;
use crate::observe::metrics::register::{PARTITION, counter, gauge, int_gauge};

/// The values of the labels [`PARTITION`]: topology, topic and partition.
pub(in crate::observe::metrics) type Labels = [String; 3];

/// Which handles exist.
#[derive(Default)]
struct Handles {
    /// How many handles each partition has.
    partitions: HashMap<Labels, usize>,
    /// Topologies with deleted topics that some task has not released yet.
    gone: HashSet<[String; 2]>,
}

/// The families, and how many handles each partition has.
pub(in crate::observe::metrics) struct Families {
    pub records: IntCounterVec,
    pub keyless: IntCounterVec,
    pub lag_records: IntGaugeVec,
    pub lag_seconds: GaugeVec,
    pub lag_measured: GaugeVec,
    pub state_entries: IntGaugeVec,
    pub state_bytes: IntGaugeVec,
    pub restore_remaining: IntGaugeVec,
    pub restore_seconds: GaugeVec,
    pub restored_records: IntCounterVec,
    pub sweep_walked: IntCounterVec,
    pub sweep_removed: IntCounterVec,
    pub sweep_remaining: IntGaugeVec,
    pub sweep_seconds: GaugeVec,
    pub tasks: IntGaugeVec,
    pub stream_time: GaugeVec,
    pub last_commit: GaugeVec,
    pub clock_behind: GaugeVec,
    pub awaits_schema: GaugeVec,
    handles: Mutex<Handles>,
    /// The tasks with long work: each has at most one, since a store is swept only after it was restored.
    long_work: Mutex<BTreeMap<Labels, LongWork>>,
}

impl Handles {
    fn add(&mut self, labels: &Labels) {
        *self.partitions.entry(labels.clone()).or_insert(0) += 1;
    }

    /// Whether any task reads this topic.
    fn is_read(&self, topology: &str, topic: &str) -> bool {
        self.partitions.keys().any(|labels| labels[0] == topology && labels[1] == topic)
    }
}

impl Families {
    #[expect(clippy::too_many_lines, reason = "a list, one family after the other")]
    pub fn new(registry: &Registry) -> Self {
        Self {
            records: counter(
                registry,
                "ratchet_records_total",
                "Records of which a verdict was reached and committed.",
                &["topology", "topic", "verdict", "reason"],
            ),
            keyless: counter(
                registry,
                "ratchet_keyless_records_total",
                "Records without a key, where records of one identity are said to be in one partition.",
                &["topology", "topic"],
            ),
            lag_records: int_gauge(registry, "ratchet_lag_records", "Records that are still to be read.", PARTITION),
            lag_seconds: gauge(
                registry,
                "ratchet_lag_seconds",
                "Age of the next record to be read; 0 when drained.",
                PARTITION,
            ),
            lag_measured: gauge(
                registry,
                "ratchet_lag_measured_timestamp_seconds",
                "When a broker last said what the lag follows from.",
                PARTITION,
            ),
            state_entries: int_gauge(
                registry,
                "ratchet_state_entries",
                "Entries in the store, as estimated.",
                PARTITION,
            ),
            state_bytes: int_gauge(
                registry,
                "ratchet_state_bytes",
                "Bytes of the store's table files and of what is not yet written to files.",
                PARTITION,
            ),
            restore_remaining: int_gauge(
                registry,
                "ratchet_restore_remaining_records",
                "Changelog offsets that a restore has still to pass; 0 when it has ended.",
                PARTITION,
            ),
            restore_seconds: gauge(
                registry,
                "ratchet_restore_remaining_seconds",
                "How long a restore will still take at its present rate; 0 when it has ended, +Inf while it stands still.",
                PARTITION,
            ),
            restored_records: counter(
                registry,
                "ratchet_restored_records_total",
                "Changelog records that were read to restore the store.",
                PARTITION,
            ),
            sweep_walked: counter(
                registry,
                "ratchet_sweep_walked_entries_total",
                "Entries that the sweeper has looked at.",
                PARTITION,
            ),
            sweep_removed: counter(
                registry,
                "ratchet_sweep_removed_entries_total",
                "Expired entries that the sweeper has removed, counted once their transaction was committed.",
                PARTITION,
            ),
            sweep_remaining: int_gauge(
                registry,
                "ratchet_sweep_remaining_entries",
                "Entries that the sweeper's walk has still to look at, as estimated; 0 between walks.",
                PARTITION,
            ),
            sweep_seconds: gauge(
                registry,
                "ratchet_sweep_remaining_seconds",
                "How long the sweeper's walk will still take at its present rate; 0 between walks.",
                PARTITION,
            ),
            tasks: int_gauge(
                registry,
                "ratchet_tasks",
                "Tasks by what they are doing: settling, restoring, running, isolated or failed.",
                &["topology", "state"],
            ),
            stream_time: gauge(
                registry,
                "ratchet_stream_time_timestamp_seconds",
                "Stream time: the highest record timestamp that the task has seen.",
                PARTITION,
            ),
            last_commit: gauge(
                registry,
                "ratchet_last_commit_timestamp_seconds",
                "When the task's last transaction was committed.",
                PARTITION,
            ),
            clock_behind: gauge(
                registry,
                "ratchet_clock_behind_seconds",
                "How far this host's clock is behind Kafka's, where the task waits for that; 0 once it goes on.",
                PARTITION,
            ),
            awaits_schema: gauge(
                registry,
                "ratchet_awaits_schema",
                "1 while the task waits for the schema of a record, otherwise 0.",
                PARTITION,
            ),
            handles: Mutex::default(),
            long_work: Mutex::default(),
        }
    }

    /// How many handles each partition has. A thread that panicked while it held the lock cannot have left
    /// a number half changed, so poisoning is ignored.
    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks with long work. Every change is one call on the map: see [`Families::handles`].
    pub fn long_work(&self) -> MutexGuard<'_, BTreeMap<Labels, LongWork>> {
        self.long_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task has taken up the partition.
    pub fn take_up(&self, labels: &Labels) {
        let mut handles = self.handles();
        handles.add(labels);
        // A deleted topic has come back before its last task was gone.
        handles.gone.remove(&labels[..2]);
    }

    /// The partition has one handle more.
    pub fn hold(&self, labels: &Labels) {
        self.handles().add(labels);
    }

    /// A topic was deleted: its counts are removed, now or when its last task is gone.
    pub fn topic_gone(&self, topology: &str, topic: &str) {
        let mut handles = self.handles();
        if handles.is_read(topology, topic) {
            handles.gone.insert([topology.to_owned(), topic.to_owned()]);
        } else {
            self.remove_records(topology, topic);
        }
    }

    /// A handle is gone: the partition's series end with the last one.
    pub fn let_go(&self, labels: &Labels) {
        let mut handles = self.handles();
        if let Entry::Occupied(mut count) = handles.partitions.entry(labels.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                self.long_work().remove(labels);
                // while the lock is held, so that a new handle's series are not removed
                self.remove_series(labels);
            }
        }
        let [topology, topic, _] = labels;
        let is_gone = handles.gone.contains(&labels[..2]) && !handles.is_read(topology, topic);
        if is_gone && handles.gone.remove(&labels[..2]) {
            self.remove_records(topology, topic);
        }
    }

    /// Removes a partition's series. Removing one that was never set fails, which is fine.
    fn remove_series(&self, labels: &Labels) {
        let _ = self.lag_records.remove_label_values(labels);
        let _ = self.lag_seconds.remove_label_values(labels);
        let _ = self.lag_measured.remove_label_values(labels);
        let _ = self.state_entries.remove_label_values(labels);
        let _ = self.state_bytes.remove_label_values(labels);
        let _ = self.stream_time.remove_label_values(labels);
        let _ = self.last_commit.remove_label_values(labels);
        let _ = self.clock_behind.remove_label_values(labels);
        let _ = self.awaits_schema.remove_label_values(labels);
        self.remove_long_work(labels);
    }

    /// The same for those of its restore and of its sweep.
    pub fn remove_long_work(&self, labels: &Labels) {
        let _ = self.restore_remaining.remove_label_values(labels);
        let _ = self.restore_seconds.remove_label_values(labels);
        let _ = self.restored_records.remove_label_values(labels);
        let _ = self.sweep_walked.remove_label_values(labels);
        let _ = self.sweep_removed.remove_label_values(labels);
        let _ = self.sweep_remaining.remove_label_values(labels);
        let _ = self.sweep_seconds.remove_label_values(labels);
    }

    /// Removes the counts of a topic's records. Removing one that was never set fails, which is fine.
    fn remove_records(&self, topology: &str, topic: &str) {
        let _ = self.keyless.remove_label_values(&[topology, topic]);
        for verdict in Verdict::ALL {
            for reason in Reason::ALL {
                let labels = [topology, topic, verdict.as_str(), reason.as_str()];
                let _ = self.records.remove_label_values(&labels);
            }
        }
    }
}
