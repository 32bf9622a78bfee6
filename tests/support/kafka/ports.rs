//! Ports for servers that keep theirs while they are down.

use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that a system gives to whoever asks for any: those would be given away while a server restarts.
const FIRST: u16 = 15_000;
const COUNT: u16 = 17_000;

/// A port that nobody has, and that this process gives to nobody else. Other test runs begin elsewhere, by chance.
pub fn free_port() -> u16 {
    static BEGIN: OnceLock<u16> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = *BEGIN.get_or_init(|| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970");
        ((now.as_nanos() / 1000) % u128::from(COUNT)) as u16
    });
    for _ in 0..COUNT {
        let port = FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + COUNT - 1);
}
