//! The clients: connections that stay open, on one thread of the harness, each with one request under way at most.
//!
//! Either each connection sends the next request once it has the answer to the last one, or requests are due at a constant
//! rate, whatever becomes of those before: then a latency is from when a request was due.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, LocalSet, spawn_local};

use super::BODY_BYTES;
use crate::calls::orders::KEY_HEADER;
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::live::pace::{Clock, histogram};
use crate::random::mix;

/// Connections.
pub const CONNECTIONS: usize = 64;
/// How long an answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// The header of an answer that was given before.
const REPLAYED: &str = "idempotent-replayed";

/// What clients do.
#[derive(Clone, Debug)]
pub struct Load {
    /// Whom they ask.
    pub address: SocketAddr,
    /// Requests a second; `None`: as many as there are answers.
    pub rate: Option<u64>,
    /// Whether each request is sent again once it is answered. Then latencies are those of the second answers.
    pub repeats: bool,
    /// The number of the next key, counted on.
    pub keys: Arc<AtomicU64>,
}

/// Running clients. Dropping this stops them.
pub struct Clients {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Outcome<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Whether latencies are recorded.
    records: AtomicBool,
    answered: AtomicU64,
    took: std::sync::Mutex<Option<Took>>,
}

/// How long things took, in microseconds.
pub struct Took {
    /// Answers.
    pub answers_us: Histogram<u64>,
    /// How late requests were begun that were due.
    pub lateness_us: Histogram<u64>,
}

impl Clients {
    /// Starts them.
    pub fn start(load: Load) -> Clients {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let ran = run(load, Arc::clone(&theirs));
            // Those that wait for them have to hear of it.
            theirs.stop.store(true, Ordering::Relaxed);
            ran
        });
        Clients { shared, thread: Some(thread) }
    }

    /// Answers so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Whether latencies are recorded from now on.
    pub fn record(&self, records: bool) {
        self.shared.records.store(records, Ordering::Relaxed);
    }

    /// Waits, unless the clients fail.
    pub fn pass(&self, length: Duration) -> Outcome<()> {
        std::thread::sleep(length);
        match self.shared.stop.load(Ordering::Relaxed) {
            true => Err(Failure("the clients have stopped".to_owned())),
            false => Ok(()),
        }
    }

    /// Lets them wait for the answers that are left, and stops them.
    pub fn stop(mut self) -> Outcome<Took> {
        self.end()?;
        let took = self.shared.took.lock().map_err(|_| died())?.take();
        took.ok_or_else(died)
    }

    fn end(&mut self) -> Outcome<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.transpose().map_err(|_| died())?.unwrap_or(Ok(()))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            eprintln!("{failure}");
        }
    }
}

fn died() -> Failure {
    Failure("the clients died".to_owned())
}

/// What all connections share.
struct Lane {
    load: Load,
    shared: Arc<Shared>,
    clock: Clock,
    /// When requests are due; held by the connection that waits for the next one.
    due: tokio::sync::Mutex<UnboundedReceiver<u64>>,
    answers_us: RefCell<Histogram<u64>>,
}

fn run(load: Load, shared: Arc<Shared>) -> Outcome<()> {
    let (clock, rate) = (Clock::start(), load.rate);
    let (sender, due) = unbounded_channel();
    let theirs = Arc::clone(&shared);
    let pacing = std::thread::spawn(move || pace(rate, &theirs, clock, &sender));
    let (due, answers_us) = (tokio::sync::Mutex::new(due), RefCell::new(histogram()));
    let lane = Rc::new(Lane { load, shared, clock, due, answers_us });
    let asked = ask(&lane);
    // So that nobody paces for nobody.
    lane.shared.stop.store(true, Ordering::Relaxed);
    let lateness_us = pacing.join().map_err(|_| died())?;
    asked?;
    let answers_us = lane.answers_us.replace(histogram());
    *lane.shared.took.lock().map_err(|_| died())? = Some(Took { answers_us, lateness_us });
    Ok(())
}

/// Says when each request is due, from a thread of its own: the runtime's timer knows whole milliseconds only. Returns how
/// late it was.
fn pace(rate: Option<u64>, shared: &Shared, clock: Clock, sender: &UnboundedSender<u64>) -> Histogram<u64> {
    let (mut lateness_us, began_us) = (histogram(), clock.now_us());
    let Some(rate) = rate else { return lateness_us };
    for number in 0.. {
        let due_us = began_us + number * 1_000_000 / rate;
        clock.sleep_until(due_us);
        if shared.stop.load(Ordering::Relaxed) || sender.send(due_us).is_err() {
            break;
        }
        if shared.records.load(Ordering::Relaxed) {
            lateness_us.saturating_record(clock.now_us().saturating_sub(due_us));
        }
    }
    lateness_us
}

/// Has all connections ask until they are to stop, or one of them fails.
fn ask(lane: &Rc<Lane>) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut connections = JoinSet::new();
        (0..CONNECTIONS).for_each(|_| drop(connections.spawn_local(connection(Rc::clone(lane)))));
        while let Some(ended) = connections.join_next().await {
            ended.context("a client")??;
        }
        Ok(())
    })
}

/// Asks on one connection, a request after the other.
async fn connection(lane: Rc<Lane>) -> Outcome<()> {
    let mut connection = connect(&lane).await?;
    while let Some(due_us) = lane.next().await {
        let key = lane.load.keys.fetch_add(1, Ordering::Relaxed);
        request(&lane, &mut connection, key, false).await?;
        if !lane.load.repeats {
            lane.answered(due_us);
            continue;
        }
        lane.shared.answered.fetch_add(1, Ordering::Relaxed);
        let Some(due_us) = lane.next().await else { break };
        request(&lane, &mut connection, key, true).await?;
        lane.answered(due_us);
    }
    Ok(())
}

impl Lane {
    /// Waits for the next request; when it is due. `None`: there is none any more.
    async fn next(&self) -> Option<u64> {
        let due_us = match self.load.rate {
            Some(_) => self.due.lock().await.recv().await?,
            None => self.clock.now_us(),
        };
        (!self.shared.stop.load(Ordering::Relaxed)).then_some(due_us)
    }

    fn answered(&self, due_us: u64) {
        self.shared.answered.fetch_add(1, Ordering::Relaxed);
        if self.shared.records.load(Ordering::Relaxed) {
            self.answers_us.borrow_mut().saturating_record(self.clock.now_us().saturating_sub(due_us));
        }
    }
}

async fn connect(lane: &Lane) -> Outcome<SendRequest<Full<Bytes>>> {
    let stream = tokio::net::TcpStream::connect(lane.load.address).await.context("connecting")?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.context("HTTP")?;
    spawn_local(connection);
    Ok(sender)
}

/// Sends a request under the key of this number. Fails unless it is answered with what it has brought, as the first or as
/// a repeated one.
async fn request(lane: &Lane, connection: &mut SendRequest<Full<Bytes>>, key: u64, is_repeated: bool) -> Outcome<()> {
    let body = Bytes::from(body(key));
    let request = Request::post("/charges")
        .header(HOST, lane.load.address.to_string())
        .header(CONTENT_TYPE, "application/json")
        .header(KEY_HEADER, format!("{:016x}{:016x}", mix(key), mix(!key)))
        .body(Full::new(body.clone()))
        .context("a request")?;
    let asked = async {
        connection.ready().await.context("a connection")?;
        let answer = connection.send_request(request).await.context("a request")?;
        let (status, replayed) = (answer.status().as_u16(), answer.headers().contains_key(REPLAYED));
        let given = answer.into_body().collect().await.context("an answer")?.to_bytes();
        if (status, replayed) != (201, is_repeated) || given != body {
            let given = String::from_utf8_lossy(&given);
            fail!("a request was answered {status}, replayed: {replayed}, repeated: {is_repeated}: {given}");
        }
        Ok(())
    };
    tokio::time::timeout(ANSWER_WAIT, asked).await.context("an answer")?
}

/// A request's body.
fn body(key: u64) -> Vec<u8> {
    let mut body = format!(r#"{{"order":{key},"customer":{},"currency":"EUR","note":""#, mix(key) % 1_000_000);
    body.extend(std::iter::repeat_n('x', BODY_BYTES.saturating_sub(body.len() + 2)));
    body.push_str("\"}");
    body.into_bytes()
}
