//! The provider: a process of its own that answers each request 201, after a fixed time, with the body that it was sent.
//! It counts how often each key came, and how long its answers took.
//!
//! HTTP/1.1 with connections that stay open, on one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::task::LocalSet;

use super::orders::KEY_HEADER;
use crate::contender::Running;
use crate::failure::{Context as _, Outcome, fail};
use crate::kafka::Port;
use crate::latency::Percentiles;
use crate::live::pace::histogram;
use crate::usage::Usage;

/// How often it checks whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// How long its start may take, and an answer about its figures.
const WAIT: Duration = Duration::from_secs(10);
/// The path of its figures; what is not asked of it is a call.
const FIGURES: &str = "/figures";

/// How to be a provider.
#[derive(Args, Clone, Debug)]
pub struct ProvideArgs {
    /// The port to listen on
    #[arg(long)]
    port: u16,
    /// After how many milliseconds it answers; 0: at once
    #[arg(long)]
    latency_ms: u64,
}

/// What a provider has done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// How many requests came.
    pub requests: u64,
    /// How many keys they had.
    pub keys: u64,
    /// How long answers took since the figures were asked for last, in microseconds: from the request's head to the
    /// answer.
    pub took_us: Percentiles,
}

struct Books {
    requests: u64,
    keys: HashMap<u128, u32>,
    took_us: Histogram<u64>,
}

/// Answers until `stop`.
pub fn run(args: &ProvideArgs, stop: &AtomicBool) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let latency = Duration::from_millis(args.latency_ms);
    LocalSet::new().block_on(&runtime, async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port)).await.context("listening")?;
        let books = Rc::new(RefCell::new(Books { requests: 0, keys: HashMap::new(), took_us: histogram() }));
        while !stop.load(Ordering::Relaxed) {
            let Ok(accepted) = tokio::time::timeout(LOOK, listener.accept()).await else { continue };
            let (stream, _) = accepted?;
            stream.set_nodelay(true)?;
            let books = Rc::clone(&books);
            let answer = service_fn(move |request| answer(Rc::clone(&books), request, latency));
            // A client that goes away gets no answer.
            tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
        Ok(())
    })
}

async fn answer(
    books: Rc<RefCell<Books>>,
    request: Request<Incoming>,
    latency: Duration,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let began = Instant::now();
    if request.uri().path() == FIGURES {
        return Ok(Response::new(Full::new(books.borrow_mut().figures().into())));
    }
    // The end of a key that ratchet makes, or of a number, tells it from all others.
    let key = request.headers().get(KEY_HEADER).and_then(|key| key.to_str().ok());
    let key = key.and_then(|key| u128::from_str_radix(key.get(key.len().saturating_sub(32)..)?, 16).ok());
    let body = request.into_body().collect().await?.to_bytes();
    // Even a sleep that is over takes until the timer's next millisecond.
    if latency > Duration::ZERO {
        tokio::time::sleep_until((began + latency).into()).await;
    }
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = if key.is_some() { 201 } else { 400 }.try_into().unwrap_or_default();
    let books = &mut *books.borrow_mut();
    books.requests += 1;
    *books.keys.entry(key.unwrap_or_default()).or_default() += 1;
    books.took_us.saturating_record(began.elapsed().as_micros() as u64);
    Ok(response)
}

impl Books {
    fn figures(&mut self) -> Vec<u8> {
        let (requests, keys) = (self.requests, self.keys.len() as u64);
        let figures = Figures { requests, keys, took_us: Percentiles::of(&self.took_us) };
        self.took_us.reset();
        serde_json::to_vec(&figures).unwrap_or_default()
    }
}

/// A running provider. Dropping it kills it.
pub struct Provider {
    running: Running,
    port: Port,
}

impl Provider {
    /// Starts one that answers after so many milliseconds, or at once; its log is in the folder.
    pub fn start(folder: &Path, name: &str, latency_ms: u64) -> Outcome<Provider> {
        let port = Port::free();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["provide", "--port", &port.to_string(), "--latency-ms", &latency_ms.to_string()]);
        let log = folder.join(format!("{name}-provider.log"));
        let mut provider = Provider { running: Running::start("the provider", command, log)?, port };
        let deadline = Instant::now() + WAIT;
        while provider.figures().is_err() {
            provider.running.check()?;
            if Instant::now() > deadline {
                return Err(provider.running.failure("does not answer"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(provider)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The address of calls.
    pub fn url(&self) -> String {
        format!("http://{}/charges", self.address())
    }

    /// The resources that it has used.
    pub fn usage(&self) -> Usage {
        self.running.usage()
    }

    /// What it has done; the times are those since the last question.
    pub fn figures(&self) -> Outcome<Figures> {
        let mut stream = TcpStream::connect_timeout(&self.address(), WAIT)?;
        stream.set_read_timeout(Some(WAIT))?;
        write!(stream, "GET {FIGURES} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
        Ok(serde_json::from_str(body)?)
    }

    /// Fails unless it was called once for each of so many orders.
    pub fn check(&self, orders: u64) -> Outcome<()> {
        let Figures { requests, keys, .. } = self.figures()?;
        if (requests, keys) != (orders, orders) {
            fail!("{requests} calls with {keys} keys were made for {orders} orders");
        }
        Ok(())
    }
}
