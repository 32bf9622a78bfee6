//! A provider of the tests: a real server on a real socket, which counts what it does.
//!
//! It keeps Stripe's rules. A request with a key acts once: the first status is remembered, and replayed with
//! `Idempotent-Replayed: true`; another request under the key is answered 400 and names the key; one that comes while the
//! first is under way is answered 409. Keys are honoured for a while ([`Options::honoured_for`]), then forgotten. What
//! has no key acts each time. A request that acts goes on doing so if its client has gone.
//!
//! What it does is said by [`Move`]s: a key's or a target's own ([`Provider::script`]), else the next of those for anybody
//! ([`Provider::next`]), else the one for always ([`Provider::always`]), which is to act and to answer 201.
//!
//! ```ignore
//! let mut provider = Provider::start();
//! provider.next([Move::answer(500), Move::act().unheard(), Move::answer(429).header("retry-after", "1")]);
//! // … calls to provider.url("/charges") …
//! assert!(provider.acts().values().all(|acts| *acts == 1));
//! provider.kill();
//! provider.restart(); // on the same port; what it has done is not forgotten
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod authority;
mod books;
mod serve;

pub use authority::Authority;
use books::Books;

/// How a provider listens and remembers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The header of keys.
    pub key_header: String,
    /// For how long a key is honoured.
    pub honoured_for: Duration,
    /// Whether it speaks TLS, as `localhost`, with a certificate of [`Authority::shared`].
    pub tls: bool,
    /// Whether it speaks HTTP/2, which it does by TLS only.
    pub two: bool,
    /// How many requests it allows at once on a connection by HTTP/2.
    pub streams: u32,
}

impl Default for Options {
    fn default() -> Self {
        let key_header = "idempotency-key".to_owned();
        Self { key_header, honoured_for: Duration::from_secs(86_400), tls: false, two: false, streams: 250 }
    }
}

/// What is done with one request.
#[derive(Clone, Debug)]
pub struct Move {
    /// Whether it acts, by the rules of keys. The answer of one that does is remembered.
    acts: bool,
    /// How long until it acts; its key is under way then.
    slow: Duration,
    /// How long it waits then until it answers.
    late: Duration,
    then: Then,
}

/// How a request ends.
#[derive(Clone, Debug)]
enum Then {
    Answer(Answer),
    /// This is remembered as the answer, and the connection is closed in its place.
    Unheard(Answer),
    /// The connection is closed, or the stream by HTTP/2 reset.
    Close,
    /// The connection is reset.
    Reset,
    /// Nothing comes, ever.
    Silence,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Plan,
}

/// A body.
#[derive(Clone, Debug)]
pub enum Plan {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes `a`, without saying how many.
    Long(usize),
    /// A byte now and then, for ever.
    Endless,
    /// These bytes of so many that were said; then the connection is closed.
    Cut(Vec<u8>, usize),
    /// A number that no other act has.
    Receipt,
}

impl Move {
    /// Acts, and answers 201.
    pub fn act() -> Self {
        let answer = Answer { status: 201, headers: Vec::new(), body: Plan::Bytes(b"{\"done\":true}".to_vec()) };
        Self { acts: true, slow: Duration::ZERO, late: Duration::ZERO, then: Then::Answer(answer) }
    }

    /// Acts, and answers 201 with a number that no other act has.
    pub fn receipt() -> Self {
        Self::act().body(Plan::Receipt)
    }

    /// Does nothing and answers, as what stands before a provider does. Nothing is remembered.
    pub fn answer(status: u16) -> Self {
        let answer = Answer { status, headers: Vec::new(), body: Plan::Bytes(Vec::new()) };
        Self { acts: false, then: Then::Answer(answer), ..Self::act() }
    }

    /// Does nothing, and never answers.
    pub fn silence() -> Self {
        Self { acts: false, then: Then::Silence, ..Self::act() }
    }

    /// Does nothing, and closes the connection.
    pub fn close() -> Self {
        Self { acts: false, then: Then::Close, ..Self::act() }
    }

    /// Does nothing, and resets the connection.
    pub fn reset() -> Self {
        Self { acts: false, then: Then::Reset, ..Self::act() }
    }

    /// Acts all the same.
    pub fn acting(self) -> Self {
        Self { acts: true, ..self }
    }

    /// Closes the connection in place of the answer.
    pub fn unheard(mut self) -> Self {
        let answer = self.answered().clone();
        Self { then: Then::Unheard(answer), ..self }
    }

    /// Answers with this status.
    pub fn status(mut self, status: u16) -> Self {
        self.answered().status = status;
        self
    }

    /// Answers with this header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.answered().headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Answers with this body.
    pub fn body(mut self, body: Plan) -> Self {
        self.answered().body = body;
        self
    }

    /// Takes so long until it acts. Its key is under way then.
    pub fn slow(self, slow: Duration) -> Self {
        Self { slow, ..self }
    }

    /// Answers so long after it has acted.
    pub fn late(self, late: Duration) -> Self {
        Self { late, ..self }
    }

    fn answered(&mut self) -> &mut Answer {
        match &mut self.then {
            Then::Answer(answer) => answer,
            then => panic!("{then:?} is no answer"),
        }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// In lower case, in their order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Once all of it has come.
    pub body: Option<Vec<u8>>,
    pub key: Option<String>,
    /// The number of its connection.
    pub connection: u64,
    /// By HTTP/2 and not HTTP/1.1.
    pub two: bool,
    pub at: Instant,
}

impl Seen {
    /// The values of a header.
    pub fn header(&self, name: &str) -> Vec<String> {
        let values = self.headers.iter().filter(|(other, _)| other == name);
        values.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }
}

/// A provider.
pub struct Provider {
    pub port: u16,
    options: Options,
    books: Arc<Mutex<Books>>,
    server: Option<serve::Server>,
}

impl Provider {
    /// One that speaks HTTP/1.1 in clear.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// One that speaks TLS, and HTTP/2.
    pub fn by_two() -> Self {
        Self::with(Options { tls: true, two: true, ..Options::default() })
    }

    /// One with these options.
    pub fn with(options: Options) -> Self {
        let books = Arc::new(Mutex::new(Books::new(&options)));
        let server = serve::Server::start(0, &options, &books);
        Self { port: server.port, options, books, server: Some(server) }
    }

    /// The address of a path.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.options.tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}{path}", self.port)
    }

    /// The file of the authority that its certificate is from.
    pub fn authority(&self) -> PathBuf {
        Authority::shared().file()
    }

    /// What is done with the next requests whose keys have no script of their own.
    pub fn next(&self, moves: impl IntoIterator<Item = Move>) {
        self.books().next.extend(moves);
    }

    /// What is done with the next requests under a key, or for a target, path and query.
    pub fn script(&self, key_or_target: &str, moves: impl IntoIterator<Item = Move>) {
        self.books().scripts.entry(key_or_target.to_owned()).or_default().extend(moves);
    }

    /// What is done with all others.
    pub fn always(&self, always: Move) {
        self.books().always = always;
    }

    /// How often it has acted for each key; for requests without one, by their targets.
    pub fn acts(&self) -> BTreeMap<String, u32> {
        self.books().acts.clone()
    }

    /// How often it has acted for each target, whatever the key.
    pub fn acts_by_target(&self) -> BTreeMap<String, u32> {
        self.books().by_target.clone()
    }

    /// The first receipt of each target that has one.
    pub fn receipts(&self) -> BTreeMap<String, String> {
        self.books().receipts.clone()
    }

    /// How many requests are there now.
    pub fn now(&self) -> usize {
        self.books().now
    }

    /// How many requests have come.
    pub fn requests(&self) -> usize {
        self.books().seen.len()
    }

    /// All requests, in the order in which their heads came.
    pub fn seen(&self) -> Vec<Seen> {
        self.books().seen.clone()
    }

    /// How many requests were there at once, at most.
    pub fn most_at_once(&self) -> usize {
        self.books().most
    }

    /// Forgets all keys, as if their time were over. What was done is still counted.
    pub fn forget_keys(&self) {
        self.books().keys.clear();
    }

    /// Has the connections by HTTP/2 that there are take no more requests. What is under way on them is answered.
    pub fn leave_connections(&self) {
        self.server.iter().for_each(|server| server.leave.notify_waiters());
    }

    /// Ends it: connections break, and nothing listens any more. What was under way has not happened.
    pub fn kill(&mut self) {
        self.server = None;
        let mut books = self.books();
        books.keys.retain(|_, known| known.first.is_some());
        books.now = 0;
    }

    /// Starts it again, on the same port.
    pub fn restart(&mut self) {
        assert!(self.server.is_none(), "it is running");
        self.server = Some(serve::Server::start(self.port, &self.options, &self.books));
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
