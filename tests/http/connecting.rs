//! Before anything is written: names, TCP, TLS. What goes wrong there is certainly not sent.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratchet::effect::call::AttemptOutcome;
use ratchet::provider::http::Settings;

use crate::http::caller::{Caller, assert_not_sent, code, rendered, settings};
use crate::http::raw::{Blackhole, Raw};
use crate::provider::{Authority, Options, Provider};

/// Passes connections on, after a while.
pub struct Slow {
    pub port: u16,
    connections: Arc<AtomicUsize>,
}

impl Slow {
    pub fn start(to: u16, after: Duration) -> Slow {
        let raw = Raw::start(move |stream, _| {
            std::thread::sleep(after);
            let other = TcpStream::connect(("127.0.0.1", to)).unwrap();
            splice(stream, other);
        });
        Slow { port: raw.port, connections: raw.connections }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Passes bytes on, both ways, until both ends are over.
pub fn splice(one: TcpStream, other: TcpStream) {
    let way = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })
    };
    let back = way(other.try_clone().unwrap(), one.try_clone().unwrap());
    way(one, other).join().unwrap();
    back.join().unwrap();
}

fn short() -> Settings {
    Settings { timeout: Duration::from_secs(2), ..settings() }
}

#[test]
fn what_cannot_connect_is_not_sent() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut caller = Caller::new(short());
    assert_not_sent(&caller.call(rendered(&format!("http://127.0.0.1:{free}/s3cret"), "a")), "connection refused");
    assert_not_sent(&caller.call(rendered(&format!("https://me:s3cret@[::1]:{free}/?s3cret"), "a")), "::1");
    assert_not_sent(&caller.call(rendered("http://nowhere.invalid/s3cret", "a")), "nowhere.invalid");
}

#[test]
fn connecting_takes_no_longer_than_it_may() {
    let blackhole = Blackhole::new();
    let (mut caller, began) = (Caller::new(short()), Instant::now());
    for number in 0..5 {
        caller.submit(rendered(&format!("http://127.0.0.1:{}/", blackhole.port), &number.to_string()));
    }
    for heard in caller.hear(5) {
        assert_not_sent(&heard, "within 2s");
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn handshake_that_does_not_end_is_not_sent() {
    let silent = Raw::start(|mut stream, _| {
        let _ = stream.read(&mut [0; 4096]);
        std::thread::sleep(Duration::from_secs(60));
    });
    let closing = Raw::start(|mut stream, _| drop(stream.read(&mut [0; 4096])));
    let no_tls = Raw::start(|mut stream, _| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let mut caller = Caller::new(Settings { authorities: Some(Authority::shared().file()), ..short() });
    for (raw, words) in
        [(&silent, "within 2s"), (&closing, "no TLS with localhost"), (&no_tls, "no TLS with localhost")]
    {
        let began = Instant::now();
        for number in 0..3 {
            caller.submit(rendered(&format!("https://localhost:{}/", raw.port), &number.to_string()));
        }
        for heard in caller.hear(3) {
            assert_not_sent(&heard, words);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "those that wait hear it together");
    }
}

/// Nobody waits for ever for a connection that is closed again and again.
#[test]
fn server_that_closes_at_once_is_not_sent_to() {
    let raw = Raw::start(|stream, _| drop(stream));
    let mut caller = Caller::new(settings());
    for number in 0..20 {
        let heard = caller.call(rendered(&format!("http://localhost:{}/", raw.port), &number.to_string()));
        // Nothing was written; or something was, before it was known that the other side was gone.
        assert!(matches!(heard.outcome, AttemptOutcome::NotSent | AttemptOutcome::Lost), "{heard:?}");
    }
    assert!(raw.connections.load(Ordering::SeqCst) <= 60, "three for each");
    assert!(raw.all().is_empty());
}

#[test]
fn certificates_are_checked() {
    let provider = Provider::with(Options { tls: true, ..Options::default() });
    let with = |authorities: Option<_>| Caller::new(Settings { authorities, ..settings() });
    let wrong_name = provider.url("/").replace("localhost", "127.0.0.1");
    assert_eq!(code(&with(Some(provider.authority())).call(rendered(&provider.url("/"), "a"))), 201);
    let stranger = Authority::new();
    let nothing = stranger.path("names");
    let cases = [
        (Some(provider.authority()), wrong_name.as_str(), "not valid for name"),
        (Some(stranger.file()), &provider.url("/"), "nvalid peer certificate"),
        (None, &provider.url("/"), ""),
        (Some("/nowhere.pem".into()), &provider.url("/"), "/nowhere.pem"),
        (Some(nothing), &provider.url("/"), "there is no certificate"),
    ];
    for (authorities, url, words) in cases {
        assert_not_sent(&with(authorities).call(rendered(url, "a")), words);
    }
    assert_eq!(provider.seen().len(), 1);
}

/// A file that was wrong is read again: a person may have mended it.
#[test]
fn authorities_that_are_mended_are_used() {
    let provider = Provider::with(Options { tls: true, ..Options::default() });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let mut caller = Caller::new(Settings { authorities: Some(file.clone()), ..settings() });
    assert_not_sent(&caller.call(rendered(&provider.url("/"), "a")), "ca.pem");
    std::fs::copy(provider.authority(), &file).unwrap();
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), "a"))), 201);
}

/// An answer is not waited for by others: each has a connection of its own.
#[test]
fn origins_do_not_wait_for_each_other() {
    let (provider, blackhole) = (Provider::start(), Blackhole::new());
    let mut caller = Caller::new(settings());
    let stuck = caller.submit(rendered(&format!("http://127.0.0.1:{}/", blackhole.port), "stuck"));
    for number in 0..20 {
        assert_eq!(
            code(&{
                caller.submit(rendered(&provider.url("/"), &number.to_string()));
                caller.heard()
            }),
            201
        );
    }
    let _ = caller.calls.withdraw(stuck);
}
