//! The layer's own responses: problems, as `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::body::Body;
use super::{Outcome, OwnResponse, key};
use crate::format;
use crate::request::Id;

/// The value of `Retry-After`, in seconds. It is arbitrary, since nobody knows how long the client should wait.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// The media type of problems.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";
/// The prefix of a problem's `instance`; a request's id follows it.
pub const INSTANCE_PREFIX: &str = "urn:ratchet:request:";

/// Why the layer answers a request itself, instead of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The request must have a key in this header, and has none.
    KeyMissing(String),
    /// Its key, in this header, is invalid.
    KeyInvalid(String, key::Error),
    /// It must say who its caller is, and does not. The field names the header for this; `None` if callers are not
    /// identified by a header.
    CallerMissing(Option<String>),
    /// Its body could not be read.
    BodyUnread,
    /// Its body is larger than this many bytes.
    BodyTooLarge(usize),
    /// Its key belongs to another request.
    OtherRequest,
    /// The first request under its key is being carried out.
    InProgress,
    /// The first request under its key may have been carried out, or not.
    InDoubt(Id),
    /// An operator decided that it must not be carried out.
    Dropped,
    /// The service was run, but its response is lost.
    AnswerLost,
    /// The store does not answer.
    StoreDown,
    /// The store has no room for another request.
    StoreFull,
    /// Too many requests are being carried out, or their bodies take too much memory.
    TooManyRequests,
}

/// The JSON body of a problem.
#[derive(Serialize)]
struct Fields<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: String,
    /// Names the request, so that an operator can settle it manually.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
}

impl Problem {
    /// The outcome of the request.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::KeyMissing(_) => Outcome::KeyMissing,
            Self::KeyInvalid(..) => Outcome::KeyInvalid,
            Self::CallerMissing(_) => Outcome::CallerMissing,
            Self::BodyUnread | Self::BodyTooLarge(_) => Outcome::BodyRefused,
            Self::OtherRequest => Outcome::OtherRequest,
            Self::InProgress => Outcome::InProgress,
            Self::InDoubt(_) | Self::AnswerLost => Outcome::InDoubt,
            // An operator's decision is remembered as the request's response, so clients get it as a replay.
            Self::Dropped => Outcome::Replayed,
            Self::StoreDown => Outcome::StoreDown,
            Self::StoreFull => Outcome::StoreFull,
            Self::TooManyRequests => Outcome::TooMany,
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table, one problem after the other")]
    fn fields(&self) -> Fields<'static> {
        let (status, type_urn, title, detail) = match self {
            Self::KeyMissing(header) => (
                StatusCode::BAD_REQUEST,
                "urn:ratchet:idempotency:key-missing",
                "An idempotency key is required",
                format!(
                    "send the header {header} with a new value for each request, and with the same value when you \
                     repeat a request"
                ),
            ),
            Self::KeyInvalid(header, error) => (
                StatusCode::BAD_REQUEST,
                "urn:ratchet:idempotency:key-invalid",
                "The idempotency key is invalid",
                format!(
                    "the header {header} is not a valid key: {error}; send one value of up to {} visible characters, \
                     such as a UUID",
                    key::KEY_BYTES_MAX
                ),
            ),
            Self::CallerMissing(header) => (
                StatusCode::BAD_REQUEST,
                "urn:ratchet:idempotency:caller-missing",
                "The caller is not identified",
                match header {
                    Some(header) => format!("send the header {header}: each key belongs to its caller"),
                    None => {
                        "identify yourself in the way this service requires: each key belongs to its caller".to_owned()
                    }
                },
            ),
            Self::BodyUnread => (
                StatusCode::BAD_REQUEST,
                "urn:ratchet:idempotency:body-unread",
                "The request's body could not be read",
                "nothing was done: send the request again".to_owned(),
            ),
            Self::BodyTooLarge(bytes_max) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "urn:ratchet:idempotency:body-too-large",
                "The request's body is too large to be sent under a key",
                format!("the body of a request with a key may have at most {bytes_max} bytes"),
            ),
            Self::OtherRequest => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "urn:ratchet:idempotency:key-used",
                "The idempotency key was used for another request",
                "the first request with this key was different; use a new key for a new request".to_owned(),
            ),
            Self::InProgress => (
                StatusCode::CONFLICT,
                "urn:ratchet:idempotency:in-progress",
                "The request is being carried out",
                "an earlier request with this key is still in progress; retry later with the same key".to_owned(),
            ),
            Self::InDoubt(_) => (
                StatusCode::CONFLICT,
                "urn:ratchet:idempotency:in-doubt",
                "The request may have been carried out",
                "an earlier request with this key was interrupted or failed, and is not carried out again; check \
                 whether it took effect"
                    .to_owned(),
            ),
            Self::Dropped => (
                StatusCode::CONFLICT,
                "urn:ratchet:idempotency:dropped",
                "The request was not carried out, and will not be",
                "an operator decided this; use a new key for a new request".to_owned(),
            ),
            Self::AnswerLost => (
                StatusCode::BAD_GATEWAY,
                "urn:ratchet:idempotency:answer-lost",
                "The service's answer was lost",
                "the request may have been carried out; send it again with the same key".to_owned(),
            ),
            Self::TooManyRequests => (
                StatusCode::SERVICE_UNAVAILABLE,
                "urn:ratchet:idempotency:too-many",
                "Too many requests are being carried out",
                "nothing was done; send the request again later, with the same key".to_owned(),
            ),
            Self::StoreDown => (
                StatusCode::SERVICE_UNAVAILABLE,
                "urn:ratchet:idempotency:store-down",
                "It is not known whether the request was carried out before",
                "nothing was done; send the request again later, with the same key".to_owned(),
            ),
            Self::StoreFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "urn:ratchet:idempotency:store-full",
                "There is no room to remember another request",
                "nothing was done; send the request again later, with the same key".to_owned(),
            ),
        };
        let instance = match self {
            Self::InDoubt(id) => Some(format!("{INSTANCE_PREFIX}{}", format::hex(&id.0))),
            _ => None,
        };
        Fields { r#type: type_urn, title, status: status.as_u16(), detail, instance }
    }

    /// The body of the response for this problem.
    pub fn body(&self) -> Bytes {
        serde_json::to_vec(&self.fields()).map(Bytes::from).unwrap_or_default()
    }

    /// The response for this problem.
    pub fn response(&self) -> Response<Body> {
        let status = StatusCode::from_u16(self.fields().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Body::whole(self.body()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if matches!(self, Self::InProgress | Self::StoreDown | Self::StoreFull | Self::TooManyRequests) {
            response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S);
        }
        response.extensions_mut().insert(self.outcome());
        response.extensions_mut().insert(OwnResponse);
        response
    }
}
