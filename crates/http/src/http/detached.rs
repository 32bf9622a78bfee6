//! Work that continues after its caller stops waiting for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Work that becomes a task of its own if it is dropped before its end. It is not a task from the start: spawning one,
/// and being woken by it, takes a good part of a short request's time.
pub(super) struct Detached<F: Future<Output: Send> + Send + 'static> {
    /// `None` after it has ended or panicked.
    work: Option<Pin<Box<F>>>,
    runtime: Handle,
}

impl<F: Future<Output: Send> + Send + 'static> Detached<F> {
    /// Wraps work that continues in the current runtime.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn new(work: F) -> Self {
        Self { work: Some(Box::pin(work)), runtime: Handle::current() }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Detached<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out first, so that work that panics is not continued.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn work_continues_when_nobody_waits_for_it() {
        let (start, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (work_start, work_end) = (Arc::clone(&start), Arc::clone(&end));
        let mut work = Detached::new(async move {
            work_start.notified().await;
            work_end.notify_one();
        });
        assert!((&mut work).now_or_never().is_none());
        drop(work);
        start.notify_one();
        end.notified().await;
    }

    #[tokio::test]
    async fn work_dropped_before_its_first_poll_is_done() {
        let end = Arc::new(Notify::new());
        let work_end = Arc::clone(&end);
        drop(Detached::new(async move { work_end.notify_one() }));
        end.notified().await;
    }

    /// Counts polls, since polling an `async` block that has ended or panicked does not begin it again.
    #[tokio::test]
    async fn work_that_has_ended_or_panicked_is_not_polled_again() {
        for panics in [false, true] {
            let polls = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&polls);
            let work = poll_fn(move |_| match count.fetch_add(1, Ordering::Relaxed) {
                0 if panics => std::panic::resume_unwind(Box::new("the work panics")),
                _ => Poll::Ready(()),
            });
            let mut work = Detached::new(work);
            assert_eq!(AssertUnwindSafe(&mut work).catch_unwind().await.is_err(), panics);
            drop(work);
            tokio::task::yield_now().await;
            assert_eq!(polls.load(Ordering::Relaxed), 1, "it panics: {panics}");
        }
    }
}
