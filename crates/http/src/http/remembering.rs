//! Remembered responses, and their replays.
//!
//! An [`Answer`] is what the store remembers of a response. Of a body that is a stream, has trailers, or is too large
//! to be remembered whole, at most the digest (SHA-256) is remembered; the replay then has a note, in JSON, as its
//! body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::at_work::WorkGuard;
use super::body::{Body, BodyError};
use super::outcome::{Outcome, RecordedByHand};
use super::problem;
use super::serve::Shared;
use super::shares::Share;
use crate::format;
use crate::request::{Answer, AnswerBody, BY_HAND, Reservation};

/// Marks a replayed response; the name is Stripe's.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Headers that describe a body: they are not replayed if a note replaces the body.
const BODY_HEADERS: [HeaderName; 5] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_LENGTH, header::ETAG];

/// The note that replaces a body that was not remembered.
#[derive(Serialize)]
struct Note {
    /// The explanation.
    idempotency: &'static str,
    /// The length and the SHA-256 of the body that the note replaces, if they are known.
    bytes: Option<u64>,
    sha256: Option<String>,
}

/// The replay of a response. Its body holds `share`, its part of the bound on all bodies together, until it is sent.
pub(super) fn replay(answer: &Answer, share: Share) -> Response<Body> {
    let mut headers = HeaderMap::with_capacity(answer.headers.len() + 2);
    let note = match &answer.body {
        AnswerBody::Whole(_) => None,
        AnswerBody::Digest { length, sha256 } => Some(Note {
            idempotency: "the request was carried out; its answer was too large to be kept, or had trailers",
            bytes: Some(*length),
            sha256: Some(format::hex(sha256)),
        }),
        AnswerBody::CutOff => Some(Note {
            idempotency: "the request was carried out; its answer was too large to be kept, or a stream, and may not \
                          have been sent completely",
            bytes: None,
            sha256: None,
        }),
    };
    for (name, value) in &answer.headers {
        let (name, value) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_maybe_shared(value.clone()));
        if let (Ok(name), Ok(value)) = (name, value)
            && (note.is_none() || !BODY_HEADERS.contains(&name))
        {
            headers.append(name, value);
        }
    }
    let body = match (&answer.body, note) {
        (AnswerBody::Whole(body), _) => share.hold(body.clone()),
        (_, note) => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            serde_json::to_vec(&note).map(Bytes::from).unwrap_or_default()
        }
    };
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    let mut replayed = Response::new(Body::whole(body));
    *replayed.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    *replayed.headers_mut() = headers;
    replayed.extensions_mut().insert(Outcome::Replayed);
    // This mark of an operator's record is no valid header name, so it was left out of the headers above.
    if answer.headers.iter().any(|(name, _)| name == BY_HAND) {
        replayed.extensions_mut().insert(RecordedByHand);
    }
    replayed
}

/// The response to a request that an operator has recorded as carried out: with this body and media type, or with a
/// note.
pub fn done_answer(status: u16, body: Option<(Bytes, String)>) -> Answer {
    let (body, media_type) = body.unwrap_or_else(|| {
        let note = Note {
            idempotency: "the request was carried out, as an operator has recorded; its answer is not known",
            bytes: None,
            sha256: None,
        };
        (serde_json::to_vec(&note).map(Bytes::from).unwrap_or_default(), "application/json".to_owned())
    });
    recorded_answer(status, Bytes::from(media_type), body)
}

/// The response to a request that an operator has recorded as one that was not and will not be carried out.
pub fn dropped_answer() -> Answer {
    let media_type = Bytes::from_static(problem::MEDIA_TYPE.as_bytes());
    recorded_answer(StatusCode::CONFLICT.as_u16(), media_type, problem::Problem::Dropped.body())
}

fn recorded_answer(status: u16, media_type: Bytes, body: Bytes) -> Answer {
    let headers = vec![(header::CONTENT_TYPE.as_str().to_owned(), media_type), (BY_HAND.to_owned(), Bytes::new())];
    Answer { status, headers, body: AnswerBody::Whole(body) }
}

/// A body on its way to the client that is a stream, or too large to be remembered: at its end its digest is
/// remembered.
pub(super) struct DigestedBody {
    body: Body,
    digest: Sha256,
    length: u64,
    /// The data for remembering the digest at the end: the response, the reservation, the layer's shared data, and the
    /// guard that counts the digest as work. `None` once that has begun, or if the body broke off.
    pending_digest: Option<(Answer, Reservation, Arc<Shared>, WorkGuard)>,
}

impl DigestedBody {
    pub fn new(body: Body, answer: Answer, held: Reservation, shared: Arc<Shared>) -> Self {
        let work_guard = shared.at_work.begin_digest();
        Self { body, digest: Sha256::new(), length: 0, pending_digest: Some((answer, held, shared, work_guard)) }
    }

    fn remember_digest(&mut self) {
        let Some((answer, held, shared, work_guard)) = self.pending_digest.take() else { return };
        let sha256 = std::mem::take(&mut self.digest).finalize().into();
        let answer = Answer { body: AnswerBody::Digest { length: self.length, sha256 }, ..answer };
        tokio::spawn(async move {
            let _work_guard = work_guard;
            let completed = shared.in_time(shared.store.complete(held, &answer, shared.settings.retention)).await;
            if let Err(error) = completed {
                tracing::warn!(%error, "an answer's digest could not be remembered, only that the answer was given");
            }
        });
    }
}

impl http_body::Body for DigestedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.length += data.len() as u64;
                    self.digest.update(data);
                }
                if self.body.is_end_stream() {
                    self.remember_digest();
                }
            }
            Some(Err(_)) => self.pending_digest = None,
            None => self.remember_digest(),
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
