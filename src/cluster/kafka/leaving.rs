//! How a member leaves its group: at once and for certain, so that nobody waits for its session to time out.
//!
//! librdkafka's closing alone does not see to that: of a member that is within a rebalance, or that holds no
//! partitions, it forgets to send the leave. Unsubscribing does send it, once the rebalance is over. So that comes
//! first; while it waits, whatever the group asks is answered.
//!
//! **Failure**: a group that cannot be left in time is told of, and left all the same: it waits for the session.

use std::time::{Duration, Instant};

use super::member::Member;
use super::native::Signal;
use crate::cluster::{Error, GroupEvent, Kind, Member as _};

/// How long a rebalance may hold up leaving.
const UNSUBSCRIBE_DEADLINE: Duration = Duration::from_secs(5);
/// How long closing may take then.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
/// How often leaving looks for what is still to be answered.
const LEAVE_STEP: Duration = Duration::from_millis(5);

impl Member {
    /// Answers what the group still asks and leaves it.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.left, true) {
            return Ok(());
        }
        self.lane.sleep_on_events();
        if let Err(error) = self.unsubscribe() {
            tracing::debug!("{error}");
        }
        if let Some(failure) = self.client.leave() {
            return Err(failure.plain("leaving the group"));
        }
        // Only now: before, a cooperative member may not give everything up, and would wait for ever for
        // the answer to its event.
        if self.pending.take().is_some() {
            self.give_all_up();
        }
        let deadline = Instant::now() + CLOSE_DEADLINE;
        while !self.client.has_left() {
            if Instant::now() >= deadline {
                let message = "the group was not left in time: the others wait for the session to time out";
                return Err(Error::new(Kind::Retry, message));
            }
            // Whatever is asked now has one answer, and it has to be given at once, or closing hangs.
            if let Some(event) = self.client.next_event(LEAVE_STEP)
                && matches!(event.signal(), Signal::Assign(_) | Signal::Revoke(_))
            {
                self.give_all_up();
            }
        }
        Ok(())
    }

    /// Unsubscribes, and answers what is asked until the leave is sent: then the member has no id any more.
    fn unsubscribe(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + UNSUBSCRIBE_DEADLINE;
        self.subscribe(&[])?;
        // Asking for the membership also wakes librdkafka's main thread, which otherwise may sleep for a second.
        while self.membership().is_some() {
            if Instant::now() >= deadline {
                return Err(Error::new(Kind::Retry, "a rebalance holds up leaving the group"));
            }
            match self.pending.take() {
                Some(GroupEvent::Assigned(partitions)) => self.accept_assigned(&partitions)?,
                Some(GroupEvent::Revoked(partitions) | GroupEvent::Lost(partitions)) => {
                    self.accept_revoked(&partitions)?;
                }
                None => std::thread::sleep(LEAVE_STEP),
            }
            if let Err(error) = self.serve_group() {
                tracing::debug!("{error}");
            }
        }
        Ok(())
    }

    fn give_all_up(&self) {
        // A failure means that there is nothing to be answered any more.
        let _ = self.client.unassign_all();
    }
}
