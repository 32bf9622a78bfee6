//! A token for all clients with the same credentials, and the next one in time.
//!
//! One thread asks the endpoint, from when the first client begins until nobody holds the source any more. The next
//! token is asked for after 80 % of a token's time, as librdkafka does it, so that a login that is renewed later than
//! that (KIP-368: the wire does after 85 %) has a fresh one.
//!
//! **Failure**: asked again after a pause that doubles up to [`PAUSE_MAX`], for as long as it takes; the last token
//! counts until it ends. Why there is no other is logged, once for each reason.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rand::RngExt as _;

use super::super::wire::login::{NoToken, Token, Tokens};
use super::answer::{Issued, lasting, passing};
use super::credentials::Credentials;
use super::endpoint::Endpoint;
use crate::cluster::Error;

/// The first pause after a failure, and the shortest between two questions.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// After how much of a token's time the next one is asked for.
const REFRESH_AFTER: f64 = 0.8;
/// A fifth less or more, so that processes that failed together do not come again together.
const JITTER: std::ops::RangeInclusive<f64> = 0.8..=1.2;
/// No token counts for longer than this here: the next one is there before.
const TIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The sources that somebody holds.
static HELD: Mutex<Vec<Weak<Source>>> = Mutex::new(Vec::new());

/// A client that is given tokens instead of looking for them.
pub trait Hears: Send + Sync {
    /// A token has come.
    fn hear(&self, held: &Held);
}

/// A token as librdkafka gets it. No `Debug`.
#[derive(Clone)]
pub struct Held {
    /// The token.
    pub token: Arc<Token>,
    /// Whom it is for.
    pub principal: String,
    /// When it ends, in milliseconds since the epoch.
    pub end_ms: i64,
}

/// Obtains tokens, once [`Source::start_obtaining_tokens`] was called.
pub struct Source {
    shared: Arc<Shared>,
    /// What ends the thread when it is dropped, once there is one.
    running: Mutex<Option<Sender<()>>>,
}

struct Shared {
    endpoint: Endpoint,
    tokens: Arc<Tokens>,
    told: Mutex<Told>,
}

/// The clients, and the token that they were given last: under one lock, so that none is left with an older one.
#[derive(Default)]
struct Told {
    held: Option<Held>,
    clients: Vec<Weak<dyn Hears>>,
}

impl Source {
    /// The process's source for these credentials: a new one, which obtains no tokens yet, if nobody holds one.
    ///
    /// # Errors
    /// The certificates of the endpoint's authorities cannot be used.
    pub fn of(credentials: Credentials) -> Result<Arc<Self>, Error> {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|source| source.strong_count() > 0);
        let same = held.iter().filter_map(Weak::upgrade).find(|source| *source.credentials() == credentials);
        if let Some(source) = same {
            return Ok(source);
        }
        let source = Arc::new(Self::new(credentials)?);
        held.push(Arc::downgrade(&source));
        Ok(source)
    }

    /// One that nobody else has.
    pub(super) fn new(credentials: Credentials) -> Result<Self, Error> {
        let endpoint = Endpoint::new(credentials)?;
        let shared = Shared { endpoint, tokens: Arc::default(), told: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), running: Mutex::default() })
    }

    /// By what it gets tokens.
    pub fn credentials(&self) -> &Credentials {
        self.shared.endpoint.credentials()
    }

    /// Where clients of the wire find the token.
    pub fn tokens(&self) -> &Arc<Tokens> {
        &self.shared.tokens
    }

    /// Why there is no token now, if there is none.
    pub fn missing(&self) -> Option<NoToken> {
        self.shared.tokens.get(Instant::now()).err()
    }

    /// Tells a client of the token, if there is one, and of those to come.
    pub fn tell(&self, client: &Arc<impl Hears + 'static>) {
        self.start_obtaining_tokens();
        let mut told = self.shared.told();
        if let Some(held) = told.held.as_ref().filter(|held| held.end_ms > now_ms()) {
            client.hear(held);
        }
        let client = Arc::downgrade(client);
        told.clients.retain(|client| client.strong_count() > 0);
        told.clients.push(client);
    }

    /// Starts to obtain tokens, unless the source does so already.
    pub fn start_obtaining_tokens(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return;
        }
        if self.credentials().are_sent_in_clear() {
            let url = self.credentials().names.url;
            tracing::warn!("{url} is http://: the client's secret is sent in clear text");
        }
        let (stop, stopped) = channel();
        let shared = Arc::clone(&self.shared);
        let begun = thread::Builder::new().name("kafka-tokens".to_owned()).spawn(move || shared.run(&stopped));
        match begun {
            Ok(_) => *running = Some(stop),
            // The next client tries again.
            Err(error) => self.shared.tokens.fail(passing(format!("there is no thread to ask for it: {error}"))),
        }
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks again and again, until it is stopped.
    fn run(&self, stopped: &Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        let (mut pause, mut failed) = (PAUSE_MIN, None);
        let purpose = self.endpoint.credentials().names.purpose;
        loop {
            let asked = match &runtime {
                Ok(runtime) => runtime.block_on(self.endpoint.ask()),
                Err(error) => Err(lasting(format!("there is no runtime to ask for it: {error}"))),
            };
            let wait = match asked.and_then(|issued| self.issue(issued, Instant::now(), now_ms())) {
                Ok(refresh) => {
                    if failed.take().is_some() {
                        tracing::info!("there is a token {purpose} again");
                    }
                    pause = PAUSE_MIN;
                    refresh.max(PAUSE_MIN)
                }
                Err(missing) => {
                    if failed.as_ref() != Some(&missing) {
                        tracing::warn!("no token {purpose}, which is tried again: {}", missing.why);
                    }
                    self.tokens.fail(missing.clone());
                    failed = Some(missing);
                    let wait = pause.mul_f64(rand::rng().random_range(JITTER));
                    pause = (pause * 2).min(PAUSE_MAX);
                    wait
                }
            };
            match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Ok(runtime) = runtime {
            // Without waiting for a name that is being looked up.
            runtime.shutdown_background();
        }
    }

    /// Takes a token that was issued, and tells all clients; after how long the next one is wanted.
    fn issue(
        &self,
        Issued { token, principal, end_ms, is_from_now }: Issued,
        now: Instant,
        now_ms: i64,
    ) -> Result<Duration, NoToken> {
        let end_ms = if is_from_now { now_ms.saturating_add(end_ms) } else { end_ms };
        let left = u64::try_from(end_ms.saturating_sub(now_ms)).unwrap_or(0);
        if left == 0 {
            return Err(lasting("the token that the endpoint gives has ended already: compare the clocks".to_owned()));
        }
        let left = Duration::from_millis(left).min(TIME_MAX);
        let extensions = self.endpoint.credentials().extensions.clone();
        let token = Token::new(token, extensions).map_err(|why| lasting(format!("the token cannot be used: {why}")))?;
        // Not as the token says it: librdkafka counts it in microseconds.
        let end_ms = now_ms.saturating_add(i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
        let held = Held { token: Arc::new(token), principal, end_ms };
        self.tokens.put(Arc::clone(&held.token), now + left);
        let mut told = self.told();
        told.clients.retain(|client| client.strong_count() > 0);
        told.clients.iter().filter_map(Weak::upgrade).for_each(|client| client.hear(&held));
        told.held = Some(held);
        tracing::debug!(seconds = left.as_secs(), "a token {} has come", self.endpoint.credentials().names.purpose);
        Ok(left.mul_f64(REFRESH_AFTER))
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
