//! Where a lane's **survivors** go: to a topic, into a sink, or to a provider. Survivors are the records that the rules
//! let through: not duplicates, for example.
//!
//! A destination owns the state that only it needs: a lane's part is here, a task's in
//! [`crate::engine::task::TaskDestination`]. Where a step of the lane ([`super::Lane::step`]) differs, `super::hooks`
//! decides, or one of the predicates here.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::engine::calling::Calling;
use crate::engine::context::Context;
use crate::engine::control::commands::LaneCommands;
use crate::engine::transact::LaneSink;
use crate::topology::sink::Terms;

/// A lane's part in its topology's destination.
pub(super) enum Destination<C: Cluster> {
    /// Survivors go to a topic, in the lane's transaction.
    Topic,
    /// Survivors go into a sink, which commits before Kafka does.
    Sink(Box<LaneSink>),
    /// A provider is called for each survivor, outside any transaction.
    Calls(Box<CallsDestination<C>>),
}

/// A lane's calls, and the commands about them.
pub(super) struct CallsDestination<C: Cluster> {
    /// The topology's settings for calls.
    pub terms: Terms,
    /// The calls.
    pub calling: Calling,
    /// The commands that operators have sent to the lane's tasks (`ratchet settle`).
    pub commands: LaneCommands<C>,
}

impl<C: Cluster> Destination<C> {
    /// The destination of the context's topology; `random` seeds its random numbers, `now` is the time on the monotonic
    /// clock.
    pub fn of(context: &Context, random: u64, now: Duration) -> Self {
        if let Some(sink) = &context.sink {
            return Self::Sink(Box::new(LaneSink::of(context, sink.as_ref(), now)));
        }
        let Some(provider) = &context.provider else { return Self::Topic };
        let terms = context.topology.calls().cloned().expect("a topology with a provider makes calls");
        let calling = Calling::new(context, provider.as_ref(), random);
        Self::Calls(Box::new(CallsDestination {
            terms,
            calling,
            commands: LaneCommands::new(&context.topology.control()),
        }))
    }

    /// The lane's access to the topology's sink, if there is one.
    pub fn sink_mut(&mut self) -> Option<&mut LaneSink> {
        if let Self::Sink(sink) = self { Some(sink) } else { None }
    }

    /// The calls, if the topology makes any.
    pub fn calls(&self) -> Option<&CallsDestination<C>> {
        if let Self::Calls(calls) = self { Some(calls) } else { None }
    }

    /// The calls, mutably.
    pub fn calls_mut(&mut self) -> Option<&mut CallsDestination<C>> {
        if let Self::Calls(calls) = self { Some(calls) } else { None }
    }

    /// How many records are worth reading now, at most `records_max`.
    pub fn read_limit(&self, records_max: usize) -> usize {
        self.calls().map_or(records_max, |calls| calls.calling.read_limit(&calls.terms, records_max))
    }

    /// Whether a transaction may stay open until more records have arrived. With a sink, it ends with its batch; with a
    /// provider, calls and answers wait for its commit.
    pub fn waits_for_records(&self) -> bool {
        matches!(self, Self::Topic)
    }

    /// Whether a transaction ends with its batch: if the sink refuses some of the records, the others are processed
    /// again from the batch, which still holds them.
    pub fn commits_each_batch(&self) -> bool {
        matches!(self, Self::Sink(_))
    }

    /// Whether each step of the lane commits, even while records keep coming.
    pub fn commits_each_step(&self) -> bool {
        matches!(self, Self::Calls(_))
    }

    /// Whether there is work even without records: the sink may have more data to remove.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Sink(sink) if sink.is_tidying)
    }

    /// Whether tasks stay at work, unchanged, when their transaction is certainly not committed: their windows still
    /// hold the records, and the calls continue.
    pub fn keeps_tasks_on_abort(&self) -> bool {
        matches!(self, Self::Calls(_))
    }

    /// Whether a task whose output fails is isolated: it continues in transactions of its own.
    pub fn isolates_failed_tasks(&self) -> bool {
        !matches!(self, Self::Calls(_))
    }

    /// When commands are read next, on the monotonic clock; [`Duration::MAX`] without a provider.
    pub fn next_command_read(&self) -> Duration {
        self.calls().map_or(Duration::MAX, |calls| calls.commands.next_read_at())
    }
}
