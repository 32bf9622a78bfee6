//! Proxies by the usual variables. These are the process's, so each case is a process of its own.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use ratchet::provider::http::Settings;

use crate::http::caller::{Caller, rendered, settings};
use crate::http::connecting::splice;
use crate::http::raw::{Raw, answer, read_request};
use crate::provider::{Options, Provider};

const URL: &str = "RATCHET_TEST_URL";
const AUTHORITIES: &str = "RATCHET_TEST_AUTHORITIES";

/// A proxy: connects where it is asked to, or passes a request on.
fn proxy() -> Raw {
    Raw::start(|mut stream, write_down| {
        let Some(request) = read_request(&mut stream, write_down) else { return };
        let text = String::from_utf8_lossy(&request).into_owned();
        let target = text.split(' ').nth(1).unwrap();
        if text.starts_with("CONNECT ") {
            let other = TcpStream::connect(target.replace("localhost", "127.0.0.1")).unwrap();
            stream.write_all(b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n").unwrap();
            return splice(stream, other);
        }
        let place = target.strip_prefix("http://").unwrap().split('/').next().unwrap();
        let mut other = TcpStream::connect(place.replace("localhost", "127.0.0.1")).unwrap();
        other.write_all(&request).unwrap();
        splice(stream, other);
    })
}

/// What a process with these variables hears.
fn heard(url: &str, provider: &Provider, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "http::proxies::call", "--ignored", "--nocapture"]);
    for name in ["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.env(URL, url).env(AUTHORITIES, provider.authority()).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    text.lines().find(|line| line.contains("AttemptEnd {")).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
#[ignore = "the process of the other tests"]
fn call() {
    let settings = Settings { authorities: std::env::var_os(AUTHORITIES).map(Into::into), ..settings() };
    println!("\n{:?}", Caller::new(settings).call(rendered(&std::env::var(URL).unwrap(), "a")));
}

#[test]
fn tls_goes_through_a_tunnel() {
    for two in [false, true] {
        let (provider, proxy) = (Provider::with(Options { tls: true, two, ..Options::default() }), proxy());
        let address = format!("http://me:s3cret@127.0.0.1:{}", proxy.port);
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
            provider.forget_keys();
            let heard = heard(&provider.url("/charges"), &provider, &[(name, &address)]);
            assert!(heard.contains("code: 201"), "{heard}");
        }
        let read = String::from_utf8_lossy(&proxy.all()).into_owned();
        let head = format!("CONNECT localhost:{0} HTTP/1.1\r\nHost: localhost:{0}\r\n", provider.port);
        assert_eq!(read.matches(&head).count(), 3, "{read}");
        assert_eq!(read.matches("Proxy-Authorization: Basic bWU6czNjcmV0\r\n\r\n").count(), 3, "{read}");
        assert!(!read.contains("charges") && !read.contains("dempotency"), "{read}");
        assert!(provider.seen().iter().all(|seen| seen.two == two && seen.header("proxy-authorization").is_empty()));
    }
}

#[test]
fn request_in_clear_is_passed_on() {
    let (provider, proxy) = (Provider::start(), proxy());
    let address = format!("http://me:s3cret@127.0.0.1:{}", proxy.port);
    let heard = heard(&provider.url("/charges?a=b"), &provider, &[("http_proxy", &address)]);
    assert!(heard.contains("code: 201"), "{heard}");
    let read = String::from_utf8_lossy(&proxy.all()).to_lowercase();
    let first = format!("post http://localhost:{}/charges?a=b http/1.1\r\n", provider.port);
    assert!(read.starts_with(&first), "{read}");
    assert!(read.contains("proxy-authorization: basic bwu6cznjcmv0\r\n"), "{read}");
}

#[test]
fn some_hosts_go_without() {
    let (provider, proxy) = (Provider::start(), proxy());
    let address = format!("http://127.0.0.1:{}", proxy.port);
    let variables =
        [("HTTP_PROXY", address.as_str()), ("HTTPS_PROXY", &address), ("NO_PROXY", "example.com,localhost")];
    assert!(heard(&provider.url("/"), &provider, &variables).contains("code: 201"));
    assert!(proxy.all().is_empty());
}

/// Nothing of the request was written yet.
#[test]
fn proxy_that_does_not_connect_is_not_sent() {
    let provider = Provider::by_two();
    let refusing = |status: &'static str| {
        Raw::start(move |mut stream, write_down| {
            read_request(&mut stream, write_down);
            answer(&mut stream, status);
        })
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (unknown, bad, closing) = (
        refusing("407 Proxy Authentication Required"),
        refusing("502 Bad Gateway"),
        Raw::start(|mut stream, write_down| drop(read_request(&mut stream, write_down))),
    );
    let noise = Raw::start(|mut stream, write_down| {
        read_request(&mut stream, write_down);
        let _ = stream.write_all(&b"noise\r\n".repeat(4096));
    });
    let local = |port: u16| format!("http://me:s3cret@127.0.0.1:{port}");
    let cases = [
        (local(free), "connection refused"),
        (local(unknown.port), "it answered 407"),
        (local(bad.port), "it answered 502"),
        (local(closing.port), "does not answer"),
        (local(noise.port), "answers no HTTP"),
        (format!("socks5://127.0.0.1:{free}"), "only http:// and https://"),
    ];
    for (address, words) in cases {
        let heard = heard(&provider.url("/"), &provider, &[("HTTPS_PROXY", &address)]);
        assert!(heard.contains("outcome: NotSent") && heard.contains(words), "{words}: {heard}");
    }
    assert!(provider.seen().is_empty());
}
