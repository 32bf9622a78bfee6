//! A TCP proxy in front of a broker, which can do to a connection what networks do, and knows enough of Kafka to do
//! it around a request of a chosen kind ([`Plan`]). What happens to all that passes is the [`Weather`].
//!
//! Two threads a connection. The one towards the broker carries whole requests, so that it can look at each; the
//! other carries bytes. Both wake up now and then to see whether their connection is to end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::frames::{Frames, api_key};

/// How often a thread that waits looks whether something has changed.
const LOOK: Duration = Duration::from_millis(10);
/// For how long a broker is listened to after its client is gone: it takes what is on its way.
const LINGER: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 64 << 10;
/// What is sent at once where little may pass.
const THROTTLED_BYTES: usize = 1 << 10;

/// What happens to whatever passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing.
    Clear,
    /// Nothing passes, connections stay open; what was sent comes when it clears up, as TCP has it.
    BlackHole,
    /// New connections are ended at once.
    Refusing,
    /// So many bytes a second pass each way of each connection.
    Throttled(u64),
}

/// What is done around a request.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// The connection is reset; the broker never gets the request.
    CutBefore,
    /// The broker gets the request; the connection is reset before the client gets an answer.
    CutAfter,
    /// The request comes late, and its answer.
    HoldBack(Duration),
    /// The connection is reset at once, and the broker gets the request later, when its client is long elsewhere.
    DeliverLate(Duration),
}

/// Which requests something is done around.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kind of request, as Kafka numbers them.
    pub api_key: i16,
    /// One in so many.
    pub one_in: u64,
    pub deed: Deed,
}

struct State {
    target: Option<SocketAddr>,
    weather: Weather,
    plan: Option<Plan>,
    /// Requests that the plan is about.
    seen: u64,
    /// Deeds done.
    done: u64,
    /// Connections of an earlier generation are to be reset.
    generation: u64,
}

struct Shared {
    state: Mutex<State>,
    closed: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done around this request.
    fn deed_for(&self, request: &[u8]) -> Option<Deed> {
        let mut state = self.state();
        let plan = state.plan.filter(|plan| api_key(request) == Some(plan.api_key))?;
        state.seen += 1;
        if !state.seen.is_multiple_of(plan.one_in) {
            return None;
        }
        Some(plan.deed)
    }

    /// A deed was done.
    fn count(&self) {
        self.state().done += 1;
    }
}

/// A running proxy. Dropped, it ends with all its connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on a free port; who connects before [`Proxy::forward_to`] is sent away.
    pub fn start() -> Proxy {
        Proxy::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
    }

    /// The same at an address of this machine, port 0 for a free one.
    pub fn start_at(address: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind(address)?;
        let port = listener.local_addr().expect("a bound socket").port();
        listener.set_nonblocking(true).expect("a socket can do without blocking");
        let state = State { target: None, weather: Weather::Clear, plan: None, seen: 0, done: 0, generation: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), closed: AtomicBool::new(false) });
        let accepting = Arc::clone(&shared);
        spawn(move || accept(&listener, &accepting));
        Ok(Proxy { port, shared })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn forward_to(&self, target: SocketAddr) {
        self.shared.state().target = Some(target);
    }

    pub fn set_weather(&self, weather: Weather) {
        self.shared.state().weather = weather;
    }

    pub fn set_plan(&self, plan: Option<Plan>) {
        let mut state = self.shared.state();
        state.plan = plan;
        state.seen = 0;
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.shared.state().generation += 1;
    }

    /// How often something was done around a request.
    pub fn deeds(&self) -> u64 {
        self.shared.state().done
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.closed.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((client, _)) => {
                let shared = Arc::clone(shared);
                spawn(move || open(client, shared));
            }
            Err(_) => sleep(LOOK / 5),
        }
    }
}

/// Connects a client that has come with the broker, and carries until one of them goes.
fn open(client: TcpStream, shared: Arc<Shared>) {
    let (generation, target, weather) = {
        let state = shared.state();
        (state.generation, state.target, state.weather)
    };
    // In a black hole a connection cannot be made either; it comes about when that ends.
    let link = Link { shared, generation, client_gone: AtomicBool::new(false), over: AtomicBool::new(false) };
    let broker = match target {
        Some(target) if weather != Weather::Refusing && link.may_pass() => TcpStream::connect(target).ok(),
        _ => None,
    };
    let Some(broker) = broker else { return reset(&client) };
    for stream in [&client, &broker] {
        if prepare(stream).is_err() {
            return;
        }
    }
    let (link, client, broker) = (Arc::new(link), Arc::new(client), Arc::new(broker));
    let answers = (Arc::clone(&link), Arc::clone(&client), Arc::clone(&broker));
    spawn(move || carry_answers(&answers.0, answers.1, &answers.2));
    carry_requests(&link, client, &broker);
    link.over.store(true, Ordering::Relaxed);
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))
}

/// Makes the stream's end a reset, for whoever drops it last.
fn reset(stream: &TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is open for as long as the stream is borrowed, and the option is as long as is said.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const at_once).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
    }
}

/// One connection.
struct Link {
    shared: Arc<Shared>,
    generation: u64,
    /// The client was cut off, while the broker may still have something to get.
    client_gone: AtomicBool,
    over: AtomicBool,
}

impl Link {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.shared.closed.load(Ordering::Relaxed) || self.is_reset()
    }

    fn is_reset(&self) -> bool {
        self.generation < self.shared.state().generation
    }

    /// Waits until something may pass; false where nothing ever will.
    fn may_pass(&self) -> bool {
        loop {
            if self.is_over() {
                return false;
            }
            if self.shared.state().weather != Weather::BlackHole {
                return true;
            }
            sleep(LOOK);
        }
    }

    /// Sends all of it; false where that cannot be done any more.
    fn send(&self, mut to: &TcpStream, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            if !self.may_pass() {
                return false;
            }
            let rate = match self.shared.state().weather {
                Weather::Throttled(rate) => Some(rate.max(1)),
                _ => None,
            };
            let part = &rest[..rest.len().min(rate.map_or(CHUNK_BYTES, |_| THROTTLED_BYTES))];
            match to.write(part) {
                Ok(0) => return false,
                Ok(count) => {
                    rest = &rest[count..];
                    if let Some(rate) = rate {
                        sleep(Duration::from_micros(count as u64 * 1_000_000 / rate));
                    }
                }
                Err(error) if is_pause(&error) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// What has come, if anything; `None` where nothing will any more.
fn receive<'a>(mut from: &TcpStream, chunk: &'a mut [u8]) -> Option<&'a [u8]> {
    match from.read(chunk) {
        Ok(0) => None,
        Ok(count) => Some(&chunk[..count]),
        Err(error) if is_pause(&error) => Some(&[]),
        Err(_) => None,
    }
}

/// Whether it is only that nothing could be done for a moment.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Carries what the client sends, request by request.
fn carry_requests(link: &Link, client: Arc<TcpStream>, broker: &TcpStream) {
    let (mut frames, mut chunk) = (Frames::default(), vec![0; CHUNK_BYTES]);
    while link.may_pass() {
        let Some(came) = receive(&client, &mut chunk) else { return };
        frames.push(came);
        while let Some(request) = frames.pop() {
            let late = match link.shared.deed_for(&request) {
                None if link.send(broker, &request) => continue,
                None => return end(link, &client, broker),
                Some(Deed::HoldBack(time)) => {
                    rest(link, time);
                    if link.send(broker, &request) {
                        link.shared.count();
                        continue;
                    }
                    return end(link, &client, broker);
                }
                Some(Deed::CutBefore) => None,
                Some(Deed::CutAfter) => Some(Duration::ZERO),
                Some(Deed::DeliverLate(time)) => Some(time),
            };
            cut(link, client);
            let Some(time) = late else { return link.shared.count() };
            rest(link, time);
            if link.send(broker, &request) {
                link.shared.count();
            }
            return rest(link, LINGER);
        }
    }
    end(link, &client, broker);
}

/// Cuts the client off. The other thread lets go of it, too.
fn cut(link: &Link, client: Arc<TcpStream>) {
    reset(&client);
    link.client_gone.store(true, Ordering::Release);
}

/// Resets both sides, if that is why it ends.
fn end(link: &Link, client: &TcpStream, broker: &TcpStream) {
    if link.is_reset() {
        reset(client);
        reset(broker);
    }
}

/// Waits for a time, or until the connection is over.
fn rest(link: &Link, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time && !link.is_over() {
        sleep(LOOK.min(time));
    }
}

/// Carries what the broker answers, for as long as there is somebody to carry it to, and takes it for as long as the
/// broker is needed.
fn carry_answers(link: &Link, client: Arc<TcpStream>, broker: &TcpStream) {
    let (mut client, mut chunk) = (Some(client), vec![0; CHUNK_BYTES]);
    while !link.is_over() {
        let Some(came) = receive(broker, &mut chunk) else { break };
        // Only now: an answer to what was sent after the cut must not reach the client.
        if link.client_gone.load(Ordering::Acquire) {
            client = None;
        }
        if let Some(client) = &client
            && !link.send(client, came)
            && !link.client_gone.load(Ordering::Acquire)
        {
            break;
        }
    }
    if let Some(client) = &client {
        end(link, client, broker);
    }
    link.over.store(true, Ordering::Relaxed);
}
