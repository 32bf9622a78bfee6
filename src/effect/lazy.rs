//! A connection that is made when it is first needed, shared by all callers, and replaced when it is no longer usable.
//!
//! A separate task makes the connection: a caller that stops waiting does not interrupt the task, and the next caller
//! gets its outcome.
//!
//! **Failure.** If connecting fails, the next attempt to connect is made after half a second at the earliest: until
//! then callers get the error at once. The same applies if a connection breaks right after it was made. A connection
//! that leaves requests unanswered for too long is replaced, however soon its callers stop waiting; until then they
//! share it, so that their requests stay in order.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The least time from a failure to connect, or from making a connection that broke, to the next attempt to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a connection may leave a request unanswered after its caller has stopped waiting.
const UNANSWERED_MAX: Duration = Duration::from_secs(3);

/// A connection that is made when it is first needed. Responses arrive in the order of the requests.
#[derive(Debug)]
pub struct Lazy<T, E>(Arc<Mutex<State<T, E>>>);

#[derive(Debug)]
struct State<T, E> {
    open: Option<Open<T>>,
    last_failure: Option<(Instant, E)>,
    /// The outcome of the connection that is being made; `None` if no task is connecting.
    pending: Option<watch::Receiver<Outcome<T, E>>>,
}

#[derive(Debug)]
struct Open<T> {
    connection: Arc<T>,
    made_at: Instant,
    /// Since when a request whose caller has stopped waiting has been unanswered.
    unanswered_since: Option<Instant>,
}

/// The outcome of making a connection; `None` while it is being made.
type Outcome<T, E> = Option<Result<Arc<T>, E>>;

/// The use of a connection for one request. Dropping it without [`Exchange::answered`] or [`Exchange::broken`] means
/// that the caller has stopped waiting for the response.
#[derive(Debug)]
pub struct Exchange<'a, T, E> {
    lazy: &'a Lazy<T, E>,
    connection: Arc<T>,
    is_finished: bool,
}

impl<T, E> Default for Lazy<T, E> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { open: None, last_failure: None, pending: None })))
    }
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Lazy<T, E> {
    /// The connection, if it can still be used; otherwise one that `connect` makes.
    pub async fn get<F>(&self, is_usable: impl Fn(&T) -> bool, connect: impl Fn() -> F) -> Result<Exchange<'_, T, E>, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let exchange =
            |connection: &Arc<T>| Exchange { lazy: self, connection: Arc::clone(connection), is_finished: false };
        loop {
            let mut pending = {
                let mut state = lock(&self.0);
                drop(state.open.take_if(|open| open.is_unresponsive() || !is_usable(&open.connection)));
                if let Some(open) = &state.open {
                    return Ok(exchange(&open.connection));
                }
                if let Some((_, error)) = state.last_failure.as_ref().filter(|(at, _)| at.elapsed() < RETRY_PAUSE) {
                    return Err(error.clone());
                }
                state.pending.get_or_insert_with(|| self.start_connecting(connect())).clone()
            };
            let outcome = pending.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
            if let Ok(Some(outcome)) = outcome {
                return outcome.as_ref().map(exchange).map_err(E::clone);
            }
            // The task has ended with its runtime, before it had an outcome.
            drop(lock(&self.0).pending.take_if(|other| other.same_channel(&pending)));
            tokio::task::yield_now().await;
        }
    }

    /// Starts a task that connects.
    fn start_connecting(
        &self,
        connecting: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> watch::Receiver<Outcome<T, E>> {
        let (sender, pending) = watch::channel(None);
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            let outcome = connecting.await.map(Arc::new);
            let now = Instant::now();
            {
                let mut state = lock(&state);
                state.pending = None;
                match &outcome {
                    Ok(connection) => {
                        let connection = Arc::clone(connection);
                        state.open = Some(Open { connection, made_at: now, unanswered_since: None });
                        state.last_failure = None;
                    }
                    Err(error) => state.last_failure = Some((now, error.clone())),
                }
            }
            // Fails if nobody waits any more.
            let _ = sender.send(Some(outcome));
        });
        pending
    }
}

impl<T> Open<T> {
    fn is_unresponsive(&self) -> bool {
        self.unanswered_since.is_some_and(|since| since.elapsed() >= UNANSWERED_MAX)
    }
}

impl<T, E: Clone> Exchange<'_, T, E> {
    /// Ends the exchange: a response has arrived, whatever its content.
    pub fn answered(self) {
        self.finish(|state, _| {
            if let Some(open) = &mut state.open {
                open.unanswered_since = None;
            }
        });
    }

    /// Ends the exchange: the connection is no longer usable because of `error`, and the next caller makes a new one.
    pub fn broken(self, error: &E) {
        self.finish(|state, made_at| {
            state.open = None;
            state.last_failure = Some((made_at, error.clone()));
        });
    }
}

impl<T, E> Exchange<'_, T, E> {
    /// Finishes the exchange, and calls `change` as [`Exchange::change`] does.
    fn finish(mut self, change: impl FnOnce(&mut State<T, E>, Instant)) {
        self.is_finished = true;
        self.change(change);
    }

    /// Calls `change` with the time when this connection was made, if it is still the current one.
    fn change(&self, change: impl FnOnce(&mut State<T, E>, Instant)) {
        let mut state = lock(&self.lazy.0);
        let current = state.open.as_ref().filter(|open| Arc::ptr_eq(&open.connection, &self.connection));
        if let Some(made_at) = current.map(|open| open.made_at) {
            change(&mut state, made_at);
        }
    }
}

impl<T, E> Deref for Exchange<'_, T, E> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.connection
    }
}

impl<T, E> Drop for Exchange<'_, T, E> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.change(|state, _| {
                if let Some(open) = &mut state.open {
                    open.unanswered_since.get_or_insert_with(Instant::now);
                }
            });
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    //! Goal: all callers share one connection, and an unusable one is replaced at once, but not in a tight loop.

    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn run<F: Future<Output = ()>>(test: F) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    /// Makes numbered connections, each within `connect_time`.
    fn numbered(
        connect_time: Duration,
    ) -> impl Fn() -> std::pin::Pin<Box<dyn Future<Output = Result<u32, &'static str>> + Send>> {
        let count = Arc::new(AtomicU32::new(0));
        move || {
            let count = Arc::clone(&count);
            Box::pin(async move {
                let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::time::sleep(connect_time).await;
                Ok(number)
            })
        }
    }

    #[test]
    fn connection_is_made_once_and_replaced_when_it_is_unusable() {
        let (lazy, next) = (Lazy::<u32, &str>::default(), numbered(Duration::ZERO));
        run(async {
            let first = lazy.get(|_| true, &next).await.unwrap();
            let again = lazy.get(|_| true, &next).await.unwrap();
            assert_eq!((*first, *again), (1, 1));
            again.answered();
            let second = lazy.get(|number| *number != 1, &next).await.unwrap();
            assert_eq!(*second, 2);
            first.broken(&"broken");
            assert_eq!(*lazy.get(|_| true, &next).await.unwrap(), 2, "an older one was broken");
            second.broken(&"broken");
            assert_eq!(lazy.get(|_| true, &next).await.map(|_| ()), Err("broken"), "it broke right after it was made");
            tokio::time::sleep(RETRY_PAUSE).await;
            let third = lazy.get(|_| true, &next).await.unwrap();
            assert_eq!(*third, 3);
            tokio::time::sleep(RETRY_PAUSE).await;
            third.broken(&"broken");
            assert_eq!(*lazy.get(|_| true, &next).await.unwrap(), 4, "it was usable for a while");
        });
    }

    #[test]
    fn failed_connection_is_not_retried_at_once() {
        let (lazy, next) = (Lazy::<u32, &str>::default(), numbered(Duration::ZERO));
        run(async {
            assert_eq!(lazy.get(|_| true, || async { Err("down") }).await.map(|_| ()), Err("down"));
            assert_eq!(lazy.get(|_| true, &next).await.map(|_| ()), Err("down"));
            tokio::time::sleep(RETRY_PAUSE).await;
            assert_eq!(*lazy.get(|_| true, &next).await.unwrap(), 1);
        });
    }

    #[test]
    fn connection_is_completed_even_if_nobody_waits() {
        let (lazy, slowly) = (Lazy::<u32, &str>::default(), numbered(RETRY_PAUSE));
        run(async {
            for _ in 0..2 {
                assert!(tokio::time::timeout(RETRY_PAUSE / 5, lazy.get(|_| true, &slowly)).await.is_err());
            }
            let both = futures_util::future::join(lazy.get(|_| true, &slowly), lazy.get(|_| true, &slowly)).await;
            assert_eq!((*both.0.unwrap(), *both.1.unwrap()), (1, 1));
        });
    }

    /// Each `run` has a runtime of its own. When it ends, so do its tasks.
    #[test]
    fn connection_is_made_again_if_the_runtime_of_its_task_has_ended() {
        let (lazy, never) = (Lazy::<u32, &str>::default(), numbered(Duration::MAX));
        run(async { assert!(tokio::time::timeout(RETRY_PAUSE / 5, lazy.get(|_| true, &never)).await.is_err()) });
        run(async { assert_eq!(*lazy.get(|_| true, numbered(Duration::ZERO)).await.unwrap(), 1) });
    }

    #[test]
    fn connection_that_leaves_requests_unanswered_is_replaced() {
        let (lazy, next) = (Lazy::<u32, &str>::default(), numbered(Duration::ZERO));
        run(async {
            drop(lazy.get(|_| true, &next).await);
            tokio::time::sleep(UNANSWERED_MAX / 2).await;
            lazy.get(|_| true, &next).await.unwrap().answered();
            tokio::time::sleep(UNANSWERED_MAX / 2).await;
            let open = lazy.get(|_| true, &next).await.unwrap();
            assert_eq!(*open, 1, "it has answered since");
            drop(open);
            tokio::time::sleep(UNANSWERED_MAX / 2).await;
            drop(lazy.get(|_| true, &next).await);
            tokio::time::sleep(UNANSWERED_MAX / 2).await;
            assert_eq!(*lazy.get(|_| true, &next).await.unwrap(), 2, "the first unanswered request counts");
        });
    }
}
