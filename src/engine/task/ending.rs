//! What a task keeps for a sink or for calls.

use std::collections::BTreeMap;

use crate::effect::Mark;
use crate::engine::calling::window::Window;
use crate::engine::context::Context;
use crate::engine::rows::Claim;
use crate::engine::sink_trouble::Wait;
use crate::format::Token;

/// A task's part in its topology's ending.
pub enum TaskEnding {
    /// Survivors go to a topic.
    Topic,
    /// Survivors go into a sink.
    Sink(TaskSink),
    /// Survivors call a provider: the records that were read and are not settled, while the task is at work.
    Calls(Option<Window>),
}

/// What a task knows of its row in the topology's sink.
#[derive(Default)]
pub struct TaskSink {
    /// The row, once it is claimed.
    pub claim: Option<Claim>,
    /// What the row said when it was first found to differ from the changelog.
    pub doubted_row: Option<Mark>,
    /// The records that the sink refuses, by offset, and what it says.
    pub rejected: BTreeMap<i64, String>,
    /// Set while the sink keeps the task from working.
    pub waits: Option<Wait>,
}

impl TaskSink {
    /// The sink has committed the task's transaction.
    pub fn committed(&mut self, token: Option<Token>) {
        self.waits = None;
        if let Some(claim) = &mut self.claim {
            claim.mark.token = token;
        }
    }
}

impl TaskEnding {
    /// The ending of a new task.
    pub fn of(context: &Context) -> Self {
        match (&context.sink, &context.provider) {
            (Some(_), _) => Self::Sink(TaskSink::default()),
            (None, Some(_)) => Self::Calls(None),
            (None, None) => Self::Topic,
        }
    }

    /// Its row, if the topology has a sink.
    pub fn sink(&self) -> Option<&TaskSink> {
        if let Self::Sink(sink) = self { Some(sink) } else { None }
    }

    /// Its row, mutably.
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

    /// Gives it a window, if the topology calls a provider.
    pub fn put_window(&mut self, window: Window) {
        if let Self::Calls(own) = self {
            *own = Some(window);
        }
    }

    /// The row in the topology's sink, once it is claimed.
    pub fn claim(&self) -> Option<&Claim> {
        self.sink()?.claim.as_ref()
    }

    /// Its row is claimed, and stands where the changelog does.
    pub fn claimed(&mut self, claim: Claim) {
        if let Self::Sink(sink) = self {
            (sink.claim, sink.doubted_row) = (Some(claim), None);
        }
    }

    /// The task has restored: its row is to be claimed again.
    pub fn unclaim(&mut self) {
        if let Self::Sink(sink) = self {
            sink.claim = None;
        }
    }

    /// What the sink says of the record at this offset, if it refuses it.
    pub fn rejection(&self, offset: i64) -> Option<&str> {
        self.sink()?.rejected.get(&offset).map(String::as_str)
    }

    /// Whether the sink keeps the task from working.
    pub fn waits(&self) -> bool {
        self.sink().is_some_and(|sink| sink.waits.is_some())
    }

    /// Everything before this offset is committed.
    pub fn pass(&mut self, next: i64) {
        if let Self::Sink(sink) = self {
            sink.rejected = sink.rejected.split_off(&next);
        }
    }
}
