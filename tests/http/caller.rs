//! A lane, as the tests have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ratchet::effect::call::{AttemptOutcome, Content, Fingerprint, Form, Key, KeyParts};
use ratchet::effect::provider::{AttemptEnd, CallNumber, Calls, Provider as _, RenderedRequest, Request};
use ratchet::provider::http::{Http, Settings};

/// How long an answer may take on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Settings that are generous.
pub fn settings() -> Settings {
    Settings {
        method: "POST".to_owned(),
        key_header: Some("Idempotency-Key".to_owned()),
        key_window: None,
        timeout: Duration::from_secs(10),
        in_flight: 64,
        rate: None,
        body_bytes_max: Some(64 << 10),
        authorities: None,
    }
}

/// The key of an identity.
pub fn key(identity: &str) -> Key {
    let (topology, identity) = ("charges", identity.as_bytes());
    Key::of(KeyParts { topology, identity, epoch: None, version: None, step: None })
}

/// A request for an identity, whose name is its body.
pub fn rendered(url: &str, identity: &str) -> RenderedRequest {
    let body = Some(identity.as_bytes().to_vec());
    let content = Content { method: "POST", target: "/", headers: &[], body: body.as_deref() };
    RenderedRequest {
        url: url.to_owned(),
        headers: Vec::new(),
        body: body.clone(),
        key: Some(key(identity)),
        fingerprint: Fingerprint::of(Form::of(["test"]), content),
    }
}

/// A wall clock that stands where it is put.
#[derive(Clone, Default)]
pub struct Clock(pub Arc<AtomicI64>);

impl Clock {
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

/// A lane's way to a provider.
pub struct Caller {
    pub calls: Box<dyn Calls>,
    pub next: CallNumber,
}

impl Caller {
    pub fn new(settings: Settings) -> Self {
        Self::of(&Http::new(settings).expect("settings"))
    }

    pub fn of(http: &Http) -> Self {
        Self { calls: http.calls(), next: 1 }
    }

    /// One whose driver goes by a clock of the test.
    pub fn with_clock(settings: Settings, clock: &Clock) -> Self {
        let clock = clock.clone();
        let now = Arc::new(move || clock.0.load(Ordering::SeqCst));
        Self::of(&Http::with_clock(settings, now).expect("settings"))
    }

    /// Submits a first attempt.
    pub fn submit(&mut self, rendered: RenderedRequest) -> CallNumber {
        let number = self.next;
        self.next += 1;
        self.calls.submit(Request::for_http(number, 1, 0, Arc::new(rendered)));
        number
    }

    /// Waits for an attempt to end.
    pub fn heard(&mut self) -> AttemptEnd {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(heard) = self.calls.take_end() {
                return heard;
            }
            assert!(Instant::now() < until, "nothing is heard");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The ends of the next `count` attempts, in the order of their calls' numbers.
    pub fn hear(&mut self, count: usize) -> Vec<AttemptEnd> {
        let mut all: Vec<_> = std::iter::repeat_with(|| self.heard()).take(count).collect();
        all.sort_by_key(|heard| heard.number);
        all
    }

    /// Submits a request and waits until it is over.
    pub fn call(&mut self, rendered: RenderedRequest) -> AttemptEnd {
        let number = self.submit(rendered);
        let heard = self.heard();
        assert_eq!((heard.number, heard.attempt), (number, 1));
        heard
    }
}

/// The status code of an answer.
pub fn code(heard: &AttemptEnd) -> u16 {
    match heard.outcome {
        AttemptOutcome::Status(status) => status.code,
        _ => panic!("no status: {heard:?}"),
    }
}

/// Asserts that nothing was sent, and that the message has these words.
pub fn assert_not_sent(heard: &AttemptEnd, words: &str) {
    assert_eq!(heard.outcome, AttemptOutcome::NotSent, "{heard:?}");
    assert_eq!(heard.duration, Duration::ZERO);
    assert_said(heard, words);
}

/// Asserts that an answer is lost, and that the message has these words.
pub fn assert_lost(heard: &AttemptEnd, words: &str) {
    assert_eq!(heard.outcome, AttemptOutcome::Lost, "{heard:?}");
    assert_said(heard, words);
}

fn assert_said(heard: &AttemptEnd, words: &str) {
    let message = heard.message.as_deref().expect("a message");
    assert!(message.contains(words), "{message}");
    assert!(!message.ends_with('.') && !message.contains("s3cret"), "{message}");
}

/// Waits until something is so.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    let (mut is_so, end) = (is_so, Instant::now() + DEADLINE);
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
