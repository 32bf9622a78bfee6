//! What a lane does differently for each destination, hook by hook. Long hooks are implemented in the destinations'
//! files, short ones here.
//!
//! A task is the work of one input partition. With a sink, it has a row there, which names its last transaction. With
//! calls, it has a **window** while it is at work: the records that it has read and not yet settled (their outcomes are
//! not committed). A **reservation** says that a call for an identity's record may have been made. **Commands** are
//! operators' decisions about calls.
//!
//! | hook | a topic | a sink ([`super::rows`]) | calls ([`super::calls`]) |
//! |---|---|---|---|
//! | [`Lane::idle_wait`] | until something is due | until something is due | until a call or an answer is due |
//! | [`Lane::handle_batch`] | process, fill the transaction | process, commit the batch | put into windows |
//! | [`Lane::serve_calls`] | | | handle answers, judge, write; commands; send |
//! | [`Lane::tidy`] | | remove old data | |
//! | [`Lane::end_transaction`] | if it is due | if it is due | in each step; calls go on during the commit |
//! | [`Lane::resume_after_transaction`] | | | count commands, judge again, send, resume reading, stop tasks |
//! | [`Lane::on_store_current`] | | claim the row | |
//! | [`Lane::on_work_begun`] | | | open a window |
//! | [`Lane::drop_window`] | | | drop the window |
//! | [`Lane::on_aborted`] | isolate a failing task | isolate a failing task | continue, search for the refused record |
//! | [`Lane::drain`] | | | wait for calls, release reservations |
//! | [`Lane::check_sink_state`] | | check the rows | |

use std::time::Duration;

use crate::cluster::{self, Cluster, DeliveryFailure, RecordBatch};
use crate::engine::calling::window::Window;
use crate::engine::isolate::Quarantine;
use crate::engine::setback::Setback;
use crate::engine::share::{Share, TaskId};

use super::Lane;
use super::destination::Destination;

impl<C: Cluster> Lane<C> {
    /// How long a lane without work waits for records.
    pub(super) fn idle_wait(&self) -> Duration {
        match &self.destination {
            Destination::Topic | Destination::Sink(_) => self.common_idle_wait(),
            Destination::Calls(calls) => self.calls_idle_wait(&calls.calling),
        }
    }

    /// Processes the records that were read, or puts them into windows.
    pub(super) fn handle_batch(&mut self) {
        match self.destination {
            _ if self.batch.is_empty() => {}
            Destination::Topic | Destination::Sink(_) => self.process_batch(),
            Destination::Calls(_) => self.enqueue(),
        }
    }

    /// Does the work for calls and commands before the transaction ends, and sends the calls that wait for no
    /// transaction.
    pub(super) fn serve_calls(&mut self) {
        if let Destination::Calls(_) = self.destination {
            self.process_windows();
            self.apply_commands();
            // Calls that wait for no transaction need not wait for this one's commit.
            self.send_calls();
        }
    }

    /// Ends the open transaction if it is due, or must not stay open.
    pub(super) fn end_transaction(&mut self, is_due: bool) -> Result<(), cluster::Error> {
        match self.destination {
            Destination::Calls(_) => return self.commit_while_calling(),
            Destination::Topic | Destination::Sink(_) if is_due || !self.awaits_more_records() => self.commit(),
            Destination::Topic | Destination::Sink(_) => {}
        }
        Ok(())
    }

    /// Resumes the work that waited for the end of the transaction.
    pub(super) fn resume_after_transaction(&mut self) {
        if let Destination::Calls(_) = self.destination {
            self.on_commands_committed();
            self.send_calls();
            self.resume_or_stop_reading();
        }
    }

    /// Ends the calls of these tasks, which are about to leave.
    pub(super) fn drain(&mut self, ids: &[TaskId]) {
        if let Destination::Calls(_) = self.destination {
            self.drain_calls(ids);
        }
    }

    /// Called when a task's store has everything that was committed. Returns whether the task may begin to work;
    /// `false` if it is in another phase of its recovery by now. After an error the task restores, or stops.
    pub(super) fn on_store_current(&mut self, id: TaskId) -> Result<bool, Setback> {
        match self.destination {
            Destination::Sink(_) => self.claim_row(id),
            Destination::Topic | Destination::Calls(_) => Ok(true),
        }
    }

    /// Called when a task begins to work in the lane's transactions.
    pub(super) fn on_work_begun(&mut self, id: TaskId) {
        let Self { context, tasks, destination: Destination::Calls(_), .. } = self else { return };
        let task = tasks.get_mut(&id).expect("listed by the caller");
        let mut window = Window::new(&task.committed).with_input_order(context.rules.epoch.is_some());
        window.commands.began_at = context.clock.monotonic();
        task.destination.put_window(window);
    }

    /// Called when a task has stopped working, perhaps to start again: the answers to its calls are no longer awaited.
    pub(super) fn drop_window(&mut self, id: TaskId) {
        let Self { tasks, destination: Destination::Calls(calls), .. } = self else { return };
        if let Some(window) = tasks.get_mut(&id).and_then(|task| task.destination.take_window()) {
            calls.calling.drop_window(&window);
        }
    }

    /// Called for each task of an aborted transaction; `shares` holds what the transaction would have changed, by task,
    /// and `undelivered` a record of this task that could not be delivered. Returns whether the task continues as
    /// before (never unless `may_continue`); otherwise it restores.
    pub(super) fn on_aborted(
        &mut self,
        id: TaskId,
        shares: &[Share],
        undelivered: Option<&DeliveryFailure>,
        may_continue: bool,
    ) -> bool {
        match self.destination {
            Destination::Calls(_) => {
                let continues = may_continue && self.search_for_refused_record(id, undelivered);
                if continues {
                    // The transaction certainly had no effect.
                    self.report_outcome(vec![id], false);
                }
                continues
            }
            Destination::Topic | Destination::Sink(_) => {
                if let (Some(undelivered), Some(task)) = (undelivered, self.tasks.get_mut(&id)) {
                    tracing::warn!(
                        task = %task.input, reason = %undelivered.message,
                        "this task's output fails; isolating the task"
                    );
                    let share = shares.iter().find(|share| share.task == id);
                    // The task is isolated until it is past the records of this transaction.
                    let until = share.map_or(&task.committed, |share| &share.position).next;
                    task.trouble.quarantine = Some(Quarantine::new(&self.context, until, undelivered.refused));
                }
                false
            }
        }
    }

    /// Checks the state in the sink, if that is due.
    pub(super) fn check_sink_state(&mut self, now: Duration) {
        if let Destination::Sink(_) = self.destination {
            self.check_rows(now);
        }
    }
}
