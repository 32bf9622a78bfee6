//! The states that a task must not continue from, each with advice.

use crate::cluster::TopicId;
use crate::dedup;
use crate::format::{self, ChangelogOffset, Token};
use crate::record::TopicPartition;
use crate::words::counted;

/// What to do about an offset that another program has committed in the group.
pub const FOREIGN_OFFSET_HELP: &str = "stop the program that commits in this group, then reset the group to \
    earliest: what was processed is not forwarded again";

/// How to start a topology anew. A new name alone would send all records in the input to the same output again.
pub const ANEW: &str = "give the topology a new name and a new output topic to begin anew: a new name remembers \
    nothing, so all records still in the input are forwarded once more";

/// The last resort if a sink and Kafka are not at the same transaction.
pub const ANEW_WITH_SINK: &str = "give the topology a new name to begin anew: a new name remembers nothing, so all \
    records still in the input have their effects once more";

/// What to do about a changelog that is gone while stores still have its contents; goes before [`ANEW`].
pub const LOST_HELP: &str = "bring the changelog back, or rebuild it from the stores with `ratchet changelog rebuild`";

/// What to do about a changelog that exists but is unusable; goes before [`ANEW`]. It may hold entries that no store
/// has.
pub const REBUILD_HELP: &str = "stop all instances and run `ratchet changelog rebuild`, which reports whether the \
    stores hold all that it held; only then, and not without a copy, delete it, and run the command again";

/// Why a task must not continue from the state that it finds. Each message gives advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The committed transaction is not the changelog's last.
    #[error(
        "the changelog does not hold the transaction {committed} that the group has committed (it holds {found}): \
         it was deleted, truncated or recreated, or Kafka has aborted that transaction there, and the store cannot be \
         rebuilt from it; bring the changelog back, or {REBUILD_HELP}, or {ANEW}"
    )]
    ChangelogLost {
        /// The committed token.
        committed: Token,
        /// The last position record's token, or `nothing`.
        found: String,
    },
    /// The changelog was deleted and created again, perhaps while its task was at work.
    #[error(
        "the changelog was recreated: its id was {known} and is {found}, so it does not hold all that was remembered; \
         {LOST_HELP}, or {ANEW}"
    )]
    ChangelogRecreated {
        /// The topic's id at the last transaction.
        known: TopicId,
        /// The topic's present id.
        found: TopicId,
    },
    /// Neither the changelog nor the group holds a transaction, but the store remembers what was processed.
    #[error(
        "the changelog holds no transaction and the group names none, but a store of this input remembers what was \
         processed up to offset {processed}: {LOST_HELP}, or {ANEW}"
    )]
    StoreOutlived {
        /// The end of the processed records in the input.
        processed: i64,
    },
    /// The changelog's first records were removed, and the store does not hold them.
    #[error(
        "the changelog begins at offset {start}: its first records were removed, and the store cannot be rebuilt \
         without them ({reason}); bring back the store that holds them, or {ANEW}"
    )]
    ChangelogTruncated {
        /// The changelog's first offset.
        start: ChangelogOffset,
        /// Why the store has to be rebuilt.
        reason: String,
    },
    /// The changelog has lost its last records.
    #[error(
        "the changelog held nothing behind offset {end}, and the store has applied it up to {applied}: its last \
         records were lost (by an unclean leader election, say), and the store, which is left as it is, may be the \
         only one that knows them; bring the changelog back, or {REBUILD_HELP}, or {ANEW}"
    )]
    ChangelogShrunk {
        /// How far the store has applied it.
        applied: ChangelogOffset,
        /// Its end.
        end: ChangelogOffset,
    },
    /// The changelog has lost its last records, and other records were written since.
    #[error(
        "the changelog does not hold any more what the store has applied: the position record at offset {at} is gone; \
         its last records were lost (by an unclean leader election, say) and others were written since, and the store, \
         which is left as it is, may be the only one that knows them; bring the changelog back, or {REBUILD_HELP} \
         (where it is enough to move the store's folder away, the command says so), or {ANEW}"
    )]
    ChangelogRewritten {
        /// Where the store's position record was.
        at: ChangelogOffset,
    },
    /// The changelog has lost its last records, as its task saw while at work; whatever the changelog holds by now.
    #[error(
        "the changelog has lost records that the store has applied (by an unclean leader election, say), as was found \
         while the task was at work; the store, which is left as it is, may be the only one that knows them, and stays \
         refused even where they are back; {REBUILD_HELP}, or bring the changelog back and move the store's folder \
         away, so that it is rebuilt from the changelog, or {ANEW}"
    )]
    ChangelogTailLost,
    /// The input was deleted and created again.
    #[error(
        "the input topic was recreated: its id was {known} and is {found}, so its offsets mean other records; \
         {ANEW}"
    )]
    InputRecreated {
        /// The topic's id in the position record.
        known: TopicId,
        /// The topic's present id.
        found: TopicId,
    },
    /// The entries were written under other rules.
    #[error(
        "the changelog was written with other rules (digest {found}, these rules' is {ours}): identities or versions \
         have changed their meaning; bring its former rules back, or {ANEW}"
    )]
    OtherRules {
        /// The short digest in the position record.
        found: String,
        /// The short digest of the current rules.
        ours: String,
    },
    /// The number of partitions has changed.
    #[error(
        "the input had {} and has {found}: records of one identity may be on another partition now; {ANEW}",
        counted(*known, "partition")
    )]
    Rescaled {
        /// The count in the position record.
        known: u32,
        /// The input's count.
        found: u32,
    },
    /// The changelog was given more partitions while its tasks were at work.
    #[error(
        "the changelog had {} and has {found}: partitions were added to it by hand; {REBUILD_HELP}, or {ANEW}",
        counted(*known, "partition")
    )]
    ChangelogGrown {
        /// The count that it started with.
        known: u32,
        /// Its count now.
        found: u32,
    },
    /// Records were removed before they were read.
    #[error(
        "the next offset to read, {next}, is no longer retained (the input begins at {start}): the records in between \
         were removed before they were read; to accept their loss, stop all instances and reset the group to an offset \
         that still exists"
    )]
    InputTruncated {
        /// The next offset to read.
        next: i64,
        /// The input's first retained offset.
        start: i64,
    },
    /// The input is shorter than the part already read.
    #[error(
        "the next offset to read, {next}, is beyond the input's end {end}: the input has lost records; \
         {ANEW} (a reset of the group is not enough: what is written now would count as processed up to offset {next})"
    )]
    InputShrunk {
        /// The next offset to read.
        next: i64,
        /// The input's end.
        end: i64,
    },
    /// A later release has been running.
    #[error("{0}; start the release that wrote it or a later one, or {ANEW}")]
    LaterFormat(format::Error),
    /// Another program has committed an offset.
    #[error("{0}, so it is not ratchet's; {FOREIGN_OFFSET_HELP}")]
    ForeignOffset(format::Error),
    /// Another program has written an entry or a position record.
    #[error("{0}: another program writes to the changelog: stop it, and {ANEW}")]
    ForeignRecord(format::Error),
    /// Too many separate ranges of processed records.
    #[error(transparent)]
    TooManyRanges(#[from] dedup::progress::Error),
    /// A transaction's position record could not be read back.
    #[error(
        "this partition's scopes and ranges take {bytes} bytes and could not be read back, so nothing was written; \
         `epoch` must name something that rarely changes: correct it and give the topology a new name and \
         a new output, or say what else to do with `on_epoch_change`"
    )]
    PositionUnreadable {
        /// Its size.
        bytes: usize,
    },
    /// The sink's database is behind Kafka.
    #[error(
        "sink_behind: the sink's row is behind Kafka (it has {row}, the changelog has {recorded}): its database has \
         gone back to an older state (by a restored backup, or a failover that lost commits), so effects of records \
         that count as processed are missing, or 'url' and 'schema' do not name where the row was; bring the database \
         forward again, name the former one, or {ANEW_WITH_SINK}"
    )]
    SinkBehind {
        /// The row's token, or `nothing`.
        row: String,
        /// The position record's token.
        recorded: String,
    },
    /// Kafka is behind the sink's database.
    #[error(
        "sink_ahead: the sink's row is ahead of Kafka by more than one transaction (it has {row}, the changelog has \
         {recorded}): the changelog has lost records, or was deleted; what has happened in the database would happen \
         again; {LOST_HELP}, or {ANEW_WITH_SINK}"
    )]
    SinkAhead {
        /// The row's token.
        row: String,
        /// The position record's token, or `nothing`.
        recorded: String,
    },
    /// The redo in the sink's row cannot be read.
    #[error("the redo in the sink's row cannot be read: {0}; start the release that wrote it or a later one")]
    RedoUnreadable(format::Error),
    /// This task cannot have written the redo in the sink's row.
    #[error(
        "this task cannot have written the redo in the sink's row: {reason}; nothing of it was written to Kafka. If \
         the topology's topics were renamed before Kafka had the last transaction, start once with the former names. \
         If not, something else may have written ratchet's table position: revoke that right, and {ANEW_WITH_SINK}"
    )]
    RedoForeign {
        /// What is wrong with it.
        reason: String,
    },
    /// Kafka refuses the records of a transaction that the sink has committed.
    #[error(
        "the sink has committed a transaction whose records Kafka refuses: {message}; make the topic accept them (with \
         a larger max.message.bytes, for example), and start ratchet again"
    )]
    RedoRefused {
        /// The broker's message.
        message: String,
    },
    /// The output refuses a record, and so does the dead letter or the audit topic.
    #[error(
        "{input}:{offset}: the output refuses the record, and so does the dead letter or the audit topic: {message}"
    )]
    Undeliverable {
        /// The input partition.
        input: TopicPartition,
        /// The record's offset.
        offset: i64,
        /// The broker's message.
        message: String,
    },
}

impl Refusal {
    /// Whether the refusal rests on one broker's response that another broker might contradict. A former leader that is
    /// cut off and does not know it reports an end that is long out of date; a broker that learns of changes late
    /// reports the id of a deleted topic; a coordinator that does not know it was replaced reports old offsets.
    ///
    /// Everything else is certain at once. A partition's start only ever rises, so whatever is below a start that any
    /// broker reports is gone. And every record that was read from a changelog, and every committed offset, was
    /// committed: brokers return nothing else.
    pub fn is_doubtful(&self) -> bool {
        match self {
            Self::ChangelogLost { .. }
            | Self::ChangelogRecreated { .. }
            | Self::StoreOutlived { .. }
            | Self::ChangelogShrunk { .. }
            | Self::ChangelogRewritten { .. }
            | Self::InputRecreated { .. }
            | Self::InputShrunk { .. } => true,
            Self::ChangelogTruncated { .. }
            | Self::ChangelogTailLost
            | Self::OtherRules { .. }
            | Self::Rescaled { .. }
            | Self::ChangelogGrown { .. }
            | Self::InputTruncated { .. }
            | Self::LaterFormat(_)
            | Self::ForeignOffset(_)
            | Self::ForeignRecord(_)
            | Self::TooManyRanges(_)
            | Self::PositionUnreadable { .. }
            | Self::SinkBehind { .. }
            | Self::SinkAhead { .. }
            | Self::RedoUnreadable(_)
            | Self::RedoForeign { .. }
            | Self::RedoRefused { .. }
            | Self::Undeliverable { .. } => false,
        }
    }

    /// The refusal for unreadable text beside a committed offset.
    pub fn of_metadata(error: format::Error) -> Self {
        match error {
            format::Error::Format { .. } => Self::LaterFormat(error),
            format::Error::Damaged { .. } => Self::ForeignOffset(error),
        }
    }

    /// The refusal for an unreadable changelog record.
    pub fn of_record(error: format::Error) -> Self {
        match error {
            format::Error::Format { .. } => Self::LaterFormat(error),
            format::Error::Damaged { .. } => Self::ForeignRecord(error),
        }
    }
}
