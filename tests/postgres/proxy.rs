//! A TCP proxy in front of PostgreSQL that loses the answer to a chosen message, and counts round trips.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

#[derive(Default)]
struct State {
    /// The bytes whose answer is lost, once.
    lose_after: Mutex<Option<Vec<u8>>>,
    /// Whether an answer was lost.
    has_lost: AtomicBool,
    /// Whether the last that passed went to the server.
    is_outward: AtomicBool,
    round_trips: AtomicUsize,
}

/// A proxy; its threads end with their connections.
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let (client_too, server_too) =
                    (client.try_clone().expect("a socket"), server.try_clone().expect("one"));
                let (out, back) = (Arc::clone(&shared), Arc::clone(&shared));
                spawn(move || outward(client_too, server_too, &out));
                spawn(move || inward(server, client, &back));
            }
        });
        Proxy { port, state }
    }

    /// From now on, once: what holds these bytes still arrives, and nothing comes back.
    pub fn lose_the_answer_to(&self, bytes: &[u8]) {
        self.state.has_lost.store(false, Ordering::SeqCst);
        *self.state.lose_after.lock().expect("nobody panics with it") = Some(bytes.to_vec());
    }

    pub fn has_lost(&self) -> bool {
        self.state.has_lost.load(Ordering::SeqCst)
    }

    /// How often something was sent after something had come back.
    pub fn round_trips(&self) -> usize {
        self.state.round_trips.load(Ordering::SeqCst)
    }
}

fn outward(mut client: TcpStream, mut server: TcpStream, state: &State) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(length @ 1..) = client.read(&mut chunk) {
        if !state.is_outward.swap(true, Ordering::SeqCst) {
            state.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        let mut lose = state.lose_after.lock().expect("nobody panics with it");
        let is_it = lose.as_ref().is_some_and(|bytes| chunk[..length].windows(bytes.len()).any(|part| part == bytes));
        if is_it {
            *lose = None;
            state.has_lost.store(true, Ordering::SeqCst);
            // Nothing more comes back; the server still gets what was sent.
            let _ = client.shutdown(Shutdown::Both);
        }
        drop(lose);
        if server.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
}

fn inward(mut server: TcpStream, mut client: TcpStream, state: &State) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(length @ 1..) = server.read(&mut chunk) {
        state.is_outward.store(false, Ordering::SeqCst);
        // The server is read to its end even where the client is gone.
        let _ = client.write_all(&chunk[..length]);
    }
    let _ = client.shutdown(Shutdown::Both);
}
