//! What a lane does differently for each ending, hook by hook. Long hooks are implemented in the endings' files, short
//! ones here.
//!
//! | hook | a topic | a sink ([`super::rows`]) | calls ([`super::calls`]) |
//! |---|---|---|---|
//! | [`Lane::idle_wait`] | until something is due | until something is due | until a call or an answer is due |
//! | [`Lane::admit`] | process, fill the transaction | process, commit the batch | put into windows |
//! | [`Lane::attend`] | | | handle answers, judge, write; commands; send |
//! | [`Lane::tidy`] | | tidy up | |
//! | [`Lane::end_transaction`] | if it is due | if it is due | each time, going on meanwhile |
//! | [`Lane::go_on`] | | | count commands, send, resume reading, stop |
//! | [`Lane::opened`] | | claim the row | |
//! | [`Lane::begun`] | | | open a window |
//! | [`Lane::drop_window`] | | | drop the window |
//! | [`Lane::aborted`] | isolate a failing task | isolate a failing task | go on, search for the refused record |
//! | [`Lane::drain`] | | | wait for calls, release reservations |
//! | [`Lane::tend`] | | look at rows | |

use std::time::Duration;

use crate::cluster::{self, Cluster, DeliveryFailure, RecordBatch};
use crate::engine::calling::window::Window;
use crate::engine::isolate::Quarantine;
use crate::engine::setback::Setback;
use crate::engine::share::{Share, TaskId};

use super::Lane;
use super::ending::Ending;

impl<C: Cluster> Lane<C> {
    /// How long a lane without work waits for records.
    pub(super) fn idle_wait(&self) -> Duration {
        match &self.ending {
            Ending::Topic | Ending::Sink(_) => self.rest(),
            Ending::Calls(calls) => self.wait_for_calls(&calls.calling),
        }
    }

    /// Takes in the records that were read.
    pub(super) fn admit(&mut self) {
        match self.ending {
            _ if self.batch.is_empty() => {}
            Ending::Topic | Ending::Sink(_) => self.process_batch(),
            Ending::Calls(_) => self.enqueue(),
        }
    }

    /// Does what is due before the transaction ends, and sends the calls that wait for no transaction.
    pub(super) fn attend(&mut self) {
        if let Ending::Calls(_) = self.ending {
            self.attend_to_calls();
            self.apply_commands();
            // Calls that wait for no transaction need not wait for this one's commit.
            self.send_calls();
        }
    }

    /// Ends the open transaction, unless it is not due and may stay open.
    pub(super) fn end_transaction(&mut self, is_due: bool) -> Result<(), cluster::Error> {
        match self.ending {
            Ending::Calls(_) => return self.commit_and_go_on(),
            Ending::Topic | Ending::Sink(_) if is_due || !self.awaits_more() => self.commit(),
            Ending::Topic | Ending::Sink(_) => {}
        }
        Ok(())
    }

    /// Resumes the work that waited for the end of the transaction.
    pub(super) fn go_on(&mut self) {
        if let Ending::Calls(_) = self.ending {
            self.commands_committed();
            self.send_calls();
            self.resume_reading();
        }
    }

    /// Ends the calls of these tasks, which are about to leave.
    pub(super) fn drain(&mut self, ids: &[TaskId]) {
        if let Ending::Calls(_) = self.ending {
            self.drain_calls(ids);
        }
    }

    /// A task's store is current. Returns whether the task may begin to work; if not, it tries again or restores.
    pub(super) fn opened(&mut self, id: TaskId) -> Result<bool, Setback> {
        match self.ending {
            Ending::Sink(_) => self.claim_row(id),
            Ending::Topic | Ending::Calls(_) => Ok(true),
        }
    }

    /// A task begins to work in the lane's transactions.
    pub(super) fn begun(&mut self, id: TaskId) {
        let Self { context, tasks, ending: Ending::Calls(_), .. } = self else { return };
        let task = tasks.get_mut(&id).expect("listed by the caller");
        let mut window = Window::new(&task.committed).in_order(context.rules.epoch.is_some());
        window.commands.began_at = context.clock.monotonic();
        task.ending.put_window(window);
    }

    /// A task has stopped working, perhaps to start again: the answers to its calls are no longer awaited.
    pub(super) fn drop_window(&mut self, id: TaskId) {
        let Self { tasks, ending: Ending::Calls(calls), .. } = self else { return };
        if let Some(window) = tasks.get_mut(&id).and_then(|task| task.ending.take_window()) {
            calls.calling.drop_window(&window);
        }
    }

    /// The open transaction was aborted; the task had one of `shares` in it, and perhaps an undelivered record. Returns
    /// whether the task goes on as before, which `may_go_on` allows; otherwise it restores.
    pub(super) fn aborted(
        &mut self,
        id: TaskId,
        shares: &[Share],
        undelivered: Option<&DeliveryFailure>,
        may_go_on: bool,
    ) -> bool {
        match self.ending {
            Ending::Calls(_) => {
                let goes_on = may_go_on && self.search_refused(id, undelivered);
                if goes_on {
                    // Nothing has changed anywhere.
                    self.ended(vec![id], false);
                }
                goes_on
            }
            Ending::Topic | Ending::Sink(_) => {
                if let (Some(undelivered), Some(task)) = (undelivered, self.tasks.get_mut(&id)) {
                    tracing::warn!(
                        task = %task.input, reason = %undelivered.message,
                        "this task's output fails; isolating the task"
                    );
                    let share = shares.iter().find(|share| share.task == id);
                    let until = share.map_or(&task.committed, |share| &share.position).next;
                    task.trouble.quarantine = Some(Quarantine::new(&self.context, until, undelivered.refused));
                }
                false
            }
        }
    }

    /// Checks the ending's state outside Kafka, if that is due.
    pub(super) fn tend(&mut self, now: Duration) {
        if let Ending::Sink(_) = self.ending {
            self.look_at_rows(now);
        }
    }
}
