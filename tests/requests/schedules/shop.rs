//! The service behind the layer: each run of it notes itself.

use std::panic;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::LOCATION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use ratchet::http::request::Reservation;
use ratchet::http::{Body, GivenUp, MayHaveRun};
use tower_service::Service;

use super::ledger::{Book, End, Run};
use super::world::World;

/// Of a longer answer its digest is remembered.
pub const ANSWER_BYTES_MAX: usize = 100;

/// How long a request stays reserved whose service is given up; and how long such a service goes on at most: a clock that
/// is set forth while nobody is silent may end what is reserved up to two seconds sooner.
pub const GRACE: Duration = Duration::from_secs(6);
const GOES_ON_MS: u64 = 4_000;
/// By this status it says that it has done nothing.
pub const DECLINES: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// The service: each run notes itself.
#[derive(Clone)]
pub struct Shop {
    pub world: World,
    pub book: Book,
    pub process: usize,
}

impl Service<Request<Body>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Shop { world, book, process } = self.clone();
        let key = request.headers()["idempotency-key"].to_str().expect("text").parse().expect("a number");
        let is_reserved = request.extensions().get::<Reservation>().is_some();
        Box::pin(async move {
            let number = {
                let mut book = book.lock().expect("no panic");
                let number = book.runs.len();
                let begun = world.now();
                book.runs.push(Run { number, key, process, is_reserved, is_large: false, begun, ended: None });
                number
            };
            let mut noted = Noted {
                world: world.clone(),
                book,
                number,
                is_large: false,
                end: End::Killed,
                goes_on: Duration::ZERO,
            };
            let length = if world.chance(200) { world.up_to_ms(8_000) } else { world.up_to_ms(300) };
            world.sleep(process, length).await;
            let fate = world.below(100);
            noted.end = match fate {
                0..8 => End::Failed,
                8..12 => End::Declined,
                12..18 => End::Unknown,
                18..24 => End::GivenUp,
                _ => End::Answered,
            };
            if fate == 12 {
                // Without a word on the screen.
                panic::resume_unwind(Box::new("the service panics"));
            }
            let is_large = world.chance(200);
            noted.is_large = is_large;
            let length = if is_large { ANSWER_BYTES_MAX + 1 } else { 1 };
            let mut answer = Response::new(Full::new(Bytes::from(vec![b'x'; length])));
            answer.headers_mut().insert(LOCATION, HeaderValue::from(number));
            match noted.end {
                End::Failed => *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
                End::Declined => *answer.status_mut() = DECLINES,
                End::Unknown => {
                    *answer.status_mut() = StatusCode::BAD_GATEWAY;
                    answer.extensions_mut().insert(MayHaveRun);
                }
                End::GivenUp => {
                    noted.goes_on = world.up_to_ms(GOES_ON_MS);
                    *answer.status_mut() = StatusCode::GATEWAY_TIMEOUT;
                    answer.extensions_mut().insert(GivenUp);
                }
                End::Answered | End::Killed => {}
            }
            Ok(answer)
        })
    }
}

/// Notes how a run has ended, also if it is dropped.
struct Noted {
    world: World,
    book: Book,
    number: usize,
    is_large: bool,
    end: End,
    /// How long it is at work after that.
    goes_on: Duration,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let now = self.world.now();
        if let Ok(mut book) = self.book.lock() {
            let run = &mut book.runs[self.number];
            (run.is_large, run.ended) = (self.is_large, Some((now + self.goes_on, self.end)));
        }
    }
}
