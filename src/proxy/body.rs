//! Bodies that pass through the proxy: bounded in time, or holding a value, such as a share of a bound, until they end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::http::{BodyError, GivenUp};

/// A body with a time limit for each piece, and with a minimum rate if one is set. A late body ends with the error
/// [`GivenUp`].
pub struct TimedBody<B> {
    body: B,
    /// The time limit for each piece.
    silence_max: Duration,
    rate: Option<RateMeter>,
    sleep: Option<Pin<Box<Sleep>>>,
    progress: Option<BodyProgress>,
}

/// Measures a body's average rate, which must not fall below a minimum. The body may take as long as its bytes so far
/// take at the minimum rate, plus the time limit for one piece.
struct RateMeter {
    /// The minimum, in bytes a second.
    min: u64,
    began: Instant,
    /// The bytes that were read since then.
    bytes: u64,
}

/// How long this many bytes may take at a minimum rate in bytes a second.
pub fn time_at_rate(bytes: u64, rate_min: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1_000) / rate_min.max(1))
}

/// The progress of reading a request's body: the last read; `None` before the first one.
#[derive(Clone, Default)]
pub struct BodyProgress(Arc<Mutex<Option<LastRead>>>);

/// The last read of a piece of a body, and whether the body has ended.
#[derive(Clone, Copy)]
struct LastRead {
    read_at: Instant,
    has_ended: bool,
    /// Whether the body broke off or was late, which is the client's fault.
    is_broken: bool,
}

impl<B> TimedBody<B> {
    /// This body, with `silence_max` as the time limit for each piece.
    pub fn new(body: B, silence_max: Duration) -> Self {
        Self { body, silence_max, rate: None, sleep: None, progress: None }
    }

    /// Sets a minimum rate, in bytes a second: a client must not hold a body's memory for long by sending a byte now
    /// and then.
    pub fn with_rate_min(self, rate_min: Option<usize>) -> Self {
        let rate = rate_min.map(|min| RateMeter { min: min as u64, began: Instant::now(), bytes: 0 });
        Self { rate, ..self }
    }

    /// The deadline for the next piece.
    fn deadline(&self) -> Instant {
        let by_silence = Instant::now() + self.silence_max;
        let by_rate = self.rate.as_ref().map(|rate| rate.began + self.silence_max + time_at_rate(rate.bytes, rate.min));
        by_rate.map_or(by_silence, |by_rate| by_rate.min(by_silence))
    }

    /// Records in `progress` how far the body was read.
    pub fn reporting_to(self, progress: &BodyProgress) -> Self {
        Self { progress: Some(progress.clone()), ..self }
    }
}

impl BodyProgress {
    fn set(&self, has_ended: bool, is_broken: bool) {
        let last_read = LastRead { read_at: Instant::now(), has_ended, is_broken };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last_read);
    }

    fn get(&self) -> Option<LastRead> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client has failed to send the whole body.
    pub fn is_broken(&self) -> bool {
        self.get().is_some_and(|last_read| last_read.is_broken)
    }

    /// Waits until the service is late. It has `timeout` from the last read of the request's body, or from this call if
    /// nothing of a body was read. While the body is still arriving, it has `silence_max` more, because the client may
    /// be silent for that long.
    pub async fn wait_until_late(self, timeout: Duration, silence_max: Duration, has_body: bool) {
        let began = Instant::now();
        loop {
            let (since, has_ended) =
                self.get().map_or((began, !has_body), |last_read| (last_read.read_at, last_read.has_ended));
            let deadline = since + if has_ended { timeout } else { timeout + silence_max };
            if Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

impl<B> http_body::Body for TimedBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.sleep = None;
            if let (Some(rate), Some(Ok(frame))) = (&mut this.rate, &frame) {
                rate.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            if let Some(progress) = &this.progress {
                let has_ended = !matches!(frame, Some(Ok(_))) || this.body.is_end_stream();
                progress.set(has_ended, matches!(frame, Some(Err(_))));
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let mut sleep = this.sleep.take().unwrap_or_else(|| Box::pin(tokio::time::sleep_until(this.deadline())));
        let is_late = sleep.as_mut().poll(context).is_ready();
        this.sleep = Some(sleep);
        if let Some(progress) = this.progress.as_ref().filter(|_| is_late) {
            progress.set(true, true);
        }
        if is_late { Poll::Ready(Some(Err(GivenUp.into()))) } else { Poll::Pending }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that owns a value until it has ended, such as a share of a limit.
pub struct HoldingBody<B, T> {
    body: B,
    held: Option<T>,
}

impl<B, T> HoldingBody<B, T> {
    /// This body, which owns `held` until it has ended.
    pub fn new(body: B, held: T) -> Self {
        Self { body, held: Some(held) }
    }
}

impl<B: http_body::Body + Unpin, T: Unpin> http_body::Body for HoldingBody<B, T> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// Whether a body of pieces of this size, with this pause before each, is read without an error.
    async fn is_accepted(piece_bytes: usize, pause: Duration, rate_min: Option<usize>) -> bool {
        let pieces = futures_util::stream::unfold((), move |()| async move {
            tokio::time::sleep(pause).await;
            Some((Ok::<_, BodyError>(Frame::data(Bytes::from(vec![0; piece_bytes]))), ()))
        });
        let mut body = Box::pin(TimedBody::new(StreamBody::new(Box::pin(pieces)), WAIT).with_rate_min(rate_min));
        let began = Instant::now();
        while began.elapsed() < 3 * WAIT {
            if body.frame().await.is_some_and(|frame| frame.is_err()) {
                return false;
            }
        }
        true
    }

    const WAIT: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn body_below_the_minimum_rate_is_aborted() {
        assert!(!is_accepted(1, 2 * WAIT, None).await, "no piece in time");
        assert!(is_accepted(1, WAIT / 8, None).await, "without a minimum rate a slow stream continues");
        assert!(!is_accepted(1, WAIT / 8, Some(1_024)).await);
        assert!(is_accepted(1_024, WAIT / 8, Some(1_024)).await, "the body is just fast enough");
    }
}
