//! The bodies of requests and responses that pass through the layer ([`Idempotency`](super::Idempotency)).

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// An error while a body is read or written.
pub type BodyError = Box<dyn StdError + Send + Sync>;

/// The body of a request to the service, or of its response: whole, or a stream that is passed on as it arrives.
#[derive(Default)]
pub struct Body {
    /// The bytes that are there already.
    ready: Bytes,
    /// The trailers after the ready bytes; not used if there is a `rest`, which brings its own.
    trailers: Option<HeaderMap>,
    /// The part that follows the ready bytes.
    rest: Option<UnsyncBoxBody<Bytes, BodyError>>,
}

impl Body {
    /// A complete body.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { ready: bytes.into(), trailers: None, rest: None }
    }

    /// A body that is still arriving.
    pub fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        Self { ready: Bytes::new(), trailers: None, rest: Some(body.map_err(Into::into).boxed_unsync()) }
    }

    /// A body whose first part is there, and the trailers or the rest that follow.
    pub(super) fn with_ready(ready: Bytes, trailers: Option<HeaderMap>, rest: Option<Self>) -> Self {
        Self { ready, trailers, rest: rest.map(|rest| rest.boxed_unsync()) }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("ready_bytes", &self.ready.len()).field("streams", &self.rest.is_some()).finish()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.ready.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.ready)))));
        }
        if let Some(rest) = &mut self.rest {
            return Pin::new(rest).poll_frame(context);
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let rest_has_ended = self.rest.as_ref().is_none_or(http_body::Body::is_end_stream);
        self.ready.is_empty() && self.trailers.is_none() && rest_has_ended
    }

    fn size_hint(&self) -> SizeHint {
        let ready = self.ready.len() as u64;
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ready));
        // HTTP/1.1 has trailers only after a chunked body: with a length they would be left out.
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(ready))
            && self.trailers.is_none()
        {
            hint.set_upper(upper);
        }
        hint
    }
}
