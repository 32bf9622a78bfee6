//! Answers on their way to clients: in small pieces, and cut off if a client does not take them.
//!
//! By HTTP/2 a client opens a window for each answer. One that keeps it shut, or takes a byte now and then, would hold the
//! answer, and a connection to the service, for as long as it likes, without the connection being silent. Such a
//! stream alone is reset: others on the connection may be somebody else's.
//!
//! What HTTP/2 has been given it holds until it is sent, after the end of the answer too. So it gets copies of small pieces
//! ([`PIECE_BYTES`]), for each of which its request counts among those on their way: nothing large stays behind, and nothing
//! that does not count.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::body::Holding;
use crate::http::{Body, BodyError, Share};

/// How much is given at once.
pub const PIECE_BYTES: usize = 16 << 10;

tokio::task_local! {
    /// How the answer is taken that is given by this task.
    static TAKING: Arc<Taking>;
}

/// How a client takes an answer.
pub struct Taking {
    wait: Duration,
    /// Bytes in a second.
    rate_min: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when the client has something to take.
    since: Option<Instant>,
    /// How long it has taken for what it has taken.
    took: Duration,
    bytes: u64,
}

impl Taking {
    /// A client has so long for each piece, and takes so many bytes in a second, after such a time.
    pub fn new(wait: Duration, rate_min: usize) -> Arc<Self> {
        Arc::new(Self { wait, rate_min: rate_min as u64, state: Mutex::default() })
    }

    /// That of the stream that this task is, by HTTP/2.
    pub fn of_stream() -> Option<Arc<Self>> {
        TAKING.try_with(Arc::clone).ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer begins: its head is to be taken.
    fn begin(&self) {
        *self.state() = State { since: Some(Instant::now()), ..State::default() };
    }

    /// The client has taken what there was, and wants more.
    fn asked(&self) {
        let mut state = self.state();
        if let Some(since) = state.since.take() {
            state.took += since.elapsed();
        }
    }

    /// It gets so much.
    fn gives(&self, bytes: usize) {
        let mut state = self.state();
        state.bytes += bytes as u64;
        state.since = Some(Instant::now());
    }

    /// Until when it has to ask for more; `None` while the answer is waited for.
    fn until(&self) -> Option<Instant> {
        let state = self.state();
        let since = state.since?;
        let allowed = self.wait + per_rate(state.bytes, self.rate_min);
        Some(since + allowed.saturating_sub(state.took).min(self.wait))
    }
}

/// How long so many bytes may take at this rate.
pub fn per_rate(bytes: u64, rate_min: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1_000) / rate_min.max(1))
}

/// An answer's body, which holds something until it has ended.
pub struct Given<T> {
    body: Holding<Body, T>,
    rest: Bytes,
    taking: Arc<Taking>,
    /// What copies of pieces hold by HTTP/2; `None` by HTTP/1.1, which has but one answer at a time.
    copied: Option<Arc<Share>>,
}

/// A piece, and what it holds.
struct Piece {
    bytes: Box<[u8]>,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T> Given<T> {
    /// This body, whose head is given now; by HTTP/2 it is copied, and each copy holds something.
    pub fn new(body: Holding<Body, T>, taking: Arc<Taking>, copied: Option<Arc<Share>>) -> Self {
        taking.begin();
        Self { body, rest: Bytes::new(), taking, copied }
    }
}

impl<T: Unpin> http_body::Body for Given<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        this.taking.asked();
        if this.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        this.taking.gives(piece.len());
        Poll::Ready(Some(Ok(Frame::data(match &this.copied {
            Some(share) if !piece.is_empty() => {
                Bytes::from_owner(Piece { bytes: piece.as_ref().into(), _share: Arc::clone(share) })
            }
            _ => piece,
        }))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, rest) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(left));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(left)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<T> Drop for Given<T> {
    fn drop(&mut self) {
        self.taking.asked();
    }
}

/// Whether a client has not taken an answer in time. Polled after what gives it: what has changed since then is not heard.
#[derive(Default)]
pub struct Lateness(Option<Pin<Box<Sleep>>>);

impl Lateness {
    /// Is ready when it has not.
    pub fn poll(&mut self, taking: &Taking, context: &mut Context<'_>) -> Poll<()> {
        let Some(until) = taking.until() else {
            self.0 = None;
            return Poll::Pending;
        };
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() != until {
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(context)
    }
}

/// Runs the streams of connections by HTTP/2, each until its answer has ended or was not taken in time: one that is dropped
/// is reset, and what it has left behind is forgotten.
#[derive(Clone)]
pub struct Streams {
    /// How long a client may take nothing.
    pub wait: Duration,
    /// How many bytes it takes in a second at least.
    pub rate_min: usize,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let taking = Taking::new(self.wait, self.rate_min);
        let told = Arc::clone(&taking);
        tokio::spawn(TAKING.scope(taking, async move {
            let (mut stream, mut late) = (Box::pin(stream), Lateness::default());
            std::future::poll_fn(|context| {
                if stream.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                std::task::ready!(late.poll(&told, context));
                tracing::debug!("an answer is cut off that its client does not take");
                Poll::Ready(())
            })
            .await;
        }));
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::http::{Limit, Shares};

    const WAIT: Duration = Duration::from_secs(1);

    /// Whether a client is late that takes so many bytes after each such pause.
    async fn is_late(bytes: usize, pause: Duration) -> bool {
        let (taking, mut late) = (Taking::new(WAIT, 1_024), Lateness::default());
        let began = Instant::now();
        taking.begin();
        while began.elapsed() < 3 * WAIT {
            let is_late = std::future::poll_fn(|context| late.poll(&taking, context));
            if tokio::time::timeout(pause, is_late).await.is_ok() {
                return true;
            }
            taking.asked();
            taking.gives(bytes);
        }
        false
    }

    #[tokio::test]
    async fn client_that_takes_nothing_or_next_to_nothing_is_late() {
        assert!(is_late(0, 2 * WAIT).await);
        assert!(is_late(1, WAIT / 8).await, "a byte now and then is not enough");
        assert!(!is_late(1_024, WAIT / 8).await, "one that is slow gets all");
    }

    #[tokio::test]
    async fn what_the_service_takes_is_not_its_clients_time() {
        let (taking, mut late) = (Taking::new(WAIT, 1_024), Lateness::default());
        taking.begin();
        taking.asked();
        let is_late = std::future::poll_fn(|context| late.poll(&taking, context));
        assert!(tokio::time::timeout(2 * WAIT, is_late).await.is_err());
    }

    #[tokio::test]
    async fn body_comes_in_pieces_and_is_whole() {
        let text = Bytes::from(vec![b'x'; 3 * PIECE_BYTES + 1]);
        let shares: Arc<Shares> = Arc::default();
        for is_two in [false, true] {
            let share = Arc::new(shares.take(None, Limit { all: 1, least: 1 }).unwrap());
            let body = Holding::new(Body::whole(text.clone()), Arc::clone(&share));
            let mut given = Given::new(body, Taking::new(WAIT, 1), is_two.then_some(share));
            assert_eq!(http_body::Body::size_hint(&given).exact(), Some(text.len() as u64));
            let first = given.frame().await.unwrap().unwrap().into_data().unwrap();
            let left = http_body::Body::size_hint(&given).exact();
            assert_eq!((first.len(), left), (PIECE_BYTES, Some(2 * PIECE_BYTES as u64 + 1)));
            assert_eq!(first.as_ptr() == text.as_ptr(), !is_two, "HTTP/2 has copies");
            assert_eq!(given.collect().await.unwrap().to_bytes().len(), 2 * PIECE_BYTES + 1);
            assert_eq!(shares.used(), usize::from(is_two), "a copy is not sent yet");
            drop(first);
            assert_eq!(shares.used(), 0);
        }
    }
}
