//! A connection that is made when it is first needed, shared by all callers, and replaced when it is no longer usable.
//!
//! It is made by a task of its own: a caller that stops waiting does not interrupt the task, and the next caller gets
//! its outcome.
//!
//! **Failure.** If a connection could not be made, nobody tries again for half a second: callers get the error at once.
//! The same applies if a connection breaks right after it was made. A connection that leaves questions unanswered for
//! too long is replaced, however soon its callers stop waiting; until then they share it, so that their questions stay
//! in order.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The pause after a failure to connect, and the least time between two connections.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a connection may leave a question unanswered after its caller has stopped waiting.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// A connection, or the reason why there is none. Answers arrive in the order of the questions.
#[derive(Debug)]
pub struct Lazy<T, E>(Arc<Mutex<State<T, E>>>);

#[derive(Debug)]
struct State<T, E> {
    open: Option<Open<T>>,
    failed: Option<(Instant, E)>,
    /// The outcome of the connection that is being made.
    making: Option<watch::Receiver<Made<T, E>>>,
}

#[derive(Debug)]
struct Open<T> {
    connection: Arc<T>,
    made_at: Instant,
    /// Since when a question whose caller has stopped waiting has been unanswered.
    silent_since: Option<Instant>,
}

/// The outcome of making a connection; `None` while it is being made.
type Made<T, E> = Option<Result<Arc<T>, E>>;

/// A connection, for one question. Dropping it without [`Asked::answered`] or [`Asked::broken`] means that its caller
/// stopped waiting for the answer.
#[derive(Debug)]
pub struct Asked<'a, T, E> {
    lazy: &'a Lazy<T, E>,
    connection: Arc<T>,
    is_over: bool,
}

impl<T, E> Default for Lazy<T, E> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { open: None, failed: None, making: None })))
    }
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Lazy<T, E> {
    /// The connection, if it can still be used; otherwise one that `connect` makes.
    pub async fn get<F>(&self, is_usable: impl Fn(&T) -> bool, connect: impl Fn() -> F) -> Result<Asked<'_, T, E>, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let asked = |connection: &Arc<T>| Asked { lazy: self, connection: Arc::clone(connection), is_over: false };
        loop {
            let mut making = {
                let mut state = lock(&self.0);
                drop(state.open.take_if(|open| open.is_silent() || !is_usable(&open.connection)));
                if let Some(open) = &state.open {
                    return Ok(asked(&open.connection));
                }
                if let Some((_, error)) = state.failed.as_ref().filter(|(at, _)| at.elapsed() < PAUSE) {
                    return Err(error.clone());
                }
                state.making.get_or_insert_with(|| self.make(connect())).clone()
            };
            let made = making.wait_for(Option::is_some).await.map(|made| made.clone());
            if let Ok(Some(made)) = made {
                return made.as_ref().map(asked).map_err(E::clone);
            }
            // The task has ended with its runtime, before it had an outcome.
            drop(lock(&self.0).making.take_if(|other| other.same_channel(&making)));
            tokio::task::yield_now().await;
        }
    }

    /// Begins to connect.
    fn make(&self, connecting: impl Future<Output = Result<T, E>> + Send + 'static) -> watch::Receiver<Made<T, E>> {
        let (sender, making) = watch::channel(None);
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            let made = connecting.await.map(Arc::new);
            let now = Instant::now();
            {
                let mut state = lock(&state);
                state.making = None;
                match &made {
                    Ok(connection) => {
                        let connection = Arc::clone(connection);
                        state.open = Some(Open { connection, made_at: now, silent_since: None });
                        state.failed = None;
                    }
                    Err(error) => state.failed = Some((now, error.clone())),
                }
            }
            // This fails if nobody waits any more.
            let _ = sender.send(Some(made));
        });
        making
    }
}

impl<T> Open<T> {
    fn is_silent(&self) -> bool {
        self.silent_since.is_some_and(|since| since.elapsed() >= SILENCE_MAX)
    }
}

impl<T, E: Clone> Asked<'_, T, E> {
    /// An answer has arrived, whatever it says.
    pub fn answered(self) {
        self.over(|state, _| {
            if let Some(open) = &mut state.open {
                open.silent_since = None;
            }
        });
    }

    /// The connection is no longer usable because of `error`: the next caller makes a new one.
    pub fn broken(self, error: &E) {
        self.over(|state, made_at| {
            state.open = None;
            state.failed = Some((made_at, error.clone()));
        });
    }
}

impl<T, E> Asked<'_, T, E> {
    /// Calls `change` if this connection is still the current one, with the time when it was made.
    fn over(mut self, change: impl FnOnce(&mut State<T, E>, Instant)) {
        self.is_over = true;
        self.change(change);
    }

    fn change(&self, change: impl FnOnce(&mut State<T, E>, Instant)) {
        let mut state = lock(&self.lazy.0);
        let same = state.open.as_ref().filter(|open| Arc::ptr_eq(&open.connection, &self.connection));
        if let Some(made_at) = same.map(|open| open.made_at) {
            change(&mut state, made_at);
        }
    }
}

impl<T, E> Deref for Asked<'_, T, E> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.connection
    }
}

impl<T, E> Drop for Asked<'_, T, E> {
    fn drop(&mut self) {
        if !self.is_over {
            self.change(|state, _| {
                if let Some(open) = &mut state.open {
                    open.silent_since.get_or_insert_with(Instant::now);
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
    //! Goal: one connection is made for all callers, and a new one as soon as it is unusable, but not in a tight loop.

    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn run<F: Future<Output = ()>>(test: F) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    /// Makes numbered connections, each of which takes this long.
    fn numbered(
        takes: Duration,
    ) -> impl Fn() -> std::pin::Pin<Box<dyn Future<Output = Result<u32, &'static str>> + Send>> {
        let made = Arc::new(AtomicU32::new(0));
        move || {
            let made = Arc::clone(&made);
            Box::pin(async move {
                let number = made.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::time::sleep(takes).await;
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
            tokio::time::sleep(PAUSE).await;
            let third = lazy.get(|_| true, &next).await.unwrap();
            assert_eq!(*third, 3);
            tokio::time::sleep(PAUSE).await;
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
            tokio::time::sleep(PAUSE).await;
            assert_eq!(*lazy.get(|_| true, &next).await.unwrap(), 1);
        });
    }

    #[test]
    fn connection_is_completed_even_if_nobody_waits() {
        let (lazy, slowly) = (Lazy::<u32, &str>::default(), numbered(PAUSE));
        run(async {
            for _ in 0..2 {
                assert!(tokio::time::timeout(PAUSE / 5, lazy.get(|_| true, &slowly)).await.is_err());
            }
            let both = futures_util::future::join(lazy.get(|_| true, &slowly), lazy.get(|_| true, &slowly)).await;
            assert_eq!((*both.0.unwrap(), *both.1.unwrap()), (1, 1));
        });
    }

    /// Each `run` has a runtime of its own. When it ends, so do its tasks.
    #[test]
    fn connection_is_made_again_if_its_runtime_ended_first() {
        let (lazy, never) = (Lazy::<u32, &str>::default(), numbered(Duration::MAX));
        run(async { assert!(tokio::time::timeout(PAUSE / 5, lazy.get(|_| true, &never)).await.is_err()) });
        run(async { assert_eq!(*lazy.get(|_| true, numbered(Duration::ZERO)).await.unwrap(), 1) });
    }

    #[test]
    fn connection_that_leaves_questions_unanswered_is_replaced() {
        let (lazy, next) = (Lazy::<u32, &str>::default(), numbered(Duration::ZERO));
        run(async {
            drop(lazy.get(|_| true, &next).await);
            tokio::time::sleep(SILENCE_MAX / 2).await;
            lazy.get(|_| true, &next).await.unwrap().answered();
            tokio::time::sleep(SILENCE_MAX / 2).await;
            let open = lazy.get(|_| true, &next).await.unwrap();
            assert_eq!(*open, 1, "it has answered since");
            drop(open);
            tokio::time::sleep(SILENCE_MAX / 2).await;
            drop(lazy.get(|_| true, &next).await);
            tokio::time::sleep(SILENCE_MAX / 2).await;
            assert_eq!(*lazy.get(|_| true, &next).await.unwrap(), 2, "the first unanswered question counts");
        });
    }
}
