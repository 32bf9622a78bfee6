//! The id of a request, by which it is found, and its fingerprint, by which another request under its key is noticed.
//!
//! The **id** is the SHA-256 of the scope (the service's name), the host if it counts, the caller (the client, as the
//! settings identify it), the method, the path and the key: a key belongs to its caller, on one resource of one
//! service. Without a scope and a host, neither is part of the digest.
//!
//! The **fingerprint** is the SHA-256 of the method, the path with its query, chosen headers and the body. JSON is
//! compared by its meaning: whitespace and the order of fields do not matter, and chosen fields are left out. Any other
//! body is compared byte by byte.

use std::sync::{Mutex, PoisonError};

use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName};
use http::request::Parts;
use sha2::{Digest, Sha256};

use crate::dedup::Fingerprinter;
use crate::request::{Fingerprint, Id};

/// JSON that nests deeper is not compared by its meaning, but byte by byte.
const DEPTH_MAX: usize = 128;
/// The prefixes of digested data: they keep digests of different kinds from being equal.
const ID_PREFIX: &[u8] = b"ratchet request 1";
const SCOPED_ID_PREFIX: &[u8] = b"ratchet request in a scope 1";
const FINGERPRINT_PREFIX: &[u8] = b"ratchet request's fingerprint 1";

/// Computes fingerprints of requests.
#[derive(Debug)]
pub(super) struct Fingerprints {
    /// The headers that the fingerprints cover.
    headers: Vec<HeaderName>,
    /// The paths of the JSON fields that are left out.
    excluded_fields: Vec<Vec<String>>,
    /// Fingerprinters that are not in use, to be used again.
    idle: Mutex<Vec<Fingerprinter>>,
}

impl Fingerprints {
    /// Fingerprints that cover these headers, and leave out the JSON fields at these paths.
    pub fn new(headers: Vec<HeaderName>, excluded_fields: Vec<Vec<String>>) -> Self {
        Self { headers, excluded_fields, idle: Mutex::default() }
    }

    /// The fingerprint of a request.
    pub fn fingerprint(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        let mut digest = LengthPrefixed::new(FINGERPRINT_PREFIX);
        digest.add(parts.method.as_str().as_bytes());
        digest.add(parts.uri.path_and_query().map_or("", |target| target.as_str()).as_bytes());
        for name in &self.headers {
            let values: Vec<_> = parts.headers.get_all(name).iter().collect();
            digest.add(&(values.len() as u64).to_be_bytes());
            values.iter().for_each(|value| digest.add(value.as_bytes()));
        }
        match is_json(&parts.headers).then(|| self.json_digest(body)).flatten() {
            Some(json) => digest.add(&json),
            None => digest.add(body),
        }
        Fingerprint(digest.finish())
    }

    /// The digest of JSON's meaning; `None` if the body is not JSON, or nests too deep.
    fn json_digest(&self, body: &[u8]) -> Option<[u8; 32]> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let reused = idle().pop();
        let mut fingerprinter =
            reused.unwrap_or_else(|| Fingerprinter::new(self.excluded_fields.iter().map(Vec::as_slice), DEPTH_MAX));
        let digest = fingerprinter.of(body);
        idle().push(fingerprinter);
        digest
    }
}

/// Whether the media type is `application/json`, or an `application/` type that ends with `+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(media_type) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}

/// The namespace of a key, besides the method and the path: a service, a host and a caller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Namespace<'a> {
    /// The service's name; empty if it has none.
    pub scope: &'a str,
    /// `None` if the host does not count.
    pub host: Option<&'a [u8]>,
    /// `None` if the request does not say who its caller is.
    pub caller: Option<&'a [u8]>,
}

/// The host that a request names: in its URI, or else in `Host`.
pub(super) fn host(parts: &Parts) -> Option<Vec<u8>> {
    let host = match parts.uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => parts.headers.get(HOST)?.as_bytes(),
    };
    Some(host.to_ascii_lowercase())
}

/// The id of a request.
pub(super) fn id(namespace: Namespace<'_>, parts: &Parts, key: &str) -> Id {
    let mut digest = if namespace.scope.is_empty() && namespace.host.is_none() {
        LengthPrefixed::new(ID_PREFIX)
    } else {
        let mut digest = LengthPrefixed::new(SCOPED_ID_PREFIX);
        digest.add(namespace.scope.as_bytes());
        digest.add_optional(namespace.host);
        digest
    };
    digest.add_optional(namespace.caller);
    digest.add(parts.method.as_str().as_bytes());
    digest.add(parts.uri.path().as_bytes());
    digest.add(key.as_bytes());
    Id(digest.finish())
}

/// Digests values one after the other, each after its length, so that their boundaries are unambiguous.
struct LengthPrefixed(Sha256);

impl LengthPrefixed {
    fn new(prefix: &[u8]) -> Self {
        let mut digest = Self(Sha256::new());
        digest.add(prefix);
        digest
    }

    fn add(&mut self, value: &[u8]) {
        self.0.update((value.len() as u64).to_be_bytes());
        self.0.update(value);
    }

    fn add_optional(&mut self, value: Option<&[u8]>) {
        self.add(&[u8::from(value.is_some())]);
        self.add(value.unwrap_or_default());
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn except(path: &str) -> Vec<String> {
        path.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn same_key_of_another_caller_method_or_path_has_another_id() {
        let charge = parts("POST", "/charges?a=1", &[]);
        let by = |caller| Namespace { caller, ..Namespace::default() };
        let known = id(by(Some(b"alice")), &charge, "k");
        assert_eq!(id(by(Some(b"alice")), &parts("POST", "/charges", &[]), "k"), known);
        let others = [
            id(by(Some(b"bob")), &charge, "k"),
            id(by(None), &charge, "k"),
            id(by(Some(b"")), &charge, "k"),
            id(by(Some(b"alice")), &parts("PUT", "/charges", &[]), "k"),
            id(by(Some(b"alice")), &parts("POST", "/charge", &[]), "sk"),
            id(by(Some(b"alice")), &charge, "K"),
        ];
        assert!(others.iter().all(|other| *other != known), "{others:?}");
        assert_ne!(others[1], others[2], "a missing caller is not a caller with an empty name");
    }

    /// The digests are part of the format: stores remember requests by them. tests/fixtures has those without a scope
    /// and a host.
    #[test]
    fn same_key_in_another_scope_or_on_another_host_has_another_id() {
        let charge = parts("POST", "/charges", &[]);
        let space = |scope, host, caller| Namespace { scope, host, caller };
        let all = [
            space("", None, None),
            space("shop", None, None),
            space("", Some(&b"shop"[..]), None),
            space("", Some(b""), None),
            space("shop", Some(b""), None),
            space("", None, Some(b"shop")),
            space("", Some(b""), Some(b"shop")),
        ];
        let ids: Vec<Id> = all.into_iter().map(|namespace| id(namespace, &charge, "k")).collect();
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), all.len(), "{ids:?}");
        let hex = crate::format::hex(&id(space("shop", Some(b"api.example"), Some(b"ann")), &charge, "k").0);
        assert_eq!(hex, "c89e64d8bb0233298062f180856d8575713dafc51834106ba5c7cca49997c56f");
    }

    #[test]
    fn host_of_the_uri_precedes_the_host_header() {
        let host_of = |uri: &str, headers: &[(&str, &str)]| host(&parts("POST", uri, headers));
        assert_eq!(host_of("/a", &[("host", "Shop.Example:80")]), Some(b"shop.example:80".to_vec()));
        assert_eq!(host_of("http://Api.Example/a", &[("host", "shop.example")]), Some(b"api.example".to_vec()));
        assert_eq!(host_of("/a", &[]), None);
    }

    #[test]
    fn json_is_compared_by_meaning_and_other_bodies_by_bytes() {
        let prints = Fingerprints::new(vec![], vec![except("sent_at"), except("meta.attempt")]);
        let json = parts("POST", "/", &[("content-type", "application/json; charset=utf-8")]);
        let print = |body: &str| prints.fingerprint(&json, body.as_bytes());
        let known = print(r#"{"amount": 10, "to": "a", "meta": {"attempt": 1, "by": 2}}"#);
        assert_eq!(print(r#"{"to":"a","meta":{"by":2,"attempt":7},"sent_at":"now","amount":10.0}"#), known);
        assert_ne!(print(r#"{"to":"a","meta":{"by":3,"attempt":7},"amount":10}"#), known);
        assert_ne!(print(r#"{"amount": 10, "to": "b", "meta": {"by": 2}}"#), known);
        let text = parts("POST", "/", &[("content-type", "text/plain")]);
        assert_ne!(prints.fingerprint(&text, b"{}"), prints.fingerprint(&text, b"{ }"));
        assert_eq!(print("{"), print("{"), "a body that is not JSON is compared byte by byte");
        assert_ne!(print("{"), print("{ "));
    }

    #[test]
    fn fingerprint_covers_method_path_query_and_chosen_headers() {
        let prints = Fingerprints::new(vec![HeaderName::from_static("api-version")], vec![]);
        let print = |parts: Parts| prints.fingerprint(&parts, b"x");
        let known = print(parts("POST", "/a?b=1", &[("api-version", "1"), ("date", "now")]));
        assert_eq!(print(parts("POST", "/a?b=1", &[("api-version", "1")])), known);
        let others = [
            parts("PUT", "/a?b=1", &[("api-version", "1")]),
            parts("POST", "/a?b=2", &[("api-version", "1")]),
            parts("POST", "/a", &[("api-version", "1")]),
            parts("POST", "/a?b=1", &[("api-version", "2")]),
            parts("POST", "/a?b=1", &[]),
            parts("POST", "/a?b=1", &[("api-version", "1"), ("api-version", "1")]),
        ];
        others.into_iter().for_each(|other| assert_ne!(print(other), known));
    }
}
