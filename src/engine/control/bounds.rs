//! The control topic's bounds, and a task's progress with its commands.
//!
//! A task has **passed** a command once it has acknowledged it, whether it carried the command out or not. Its position
//! record notes the offset behind the last command that it has passed ([`Control`]).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::{self, Cluster, TopicId};
use crate::format::Control;
use crate::record::TopicPartition;

/// How long a task that would stop waits for commands that may remove the reason.
const COMMANDS_WAIT_MAX: Duration = Duration::from_secs(10);

/// The partition of a control topic that holds commands and acknowledgements.
pub fn control_partition(topic: &str) -> TopicPartition {
    TopicPartition::new(topic, 0)
}

/// The control topic's id and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlTopicBounds {
    /// Its id.
    pub id: TopicId,
    /// Its first retained offset.
    pub start: i64,
    /// Its end, open transactions included.
    pub end: i64,
    /// When the topic was looked up, on the monotonic clock.
    pub looked_up_at: Duration,
}

impl ControlTopicBounds {
    /// Looks the topic up; `None` if it does not exist, or has no id.
    pub fn look_up<C: Cluster>(cluster: &C, topic: &str, now: Duration) -> Result<Option<Self>, cluster::Error> {
        let Some(found) = cluster.describe_topic_briefly(topic)?.filter(|found| found.id.is_known()) else {
            return Ok(None);
        };
        let (start, end) = cluster.bounds(&control_partition(topic))?;
        Ok(Some(Self { id: found.id, start, end, looked_up_at: now }))
    }

    /// The next offset for a task whose position record notes `control`.
    pub fn next_after(&self, control: Option<Control>) -> i64 {
        let next = control.filter(|control| control.topic_id == self.id.0).map_or(0, |control| control.next);
        next.max(self.start)
    }
}

/// The latest bounds of the control topic, shared by the lanes.
#[derive(Debug, Default)]
pub struct LatestBounds(Mutex<Option<ControlTopicBounds>>);

impl LatestBounds {
    /// The latest bounds; `None` before the topic was first looked up.
    pub fn bounds(&self) -> Option<ControlTopicBounds> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the latest bounds.
    pub fn put(&self, bounds: ControlTopicBounds) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bounds);
    }
}

/// The progress that a task has made with commands, beyond the offset that its position record notes. It is kept in
/// memory only, and includes records that are no commands: the position record notes only offsets behind commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandProgress {
    /// When the task began to work, on the monotonic clock.
    pub began_at: Duration,
    /// The task has passed all commands before this, as far as they were read.
    pub passed: Option<Control>,
}

impl CommandProgress {
    /// The next offset of the control topic for a task whose position record notes `noted`, if anything.
    pub fn next(&self, bounds: &ControlTopicBounds, noted: Option<Control>) -> i64 {
        bounds.next_after(noted).max(bounds.next_after(self.passed))
    }

    /// Whether there may be a command that removes the reason for a stop: then the task waits for it first, for a
    /// limited time.
    pub fn may_have_more(&self, bounds: Option<&ControlTopicBounds>, noted: Option<Control>, now: Duration) -> bool {
        let knows_all = |bounds: &ControlTopicBounds| {
            bounds.looked_up_at >= self.began_at && self.next(bounds, noted) >= bounds.end
        };
        now.saturating_sub(self.began_at) < COMMANDS_WAIT_MAX && !bounds.is_some_and(knows_all)
    }
}
