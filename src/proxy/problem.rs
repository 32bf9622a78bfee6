//! The proxy's own responses: problems, as `application/problem+json` (RFC 9457).
//!
//! They have markers among their extensions: [`OwnResponse`] on each of them; [`NotRun`], [`MayHaveRun`] or [`GivenUp`]
//! where the layer ([`crate::http`]) has to know whether the service may have run; or an [`Outcome`] for metrics.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_TYPE, HOST,
    RETRY_AFTER, TRANSFER_ENCODING, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde::Serialize;

use super::upstream::Failure;
use crate::http::{Body, GivenUp, MayHaveRun, NotRun, Outcome, OwnResponse};

#[derive(Serialize)]
struct ProblemFields<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

/// The response to a request that the service has not answered.
pub fn from_failure(failure: &Failure) -> Response<Body> {
    match failure {
        Failure::NotSent(_) => {
            let mut response = problem(
                StatusCode::BAD_GATEWAY,
                "urn:ratchet:proxy:unreachable",
                "The service did not begin the request",
                "nothing was done; send it again later",
            );
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            with_marker(NotRun, response)
        }
        Failure::Lost(_) => with_marker(
            MayHaveRun,
            problem(
                StatusCode::BAD_GATEWAY,
                "urn:ratchet:proxy:answer-lost",
                "The service's answer was lost",
                "the request may have been carried out; if it has a key, repeat it with the same key",
            ),
        ),
        Failure::Late => with_marker(
            GivenUp,
            problem(
                StatusCode::GATEWAY_TIMEOUT,
                "urn:ratchet:proxy:answer-late",
                "The service does not answer in time",
                "the request may have been carried out; if it has a key, repeat it with the same key",
            ),
        ),
    }
}

/// The response to a request beyond `requests_max`, or beyond its client's share of it.
pub fn too_many() -> Response<Body> {
    let mut response = problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "urn:ratchet:proxy:too-many",
        "Too many requests are in progress",
        "nothing was done; send it again later",
    );
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    with_marker(Outcome::TooMany, response)
}

/// The response to a request whose client has failed to send the whole body.
pub fn body_unread() -> Response<Body> {
    let response = problem(
        StatusCode::BAD_REQUEST,
        "urn:ratchet:proxy:body-unread",
        "The request's body could not be read",
        "the service may have received part of it; send the whole body, in time",
    );
    with_marker(Outcome::BodyRefused, response)
}

/// Checks a request's head. Returns the response if the request must not be passed on.
pub fn check_head<B>(request: &Request<B>) -> Option<Response<Body>> {
    let headers = request.headers();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let (first, is_only) = (codings.next(), codings.next().is_none());
    if request.method() == Method::CONNECT {
        return Some(problem(
            StatusCode::NOT_IMPLEMENTED,
            "urn:ratchet:proxy:no-tunnels",
            "This is not a forward proxy",
            "CONNECT is not supported",
        ));
    }
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Some(problem(
            StatusCode::BAD_REQUEST,
            "urn:ratchet:proxy:several-hosts",
            "The request names several hosts",
            "send the header Host once",
        ));
    }
    // The proxy decodes chunks and removes this header, so the service would not learn of other codings.
    if first.is_some_and(|coding| !is_only || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        return Some(problem(
            StatusCode::NOT_IMPLEMENTED,
            "urn:ratchet:proxy:transfer-coding",
            "The request's transfer coding is not supported",
            "send the body without a transfer coding, or with `Transfer-Encoding: chunked` alone",
        ));
    }
    None
}

/// Lets the page at this origin read a response: the service has allowed that page to send the request.
pub fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Retry-After"));
    headers.insert(VARY, HeaderValue::from_static("Origin"));
}

/// This response, with a marker among its extensions.
fn with_marker<T: Clone + Send + Sync + 'static>(marker: T, mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(marker);
    response
}

fn problem(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response<Body> {
    let text = ProblemFields { r#type: kind, title, status: status.as_u16(), detail };
    let mut response = Response::new(Body::whole(serde_json::to_vec(&text).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response.extensions_mut().insert(OwnResponse);
    response
}
