//! What the proxy answers by itself: problems, as `application/problem+json` (RFC 9457).

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::upstream::Failure;
use crate::http::{Body, MayHaveRun, Outcome};

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

/// The answer to a request that the service gave none to.
pub fn of_failure(failure: &Failure) -> Response<Body> {
    match failure {
        Failure::NotSent(_) => {
            let mut answer = problem(
                StatusCode::BAD_GATEWAY,
                "urn:ratchet:proxy:unreachable",
                "The service cannot be reached",
                "nothing was done; send it again later",
            );
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            answer
        }
        Failure::Lost(_) => may_have_run(problem(
            StatusCode::BAD_GATEWAY,
            "urn:ratchet:proxy:answer-lost",
            "The service's answer was lost",
            "the request may have been carried out; if it has a key, send it again with the same one",
        )),
        Failure::Late => may_have_run(problem(
            StatusCode::GATEWAY_TIMEOUT,
            "urn:ratchet:proxy:answer-late",
            "The service does not answer in time",
            "the request may have been carried out; if it has a key, send it again with the same one",
        )),
    }
}

/// The answer to `CONNECT`.
pub fn no_tunnels() -> Response<Body> {
    let mut answer = problem(
        StatusCode::NOT_IMPLEMENTED,
        "urn:ratchet:proxy:no-tunnels",
        "This is no forward proxy",
        "CONNECT is not taken here",
    );
    answer.extensions_mut().insert(Outcome::Passed);
    answer
}

fn may_have_run(mut answer: Response<Body>) -> Response<Body> {
    answer.extensions_mut().insert(MayHaveRun);
    answer
}

fn problem(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response<Body> {
    let text = Text { r#type: kind, title, status: status.as_u16(), detail };
    let mut answer = Response::new(Body::whole(serde_json::to_vec(&text).unwrap_or_default()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}
