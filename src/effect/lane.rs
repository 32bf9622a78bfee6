//! The channel between a lane and its thread: requests go in, outcomes come out. Nothing blocks except dropping it,
//! which waits for the thread to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::{mpsc, oneshot};

use super::job::{Job, Unwritten};
use super::provider::{CallNumber, Calls, Heard, Request};

/// What a lane's thread does with the requests until it is stopped: the second channel gets a message, or its sender is
/// dropped.
pub(in crate::effect) type Work = Arc<dyn Fn(mpsc::UnboundedReceiver<Job>, oneshot::Receiver<()>) + Send + Sync>;

/// How many threads the drivers have started in all: numbers for their names.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// One lane's calls. Neither channel holds more than the lane has under way, which its window bounds.
pub(in crate::effect) struct Lane {
    work: Work,
    unwritten: Arc<Unwritten>,
    ticket: u64,
    tell: Sender<Heard>,
    heard: Receiver<Heard>,
    runner: Option<Runner>,
}

impl Lane {
    /// A lane whose thread does `work`. The thread is started when it is needed.
    pub fn new(work: Work) -> Self {
        let (tell, heard) = unbounded();
        Self { work, unwritten: Arc::default(), ticket: 0, tell, heard, runner: None }
    }
}

impl Calls for Lane {
    fn submit(&mut self, request: Request) {
        self.ticket += 1;
        let job = Job::new(request, self.ticket, &self.unwritten, &self.tell);
        let job = match &self.runner {
            Some(runner) => match runner.jobs.send(job) {
                Ok(()) => return,
                Err(mpsc::error::SendError(job)) => job,
            },
            None => job,
        };
        self.runner = None;
        match Runner::start(&self.work) {
            // If the new thread has already ended, the job is dropped with its channel, and that is reported.
            Ok(runner) => drop(self.runner.insert(runner).jobs.send(job)),
            Err(error) => job.not_sent(format!("the thread for calls could not be started: {error}")),
        }
    }

    fn take(&mut self) -> Option<Heard> {
        if let Ok(heard) = self.heard.try_recv() {
            return Some(heard);
        }
        if self.runner.as_ref().is_some_and(|runner| runner.thread.as_ref().is_none_or(JoinHandle::is_finished)) {
            // The thread has panicked. The jobs left in its channel are reported when the channel is dropped.
            self.runner = None;
        }
        self.heard.try_recv().ok()
    }

    fn withdraw(&mut self, number: CallNumber) -> bool {
        self.unwritten.withdraw(number)
    }

    fn in_flight(&self) -> usize {
        self.unwritten.in_flight()
    }
}

/// A running thread.
struct Runner {
    jobs: mpsc::UnboundedSender<Job>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    fn start(work: &Work) -> std::io::Result<Self> {
        let ((jobs, from_lane), (stop, stopped)) = (mpsc::unbounded_channel(), oneshot::channel());
        let (work, number) = (Arc::clone(work), THREADS.fetch_add(1, Ordering::Relaxed));
        let thread =
            std::thread::Builder::new().name(format!("calls-{number}")).spawn(move || work(from_lane, stopped))?;
        Ok(Self { jobs, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It catches its own panics.
            let _ = thread.join();
        }
    }
}
