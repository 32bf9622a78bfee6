//! A cluster in one folder: durable topics, transactions, groups and compaction for a single process.
//!
//! It is for `ratchet demo`, tests, and programs that use ratchet as a library and fill it themselves: no command but
//! the demo writes to an input, and no other process can while this one has the folder open. It keeps the
//! promises that a lane needs from Kafka, and no others:
//!
//! - **Durable**: a confirmed append or commit is on the disk (one synced RocksDB write);
//!   `kill -9` loses nothing of it.
//! - **Atomic**: a transaction's records and offsets become visible together. Uncommitted records exist
//!   in the producer's memory only: every reader is read_committed, and nothing has to be aborted after a
//!   crash. Offsets are assigned at the commit and have no gaps but those of compaction.
//! - **Fenced**: a second producer with the same transactional id fences the first; a commit is rejected
//!   ([`super::ErrorKind::Abort`]) unless it comes from a member of the group in its current generation.
//! - **Groups** rebalance cooperatively, see `group.rs`; membership lives as long as the process.
//! - **Compaction** of topics with `cleanup.policy` `compact`, see `compact.rs`. Nothing else deletes
//!   records automatically: `delete` topics grow until [`Embedded::delete_records`] or
//!   [`Embedded::delete_topic`] is called.
//!
//! Topics are created by [`Cluster::create_topic`], or by [`Embedded::append`] with the default partition
//! count. Of the topic settings `cleanup.policy`, `delete.retention.ms`, `max.message.bytes` and
//! `message.timestamp.{before,after}.max.ms` have an effect; the rest is kept and ignored. There is no access
//! control.
//!
//! **Limits**: one process, enforced by a lock; one write to the disk at a time; the keys of a compacted
//! partition must fit into memory while it is compacted.
//!
//! **Failure**: a folder that cannot be written breaks the cluster for this process (see `broker.rs`);
//! one that another process has open, or that another release wrote, is [`super::ErrorKind::Refused`].
//!
//! The bytes in the folder are listed in `layout.rs`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Cluster, CommittedOffset, Error, Inquiry, Message, NewTopic, Rights, Settled, TopicDescription};
use crate::record::TopicPartition;
use broker::Broker;

mod admin;
mod batch;
mod broker;
mod buffer;
mod clock;
mod compact;
mod disk;
mod error;
mod group;
mod layout;
mod member;
mod membership;
mod options;
mod producer;
mod reader;
mod state;
mod topics;

pub use batch::{Batch, StoredRecord};
pub use clock::NowMs;
pub use member::Member;
pub use membership::Membership;
pub use options::Options;
pub use producer::Producer;
pub use reader::Reader;

/// Topics in one folder. Clones share it; the folder is released with the last of them and all members,
/// producers and readers.
#[derive(Clone)]
pub struct Embedded {
    broker: Arc<Broker>,
}

impl Embedded {
    /// Opens the folder `dir`, creating it if necessary. [`super::ErrorKind::Refused`] if another process (or
    /// another handle that is not a clone) has it open.
    pub fn open(dir: &Path, partition_count: i32) -> Result<Self, Error> {
        Self::open_with(dir, Options { partition_count, ..Options::default() })
    }

    /// Like [`Embedded::open`], with all options.
    pub fn open_with(dir: &Path, options: Options) -> Result<Self, Error> {
        topics::check_partition_count(options.partition_count)?;
        Ok(Self { broker: Arc::new(Broker::open(dir, options)?) })
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

/// A result that was available at once: nobody else can have a transaction open in this folder, and a commit
/// that was in progress when the inquiry was made is over.
#[derive(Debug)]
pub struct Settling {
    answer: Option<Result<Settled, Error>>,
}

impl super::Settling for Settling {
    fn poll(&mut self) -> Option<Result<Settled, Error>> {
        self.answer.take()
    }
}

impl Cluster for Embedded {
    type Batch = Batch;
    type Metadata = Membership;
    type Member = Member;
    type Producer = Producer;
    type Reader = Reader;
    type Settling = Settling;

    const IS_SHARED: bool = false;

    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, Error> {
        Ok(self.broker.state()?.topics.get(topic).map(topics::Topic::describe))
    }

    fn list_topics(&self) -> Result<Vec<String>, Error> {
        Ok(self.broker.state()?.topics.keys().map(ToString::to_string).collect())
    }

    fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), Error> {
        let (topic, number) = (&partition.topic, partition.partition);
        Ok((self.start(topic, number)?, self.end(topic, number)?))
    }

    fn group_rights(&self, _group: &str) -> Result<Option<Rights>, Error> {
        Ok(Some(Rights::ALL))
    }

    fn members_of(&self, group: &str) -> Result<usize, Error> {
        Ok(self.broker.state()?.groups.get(group).map_or(0, group::Group::members))
    }

    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), Error> {
        self.broker.create_topic(topic)
    }

    fn append_one(&self, message: &Message<'_>) -> Result<i64, Error> {
        // It would create a topic that is not there.
        self.bounds(&TopicPartition::new(message.topic, message.partition))?;
        self.append(message.topic, message.partition, &[*message]).map(|end| end - 1)
    }

    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Member, Error> {
        Member::join(&self.broker, group, topics)
    }

    fn producer(&self, transactional_id: &str) -> Result<Producer, Error> {
        Producer::open(&self.broker, transactional_id)
    }

    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Reader, Error> {
        Reader::open(&self.broker, partition, offset)
    }

    fn settle(&self, inquiry: Inquiry) -> Settling {
        Settling { answer: Some(self.broker.settled(&inquiry)) }
    }

    /// Nothing to do: a producer's open transaction ended with it.
    fn fence(&self, _transactional_id: &str) {}

    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        _wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error> {
        let writing = self.broker.writing();
        partitions.iter().map(|partition| self.broker.committed(&writing, group, partition)).collect()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests let moments pass")]
mod tests;
