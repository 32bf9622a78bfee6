//! A connection that is made when it is needed first, shared by all who need it, and made anew when it is of no use any
//! more. After one that could not be made, nobody tries for some moments: whoever asks then is told why at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a connection that could not be made is not tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// A connection, or why there is none.
#[derive(Debug)]
pub struct Lazy<T, E>(Mutex<State<T, E>>);

#[derive(Debug)]
struct State<T, E> {
    open: Option<Arc<T>>,
    failed: Option<(Instant, E)>,
}

impl<T, E> Default for Lazy<T, E> {
    fn default() -> Self {
        Self(Mutex::new(State { open: None, failed: None }))
    }
}

impl<T, E: Clone> Lazy<T, E> {
    /// The connection, if it can still be used; otherwise one that `connect` makes.
    pub async fn get(
        &self,
        is_usable: impl FnOnce(&T) -> bool,
        connect: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut state = self.0.lock().await;
        drop(state.open.take_if(|open| !is_usable(open)));
        if let Some(open) = &state.open {
            return Ok(Arc::clone(open));
        }
        if let Some((_, error)) = state.failed.as_ref().filter(|(at, _)| at.elapsed() < PAUSE) {
            return Err(error.clone());
        }
        match connect().await {
            Ok(open) => {
                let open = Arc::new(open);
                (state.open, state.failed) = (Some(Arc::clone(&open)), None);
                Ok(open)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Has the next one who asks connect anew, if this is still the connection.
    pub async fn forget(&self, broken: &Arc<T>) {
        let mut state = self.0.lock().await;
        drop(state.open.take_if(|open| Arc::ptr_eq(open, broken)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn connection_is_made_once_and_anew_when_it_is_of_no_use() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (lazy, made) = (Lazy::<u32, &str>::default(), Cell::new(0));
        let next = async || {
            made.set(made.get() + 1);
            Ok(made.get())
        };
        runtime.block_on(async {
            assert_eq!(*lazy.get(|_| true, next).await.unwrap(), 1);
            let open = lazy.get(|_| true, next).await.unwrap();
            assert_eq!(*open, 1);
            assert_eq!(*lazy.get(|_| false, next).await.unwrap(), 2);
            lazy.forget(&open).await;
            let open = lazy.get(|_| true, next).await.unwrap();
            assert_eq!(*open, 2, "another one was broken");
            lazy.forget(&open).await;
            assert_eq!(lazy.get(|_| true, async || Err("down")).await, Err("down"));
            assert_eq!(lazy.get(|_| true, next).await, Err("down"), "it is not tried again at once");
            tokio::time::sleep(PAUSE).await;
            assert_eq!(*lazy.get(|_| true, next).await.unwrap(), 3);
        });
    }
}
