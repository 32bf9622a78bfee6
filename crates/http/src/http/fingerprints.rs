//! What a request asks for, and by what name: its id and its fingerprint.
//!
//! The **id** is the SHA-256 of the scope, the host if that counts, the caller, the method, the path and the key: a key is
//! its caller's, on one resource of one service. Without scope and host it is digested as if there were no such things.
//! The **fingerprint** is the SHA-256 of the method, the path with its query, chosen headers and the body. JSON is taken by
//! its meaning: the order of fields and blanks do not matter, and chosen fields are left out; any other body counts byte
//! by byte.

use std::sync::{Mutex, PoisonError};

use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName};
use http::request::Parts;
use sha2::{Digest, Sha256};

use crate::dedup::Fingerprinter;
use crate::request::{Fingerprint, Id};

/// How deep the JSON of a request may nest to be taken by its meaning.
const DEPTH_MAX: usize = 128;
/// Begins what is digested, so that ids of another kind are never the same.
const ID: &[u8] = b"ratchet request 1";
const SCOPED_ID: &[u8] = b"ratchet request in a scope 1";
const FINGERPRINT: &[u8] = b"ratchet request's fingerprint 1";

/// Takes fingerprints.
#[derive(Debug)]
pub(super) struct Fingerprints {
    headers: Vec<HeaderName>,
    except: Vec<Vec<String>>,
    /// What can be used again, of those that are not at work.
    idle: Mutex<Vec<Fingerprinter>>,
}

impl Fingerprints {
    /// With these headers, and without the places in JSON that these steps lead to.
    pub fn new(headers: Vec<HeaderName>, except: Vec<Vec<String>>) -> Self {
        Self { headers, except, idle: Mutex::default() }
    }

    /// The fingerprint of a request.
    pub fn of(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        let mut digest = Lengths::new(FINGERPRINT);
        digest.add(parts.method.as_str().as_bytes());
        digest.add(parts.uri.path_and_query().map_or("", |all| all.as_str()).as_bytes());
        for name in &self.headers {
            let values: Vec<_> = parts.headers.get_all(name).iter().collect();
            digest.add(&(values.len() as u64).to_be_bytes());
            values.iter().for_each(|value| digest.add(value.as_bytes()));
        }
        match is_json(&parts.headers).then(|| self.of_json(body)).flatten() {
            Some(json) => digest.add(&json),
            None => digest.add(body),
        }
        Fingerprint(digest.end())
    }

    fn of_json(&self, body: &[u8]) -> Option<[u8; 32]> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut fingerprinter =
            taken.unwrap_or_else(|| Fingerprinter::new(self.except.iter().map(Vec::as_slice), DEPTH_MAX));
        let json = fingerprinter.of(body);
        idle().push(fingerprinter);
        json
    }
}

/// `application/json`, and whatever says that it is written as JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Whose keys they are: those of this service, on this host, of this caller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Of<'a> {
    pub scope: &'a str,
    /// `None` where it does not count.
    pub host: Option<&'a [u8]>,
    pub caller: Option<&'a [u8]>,
}

/// The host that a request is for, as it says: in its address, or by `Host`.
pub(super) fn host(parts: &Parts) -> Option<Vec<u8>> {
    let host = match parts.uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => parts.headers.get(HOST)?.as_bytes(),
    };
    Some(host.to_ascii_lowercase())
}

/// The id of a request.
pub(super) fn id(of: Of<'_>, parts: &Parts, key: &str) -> Id {
    let mut digest = if of.scope.is_empty() && of.host.is_none() {
        Lengths::new(ID)
    } else {
        let mut digest = Lengths::new(SCOPED_ID);
        digest.add(of.scope.as_bytes());
        digest.add_optional(of.host);
        digest
    };
    digest.add_optional(of.caller);
    digest.add(parts.method.as_str().as_bytes());
    digest.add(parts.uri.path().as_bytes());
    digest.add(key.as_bytes());
    Id(digest.end())
}

/// Digests values one after the other, each with its length, so that they cannot run into each other.
struct Lengths(Sha256);

impl Lengths {
    fn new(kind: &[u8]) -> Self {
        let mut all = Self(Sha256::new());
        all.add(kind);
        all
    }

    fn add(&mut self, value: &[u8]) {
        self.0.update((value.len() as u64).to_be_bytes());
        self.0.update(value);
    }

    fn add_optional(&mut self, value: Option<&[u8]>) {
        self.add(&[u8::from(value.is_some())]);
        self.add(value.unwrap_or_default());
    }

    fn end(self) -> [u8; 32] {
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
    fn keys_are_their_callers_own_on_one_resource() {
        let charge = parts("POST", "/charges?a=1", &[]);
        let by = |caller| Of { caller, ..Of::default() };
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
        assert_ne!(others[1], others[2], "nobody is not somebody without a name");
    }

    /// The digests are a part of the format: stores remember requests by them. Those without a scope and a host are in
    /// tests/fixtures.
    #[test]
    fn keys_are_those_of_one_service_and_host() {
        let charge = parts("POST", "/charges", &[]);
        let of = |scope, host, caller| Of { scope, host, caller };
        let all = [
            of("", None, None),
            of("shop", None, None),
            of("", Some(&b"shop"[..]), None),
            of("", Some(b""), None),
            of("shop", Some(b""), None),
            of("", None, Some(b"shop")),
            of("", Some(b""), Some(b"shop")),
        ];
        let ids: Vec<Id> = all.into_iter().map(|of| id(of, &charge, "k")).collect();
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), all.len(), "{ids:?}");
        let hex = crate::format::hex(&id(of("shop", Some(b"api.example"), Some(b"ann")), &charge, "k").0);
        assert_eq!(hex, "c89e64d8bb0233298062f180856d8575713dafc51834106ba5c7cca49997c56f");
    }

    #[test]
    fn host_is_that_of_the_address_before_that_of_the_head() {
        let of = |uri: &str, headers: &[(&str, &str)]| host(&parts("POST", uri, headers));
        assert_eq!(of("/a", &[("host", "Shop.Example:80")]), Some(b"shop.example:80".to_vec()));
        assert_eq!(of("http://Api.Example/a", &[("host", "shop.example")]), Some(b"api.example".to_vec()));
        assert_eq!(of("/a", &[]), None);
    }

    #[test]
    fn json_counts_by_its_meaning_and_other_bodies_by_their_bytes() {
        let prints = Fingerprints::new(vec![], vec![except("sent_at"), except("meta.attempt")]);
        let json = parts("POST", "/", &[("content-type", "application/json; charset=utf-8")]);
        let of = |body: &str| prints.of(&json, body.as_bytes());
        let known = of(r#"{"amount": 10, "to": "a", "meta": {"attempt": 1, "by": 2}}"#);
        assert_eq!(of(r#"{"to":"a","meta":{"by":2,"attempt":7},"sent_at":"now","amount":10.0}"#), known);
        assert_ne!(of(r#"{"to":"a","meta":{"by":3,"attempt":7},"amount":10}"#), known);
        assert_ne!(of(r#"{"amount": 10, "to": "b", "meta": {"by": 2}}"#), known);
        let text = parts("POST", "/", &[("content-type", "text/plain")]);
        assert_ne!(prints.of(&text, b"{}"), prints.of(&text, b"{ }"));
        assert_eq!(of("{"), of("{"), "what is not JSON counts byte by byte");
        assert_ne!(of("{"), of("{ "));
    }

    #[test]
    fn method_path_query_and_chosen_headers_count() {
        let prints = Fingerprints::new(vec![HeaderName::from_static("api-version")], vec![]);
        let of = |parts: Parts| prints.of(&parts, b"x");
        let known = of(parts("POST", "/a?b=1", &[("api-version", "1"), ("date", "now")]));
        assert_eq!(of(parts("POST", "/a?b=1", &[("api-version", "1")])), known);
        let others = [
            parts("PUT", "/a?b=1", &[("api-version", "1")]),
            parts("POST", "/a?b=2", &[("api-version", "1")]),
            parts("POST", "/a", &[("api-version", "1")]),
            parts("POST", "/a?b=1", &[("api-version", "2")]),
            parts("POST", "/a?b=1", &[]),
            parts("POST", "/a?b=1", &[("api-version", "1"), ("api-version", "1")]),
        ];
        others.into_iter().for_each(|other| assert_ne!(of(other), known));
    }
}
