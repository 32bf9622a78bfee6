//! What errors mean: whether they pass, and what to do about those that do not.

use ::redis::{ErrorKind as Theirs, RedisError};

use super::Address;

/// What a server, or the way to it, does not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about it.
    pub kind: ErrorKind,
    /// What happened, in lower case and without a full stop, with the server's address; never holds a secret.
    pub message: String,
}

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// It passes: down, slow, full, loading, read-only while another takes over.
    Unavailable,
    /// A person has to act: a wrong password, a missing right, a server that is too old.
    Refused,
}

use ErrorKind::{Refused, Unavailable};

/// What codes of a server's errors mean, and what helps.
const CODES: &[(&str, ErrorKind, &str)] = &[
    ("LOADING", Unavailable, "it is reading its data"),
    ("BUSY", Unavailable, "it runs somebody's script"),
    ("MASTERDOWN", Unavailable, "it is a replica without its master"),
    ("READONLY", Unavailable, "it is a replica: name the master in the url, unless another one is taking over"),
    ("NOREPLICAS", Unavailable, "it lacks the replicas that min-replicas-to-write asks for"),
    ("OOM", Unavailable, "it is full: raise its maxmemory, or shorten the retention"),
    ("MISCONF", Unavailable, "it cannot write its data to disk, and so takes nothing: its log says why"),
    ("CLUSTERDOWN", Unavailable, "its cluster is down"),
    ("TRYAGAIN", Unavailable, "its cluster moves keys"),
    ("MOVED", Refused, CLUSTER),
    ("ASK", Refused, CLUSTER),
    ("CROSSSLOT", Refused, CLUSTER),
    ("NOAUTH", Refused, "it wants a password: add one to the url"),
    ("WRONGPASS", Refused, "compare user and password in the url with the server's"),
    ("NOPERM", Refused, "give the user of the url the right to it (ACL SETUSER)"),
];

/// What is said of one server out of several.
pub(super) const CLUSTER: &str = "it is one of a cluster, whose keys are on several: name a server that stands alone";

impl Error {
    /// An error of the server at `address`.
    pub(super) fn new(kind: ErrorKind, address: &Address, what: &str) -> Self {
        let message = format!("redis at {}: {}", address.shown(), address.without_secrets(what));
        Self { kind, message }
    }

    /// What the crate's error means.
    pub(super) fn of(address: &Address, error: &RedisError) -> Self {
        if let Some(code) = error.code() {
            return Self::of_server(address, code, error.detail().unwrap_or_default());
        }
        match error.kind() {
            Theirs::AuthenticationFailed => {
                Self::new(Refused, address, "it refuses user and password: compare those in the url with the server's")
            }
            Theirs::InvalidClientConfig => Self::new(Refused, address, &said(&error.to_string())),
            _ if is_untrusted(error) => Self::new(Refused, address, &said(&error.to_string())),
            _ if error.is_timeout() => Self::new(Unavailable, address, "it does not answer in time"),
            _ => Self::new(Unavailable, address, &said(&error.to_string())),
        }
    }

    /// What a server's error means, which has this code and these words.
    pub(super) fn of_server(address: &Address, code: &str, detail: &str) -> Self {
        let words = said(&format!("{code} {detail}"));
        match CODES.iter().find(|(known, ..)| *known == code) {
            Some((_, kind, help)) => Self::new(*kind, address, &format!("{help} ({words})")),
            // What it says of limits passes, and is no mistake in what it was sent.
            None if detail.contains("max number of clients") => Self::new(Unavailable, address, &words),
            None => Self::new(Refused, address, &words),
        }
    }
}

/// What rustls says of a certificate, of a version or cipher that are not shared, and of a server that speaks no TLS. The
/// crate hands on its words alone.
const UNTRUSTED: &[&str] = &["invalid peer certificate", "received fatal alert", "received corrupt message"];

/// Whether TLS has failed, which does not pass by itself.
fn is_untrusted(error: &RedisError) -> bool {
    let words = error.to_string();
    UNTRUSTED.iter().any(|known| words.contains(known))
}

/// A foreign message as messages are: on one line, without a full stop.
fn said(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
}
