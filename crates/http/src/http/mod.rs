//! Idempotent HTTP requests: a client that repeats a request gets the first response, and the service behind is not run
//! again.
//!
//! [`Idempotency`] is a [tower](https://docs.rs/tower) layer, for axum or any other service; `ratchet proxy` is the
//! same in front of a service in any language. A client gives each request a key, in the header `Idempotency-Key`, and
//! repeats the request with the same key. The layer reserves the key before the service is run, and remembers the
//! response before the client gets it.
//!
//! ```no_run
//! # extern crate ratchet_http as ratchet;
//! use axum::{Router, routing::post};
//! use ratchet::http::{Idempotency, Requests};
//!
//! # async fn charge() -> &'static str { "charged" }
//! # fn app() -> Result<Router, Box<dyn std::error::Error>> {
//! let idempotency = Idempotency::new(Requests::open("requests".as_ref())?).required(true);
//! let app = Router::new().route("/charges", post(charge)).layer(idempotency.clone());
//! # Ok(app) }
//! ```
//!
//! [`Requests`] keeps responses in a folder that one process uses. The stores that several processes share, in
//! PostgreSQL and in Redis, are in the modules of these servers' other drivers, each with an example.
//!
//! | a request | is answered |
//! |---|---|
//! | by `GET`, `HEAD`, `OPTIONS`, `TRACE` or `CONNECT`, or without a key | by the service: the layer does not look at it |
//! | without a key, where one is [required](Idempotency::required) | 400 |
//! | with an invalid key | 400 |
//! | under a key, without a caller where one is required ([`caller_required`](Idempotency::caller_required)) | 400 |
//! | the first one under its key | by the service |
//! | again, after that | as the first one was, with the header `Idempotent-Replayed: true` |
//! | again, while the first one is at work | 409 and `Retry-After`, or after a [wait](Idempotency::wait) as the first one |
//! | under a key that belongs to another request | 422, whether that request is done or not |
//! | while the store is down | 503, and the service is not run |
//! | while a bound is reached ([requests](Idempotency::at_work_max), [bodies](Idempotency::bodies_bytes_max)) | 503, and the service is not run |
//!
//! The service's response is remembered, whether it is a success or a client error. A response of 401, 425 or 429 is
//! not: the request is released, and the next one is carried out. The same goes for the statuses that are
//! [listed](Idempotency::released). After a response of 408, or of 500 or more, the next one is carried out as well,
//! unless requests must not run twice: then the request is [in doubt](Idempotency::on_in_doubt). While the service
//! carries a request out, the layer holds a reservation, with a token and a lease, which it extends. If its process is
//! frozen for longer than the lease and another process takes over, the store refuses the late response.
//!
//! **What is promised.** While the store keeps its data, a request under a key is not carried out again once it was
//! answered, and not by two processes at once as long as each extends its lease. After a crash while the service is at
//! work, nobody knows whether the request was carried out: the next one is carried out (at least once), or
//! [refused](Idempotency::on_in_doubt) (at most once). The same goes for a process that is frozen, for longer than its
//! lease, between its reservation and the service's start. Exactly once needs the service's own transaction:
//! docs/http-idempotency.md.
//!
//! **Failure.** If a response cannot be remembered, the client still gets it: it is what the service has answered. An
//! error is logged, and a repeated request is in doubt.

mod at_work;
mod body;
mod detached;
mod fingerprints;
mod grpc;
mod key;
mod layer;
mod log_limit;
mod outcome;
mod problem;
mod remembering;
mod serve;
mod settings;
mod shares;
mod time;
mod work;

pub use body::{Body, BodyError};
pub use layer::{Guard, Idempotency};
pub use outcome::{GivenUp, MayHaveRun, NotRun, Outcome, OwnResponse};
pub use settings::OnStoreDown;
pub use shares::Peer;
pub use time::Surroundings;

/// What the proxy needs in addition.
#[doc(hidden)]
pub mod proxying {
    pub use super::log_limit::LogLimit;
    pub use super::outcome::RecordedByHand;
    pub use super::problem::INSTANCE_PREFIX;
    pub use super::remembering::{done_answer, dropped_answer};
    pub use super::settings::{
        AT_WORK_MAX, BODIES_BYTES_MAX, BODY_BYTES_MAX, GRACE, LEASE, RETENTION, is_failure, may_be_released,
    };
    pub use super::shares::{Full, Limit, Share, Shares};
    pub use super::work::is_stream;
}

pub use crate::request::{self, OnInDoubt, Store};
#[cfg(feature = "folder")]
pub use crate::requests::Requests;
