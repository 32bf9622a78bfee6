//! What is taken back never arrives.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ratchet::effect::provider::Request;
use ratchet::provider::http::Settings;

use crate::http::caller::{Caller, key, rendered, settings};
use crate::provider::{Move, Provider};

/// Requests are taken back while they queue, wait for a connection, or are written: each is either taken back, or heard
/// of and maybe seen, and never both.
#[test]
fn request_that_was_taken_back_is_never_seen() {
    /// Rounds at least, and at most: how many requests are still there to be taken back depends on the machine's speed.
    const ROUNDS: RangeInclusive<u32> = 200..=4_000;
    for (in_flight, is_closing, two) in [(1, false, false), (4, true, false), (64, false, false), (16, false, true)] {
        let provider = if two { Provider::by_two() } else { Provider::start() };
        let close = if is_closing { Move::act().header("connection", "close") } else { Move::act() };
        provider.always(close);
        let authorities = two.then(|| provider.authority());
        let mut caller = Caller::new(Settings { in_flight, authorities, ..settings() });
        let (mut withdrawn, mut too_late, mut random) = (BTreeSet::new(), 0, 1_u32);
        let mut heard = BTreeSet::new();
        for round in 0..*ROUNDS.end() {
            if round >= *ROUNDS.start() && withdrawn.len() > 50 && too_late > 50 {
                break;
            }
            let submit = |number: u32| caller.submit(rendered(&provider.url("/"), &(round * 8 + number).to_string()));
            let numbers: Vec<_> = (0..8).map(submit).collect();
            for number in numbers.into_iter().step_by(2) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // At once, or within a millisecond.
                let wait = u64::from(random >> 8) % 1_000;
                if random >> 30 != 0 {
                    std::thread::sleep(Duration::from_micros(wait));
                }
                if caller.calls.withdraw(number) {
                    assert!(withdrawn.insert(number), "{number} was taken back twice");
                    assert!(!caller.calls.withdraw(number));
                } else {
                    too_late += 1;
                }
            }
            while heard.len() + withdrawn.len() < (round as usize + 1) * 8 {
                let one = caller.heard();
                assert!(heard.insert(one.number), "{one:?} is heard of twice");
            }
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(caller.calls.take_end().is_none());
        let what = format!("{in_flight} in flight: {} taken back, {too_late} too late", withdrawn.len());
        assert!(withdrawn.len() > 50 && too_late > 50, "{what}");
        assert!(withdrawn.is_disjoint(&heard), "{what}");
        let seen: BTreeSet<_> = provider.seen().into_iter().filter_map(|seen| seen.key).collect();
        for number in withdrawn {
            assert!(!seen.contains(key(&(number - 1).to_string()).as_str()), "{what}: {number} was seen");
        }
        assert_eq!(seen.len(), heard.len(), "{what}");
    }
}

/// The next attempt of a call is not taken for the one that was taken back, which is still queued.
#[test]
fn call_may_be_submitted_again_after_it_was_taken_back() {
    let (provider, mut caller) = (Provider::start(), Caller::new(Settings { in_flight: 1, ..settings() }));
    provider.next([Move::act().slow(Duration::from_secs(1))]);
    caller.submit(rendered(&provider.url("/"), "first"));
    for attempt in 1..=5 {
        let rendered = Arc::new(rendered(&provider.url("/"), &format!("attempt {attempt}")));
        caller.calls.submit(Request::for_http(9, attempt, 0, rendered));
        assert!(attempt == 5 || caller.calls.withdraw(9), "attempt {attempt}");
    }
    let heard: Vec<_> = caller.hear(2).iter().map(|heard| (heard.number, heard.attempt)).collect();
    assert_eq!(heard, [(1, 1), (9, 5)]);
    let bodies: Vec<_> =
        provider.seen().into_iter().map(|seen| String::from_utf8(seen.body.unwrap()).unwrap()).collect();
    assert_eq!(bodies, ["first", "attempt 5"]);
}

#[test]
fn nobody_takes_back_what_is_not_there() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    assert!(!caller.calls.withdraw(1));
    let number = caller.submit(rendered(&provider.url("/"), "a"));
    caller.heard();
    assert!(!caller.calls.withdraw(number));
}
