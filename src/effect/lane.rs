//! A lane's way to its thread: requests go in, what was heard comes out. Nothing waits, but dropping it, for the thread's
//! end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::{mpsc, oneshot};

use super::job::{Job, Unwritten};
use super::provider::{CallNumber, Calls, Heard, Request};

/// What a lane's thread does with the requests, until it is stopped: the other side says so, or is dropped.
pub(in crate::effect) type Work = Arc<dyn Fn(mpsc::UnboundedReceiver<Job>, oneshot::Receiver<()>) + Send + Sync>;

/// How many threads there were, of all drivers: for their names.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// One lane's calls. Both channels hold as many as the lane has under way, which its window bounds.
pub(in crate::effect) struct Lane {
    work: Work,
    unwritten: Arc<Unwritten>,
    ticket: u64,
    tell: Sender<Heard>,
    heard: Receiver<Heard>,
    runner: Option<Runner>,
}

impl Lane {
    /// A lane whose thread does this, once it is needed.
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
            // What a thread that is gone already did not take is dropped with its channel, and heard of.
            Ok(runner) => drop(self.runner.insert(runner).jobs.send(job)),
            Err(error) => job.not_sent(format!("no thread for calls could be started: {error}")),
        }
    }

    fn take(&mut self) -> Option<Heard> {
        if let Ok(heard) = self.heard.try_recv() {
            return Some(heard);
        }
        if self.runner.as_ref().is_some_and(|runner| runner.thread.as_ref().is_none_or(JoinHandle::is_finished)) {
            // It has panicked. What it has left in its channel is heard of once that is gone.
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

/// The thread.
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
