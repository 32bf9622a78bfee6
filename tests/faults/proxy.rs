//! A TCP proxy in front of a broker that can inject network faults, and parses enough of Kafka's protocol to inject
//! them around a request of a chosen kind ([`Plan`]). The [`Condition`] affects everything that passes.
//!
//! Each connection has two threads. The one towards the broker carries whole requests, so that it can inspect each; the
//! other carries bytes. Both regularly check whether their connection has to end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::frames::{Frames, api_key};

/// How often a waiting thread checks whether something has changed.
const LOOK: Duration = Duration::from_millis(10);
/// How long the broker's side stays open after its client is gone, so that the broker takes what is on its way.
const LINGER: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 64 << 10;
/// How much is sent at once under a throttle.
const THROTTLED_BYTES: usize = 1 << 10;

/// What happens to everything that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Clear,
    /// Nothing passes, connections stay open; what was sent arrives afterwards, as with TCP.
    BlackHole,
    /// New connections are closed at once.
    Refusing,
    /// This many bytes a second pass in each direction of each connection.
    Throttled(u64),
}

/// What is done around a request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The connection is reset; the broker never gets the request.
    CutBefore,
    /// The broker gets the request; the connection is reset before the client gets the response.
    CutAfter,
    /// The request arrives late, and so does its response.
    HoldBack(Duration),
    /// The connection is reset at once, and the broker gets the request later, when the client has long reconnected
    /// elsewhere.
    DeliverLate(Duration),
}

/// The requests to do something around.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kind of request, as Kafka numbers them.
    pub api_key: i16,
    /// One in this many.
    pub one_in: u64,
    pub fault: Fault,
}

struct State {
    target: Option<SocketAddr>,
    condition: Condition,
    plan: Option<Plan>,
    /// Requests of the plan's kind so far.
    seen: u64,
    /// Faults injected so far.
    done: u64,
    /// Connections of an earlier generation have to be reset.
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

    /// What to do around this request.
    fn fault_for(&self, request: &[u8]) -> Option<Fault> {
        let mut state = self.state();
        let plan = state.plan.filter(|plan| api_key(request) == Some(plan.api_key))?;
        state.seen += 1;
        if !state.seen.is_multiple_of(plan.one_in) {
            return None;
        }
        Some(plan.fault)
    }

    /// Counts an injected fault.
    fn count(&self) {
        self.state().done += 1;
    }
}

/// A running proxy. Ends with all its connections when dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on a free port; connections before [`Proxy::forward_to`] are refused.
    pub fn start() -> Proxy {
        Proxy::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
    }

    /// The same at a local address, port 0 for a free one.
    pub fn start_at(address: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind(address)?;
        let port = listener.local_addr().expect("a bound socket").port();
        listener.set_nonblocking(true).expect("a socket can do without blocking");
        let state = State { target: None, condition: Condition::Clear, plan: None, seen: 0, done: 0, generation: 0 };
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

    pub fn set_condition(&self, condition: Condition) {
        self.shared.state().condition = condition;
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

    /// How many faults were injected.
    pub fn fault_count(&self) -> u64 {
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

/// Connects a new client with the broker, and carries data until either is gone.
fn open(client: TcpStream, shared: Arc<Shared>) {
    let (generation, target, condition) = {
        let state = shared.state();
        (state.generation, state.target, state.condition)
    };
    // In a black hole no connection can be opened either; it opens once that ends.
    let link = Link { shared, generation, client_gone: AtomicBool::new(false), over: AtomicBool::new(false) };
    let broker = match target {
        Some(target) if condition != Condition::Refusing && link.may_pass() => TcpStream::connect(target).ok(),
        _ => None,
    };
    let Some(broker) = broker else { return reset(&client) };
    for stream in [&client, &broker] {
        if prepare(stream).is_err() {
            return;
        }
    }
    let (link, client, broker) = (Arc::new(link), Arc::new(client), Arc::new(broker));
    let responses = (Arc::clone(&link), Arc::clone(&client), Arc::clone(&broker));
    spawn(move || carry_responses(&responses.0, responses.1, &responses.2));
    carry_requests(&link, client, &broker);
    link.over.store(true, Ordering::Relaxed);
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))
}

/// Makes closing the stream a reset, whichever side drops it last.
fn reset(stream: &TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is open while the stream is borrowed, and the option has the given length.
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
    /// The client was cut off, while the broker may still be due a request.
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

    /// Waits until something may pass; false if nothing ever will.
    fn may_pass(&self) -> bool {
        loop {
            if self.is_over() {
                return false;
            }
            if self.shared.state().condition != Condition::BlackHole {
                return true;
            }
            sleep(LOOK);
        }
    }

    /// Sends all of it; false if that is no longer possible.
    fn send(&self, mut to: &TcpStream, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            if !self.may_pass() {
                return false;
            }
            let rate = match self.shared.state().condition {
                Condition::Throttled(rate) => Some(rate.max(1)),
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

/// What has arrived, if anything; `None` if nothing will any more.
fn receive<'a>(mut from: &TcpStream, chunk: &'a mut [u8]) -> Option<&'a [u8]> {
    match from.read(chunk) {
        Ok(0) => None,
        Ok(count) => Some(&chunk[..count]),
        Err(error) if is_pause(&error) => Some(&[]),
        Err(_) => None,
    }
}

/// Whether the error only means that nothing could be done for a moment.
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
            let late = match link.shared.fault_for(&request) {
                None if link.send(broker, &request) => continue,
                None => return end(link, &client, broker),
                Some(Fault::HoldBack(time)) => {
                    rest(link, time);
                    if link.send(broker, &request) {
                        link.shared.count();
                        continue;
                    }
                    return end(link, &client, broker);
                }
                Some(Fault::CutBefore) => None,
                Some(Fault::CutAfter) => Some(Duration::ZERO),
                Some(Fault::DeliverLate(time)) => Some(time),
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

/// Cuts the client off. The other thread drops it, too.
fn cut(link: &Link, client: Arc<TcpStream>) {
    reset(&client);
    link.client_gone.store(true, Ordering::Release);
}

/// Resets both sides, if the connection ends by a reset.
fn end(link: &Link, client: &TcpStream, broker: &TcpStream) {
    if link.is_reset() {
        reset(client);
        reset(broker);
    }
}

/// Waits for this time, or until the connection is over.
fn rest(link: &Link, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time && !link.is_over() {
        sleep(LOOK.min(time));
    }
}

/// Carries the broker's responses while the client is there, and keeps reading them while the broker is needed.
fn carry_responses(link: &Link, client: Arc<TcpStream>, broker: &TcpStream) {
    let (mut client, mut chunk) = (Some(client), vec![0; CHUNK_BYTES]);
    while !link.is_over() {
        let Some(came) = receive(broker, &mut chunk) else { break };
        // Checked after receiving: a response to anything sent after the cut must not reach the client.
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
