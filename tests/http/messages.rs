//! What is sent: byte for byte what the topology says, and nothing that could be taken for something else.

use std::sync::Arc;

use ratchet::effect::provider::RenderedRequest;
use ratchet::provider::http::{Http, Settings, is_reserved_header};

use crate::http::caller::{Caller, assert_not_sent, code, key, rendered, settings};
use crate::provider::{Options, Provider, Seen};

fn headers(of: &[(&str, &[u8])]) -> Vec<(Arc<str>, Vec<u8>)> {
    of.iter().map(|(name, value)| (Arc::from(*name), value.to_vec())).collect()
}

fn sent(settings: Settings, rendered: impl FnOnce(&Provider) -> RenderedRequest) -> Seen {
    let provider = Provider::start();
    let heard = Caller::new(settings).call(rendered(&provider));
    assert_eq!(code(&heard), 201);
    provider.seen().remove(0)
}

#[test]
fn request_is_as_it_was_rendered() {
    let seen = sent(Settings { method: "PATCH".to_owned(), ..settings() }, |provider| RenderedRequest {
        headers: headers(&[("X-Tenant", b"7"), ("authorization", b"Bearer t"), ("x-tenant", b"caf\xc3\xa9\t8")]),
        ..rendered(&provider.url("/charges/%2F?a=1&b=%20#fragment"), "a")
    });
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("PATCH", "/charges/%2F?a=1&b=%20"));
    assert_eq!(seen.body.as_deref(), Some(&b"a"[..]));
    assert_eq!(seen.header("x-tenant"), ["7", "café\t8"]);
    assert_eq!(seen.header("authorization"), ["Bearer t"]);
    assert_eq!(seen.header("idempotency-key"), [key("a").as_str()]);
    assert_eq!(
        (seen.header("user-agent"), seen.header("accept")),
        (vec!["ratchet".to_owned()], vec!["*/*".to_owned()])
    );
    assert!(seen.header("host")[0].starts_with("localhost:"));
    let names: Vec<_> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    let rest = ["idempotency-key", "user-agent", "accept", "host", "content-length"];
    assert_eq!(names, [&["x-tenant", "x-tenant", "authorization"][..], &rest].concat());
}

#[test]
fn own_values_of_a_user_count_but_for_the_key() {
    let own: &[(&str, &[u8])] = &[
        ("User-Agent", b"mine"),
        ("Accept", b"text/plain"),
        ("IDEMPOTENCY-KEY", b"mine"),
        ("authorization", b"Bearer mine"),
    ];
    let seen = sent(settings(), |provider| {
        let url = provider.url("/").replace("localhost", "me:s3cret@localhost");
        RenderedRequest { headers: headers(own), ..rendered(&url, "a") }
    });
    assert_eq!(seen.header("user-agent"), ["mine"]);
    assert_eq!(seen.header("accept"), ["text/plain"]);
    assert_eq!(seen.header("authorization"), ["Bearer mine"]);
    assert_eq!(seen.header("idempotency-key"), [key("a").as_str()]);
    let seen = sent(settings(), |provider| RenderedRequest {
        key: None,
        headers: headers(own),
        ..rendered(&provider.url("/"), "a")
    });
    assert_eq!(seen.header("idempotency-key"), ["mine"], "there is no other");
}

#[test]
fn user_of_an_address_is_sent_as_a_header() {
    let seen =
        sent(settings(), |provider| rendered(&provider.url("/").replace("localhost", "me%40x:p%3Aw@localhost"), "a"));
    // me@x:p:w
    assert_eq!(seen.header("authorization"), ["Basic bWVAeDpwOnc="]);
    assert!(!seen.header("host")[0].contains("me"));
}

#[test]
fn no_body_is_not_an_empty_one() {
    let get = |body: Option<&[u8]>| {
        let seen = sent(Settings { method: "GET".to_owned(), ..settings() }, |provider| RenderedRequest {
            body: body.map(<[u8]>::to_vec),
            ..rendered(&provider.url(""), "a")
        });
        assert_eq!(seen.target, "/");
        seen.header("content-length")
    };
    assert_eq!((get(None), get(Some(b"")), get(Some(b"x"))), (vec![], vec!["0".to_owned()], vec!["1".to_owned()]));
}

/// Whatever the topology's own check has let through.
#[test]
fn what_could_be_taken_for_another_request_is_not_sent() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    let control: [&[u8]; 6] =
        [b"a\r\nx-admin: s3cret", b"a\nb", b"a\rb", b"a\0b", b"\x7f", b"a\r\n\r\nPOST /admin HTTP/1.1\r\n\r\n"];
    for value in control {
        let refused = RenderedRequest { headers: headers(&[("x-tenant", value)]), ..rendered(&provider.url("/"), "a") };
        assert_not_sent(&caller.call(refused), "the value of the header x-tenant contains a line break");
    }
    for name in ["", "a b", "a:b", "a\r\nb", "ä"] {
        let refused = RenderedRequest { headers: headers(&[(name, b"v")]), ..rendered(&provider.url("/"), "a") };
        assert_not_sent(&caller.call(refused), "is not a valid header name");
    }
    for name in ["Host", "content-length", "Transfer-Encoding", "connection", "upgrade", "te", "expect", "trailer"] {
        assert!(is_reserved_header(name));
        let refused = RenderedRequest { headers: headers(&[(name, b"7")]), ..rendered(&provider.url("/"), "a") };
        assert_not_sent(&caller.call(refused), "reserved for HTTP itself");
    }
    for url in [
        "",
        "/charges",
        "localhost:1/",
        "ftp://localhost/",
        "http://",
        "http://a b/s3cret",
        "http:///s3cret",
        "http://me:s3cret@",
        "http://host:port/s3cret",
        "http://host:99999/s3cret",
        "http://host/s3cret\r\nx: y",
        "http://me:s3cret@host:1:2/",
        "file:///etc/s3cret",
    ] {
        assert_not_sent(&caller.call(rendered(url, "a")), "the address of the request");
    }
    assert_eq!(provider.seen().len(), 0);
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), "a"))), 201);
}

#[test]
fn key_without_a_header_is_not_sent() {
    let provider = Provider::start();
    let mut caller = Caller::new(Settings { key_header: None, ..settings() });
    assert_not_sent(&caller.call(rendered(&provider.url("/"), "a")), "no header is configured");
    assert_eq!(code(&caller.call(RenderedRequest { key: None, ..rendered(&provider.url("/"), "a") })), 201);
    assert_eq!(provider.seen()[0].key, None);
}

#[test]
fn header_of_the_key_is_the_topologys() {
    let provider = Provider::with(Options { key_header: "x-request-id".to_owned(), ..Options::default() });
    let mut caller = Caller::new(Settings { key_header: Some("X-Request-Id".to_owned()), ..settings() });
    caller.call(rendered(&provider.url("/"), "a"));
    assert_eq!(provider.seen()[0].key.as_deref(), Some(key("a").as_str()));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut changed = settings();
        change(&mut changed);
        Http::new(changed)
    };
    type Change<'a> = &'a dyn Fn(&mut Settings);
    let cases: [(Change<'_>, &str); 9] = [
        (&|settings| settings.method = "PO ST".to_owned(), "\"PO ST\" is not an HTTP method"),
        (&|settings| settings.method = "CONNECT".to_owned(), "for proxies"),
        (&|settings| settings.key_header = Some("a b".to_owned()), "is not a valid header name"),
        (&|settings| settings.key_header = Some("Host".to_owned()), "reserved for HTTP itself"),
        (&|settings| settings.in_flight = 0, "in_flight is 0"),
        (&|settings| settings.timeout = std::time::Duration::ZERO, "the timeout is 0"),
        (&|settings| settings.rate = Some(0.0), "the rate"),
        (&|settings| settings.rate = Some(f64::NAN), "the rate"),
        (&|settings| settings.rate = Some(f64::INFINITY), "the rate"),
    ];
    for (change, words) in cases {
        let error = with(change).expect_err(words);
        assert!(error.message.contains(words), "{error}");
        assert_eq!(error.kind, ratchet::effect::ErrorKind::Permanent);
    }
    assert!(with(&|_| ()).is_ok());
}
