//! A task's state for a sink or for calls.

use std::collections::BTreeMap;

use crate::effect::RowMark;
use crate::engine::calling::window::Window;
use crate::engine::context::Context;
use crate::engine::rows::RowClaim;
use crate::engine::sink_trouble::Wait;
use crate::format::Token;

/// A task's part in its topology's destination.
pub enum TaskDestination {
    /// Survivors go to a topic.
    Topic,
    /// Survivors go into a sink.
    Sink(TaskSink),
    /// Survivors call a provider. The window holds the records that were read and are not settled; there is one while
    /// the task is at work.
    Calls(Option<Window>),
}

/// A task's state in the topology's sink.
#[derive(Default)]
pub struct TaskSink {
    /// The row, once it is claimed.
    pub claim: Option<RowClaim>,
    /// The row's mark when the row was first found to differ from the changelog.
    pub doubted_mark: Option<RowMark>,
    /// The records that the sink refuses, by offset, with its messages.
    pub rejected: BTreeMap<i64, String>,
    /// Set while the sink keeps the task from working.
    pub wait: Option<Wait>,
}

impl TaskSink {
    /// Called when the sink has committed the task's transaction.
    pub fn on_commit(&mut self, token: Option<Token>) {
        self.wait = None;
        if let Some(claim) = &mut self.claim {
            claim.mark.token = token;
        }
    }
}

impl TaskDestination {
    /// The destination of a new task.
    pub fn of(context: &Context) -> Self {
        match (&context.sink, &context.provider) {
            (Some(_), _) => Self::Sink(TaskSink::default()),
            (None, Some(_)) => Self::Calls(None),
            (None, None) => Self::Topic,
        }
    }

    /// Its state in the sink, if the topology has one.
    pub fn sink(&self) -> Option<&TaskSink> {
        if let Self::Sink(sink) = self { Some(sink) } else { None }
    }

    /// Its state in the sink, mutably.
    pub fn sink_mut(&mut self) -> Option<&mut TaskSink> {
        if let Self::Sink(sink) = self { Some(sink) } else { None }
    }

    /// Its window, if the topology calls a provider and the task is at work.
    pub fn window(&self) -> Option<&Window> {
        if let Self::Calls(window) = self { window.as_ref() } else { None }
    }

    /// Its window, mutably.
    pub fn window_mut(&mut self) -> Option<&mut Window> {
        if let Self::Calls(window) = self { window.as_mut() } else { None }
    }

    /// Takes its window, if it has one.
    pub fn take_window(&mut self) -> Option<Window> {
        if let Self::Calls(window) = self { window.take() } else { None }
    }

    /// Stores the window, if the topology calls a provider.
    pub fn put_window(&mut self, window: Window) {
        if let Self::Calls(slot) = self {
            *slot = Some(window);
        }
    }

    /// The row in the topology's sink, once it is claimed.
    pub fn claim(&self) -> Option<&RowClaim> {
        self.sink()?.claim.as_ref()
    }

    /// Stores the claim of a row that is at the same transaction as the changelog.
    pub fn set_claim(&mut self, claim: RowClaim) {
        if let Self::Sink(sink) = self {
            (sink.claim, sink.doubted_mark) = (Some(claim), None);
        }
    }

    /// Drops the claim, since the task has restored: the row must be claimed again.
    pub fn drop_claim(&mut self) {
        if let Self::Sink(sink) = self {
            sink.claim = None;
        }
    }

    /// The sink's message about the record at this offset, if it refuses that record.
    pub fn rejection(&self, offset: i64) -> Option<&str> {
        self.sink()?.rejected.get(&offset).map(String::as_str)
    }

    /// Whether the sink keeps the task from working.
    pub fn is_waiting(&self) -> bool {
        self.sink().is_some_and(|sink| sink.wait.is_some())
    }

    /// Called when everything before this offset is committed.
    pub fn on_commit(&mut self, next: i64) {
        if let Self::Sink(sink) = self {
            sink.rejected = sink.rejected.split_off(&next);
        }
    }
}
