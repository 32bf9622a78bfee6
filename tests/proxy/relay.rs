//! A relay between a proxy and its store's server: it can be slow, silent, or cut, and lead to another server.
#![allow(dead_code, reason = "each test binary has its own bad lines")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// How often is looked whether something has changed.
const LOOK: Duration = Duration::from_millis(5);

/// What happens to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Clear,
    /// Each piece takes so long.
    Slow(Duration),
    /// Each new connection takes so long until anything passes, and is clear then.
    Late(Duration),
    /// What the server says comes in so many bytes at a time, each after such a pause.
    Trickle(usize, Duration),
    /// Nothing passes. Connections stay open, and what was sent arrives afterwards.
    Silent,
    /// Connections end, and new ones end at once.
    Cut,
}

/// A running relay; its threads end with their connections.
pub struct Relay {
    pub port: u16,
    line: Arc<Mutex<Line>>,
    server: Arc<AtomicU16>,
    /// How often connections were abandoned.
    abandoned: Arc<AtomicUsize>,
}

impl Relay {
    /// Leads to this port.
    pub fn to(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, line) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Line::Clear)));
        let relay = Relay { port, line, server: Arc::new(AtomicU16::new(server)), abandoned: Arc::default() };
        let (of_all, server, abandoned) = (relay.line.clone(), relay.server.clone(), relay.abandoned.clone());
        spawn(move || {
            for client in listener.incoming().flatten() {
                let line = *of_all.lock().unwrap();
                if line == Line::Cut {
                    continue;
                }
                let server = server.load(Ordering::Relaxed);
                let way = Way {
                    line: of_all.clone(),
                    abandoned: abandoned.clone(),
                    since: abandoned.load(Ordering::Relaxed),
                    is_back: false,
                };
                spawn(move || {
                    if let Line::Late(length) = line {
                        sleep(length);
                    }
                    let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                    let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                    let back = Way { is_back: true, ..way.clone() };
                    spawn(move || carry(client, server, &way));
                    carry(server_too, client_too, &back);
                });
            }
        });
        relay
    }

    /// New connections lead to this port.
    pub fn lead_to(&self, server: u16) {
        self.server.store(server, Ordering::Relaxed);
    }

    /// Nothing passes any more over the connections that there are, which stay open; new ones are as the line is.
    pub fn abandon(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    pub fn set(&self, line: Line) {
        *self.line.lock().unwrap() = line;
    }
}

/// What a connection goes by.
#[derive(Clone)]
struct Way {
    line: Arc<Mutex<Line>>,
    abandoned: Arc<AtomicUsize>,
    since: usize,
    /// Whether it is the server that speaks.
    is_back: bool,
}

impl Way {
    fn line(&self) -> Line {
        let is_abandoned = self.abandoned.load(Ordering::Relaxed) > self.since;
        if is_abandoned { Line::Silent } else { *self.line.lock().unwrap() }
    }

    /// Passes a piece on after a pause; whether the connection goes on.
    fn pass(&self, piece: &[u8], pause: Duration, to: &mut TcpStream) -> bool {
        sleep(pause);
        while self.line() == Line::Silent {
            sleep(LOOK);
        }
        self.line() != Line::Cut && to.write_all(piece).is_ok()
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, way: &Way) {
    from.set_read_timeout(Some(LOOK)).unwrap();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let now = way.line();
        if now == Line::Cut {
            break;
        }
        if now == Line::Silent {
            sleep(LOOK);
            continue;
        }
        let length = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        // As the line is now: it may have become another one meanwhile.
        let (most, pause) = match way.line() {
            Line::Slow(pause) => (length, pause),
            Line::Trickle(most, pause) if way.is_back => (most, pause),
            _ => (length, Duration::ZERO),
        };
        if !chunk[..length].chunks(most).all(|piece| way.pass(piece, pause, &mut to)) {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
