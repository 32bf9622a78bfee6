//! The service behind the layer: it does what a request's headers say, and notes each time that it is run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::any;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;

/// How often it was run, by the test's word for the request.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<HashMap<String, Vec<Run>>>>);

/// What the service was asked for.
#[derive(Clone, Debug)]
pub struct Run {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Runs {
    /// How often it was run for `word`.
    pub fn count(&self, word: &str) -> usize {
        self.of(word).len()
    }

    /// Waits until it was run for `word`.
    pub async fn begun(&self, word: &str) {
        while self.count(word) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What it was run with for `word`.
    pub fn of(&self, word: &str) -> Vec<Run> {
        self.0.lock().expect("no panic").get(word).cloned().unwrap_or_default()
    }
}

/// The service. A request's headers say what it does:
///
/// - `x-word`: under which word its runs are counted
/// - `x-delay-ms`: how long it takes; `x-first-delay-ms`: how long it takes the first time
/// - `x-until`: it answers once it is run for this word
/// - `x-status`: what it answers, or what it answers the first time, second time, ..., with blanks between
/// - `x-bytes`: how large its answer is; otherwise it says which run of the word this is
/// - `x-trailers`: its answer has trailers
/// - `x-breaks-off`: its first answer breaks off after its first piece
/// - `x-panic`: it panics
/// - `x-stream`: it sends one event, and the next one when it is run for the word `next`
pub fn service(runs: &Runs) -> Router {
    Router::new().fallback(any(run)).with_state(runs.clone())
}

async fn run(State(runs): State<Runs>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let text = |name: &str| parts.headers.get(name).map(|value| value.to_str().expect("text").to_owned());
    let number = |name: &str| text(name).map(|text| text.parse::<u64>().expect("a number"));
    let word = text("x-word").unwrap_or_default();
    let run = {
        let mut all = runs.0.lock().expect("no panic");
        let of = all.entry(word.clone()).or_default();
        of.push(Run { headers: parts.headers.clone(), body });
        of.len()
    };
    let delay = number("x-first-delay-ms").filter(|_| run == 1).or(number("x-delay-ms")).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(delay)).await;
    if let Some(until) = text("x-until") {
        runs.begun(&until).await;
    }
    assert!(text("x-panic").is_none(), "the service was told to panic");
    let statuses = text("x-status").unwrap_or_else(|| "200".to_owned());
    let status = statuses.split(' ').nth(run - 1).or_else(|| statuses.split(' ').next_back()).expect("a status");
    let answer = Response::builder()
        .status(StatusCode::from_bytes(status.as_bytes()).expect("a status"))
        .header("content-type", if text("x-stream").is_some() { "text/event-stream" } else { "text/plain" })
        .header("location", format!("/{word}/{run}"))
        .header("set-cookie", "session=secret")
        .header("x-run", run);
    let answer = if text("x-trailers").is_some() { answer.header("trailer", "x-sum") } else { answer };
    let piece = Bytes::from(format!("run {run} of {word}"));
    let body = match number("x-bytes") {
        _ if text("x-trailers").is_some() => in_pieces([Ok(Frame::data(piece)), Ok(Frame::trailers(trailers()))]),
        _ if text("x-breaks-off").is_some() && run == 1 => {
            in_pieces([Ok(Frame::data(piece)), Err(std::io::Error::other("it breaks off"))])
        }
        _ if text("x-stream").is_some() => events(runs),
        Some(bytes) => Body::from(vec![b'x'; bytes as usize]),
        None if status == "204" => Body::empty(),
        None => Body::from(format!("run {run} of {word}")),
    };
    answer.body(body).expect("an answer")
}

fn in_pieces(frames: [Result<Frame<Bytes>, std::io::Error>; 2]) -> Body {
    // The first piece is on its way before the second one is there.
    let frames = futures_util::stream::iter(frames.into_iter().enumerate());
    Body::new(StreamBody::new(futures_util::StreamExt::then(frames, async |(number, frame)| {
        tokio::time::sleep(Duration::from_millis(50 * number as u64)).await;
        frame
    })))
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), http::HeaderValue::from_static("7"))])
}

fn events(runs: Runs) -> Body {
    let (events, mut received) = mpsc::channel::<Bytes>(1);
    tokio::spawn(async move {
        events.send(Bytes::from_static(b"data: first\n\n")).await.expect("somebody listens");
        runs.begun("next").await;
        let _ = events.send(Bytes::from_static(b"data: second\n\n")).await;
    });
    let frames = futures_util::stream::poll_fn(move |context| {
        received
            .poll_recv(context)
            .map(|event| event.map(|event| Ok::<_, std::convert::Infallible>(Frame::data(event))))
    });
    Body::new(StreamBody::new(frames))
}
