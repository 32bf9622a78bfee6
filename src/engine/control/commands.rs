//! A lane's commands: the commands that at least one of its tasks has not passed yet. A task **passes** a command by
//! acknowledging it, whether it carries the command out or not.
//!
//! The lane reads them itself, outside the group, and only while there are records to read. The reader is dropped at
//! the end of the topic. A task's position record notes only offsets behind commands. The task's progress past other
//! records, such as acknowledgements, is kept in memory only ([`super::CommandProgress`]), so the next owner reads
//! these records again.
//!
//! **Failure**: a reader that fails is opened again after a pause. If the topic was recreated, or the lane gets a task
//! that is further back, the commands are read again. After an acknowledgement that could not be delivered, no command
//! is carried out during a pause, which is longer each time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::cluster::{self, Cluster, Reader, RecordBatch, TopicId};
use crate::engine::context::backoff;
use crate::engine::share::TaskId;
use crate::format::{self, Command, CommandId, Outcome};
use crate::record::TopicPartition;

use super::ControlTopicBounds;

/// How often a lane reads commands.
const READ_INTERVAL: Duration = Duration::from_millis(200);
/// While the lane keeps this many commands or more in memory, it reads no further commands.
const KEPT_MAX: usize = 1_000;
/// How many records are read at once.
const READ_RECORDS_MAX: usize = 500;

/// The pauses after a failure are this many times the usual backoff: a minute at most.
const PAUSE_FACTOR: u32 = 6;

/// The number of the ticket with which all acknowledgements are sent. Delivery reports contain the number of a record's
/// ticket; the tickets of other records have the number of their task. No task has this number.
pub const ACKNOWLEDGEMENT_TICKET: u64 = (1 << 62) - 1;

/// A command that was read from the control topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedCommand {
    /// Its offset.
    pub offset: i64,
    /// Its id.
    pub id: CommandId,
    /// Its content, or why the content cannot be read.
    pub command: Result<Command, format::Error>,
    /// When the topic was last looked up before the command was read, on the monotonic clock. A command that names
    /// another topic waits until this one is looked up again, since it may have been recreated.
    pub lookup_at: Duration,
}

/// A command that a task has passed in the open transaction: it was carried out, or only acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedCommand {
    /// The task.
    pub task: TaskId,
    /// The command's offset.
    pub offset: i64,
    /// The key of the identity that it has changed, if any.
    pub identity: Option<Vec<u8>>,
    /// Its outcome.
    pub outcome: Outcome,
}

/// A lane's commands.
pub struct LaneCommands<C: Cluster> {
    topic: TopicPartition,
    /// The id of the topic that the commands were read from.
    id: TopicId,
    /// The commands at `kept_from` or beyond that were read, in order.
    received: VecDeque<ReceivedCommand>,
    /// The next offset of the task that was furthest back when commands were last read.
    kept_from: i64,
    /// Everything before this offset was read.
    read_to: i64,
    reader: Option<C::Reader>,
    batch: C::Batch,
    /// When to read next, on the monotonic clock.
    next_read_at: Duration,
    /// How often reading or an acknowledgement has failed since the last commit with commands.
    failures: u32,
    /// When the last of these failures happened, on the monotonic clock; `None` if there was no failure.
    failed_at: Option<Duration>,
    /// The commands passed in the open transaction.
    pub passed: Vec<PassedCommand>,
}

impl<C: Cluster> LaneCommands<C> {
    /// The commands in this topic.
    pub fn new(topic: &str) -> Self {
        Self {
            topic: super::control_partition(topic),
            id: TopicId::default(),
            received: VecDeque::new(),
            kept_from: 0,
            read_to: 0,
            reader: None,
            batch: C::Batch::default(),
            next_read_at: Duration::ZERO,
            failures: 0,
            failed_at: None,
            passed: Vec::new(),
        }
    }

    /// The partition that acknowledgements go to.
    pub fn topic(&self) -> &TopicPartition {
        &self.topic
    }

    /// When to read next, on the monotonic clock.
    pub fn next_read_at(&self) -> Duration {
        self.next_read_at
    }

    /// Whether it is time to read; if so, schedules the next read. After a failure the topic must have been looked up
    /// again first: otherwise, a partition without a leader would hold up each transaction that contains an
    /// acknowledgement.
    pub fn take_due(&mut self, bounds: &ControlTopicBounds, now: Duration) -> bool {
        let is_due = now >= self.next_read_at && self.failed_at.is_none_or(|failed_at| bounds.looked_up_at > failed_at);
        if is_due {
            self.next_read_at = now + READ_INTERVAL;
        }
        is_due
    }

    /// Reads further commands, up to the topic's end in `bounds`; `next` is the next offset of the task that is
    /// furthest back.
    pub fn read(&mut self, cluster: &C, bounds: &ControlTopicBounds, next: i64, now: Duration) {
        if self.id != bounds.id || next < self.kept_from {
            (self.id, self.kept_from, self.read_to) = (bounds.id, next, next);
            self.received.clear();
            self.reader = None;
        }
        while self.received.front().is_some_and(|received| received.offset < next) {
            self.received.pop_front();
        }
        self.kept_from = next;
        if self.read_to < next {
            (self.read_to, self.reader) = (next, None);
        }
        if self.read_to >= bounds.end {
            self.reader = None;
        } else if self.received.len() < KEPT_MAX
            && let Err(error) = self.read_some(cluster, bounds)
        {
            tracing::debug!(topic = %self.topic, reason = %error.message, "commands cannot be read");
            self.postpone(now);
        }
    }

    /// Reads at most `READ_RECORDS_MAX` records, and keeps the commands among them.
    fn read_some(&mut self, cluster: &C, bounds: &ControlTopicBounds) -> Result<(), cluster::Error> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(cluster.reader(&self.topic, self.read_to)?),
        };
        reader.read(&mut self.batch, READ_RECORDS_MAX, Duration::ZERO)?;
        for record in (0..self.batch.len()).map(|index| self.batch.record(index)) {
            if let Some(id) = record.key.and_then(CommandId::of_command) {
                let command = Command::decode(record.value.unwrap_or_default());
                self.received.push_back(ReceivedCommand {
                    offset: record.offset,
                    id,
                    command,
                    lookup_at: bounds.looked_up_at,
                });
            }
        }
        self.read_to = reader.position();
        Ok(())
    }

    /// Whether tasks have passed commands in the open transaction.
    pub fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// Records that a commit with commands has succeeded: the next failure starts with a short pause again.
    pub fn on_commit(&mut self) {
        (self.failures, self.failed_at) = (0, None);
    }

    /// The commands from this offset on.
    pub fn commands_from(&self, next: i64) -> impl Iterator<Item = &ReceivedCommand> {
        let first = self.received.partition_point(|received| received.offset < next);
        self.received.range(first..)
    }

    /// Whether no command was read from this offset on.
    pub fn is_empty_from(&self, next: i64) -> bool {
        self.received.back().is_none_or(|received| received.offset < next)
    }

    /// The offset before which everything was read.
    pub fn read_to(&self) -> i64 {
        self.read_to
    }

    /// Postpones the next read, longer each time until a commit with commands succeeds.
    pub fn postpone(&mut self, now: Duration) {
        self.reader = None;
        (self.next_read_at, self.failed_at) = (now + backoff(self.failures) * PAUSE_FACTOR, Some(now));
        self.failures += 1;
    }
}
