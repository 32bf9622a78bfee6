//! The demo's payment provider: it does what it is asked for, and answers late, or with a failure, or not at all.
//!
//! It honours keys as Stripe does: what is asked for again under a key is not done again, and gets the first answer. Its
//! books outlive it, as a database does. What it is asked for is told by the address: `/charges` with an order in the body,
//! or `/STEP/p-NUMBER`.

use std::collections::{BTreeMap, HashMap};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

use super::Outcome;

/// How long it takes to answer once it has booked.
const LATE: Duration = Duration::from_millis(30);
/// Of so many requests one fails at first, and one is booked at first without an answer.
const TROUBLE_EVERY: u64 = 10;

/// How often each was done, by its number.
pub type Counts = BTreeMap<u64, u32>;

/// What it remembers.
#[derive(Default)]
pub struct Books {
    /// The first answer under each key.
    keys: HashMap<String, String>,
    /// What was done: each kind of request, and how often for each number.
    done: HashMap<String, Counts>,
    /// How often each was asked for.
    asked: HashMap<(String, u64), u32>,
    pub requests: u64,
    /// Requests that are booked and not answered yet.
    pub unanswered: u64,
    /// Requests that are booked, and whose connection has ended before the answer.
    broken: u64,
    pub failures: u64,
    pub lost: u64,
}

/// What becomes of a request.
enum Reply {
    Answer(u16, String),
    /// The connection breaks.
    Nothing,
}

impl Books {
    /// How often each was done, of this kind of request.
    pub fn done(&self, kind: &str) -> Counts {
        self.done.get(kind).cloned().unwrap_or_default()
    }

    /// How often this was asked for.
    pub fn asked(&self, kind: &str, number: u64) -> u32 {
        self.asked.get(&(kind.to_owned(), number)).copied().unwrap_or_default()
    }

    /// Books what a request asks for.
    fn book(&mut self, key: &str, kind: &str, number: u64) -> Reply {
        self.requests += 1;
        let asked = self.asked.entry((kind.to_owned(), number)).or_default();
        *asked += 1;
        let is_first = *asked == 1;
        if is_first && number % TROUBLE_EVERY == 3 {
            self.failures += 1;
            return Reply::Answer(500, "{}".to_owned());
        }
        let done = self.done.entry(kind.to_owned()).or_default();
        let answer = self.keys.entry(key.to_owned()).or_insert_with(|| {
            *done.entry(number).or_default() += 1;
            receipt(kind, number)
        });
        if is_first && number % TROUBLE_EVERY == 7 {
            self.lost += 1;
            return Reply::Nothing;
        }
        Reply::Answer(201, answer.clone())
    }
}

/// What it answers once this is done.
pub fn receipt(kind: &str, number: u64) -> String {
    format!(r#"{{"{kind}":"{}_{number:04}"}}"#, &kind[..2])
}

/// A provider on a thread of its own.
pub struct Provider {
    books: Arc<Mutex<Books>>,
    pub port: u16,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Provider {
    pub fn start() -> Outcome<Provider> {
        let mut provider = Provider { books: Arc::default(), port: 0, server: None };
        provider.rise()?;
        Ok(provider)
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        locked(&self.books)
    }

    /// Dies: connections break, and nothing listens any more. Returns how many requests were booked and not answered.
    pub fn die(&mut self) -> u64 {
        let broken = self.books().broken;
        if let Some((stop, thread)) = self.server.take() {
            drop(stop);
            // It ends by itself, once it is told to.
            let _ = thread.join();
        }
        self.books().broken - broken
    }

    /// Starts, on the port that it has had.
    pub fn rise(&mut self) -> Outcome<()> {
        let listener = TcpListener::bind(("127.0.0.1", self.port))?;
        listener.set_nonblocking(true)?;
        self.port = listener.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (books, (stop, stopped)) = (Arc::clone(&self.books), oneshot::channel::<()>());
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(&books, listener) => {}
                }
            });
        });
        self.server = Some((stop, thread));
        Ok(())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.die();
    }
}

fn locked(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves connections until there can be no more; nobody waits for it then, and the demo says so.
async fn accept(books: &Arc<Mutex<Books>>, listener: TcpListener) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let books = Arc::clone(books);
        let service = hyper::service::service_fn(move |request| answer(Arc::clone(&books), request));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// A request that is booked. It is dropped with its connection, if that ends first.
struct Booked {
    books: Arc<Mutex<Books>>,
    is_answered: bool,
}

impl Drop for Booked {
    fn drop(&mut self) {
        let mut books = locked(&self.books);
        books.unanswered -= 1;
        books.broken += u64::from(!self.is_answered);
    }
}

async fn answer(books: Arc<Mutex<Books>>, request: Request<Incoming>) -> Served<Response<Full<Bytes>>> {
    let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let (kind, number) = match path.split_once("/p-") {
        Some((step, number)) => (step, number.parse()?),
        None => {
            let asked: serde_json::Value = serde_json::from_slice(&body)?;
            (path.as_str(), asked["order"].as_u64().ok_or("a charge has no order")?)
        }
    };
    let mut booked = Booked { books, is_answered: false };
    let reply = {
        let mut books = locked(&booked.books);
        books.unanswered += 1;
        books.book(&key, kind, number)
    };
    tokio::time::sleep(LATE).await;
    booked.is_answered = true;
    match reply {
        Reply::Answer(status, text) => Ok(Response::builder().status(status).body(Full::from(text))?),
        Reply::Nothing => Err("it breaks the connection".into()),
    }
}

/// Errors that end a connection.
type Served<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
