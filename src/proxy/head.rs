//! Changes the heads of requests and responses that pass through: removes headers that are for one connection only, and
//! adds headers that describe the client.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Version};

/// Headers for one connection only (RFC 9110, 7.6.1), besides those that `Connection` names. `Trailer` is passed on, as
/// trailers are.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    // Belongs to an upgrade to HTTP/2, which is never passed on.
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
const FORWARDED_PREFIX: &str = "x-forwarded-";
/// Other headers in which proxies name the client or host of the original request.
const FORWARDED: [&str; 14] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "forwarded-for",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-original-forwarded-for",
    "x-original-host",
    "x-real-ip",
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The address and transport of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct ClientInfo {
    /// Its address.
    pub address: IpAddr,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
}

/// How heads are changed.
#[derive(Debug)]
pub struct HeadRules {
    /// Whether clients are trusted to say for whom they send requests.
    pub trusts_forwarded: bool,
    /// The `Host` that the service gets, if not the client's.
    pub host: Option<HeaderValue>,
    /// Headers that only the layer ([`crate::http`]) may set: they tell the service a request's reservation.
    pub reserved: Vec<HeaderName>,
}

impl HeadRules {
    /// Turns the head of a client's request into the head for the service. Returns the protocol that the request asks
    /// to upgrade to, if any.
    pub fn rewrite_request<B>(&self, request: &mut Request<B>, client: ClientInfo) -> Option<HeaderValue> {
        let (version, is_get) = (request.version(), request.method() == Method::GET);
        let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
        let headers = request.headers_mut();
        let upgrade = allowed_upgrade(headers).filter(|_| version == Version::HTTP_11 && is_get);
        let takes_trailers = headers.get(header::TE).is_some_and(|te| has_word(te, "trailers"));
        if headers.contains_key(header::TRANSFER_ENCODING) {
            // `Transfer-Encoding` overrides it (RFC 9112, 6.3).
            headers.remove(header::CONTENT_LENGTH);
        }
        remove_hop_by_hop(headers);
        headers.remove(header::TE);
        if takes_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        // The proxy has already answered it.
        headers.remove(header::EXPECT);
        remove_matching(headers, |name| {
            let dashed = with_dashes(name);
            self.reserved.iter().any(|reserved| with_dashes(reserved) == dashed)
        });
        // The host in a request's address overrides its `Host` (RFC 9112, 3.2.2).
        if let Some(host) = authority.and_then(|authority| HeaderValue::from_str(&authority).ok()) {
            headers.insert(header::HOST, host);
        }
        self.set_forwarding_headers(headers, client);
        add_via(headers, version);
        if let Some(host) = &self.host {
            headers.insert(header::HOST, host.clone());
        }
        upgrade
    }

    /// The client's address, from a request whose head was not rewritten yet: the address that a trusted proxy names,
    /// or the connection's.
    pub fn client_address<B>(&self, request: &Request<B>, client: ClientInfo) -> IpAddr {
        let mut forwarded_for = request.headers().get_all(FORWARDED_FOR).iter().filter(|_| self.trusts_forwarded);
        let last =
            forwarded_for.next_back().and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
        last.unwrap_or(client.address)
    }

    /// Sets the forwarding headers, after removing those from the client that are not trusted.
    fn set_forwarding_headers(&self, headers: &mut HeaderMap, client: ClientInfo) {
        // Proxies do not write these names with `_`: even if proxies are trusted, such a spelling comes from a client.
        remove_matching(headers, |name| {
            let dashed = with_dashes(name);
            let is_forwarding = dashed.starts_with(FORWARDED_PREFIX) || FORWARDED.contains(&&*dashed);
            is_forwarding && (!self.trusts_forwarded || name.as_str().contains('_'))
        });
        if let Ok(address) = HeaderValue::from_str(&client.address.to_canonical().to_string()) {
            append_to_list(headers, FORWARDED_FOR, &address);
        }
        let proto = HeaderValue::from_static(if client.is_tls { "https" } else { "http" });
        headers.entry(FORWARDED_PROTO).or_insert(proto);
        if let Some(host) = headers.get(header::HOST).cloned() {
            headers.entry(FORWARDED_HOST).or_insert(host);
        }
    }
}

/// Turns the head of the service's response into the head for the client.
pub fn rewrite_response(headers: &mut HeaderMap) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    remove_hop_by_hop(headers);
}

/// The protocol that a head asks to upgrade to, if that is a web socket. After an upgrade to another version of HTTP,
/// requests would bypass every rule.
pub fn allowed_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks_upgrade = headers.get_all(header::CONNECTION).iter().any(|value| has_word(value, "upgrade"));
    let mut protocols = headers.get_all(header::UPGRADE).iter();
    let only = protocols.next().filter(|_| asks_upgrade && protocols.next().is_none())?;
    only.as_bytes().eq_ignore_ascii_case(b"websocket").then(|| only.clone())
}

fn has_word(value: &HeaderValue, word: &str) -> bool {
    value.to_str().is_ok_and(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
}

/// A header's name, spelled with `-` instead of `_`: many services do not distinguish the two.
fn with_dashes(name: &HeaderName) -> Cow<'_, str> {
    let name = name.as_str();
    if name.contains('_') { Cow::Owned(name.replace('_', "-")) } else { Cow::Borrowed(name) }
}

fn remove_matching(headers: &mut HeaderMap, is_match: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_match(name)).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|text| text.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    named.iter().chain(&HOP_BY_HOP).for_each(|name| drop(headers.remove(name)));
}

/// Adds a value to a header that is a list.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    let known: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    let all = known.into_iter().chain([value.as_bytes()]).collect::<Vec<_>>().join(&b", "[..]);
    if let Ok(all) = HeaderValue::from_bytes(&all) {
        headers.insert(name, all);
    }
}

fn add_via(headers: &mut HeaderMap, version: Version) {
    let protocol = match version {
        Version::HTTP_10 => "1.0 ratchet",
        Version::HTTP_2 => "2.0 ratchet",
        _ => "1.1 ratchet",
    };
    append_to_list(headers, header::VIA, &HeaderValue::from_static(protocol));
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientInfo = ClientInfo { address: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)), is_tls: false };

    fn heads(trusts_forwarded: bool) -> HeadRules {
        HeadRules { trusts_forwarded, host: None, reserved: vec![HeaderName::from_static("x-reservation")] }
    }

    fn request(lines: &[(&str, &str)]) -> Request<()> {
        let request = lines.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap()
    }

    fn after(heads: &HeadRules, lines: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut request = request(lines);
        heads.rewrite_request(&mut request, CLIENT);
        let line = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
        request.headers().iter().map(line).collect()
    }

    fn value<'a>(lines: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut values = lines.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }

    #[test]
    fn headers_for_one_connection_are_removed() {
        let sent = [
            ("host", "a"),
            ("connection", "close, X-Own"),
            ("x-own", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("te", "gzip, trailers"),
            ("trailer", "x-sum"),
            ("upgrade", "websocket"),
            ("http2-settings", "AAMAAABk"),
            ("expect", "100-continue"),
            ("x-reservation", "made up"),
            ("x-kept", "2"),
        ];
        let after = after(&heads(false), &sent);
        for name in ["connection", "x-own", "keep-alive", "proxy-connection", "transfer-encoding", "content-length"] {
            assert_eq!(value(&after, name), None, "{name}");
        }
        for name in ["upgrade", "http2-settings", "expect", "x-reservation"] {
            assert_eq!(value(&after, name), None, "{name}");
        }
        assert_eq!((value(&after, "te"), value(&after, "trailer")), (Some("trailers"), Some("x-sum")));
        assert_eq!(value(&after, "x-kept"), Some("2"));
    }

    #[test]
    fn forwarding_headers_are_kept_only_from_trusted_clients() {
        let sent = [
            ("host", "shop.example"),
            ("x-forwarded-for", "203.0.113.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "other.example"),
            ("x-forwarded-port", "1"),
            ("forwarded", "for=203.0.113.1"),
            ("via", "1.1 front"),
        ];
        let untrusted = after(&heads(false), &sent);
        assert_eq!(value(&untrusted, "x-forwarded-for"), Some("192.0.2.7"));
        assert_eq!(value(&untrusted, "x-forwarded-proto"), Some("http"));
        assert_eq!(value(&untrusted, "x-forwarded-host"), Some("shop.example"));
        assert_eq!((value(&untrusted, "x-forwarded-port"), value(&untrusted, "forwarded")), (None, None));
        assert_eq!(value(&untrusted, "via"), Some("1.1 front, 1.1 ratchet"));
        let trusted = after(&heads(true), &sent);
        assert_eq!(value(&trusted, "x-forwarded-for"), Some("203.0.113.1, 192.0.2.7"));
        assert_eq!(value(&trusted, "x-forwarded-proto"), Some("https"));
        assert_eq!(value(&trusted, "x-forwarded-host"), Some("other.example"));
        assert_eq!(value(&trusted, "forwarded"), Some("for=203.0.113.1"));
    }

    /// Found by an audit: a service that reads `X-Real-IP`, or treats `_` as `-` like CGI and WSGI, believed the
    /// client.
    #[test]
    fn untrusted_forwarding_headers_are_removed_however_they_are_spelled() {
        let sent = [
            ("host", "shop.example"),
            ("x-real-ip", "203.0.113.1"),
            ("x_forwarded_for", "203.0.113.1"),
            ("x-forwarded_proto", "https"),
            ("x_real_ip", "203.0.113.1"),
            ("true-client-ip", "203.0.113.1"),
            ("cf-connecting-ip", "203.0.113.1"),
            ("x_reservation", "made up"),
            ("x-forwardedness", "kept"),
            ("x_own", "kept"),
        ];
        let names = |trusts| {
            let mut names: Vec<String> = after(&heads(trusts), &sent).into_iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            names
        };
        let own =
            ["host", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwardedness", "x_own"];
        assert_eq!(names(false), own);
        let passed = ["cf-connecting-ip", "true-client-ip", "x-real-ip"];
        let mut trusted: Vec<&str> = own.into_iter().chain(passed).collect();
        trusted.sort_unstable();
        assert_eq!(names(true), trusted, "a trusted proxy may send them, but not with `_`");
    }

    /// The setting and the client may spell it differently.
    #[test]
    fn reserved_header_is_removed_however_it_is_spelled() {
        for reserved in ["x_own-reservation", "x-own-reservation"] {
            let heads = HeadRules { reserved: vec![HeaderName::from_static(reserved)], ..heads(true) };
            for sent in ["x-own-reservation", "x_own_reservation", "x_own-reservation"] {
                let left = after(&heads, &[(sent, "made up"), ("x-own", "kept")]);
                assert!(left.iter().all(|(name, _)| !name.contains("reservation")), "{reserved}, {sent}: {left:?}");
            }
        }
    }

    #[test]
    fn client_is_the_one_that_a_trusted_proxy_names() {
        let of = |trusts: bool, lines: &[(&str, &str)]| {
            let client = ClientInfo { address: IpAddr::from([192, 0, 2, 7]), is_tls: false };
            heads(trusts).client_address(&request(lines), client).to_string()
        };
        let said = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.9, 203.0.113.1")];
        assert_eq!(of(true, &said), "203.0.113.1", "earlier addresses were added by others");
        assert_eq!(of(false, &said), "192.0.2.7");
        assert_eq!((of(true, &[]), of(true, &[("x-forwarded-for", "me")])), ("192.0.2.7".into(), "192.0.2.7".into()));
    }

    #[test]
    fn upgrade_needs_two_headers() {
        let asks = |lines: &[(&str, &str)]| heads(false).rewrite_request(&mut request(lines), CLIENT).is_some();
        assert!(asks(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]));
        assert!(!asks(&[("connection", "keep-alive"), ("upgrade", "websocket")]));
        assert!(!asks(&[("connection", "upgrade")]));
    }

    #[test]
    fn only_upgrades_to_web_sockets_are_allowed() {
        let asks = |protocols: &[&str]| {
            let lines = protocols.iter().map(|protocol| ("upgrade", *protocol));
            let lines: Vec<_> = [("connection", "Upgrade, HTTP2-Settings")].into_iter().chain(lines).collect();
            heads(false).rewrite_request(&mut request(&lines), CLIENT).is_some()
        };
        assert!(asks(&["websocket"]) && asks(&["WebSocket"]));
        for other in ["h2c", "HTTP/2.0", "TLS/1.0", "websocket, h2c", "h2c, websocket", "websocket/13", ""] {
            assert!(!asks(&[other]), "{other}");
        }
        assert!(!asks(&["websocket", "h2c"]) && !asks(&["websocket", "websocket"]));
    }

    #[test]
    fn configured_host_replaces_the_clients_host() {
        let set = HeadRules { host: Some(HeaderValue::from_static("service:3000")), ..heads(false) };
        let after = after(&set, &[("host", "shop.example")]);
        assert_eq!(value(&after, "host"), Some("service:3000"));
        assert_eq!(value(&after, "x-forwarded-host"), Some("shop.example"));
    }
}
