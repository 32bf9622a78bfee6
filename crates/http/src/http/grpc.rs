//! What an answer of gRPC says of its call. Its HTTP status is 200 whatever has happened: `grpc-status` says what,
//! among its trailers, or among its headers where it has no body.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The headers of an answer without a body and trailers: without them it is not an answer of gRPC.
pub(super) static HEADERS: [HeaderName; 3] =
    [STATUS, HeaderName::from_static("grpc-message"), HeaderName::from_static("grpc-status-details-bin")];

/// The status of HTTP that says the same as `grpc-status`, if that is there and no success. A call that was cancelled, or whose
/// status is not known, may have done something: it counts as a failure of the service.
pub(super) fn status(said: &HeaderMap) -> Option<StatusCode> {
    Some(match said.get(STATUS).map(HeaderValue::as_bytes)? {
        b"0" => return None,
        b"3" | b"9" | b"11" => StatusCode::BAD_REQUEST,
        b"4" => StatusCode::GATEWAY_TIMEOUT,
        b"5" => StatusCode::NOT_FOUND,
        b"6" | b"10" => StatusCode::CONFLICT,
        b"7" => StatusCode::FORBIDDEN,
        b"8" => StatusCode::TOO_MANY_REQUESTS,
        b"12" => StatusCode::NOT_IMPLEMENTED,
        b"14" => StatusCode::SERVICE_UNAVAILABLE,
        b"16" => StatusCode::UNAUTHORIZED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    })
}
