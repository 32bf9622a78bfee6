//! Sends responses to clients: in small pieces, and cut off if a client does not read them.
//!
//! With HTTP/2, each response has its own flow-control window. A client that does not extend the window, or only by a
//! byte now and then, could hold the response, and a connection to the service, indefinitely: other streams keep the
//! client's connection from being silent. If a client does not read a response in time, only that stream is reset,
//! since other streams of the connection may belong to other clients behind a gateway.
//!
//! The HTTP/2 library keeps a piece until it is sent, even after the response's body was dropped. It therefore gets
//! copies of small pieces ([`PIECE_BYTES`]), instead of parts of the service's large buffers. Each copy holds its
//! request's share, which counts the request as in progress, until the copy is sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::body::{HoldingBody, time_at_rate};
use crate::http::proxying::Share;
use crate::http::{Body, BodyError};

/// The most bytes of a piece.
pub const PIECE_BYTES: usize = 16 << 10;

tokio::task_local! {
    /// How fast the client of this task's stream reads its response.
    static PACE: Arc<Pace>;
}

/// How fast a client reads a response, and how fast it must read.
pub struct Pace {
    /// The time limit for each piece.
    silence_max: Duration,
    /// In bytes a second.
    rate_min: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when a piece has been waiting for the client.
    waiting_since: Option<Instant>,
    /// How long the client took for the pieces that it has read.
    read_time: Duration,
    /// The bytes of all pieces so far.
    bytes: u64,
}

impl Pace {
    /// A pace with `silence_max` as the time limit for each piece, and a minimum average rate in bytes a second: the
    /// client may take as long for all pieces so far as their bytes take at that rate, plus `silence_max`.
    pub fn new(silence_max: Duration, rate_min: usize) -> Arc<Self> {
        Arc::new(Self { silence_max, rate_min: rate_min as u64, state: Mutex::default() })
    }

    /// The pace of this task's stream with HTTP/2; `None` with HTTP/1.1.
    pub fn of_stream() -> Option<Arc<Self>> {
        PACE.try_with(Arc::clone).ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a response begins: its head waits for the client.
    fn begin(&self) {
        *self.state() = State { waiting_since: Some(Instant::now()), ..State::default() };
    }

    /// Notes that the client has read everything so far, and asks for more.
    fn on_read(&self) {
        let mut state = self.state();
        if let Some(waiting_since) = state.waiting_since.take() {
            state.read_time += waiting_since.elapsed();
        }
    }

    /// Notes that a piece of this size waits for the client.
    fn on_piece(&self, bytes: usize) {
        let mut state = self.state();
        state.bytes += bytes as u64;
        state.waiting_since = Some(Instant::now());
    }

    /// Notes that the response has ended: nothing waits for the client any more.
    fn end(&self) {
        self.state().waiting_since = None;
    }

    /// The client's deadline for asking for more; `None` while nothing waits for the client.
    fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        let waiting_since = state.waiting_since?;
        let allowed = self.silence_max + time_at_rate(state.bytes, self.rate_min);
        Some(waiting_since + allowed.saturating_sub(state.read_time).min(self.silence_max))
    }
}

/// A response's body in pieces, which records when the client reads them. It holds a `T` until it has ended.
pub struct PacedBody<T> {
    body: HoldingBody<Body, T>,
    /// The data that the service has sent and the client has not read.
    rest: Bytes,
    pace: Arc<Pace>,
    /// With HTTP/2, the share of the request, which each copied piece holds too. `None` with HTTP/1.1: pieces are not
    /// copied there, since a connection has one response at a time.
    copy_share: Option<Arc<Share>>,
}

/// A copied piece, and the share that it holds.
struct Piece {
    bytes: Box<[u8]>,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T> PacedBody<T> {
    /// The body of a response whose head is sent now. If there is a `copy_share`, pieces are copied, and each copy
    /// holds it.
    pub fn new(body: HoldingBody<Body, T>, pace: Arc<Pace>, copy_share: Option<Arc<Share>>) -> Self {
        pace.begin();
        Self { body, rest: Bytes::new(), pace, copy_share }
    }
}

impl<T: Unpin> http_body::Body for PacedBody<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        this.pace.on_read();
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
        this.pace.on_piece(piece.len());
        Poll::Ready(Some(Ok(Frame::data(match &this.copy_share {
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
        let (rest_bytes, body_hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body_hint.lower().saturating_add(rest_bytes));
        if let Some(upper) = body_hint.upper().and_then(|upper| upper.checked_add(rest_bytes)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<T> Drop for PacedBody<T> {
    fn drop(&mut self) {
        self.pace.end();
    }
}

/// A timer for a client that must read a response in time. It has to be polled each time after the response was polled:
/// that may change the deadline, and the timer wakes its task only at the deadline that it has seen last.
#[derive(Default)]
pub struct LateTimer(Option<Pin<Box<Sleep>>>);

impl LateTimer {
    /// Ready when the client is late.
    pub fn poll(&mut self, pace: &Pace, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = pace.deadline() else {
            self.0 = None;
            return Poll::Pending;
        };
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(context)
    }
}

/// Runs the streams of HTTP/2 connections. If a client does not read a response in time, the response's stream is
/// dropped, which resets it and frees its buffers.
#[derive(Clone)]
pub struct Streams {
    /// How long a client may read nothing.
    pub silence_max: Duration,
    /// The minimum rate, in bytes a second.
    pub rate_min: usize,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let pace = Pace::new(self.silence_max, self.rate_min);
        let stream_pace = Arc::clone(&pace);
        tokio::spawn(PACE.scope(pace, async move {
            let (mut stream, mut late_timer) = (Box::pin(stream), LateTimer::default());
            std::future::poll_fn(|context| {
                if stream.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                std::task::ready!(late_timer.poll(&stream_pace, context));
                tracing::debug!("a response is cut off: its client does not read it");
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
    use crate::http::proxying::{Limit, Shares};

    const WAIT: Duration = Duration::from_secs(1);

    /// Whether a client that reads this many bytes after each pause is late.
    async fn is_late(bytes: usize, pause: Duration) -> bool {
        let (pace, mut late_timer) = (Pace::new(WAIT, 1_024), LateTimer::default());
        let began = Instant::now();
        pace.begin();
        while began.elapsed() < 3 * WAIT {
            let is_late = std::future::poll_fn(|context| late_timer.poll(&pace, context));
            if tokio::time::timeout(pause, is_late).await.is_ok() {
                return true;
            }
            pace.on_read();
            pace.on_piece(bytes);
        }
        false
    }

    #[tokio::test]
    async fn client_that_reads_nothing_or_hardly_anything_is_late() {
        assert!(is_late(0, 2 * WAIT).await);
        assert!(is_late(1, WAIT / 8).await, "a byte now and then is not enough");
        assert!(!is_late(1_024, WAIT / 8).await, "a slow client gets the whole response");
    }

    #[tokio::test]
    async fn client_is_not_late_while_the_service_is_slow() {
        let (pace, mut late_timer) = (Pace::new(WAIT, 1_024), LateTimer::default());
        pace.begin();
        pace.on_read();
        let is_late = std::future::poll_fn(|context| late_timer.poll(&pace, context));
        assert!(tokio::time::timeout(2 * WAIT, is_late).await.is_err());
    }

    #[tokio::test]
    async fn paced_body_is_whole_and_arrives_in_pieces() {
        let text = Bytes::from(vec![b'x'; 3 * PIECE_BYTES + 1]);
        let shares: Arc<Shares> = Arc::default();
        for is_http2 in [false, true] {
            let share = Arc::new(shares.take_one(None, Limit { total: 1, guaranteed: 1 }).unwrap());
            let body = HoldingBody::new(Body::whole(text.clone()), Arc::clone(&share));
            let mut paced = PacedBody::new(body, Pace::new(WAIT, 1), is_http2.then_some(share));
            assert_eq!(http_body::Body::size_hint(&paced).exact(), Some(text.len() as u64));
            let first = paced.frame().await.unwrap().unwrap().into_data().unwrap();
            let bytes_left = http_body::Body::size_hint(&paced).exact();
            assert_eq!((first.len(), bytes_left), (PIECE_BYTES, Some(2 * PIECE_BYTES as u64 + 1)));
            assert_eq!(first.as_ptr() == text.as_ptr(), !is_http2, "HTTP/2 gets copies");
            assert_eq!(paced.collect().await.unwrap().to_bytes().len(), 2 * PIECE_BYTES + 1);
            assert_eq!(shares.used(), usize::from(is_http2), "one copy is not sent yet");
            drop(first);
            assert_eq!(shares.used(), 0);
        }
    }
}
