//! The status of a gRPC response. Its HTTP status is always 200: whether the call succeeded is in `grpc-status`, among
//! the trailers, or among the headers if there is no body.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The headers in which a gRPC response without a body has its status: without them a replay would not be a gRPC
/// response.
pub(super) static HEADERS: [HeaderName; 3] =
    [STATUS, HeaderName::from_static("grpc-message"), HeaderName::from_static("grpc-status-details-bin")];

/// The HTTP status that corresponds to `grpc-status` among these headers or trailers; `None` without `grpc-status`, or
/// if the call succeeded. A call that was cancelled, or whose status is unknown, may have done something: it counts as
/// a failure of the service.
pub(super) fn status(headers: &HeaderMap) -> Option<StatusCode> {
    Some(match headers.get(STATUS).map(HeaderValue::as_bytes)? {
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
