//! How a member leaves its group: at once and reliably, so that the other members need not wait for its session to time
//! out.
//!
//! Closing the librdkafka client is not enough: for a member that is in the middle of a rebalance, or holds no
//! partitions, it does not send the leave request. Unsubscribing does send it, once the rebalance is over. So the
//! member unsubscribes first; meanwhile the group's events are acknowledged.
//!
//! **Failure**: if the group cannot be left in time, an error is returned. The member no longer exists then, but the
//! group waits for its session to time out.

use std::time::{Duration, Instant};

use super::member::Member;
use super::native::Signal;
use crate::cluster::{Error, ErrorKind, GroupEvent, Member as _};

/// How long a rebalance may delay leaving.
const UNSUBSCRIBE_DEADLINE: Duration = Duration::from_secs(5);
/// How long closing may take after that.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
/// How often to check for events while leaving.
const LEAVE_STEP: Duration = Duration::from_millis(5);

impl Member {
    /// Acknowledges the group's remaining events and leaves it.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_left, true) {
            return Ok(());
        }
        self.stop_waking();
        if let Err(error) = self.unsubscribe() {
            tracing::debug!("{error}");
        }
        if let Some(failure) = self.client.leave() {
            return Err(failure.plain("leaving the group"));
        }
        // Only now: earlier, a cooperative member is not allowed to give up all partitions, and would wait for ever for
        // the acknowledgement of its event.
        if self.pending_event.take().is_some() {
            self.give_all_up();
        }
        let deadline = Instant::now() + CLOSE_DEADLINE;
        while !self.client.has_left() {
            if Instant::now() >= deadline {
                let message = "the group was not left in time: the others wait for the session to time out";
                return Err(Error::new(ErrorKind::Retry, message));
            }
            // From now on every event has to be acknowledged at once by giving up all partitions, or closing hangs.
            if let Some(event) = self.client.next_event(LEAVE_STEP)
                && matches!(event.signal(), Signal::Assign(_) | Signal::Revoke(_))
            {
                self.give_all_up();
            }
        }
        Ok(())
    }

    /// Unsubscribes, and acknowledges events until the leave request is sent: the member then no longer has an id.
    fn unsubscribe(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + UNSUBSCRIBE_DEADLINE;
        self.subscribe(&[])?;
        // This call also wakes librdkafka's main thread, which may otherwise sleep for a second.
        while self.membership().is_some() {
            if Instant::now() >= deadline {
                return Err(Error::new(ErrorKind::Retry, "a rebalance delays leaving the group"));
            }
            match self.pending_event.take() {
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
        // A failure means that no event is left to acknowledge.
        let _ = self.client.unassign_all();
    }
}
