//! The fingerprint of a request, which shows whether two requests under one key are the same.
//!
//! A record with the identity and version of another record, but with a different request, is a conflict, never a
//! duplicate. The fingerprint covers the method, path and query, the headers that depend on the record, and the body.
//! Headers that come from the topology alone are left out, so that a secret can be replaced.
//!
//! A topology that has changed makes a different request for every record. So a fingerprint contains the [`Form`] of
//! the request, and fingerprints of different forms are not compared.
//!
//! The digest is the first 16 bytes of the SHA-256 of the parts, each preceded by its length; the list of headers is
//! preceded by their number. Both are big-endian numbers of eight bytes. 128 bits distinguish all requests that were
//! not made to collide, and a producer that can make requests collide could as well send another identity.

use sha2::{Digest, Sha256};

/// The length of a fingerprint in bytes: four bytes of the form, then the digest.
pub const FINGERPRINT_BYTES: usize = 20;

const FORM_DOMAIN: &[u8] = b"ratchet request form 1";
const CONTENT_DOMAIN: &[u8] = b"ratchet request content 1";

/// How a topology makes requests from its records: a digest of its templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form([u8; 4]);

impl Form {
    /// The form of requests that are made by these templates, in this order: any texts that define how method, path,
    /// query, headers and body are made from a record.
    pub fn of<'a>(templates: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(FORM_DOMAIN);
        templates.into_iter().for_each(|template| add(&mut hasher, template.as_bytes()));
        Self(first_bytes(hasher))
    }
}

/// The parts of a request that depend on its record.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The names and values of the headers that depend on the record, in the topology's order.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body; `None` if there is none, which is not the same as an empty one.
    pub body: Option<&'a [u8]>,
}

/// A request's fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    form: Form,
    digest: [u8; 16],
}

/// The result of comparing two fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The requests are the same.
    Same,
    /// The requests differ: a conflict.
    Different,
    /// The requests cannot be compared: the topology has changed in between.
    Unknown,
}

impl Fingerprint {
    /// The fingerprint of a request of this form.
    pub fn of(form: Form, content: Content<'_>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(CONTENT_DOMAIN);
        add(&mut hasher, content.method.as_bytes());
        add(&mut hasher, content.target.as_bytes());
        hasher.update((content.headers.len() as u64).to_be_bytes());
        for (name, value) in content.headers {
            add(&mut hasher, name.as_bytes());
            add(&mut hasher, value);
        }
        content.body.iter().for_each(|body| add(&mut hasher, body));
        Self { form, digest: first_bytes(hasher) }
    }

    /// Compares the requests of two fingerprints.
    pub fn compare(&self, other: &Self) -> Comparison {
        match () {
            () if self.form != other.form => Comparison::Unknown,
            () if self.digest == other.digest => Comparison::Same,
            () => Comparison::Different,
        }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; FINGERPRINT_BYTES] {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes[..4].copy_from_slice(&self.form.0);
        bytes[4..].copy_from_slice(&self.digest);
        bytes
    }

    /// The fingerprint with these bytes.
    pub fn from_bytes(bytes: [u8; FINGERPRINT_BYTES]) -> Self {
        let (mut form, mut digest) = ([0; 4], [0; 16]);
        form.copy_from_slice(&bytes[..4]);
        digest.copy_from_slice(&bytes[4..]);
        Self { form: Form(form), digest }
    }
}

fn add(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_be_bytes());
    hasher.update(part);
}

fn first_bytes<const N: usize>(hasher: Sha256) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&hasher.finalize()[..N]);
    bytes
}

#[cfg(test)]
mod tests {
    //! Goal: requests are the same only if all parts that depend on the record are the same, and are compared only if
    //! they have the same form.

    use super::*;

    const HEADERS: &[(&str, &[u8])] = &[("x-tenant", b"7"), ("x-kind", b"a")];
    const PLAIN: Content<'_> = Content { method: "POST", target: "/charges", headers: HEADERS, body: Some(b"{}") };

    fn form() -> Form {
        Form::of(["POST", "/charges", "value"])
    }

    #[test]
    fn requests_differ_if_any_part_differs() {
        let fingerprint = |content| Fingerprint::of(form(), content);
        let cases = [
            ("method", Content { method: "PUT", ..PLAIN }),
            ("target", Content { target: "/charges?x=1", ..PLAIN }),
            ("no body", Content { body: None, ..PLAIN }),
            ("empty body", Content { body: Some(b""), ..PLAIN }),
            ("body", Content { body: Some(b"{ }"), ..PLAIN }),
            ("fewer headers", Content { headers: &HEADERS[..1], ..PLAIN }),
            ("another value", Content { headers: &[("x-tenant", b"8"), ("x-kind", b"a")], ..PLAIN }),
            ("another order", Content { headers: &[("x-kind", b"a"), ("x-tenant", b"7")], ..PLAIN }),
            ("a part moved", Content { method: "POST/", target: "charges", ..PLAIN }),
            ("a part moved", Content { headers: &[("x-tenant", b"7"), ("x-kinda", b"")], ..PLAIN }),
        ];
        for (case, content) in cases {
            assert_eq!(fingerprint(PLAIN).compare(&fingerprint(content)), Comparison::Different, "{case}");
        }
        assert_eq!(fingerprint(PLAIN).compare(&fingerprint(PLAIN)), Comparison::Same);
        assert_ne!(fingerprint(Content { body: None, ..PLAIN }), fingerprint(Content { body: Some(b""), ..PLAIN }));
    }

    #[test]
    fn requests_of_a_topology_that_has_changed_are_not_compared() {
        for templates in [["POST", "/charges", "{json}"], ["POST", "/chargesv", "alue"]] {
            let (before, after) = (Fingerprint::of(form(), PLAIN), Fingerprint::of(Form::of(templates), PLAIN));
            assert_eq!(before.compare(&after), Comparison::Unknown);
        }
    }

    #[test]
    fn fingerprint_is_restored_from_its_bytes() {
        let fingerprint = Fingerprint::of(form(), PLAIN);
        assert_eq!(Fingerprint::from_bytes(fingerprint.to_bytes()), fingerprint);
    }

    #[test]
    fn bytes_never_change() {
        // Computed by an independent program.
        let bytes = Fingerprint::of(form(), PLAIN).to_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "6bcac2ea53f4368f5ed544fef9bf1704bf74044f");
    }
}
