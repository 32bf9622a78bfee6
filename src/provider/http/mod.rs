//! The driver for providers that speak HTTP.
//!
//! - [`Http`] is the [`Provider`], made of [`Settings`] (`settings`). Each lane, a thread that processes records, has
//!   another thread, `calls-<n>`, with a small runtime, which makes the queued calls while the lane commits.
//! - `attempt` makes one attempt of a call: `message` is the request, `response` reads the response.
//! - `pool` keeps connections and hands them out in order; `connect` makes them: names, TCP (`socket`), proxies, TLS
//!   (`tls`).
//!
//! **What is certain.** An attempt is [`NotSent`](crate::effect::call::AttemptOutcome::NotSent) if it failed before its
//! request was given to a connection (in name lookup, TCP, TLS or a proxy's CONNECT), or if the connection gave the
//! request back before writing any of it. Any later failure without a status is
//! [`Lost`](crate::effect::call::AttemptOutcome::Lost), including a pooled connection that dies while a request is
//! written. No request that was written is sent again here.
//!
//! Nothing awaits between the last check of the key's window, in which the provider honours the key, and the hand-over
//! to a connection. HTTP/2 could hold a request back within a connection, until the other side allows another stream;
//! so the driver counts the streams itself, and opens another connection instead. An attempt that has timed out is not
//! written any further: its stream or its connection is reset, and the operating system discards what it has not sent.
//!
//! **Responses.** A status counts as soon as it arrives, whatever happens to the body: a 2xx whose body was cut off is
//! done, without a body. A body is read for as long as the attempt may take. It is kept if it has at most
//! [`Settings::body_bytes_max`] bytes; a longer one is only hashed, up to [`HASHED_MAX`], and beyond that the
//! connection is dropped. Redirects are not followed: they are responses like any other. There are no cookies, and
//! nothing is decompressed: no encoding is requested.
//!
//! **Failure.** A panic ends the thread: requests that were written are lost, the others are not sent, and the next
//! request starts another thread. No message contains a path, a query, a header, a body or a user of an address.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::job::Job;
use super::lane::Lane;
use super::thread::{self, Tasks};
use crate::effect::provider::{Calls, Provider};
use crate::effect::{Error, ErrorKind};

mod attempt;
mod clock;
mod connect;
mod message;
mod pool;
mod response;
mod settings;
mod socket;
mod tls;

pub use clock::{WallClock, system_clock};
pub use connect::dial;
pub use settings::{HASHED_MAX, Settings, is_reserved_header};

use pool::Pool;
use settings::Shared;

/// How often idle connections are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How many names are looked up at once, each on a thread.
const LOOK_UPS_MAX: usize = 4;

/// A provider that speaks HTTP.
///
/// Proxies are taken from the usual environment variables (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`, or in
/// lower case) when the provider is made.
#[derive(Clone)]
pub struct Http {
    shared: Arc<Shared>,
}

impl Http {
    /// A provider with these settings. Connects to nothing and opens no file.
    ///
    /// # Errors
    /// Invalid settings, as [`ErrorKind::Permanent`].
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Self::with_clock(settings, system_clock())
    }

    /// A provider with these settings and another wall clock.
    ///
    /// # Errors
    /// As [`Http::new`].
    pub fn with_clock(settings: Settings, clock: WallClock) -> Result<Self, Error> {
        let shared = Shared::new(settings, clock).map_err(|message| Error { kind: ErrorKind::Permanent, message })?;
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("method", &self.shared.method).finish_non_exhaustive()
    }
}

impl Provider for Http {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn calls(&self) -> Box<dyn Calls> {
        let shared = Arc::clone(&self.shared);
        Box::new(Lane::new(Arc::new(move |jobs, stopped| {
            thread::run(LOOK_UPS_MAX, stopped, |tasks| make_calls(Arc::clone(&shared), jobs, tasks));
        })))
    }
}

/// Makes the calls of a lane, on the thread for these calls. A job is a request on that thread.
async fn make_calls(shared: Arc<Shared>, jobs: mpsc::UnboundedReceiver<Job>, tasks: Tasks) {
    let bounds = (shared.in_flight, shared.rate);
    let pool = Rc::new(Pool::new(shared, tasks.clone()));
    tasks.start(Rc::clone(&pool).sweep(SWEEP_INTERVAL));
    thread::start_in_order(jobs, bounds, |job, permit| {
        tasks.start(attempt::run_attempt(Rc::clone(&pool), job, permit))
    })
    .await;
}
