//! HTTP/2.

use std::time::Duration;

use ratchet::effect::call::{AttemptOutcome, Status};
use ratchet::effect::provider::{Body, RenderedRequest};
use ratchet::provider::http::Settings;

use crate::http::caller::{Caller, assert_lost, code, key, rendered, settings};
use crate::provider::{Move, Options, Plan, Provider};

fn caller(provider: &Provider) -> Caller {
    Caller::new(Settings { authorities: Some(provider.authority()), ..settings() })
}

/// All on one connection, and in order.
#[test]
fn requests_share_a_connection() {
    let provider = Provider::by_two();
    let mut caller = caller(&provider);
    for number in 0..200 {
        caller.submit(rendered(&provider.url("/charges?a=b"), &number.to_string()));
    }
    assert!(caller.hear(200).iter().all(|heard| code(heard) == 201));
    let seen = provider.seen();
    assert!(seen.iter().all(|seen| seen.two && seen.connection == 0 && seen.target == "/charges?a=b"));
    let keys: Vec<_> = seen.into_iter().map(|seen| seen.key.unwrap()).collect();
    assert_eq!(keys, (0..200).map(|number| key(&number.to_string()).to_string()).collect::<Vec<_>>());
}

#[test]
fn request_is_as_it_was_rendered() {
    let provider = Provider::by_two();
    let headers = vec![("X-Tenant".into(), b"7".to_vec())];
    let long = "x".repeat(3 << 20);
    let heard = caller(&provider).call(RenderedRequest { headers, ..rendered(&provider.url("/a"), &long) });
    assert_eq!(heard.outcome, AttemptOutcome::Status(Status::of(201)));
    assert_eq!(heard.body, Body::Whole(b"{\"done\":true}".to_vec()));
    let seen = provider.seen().remove(0);
    assert_eq!(seen.body.as_deref(), Some(long.as_bytes()));
    assert_eq!((seen.header("x-tenant"), seen.header("host")), (vec!["7".to_owned()], Vec::new()));
    assert_eq!(seen.header("content-length"), [long.len().to_string()]);
}

/// No request waits within a connection until the provider allows it: a further connection is made.
#[test]
fn as_many_are_on_a_connection_as_the_provider_allows() {
    let provider = Provider::with(Options { streams: 3, tls: true, two: true, ..Options::default() });
    provider.always(Move::act().slow(Duration::from_secs(2)));
    let mut caller = caller(&provider);
    for number in 0..8 {
        caller.submit(rendered(&provider.url("/"), &number.to_string()));
    }
    assert!(caller.hear(8).iter().all(|heard| code(heard) == 201));
    assert_eq!(provider.most_at_once(), 8, "all of them at once");
    let mut by_connection = [0; 3];
    provider.seen().iter().for_each(|seen| by_connection[seen.connection as usize] += 1);
    assert_eq!(by_connection, [3, 3, 2]);
}

#[test]
fn what_happens_to_one_request_is_nothing_to_the_others() {
    let provider = Provider::by_two();
    let mut caller = Caller::new(Settings {
        authorities: Some(provider.authority()),
        timeout: Duration::from_secs(3),
        ..settings()
    });
    provider.next([
        Move::close(),
        Move::act().unheard(),
        Move::silence(),
        Move::act().body(Plan::Cut(b"half of".to_vec(), 99)),
        Move::act().body(Plan::Long(100 << 20)),
        Move::act().body(Plan::Endless),
    ]);
    provider.always(Move::act().slow(Duration::from_millis(1_000)));
    for number in 0..12 {
        caller.submit(rendered(&provider.url("/"), &number.to_string()));
    }
    let heard = caller.hear(12);
    assert_lost(&heard[0], "the stream was reset");
    assert_lost(&heard[1], "the stream was reset");
    assert_lost(&heard[2], "no answer within 3s");
    for cut in &heard[3..6] {
        assert_eq!((code(cut), &cut.body), (201, &Body::None));
        assert!(cut.message.as_ref().unwrap().contains("was cut"), "{cut:?}");
    }
    assert!(heard[6..].iter().all(|heard| code(heard) == 201 && heard.message.is_none()));
    assert!(provider.seen().iter().all(|seen| seen.connection == 0));
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), "next"))), 201);
    assert_eq!(provider.seen().last().unwrap().connection, 1, "one that did not answer is not used again");
}

#[test]
fn connection_that_breaks_loses_what_was_on_it() {
    let mut provider = Provider::by_two();
    provider.always(Move::silence());
    let mut caller = caller(&provider);
    for number in 0..5 {
        caller.submit(rendered(&provider.url("/"), &number.to_string()));
    }
    crate::http::caller::until("all have come", || provider.seen().len() == 5);
    provider.kill();
    for heard in caller.hear(5) {
        assert_lost(&heard, "");
    }
    provider.always(Move::act());
    provider.restart();
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), "next"))), 201);
}

/// Where TLS does not say HTTP/2, it is HTTP/1.1.
#[test]
fn provider_that_does_not_speak_it_is_called_all_the_same() {
    let provider = Provider::with(Options { tls: true, ..Options::default() });
    provider.always(Move::act().slow(Duration::from_millis(50)));
    let mut caller = caller(&provider);
    for number in 0..64 {
        caller.submit(rendered(&provider.url("/"), &number.to_string()));
    }
    assert!(caller.hear(64).iter().all(|heard| code(heard) == 201));
    assert!(provider.seen().iter().all(|seen| !seen.two));
    assert_eq!(provider.seen()[0].header("host"), [format!("localhost:{}", provider.port)]);
}

#[test]
fn provider_that_allows_no_requests_is_not_sent_to() {
    let provider = Provider::with(Options { streams: 0, tls: true, two: true, ..Options::default() });
    let heard = caller(&provider).call(rendered(&provider.url("/"), "a"));
    crate::http::caller::assert_not_sent(&heard, "accepts no requests");
}

/// Nothing is lost when a provider replaces its connections, as it does when it is deployed.
#[test]
fn connection_that_takes_no_more_requests_is_replaced() {
    let provider = Provider::by_two();
    let mut caller = caller(&provider);
    for round in 0..10 {
        provider.next([Move::act().slow(Duration::from_millis(200))]);
        caller.submit(rendered(&provider.url("/"), &format!("{round}-slow")));
        crate::http::caller::until("it has come", || provider.seen().len() == round * 6 + 1);
        provider.leave_connections();
        for number in 0..5 {
            // Before, while and after that is known.
            std::thread::sleep(Duration::from_millis(number));
            caller.submit(rendered(&provider.url("/"), &format!("{round}-{number}")));
        }
        for heard in caller.hear(6) {
            assert_eq!(code(&heard), 201, "{round}");
        }
        assert_eq!(provider.seen().len(), round * 6 + 6);
    }
    let last = provider.seen().iter().map(|seen| seen.connection).max();
    assert!(last.is_some_and(|last| last >= 9), "{last:?}");
}
