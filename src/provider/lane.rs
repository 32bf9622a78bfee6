//! The channels between a lane, which processes records, and the thread that makes its calls: requests go in, outcomes
//! come out. Nothing blocks, except that dropping a [`Lane`] waits for the thread to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::{mpsc, oneshot};

use super::job::{Job, WithdrawableRequests};
use crate::effect::provider::{AttemptEnd, CallNumber, Calls, Request};

/// The main function of a lane's thread: handles the jobs until the thread is stopped, by a message in the second
/// channel or because that channel's sender is dropped.
pub(in crate::provider) type ThreadMain =
    Arc<dyn Fn(mpsc::UnboundedReceiver<Job>, oneshot::Receiver<()>) + Send + Sync>;

/// How many threads the drivers have started: the number of the next thread, for its name.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// One lane's calls. The channels have no bound of their own: they hold the calls that the lane has under way, whose
/// number the engine bounds, and withdrawn requests until the thread reaches them.
pub(in crate::provider) struct Lane {
    thread_main: ThreadMain,
    withdrawable: Arc<WithdrawableRequests>,
    /// The ticket of the last job.
    ticket: u64,
    end_sender: Sender<AttemptEnd>,
    end_receiver: Receiver<AttemptEnd>,
    runner: Option<Runner>,
}

impl Lane {
    /// A lane whose thread runs `thread_main`. The thread is started when it is needed.
    pub fn new(thread_main: ThreadMain) -> Self {
        let (end_sender, end_receiver) = unbounded();
        Self { thread_main, withdrawable: Arc::default(), ticket: 0, end_sender, end_receiver, runner: None }
    }
}

impl Calls for Lane {
    fn submit(&mut self, request: Request) {
        self.ticket += 1;
        let job = Job::new(request, self.ticket, &self.withdrawable, &self.end_sender);
        let job = match &self.runner {
            Some(runner) => match runner.jobs.send(job) {
                Ok(()) => return,
                Err(mpsc::error::SendError(job)) => job,
            },
            None => job,
        };
        self.runner = None;
        match Runner::start(&self.thread_main) {
            // If the new thread has already ended, the job is dropped with its channel, and that is reported.
            Ok(runner) => drop(self.runner.insert(runner).jobs.send(job)),
            Err(error) => job.report_not_sent(format!("the thread for calls could not be started: {error}")),
        }
    }

    fn take_end(&mut self) -> Option<AttemptEnd> {
        if let Ok(end) = self.end_receiver.try_recv() {
            return Some(end);
        }
        if self.runner.as_ref().is_some_and(|runner| runner.thread.as_ref().is_none_or(JoinHandle::is_finished)) {
            // The thread has panicked, or its runtime could not be started. The jobs left in its channel are reported
            // when the channel is dropped.
            self.runner = None;
        }
        self.end_receiver.try_recv().ok()
    }

    fn withdraw(&mut self, number: CallNumber) -> bool {
        self.withdrawable.withdraw(number)
    }

    fn in_flight(&self) -> usize {
        self.withdrawable.in_flight()
    }
}

/// The running thread that makes a lane's calls.
struct Runner {
    jobs: mpsc::UnboundedSender<Job>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    fn start(thread_main: &ThreadMain) -> std::io::Result<Self> {
        let ((jobs, job_receiver), (stop, stopped)) = (mpsc::unbounded_channel(), oneshot::channel());
        let (thread_main, number) = (Arc::clone(thread_main), THREADS.fetch_add(1, Ordering::Relaxed));
        let thread = std::thread::Builder::new()
            .name(format!("calls-{number}"))
            .spawn(move || thread_main(job_receiver, stopped))?;
        Ok(Self { jobs, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread catches its own panics.
            let _ = thread.join();
        }
    }
}
