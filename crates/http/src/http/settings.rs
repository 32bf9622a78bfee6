//! The layer's settings. Each field is set, and explained, by the method of its name on
//! [`Idempotency`](super::Idempotency).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};

use crate::request::OnInDoubt;

/// How long responses are remembered by default.
pub const RETENTION: Duration = Duration::from_secs(24 * 3_600);
/// How long the holder of a reservation may be silent before another may take over, by default.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long a request stays reserved after the call to its service was abandoned, by default.
pub const GRACE: Duration = Duration::from_secs(60);
/// The largest body of a request, and of a response that is remembered, by default.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// How many requests may be at work at once, by default.
pub const AT_WORK_MAX: usize = 1_024;
/// How many bytes the bodies of all requests at work, and of their responses, may have together, by default.
pub const BODIES_BYTES_MAX: usize = 256 << 20;

/// Finds out who the caller is from a request's head.
pub(super) type Caller = Arc<dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync>;

/// What to do with a request while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreDown {
    /// It is refused with 503, and the service is not run.
    #[default]
    Refuse,
    /// The service is run: a repeated request is carried out again.
    Pass,
}

/// The layer's settings.
#[derive(Clone)]
pub(super) struct Settings {
    pub scope: String,
    /// Whether a key belongs to one host.
    pub by_host: bool,
    pub header: HeaderName,
    pub required: bool,
    pub caller: Caller,
    /// The header that says who the caller is, if a header does.
    pub caller_header: Option<HeaderName>,
    /// Whether a request under a key must say who its caller is.
    pub caller_required: bool,
    pub fingerprint_headers: Vec<HeaderName>,
    pub fingerprint_except: Vec<Vec<String>>,
    pub remembered_headers: Vec<HeaderName>,
    pub reservation_header: Option<HeaderName>,
    pub retention: Duration,
    pub lease: Duration,
    pub grace: Duration,
    pub wait: Duration,
    pub store_wait: Duration,
    pub request_bytes_max: usize,
    pub answer_bytes_max: usize,
    pub at_work_max: usize,
    pub bodies_bytes_max: usize,
    pub on_store_down: OnStoreDown,
    pub on_in_doubt: OnInDoubt,
    /// Statuses with which the service says that it has done nothing.
    pub released: Vec<StatusCode>,
}

/// What happens to a request after the service has responded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Its response is remembered.
    Remembered,
    /// It is forgotten: the next request under its key is carried out.
    Released,
    /// The service has failed, perhaps after it had done something.
    InDoubt,
}

/// Whether a list of statuses after which requests are released may contain this one: only client and server errors are
/// allowed.
pub fn may_be_released(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Whether this status says that the service has failed, but not whether it had done something before.
pub fn is_failure(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scope: String::new(),
            by_host: false,
            header: HeaderName::from_static("idempotency-key"),
            required: false,
            caller: by_header(header::AUTHORIZATION),
            caller_header: Some(header::AUTHORIZATION),
            caller_required: false,
            fingerprint_headers: Vec::new(),
            fingerprint_except: Vec::new(),
            remembered_headers: vec![
                header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
                header::ACCESS_CONTROL_ALLOW_ORIGIN,
                header::ACCESS_CONTROL_EXPOSE_HEADERS,
                header::CONTENT_TYPE,
                header::CONTENT_ENCODING,
                header::CONTENT_LANGUAGE,
                header::ETAG,
                header::LINK,
                header::LOCATION,
            ],
            reservation_header: None,
            retention: RETENTION,
            lease: LEASE,
            grace: GRACE,
            wait: Duration::ZERO,
            store_wait: Duration::from_secs(5),
            request_bytes_max: BODY_BYTES_MAX,
            answer_bytes_max: BODY_BYTES_MAX,
            at_work_max: AT_WORK_MAX,
            bodies_bytes_max: BODIES_BYTES_MAX,
            on_store_down: OnStoreDown::default(),
            on_in_doubt: OnInDoubt::default(),
            released: Vec::new(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("header", &self.header)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Whether a request by this method may change something; other requests pass through, even with a key.
    pub fn guards(&self, method: &Method) -> bool {
        !method.is_safe() && *method != Method::CONNECT
    }

    /// Whether a required caller is missing. A caller that consists only of whitespace counts as missing.
    pub fn lacks_caller(&self, caller: Option<&[u8]>) -> bool {
        self.caller_required && caller.is_none_or(|caller| caller.trim_ascii().is_empty())
    }

    /// What happens to a request after a response of this status. Some statuses say that nothing was done yet, and ask
    /// for the same request again. Others say that the service has failed: it may have done its work before that, so
    /// the request is in doubt if nothing may run twice. The same goes for an informational status, which is no answer.
    pub fn disposition(&self, status: StatusCode) -> Disposition {
        const NOT_YET: [StatusCode; 3] =
            [StatusCode::UNAUTHORIZED, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
        if NOT_YET.contains(&status) || may_be_released(status) && self.released.contains(&status) {
            return Disposition::Released;
        }
        if !is_failure(status) && !status.is_informational() {
            return Disposition::Remembered;
        }
        match self.on_in_doubt {
            OnInDoubt::Refuse => Disposition::InDoubt,
            OnInDoubt::Run => Disposition::Released,
        }
    }
}

/// Requests with the same values of a header come from one caller; all requests without the header share another
/// caller.
pub(super) fn by_header(name: HeaderName) -> Caller {
    Arc::new(move |parts| {
        let values: Vec<&[u8]> = parts.headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        // No header value contains a newline.
        (!values.is_empty()).then(|| values.join(&b'\n'))
    })
}
