//! Classifies errors as **transient**, which may pass by themselves, or **permanent**, which need a person to act; and
//! says what to do about them.

use ::redis::{ErrorKind as RedisErrorKind, RedisError};

use super::{Address, Error, ErrorKind};

use ErrorKind::{Permanent, Transient};

/// The codes of servers' errors: the kind of the error, and a message about what it means or what helps.
const CODES: &[(&str, ErrorKind, &str)] = &[
    ("LOADING", Transient, "it is reading its data"),
    ("BUSY", Transient, "it is busy running a script"),
    ("MASTERDOWN", Transient, "it is a replica without a connection to its master"),
    ("READONLY", Transient, REPLICA),
    ("NOREPLICAS", Transient, "it lacks the replicas that min-replicas-to-write requires"),
    (NO_ROOM, Transient, "it is full: raise its maxmemory, or shorten the retention"),
    ("MISCONF", Transient, "it cannot save its data to disk and therefore refuses writes: see its log"),
    ("CLUSTERDOWN", Transient, "its cluster is down"),
    ("TRYAGAIN", Transient, "its cluster is moving keys"),
    ("MOVED", Permanent, CLUSTER),
    ("ASK", Permanent, CLUSTER),
    ("CROSSSLOT", Permanent, CLUSTER),
    ("NOAUTH", Permanent, "it requires a password: add one to the url"),
    ("WRONGPASS", Permanent, WRONG_LOGIN),
    ("NOPERM", Permanent, "the user in the url lacks permission: grant it with ACL SETUSER"),
];

/// The code with which a full server refuses a change.
pub(super) const NO_ROOM: &str = "OOM";

/// The message about a login that the server refuses.
const WRONG_LOGIN: &str = "it rejects the user or password: compare those in the url with the server's";

/// The message about a reply that does not come in time.
pub(super) const LATE: &str = "it does not answer in time";

/// The message about a replica, which accepts no changes.
pub(super) const REPLICA: &str = "it is a replica: put the master in the url, unless a failover is in progress";

/// The message about a server in a cluster.
pub(super) const CLUSTER: &str = "it is part of a cluster, whose keys are on several servers: name a standalone server";

impl Address {
    /// An error of the server at this address.
    pub(super) fn error(&self, kind: ErrorKind, text: &str) -> Error {
        let message = format!("redis at {}: {}", self.display_name(), self.mask_secrets(text));
        Error { kind, message }
    }

    /// Translates an error of the crate `redis`.
    pub(super) fn error_of(&self, error: &RedisError) -> Error {
        if let Some(code) = error.code() {
            return self.error_of_server(code, error.detail().unwrap_or_default());
        }
        match error.kind() {
            RedisErrorKind::AuthenticationFailed => self.error(Permanent, WRONG_LOGIN),
            RedisErrorKind::InvalidClientConfig => self.error(Permanent, &on_one_line(&error.to_string())),
            _ if is_lasting_tls_failure(error) => self.error(Permanent, &on_one_line(&error.to_string())),
            _ if error.is_timeout() => self.error(Transient, LATE),
            _ => self.error(Transient, &on_one_line(&error.to_string())),
        }
    }

    /// Translates a server's error with this code and text.
    pub(super) fn error_of_server(&self, code: &str, detail: &str) -> Error {
        let message = on_one_line(&format!("{code} {detail}"));
        match CODES.iter().find(|(known, ..)| *known == code) {
            Some((_, kind, help)) => self.error(*kind, &format!("{help} ({message})")),
            // The server has too many clients for now; the command itself is valid.
            None if detail.contains("max number of clients") => self.error(Transient, &message),
            None => self.error(Permanent, &message),
        }
    }
}

/// Parts of rustls' messages about an invalid certificate, about the lack of a common version or cipher, and about a
/// server that does not speak TLS. The crate `redis` passes on only the text.
const LASTING_TLS_FAILURES: &[&str] = &["invalid peer certificate", "received fatal alert", "received corrupt message"];

/// Whether TLS has failed for a reason that does not pass by itself.
fn is_lasting_tls_failure(error: &RedisError) -> bool {
    let message = error.to_string();
    LASTING_TLS_FAILURES.iter().any(|known| message.contains(known))
}

/// Gives another program's message the form of our own: on one line, without a full stop.
fn on_one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do_and_mask_passwords() {
        let address = Address::read("redis://ann:hun%40ter2@h").unwrap();
        for (code, kind, words) in [
            ("LOADING", Transient, "reading its data"),
            ("OOM", Transient, "maxmemory"),
            ("READONLY", Transient, "replica"),
            ("NOAUTH", Permanent, "add one to the url"),
            ("WRONGPASS", Permanent, "compare"),
            ("NOPERM", Permanent, "ACL"),
            ("MOVED", Permanent, "cluster"),
            ("ERR", Permanent, "unknown command"),
        ] {
            let detail = "unknown command 'AUTH', with args beginning with: 'ann' 'hun@ter2'.";
            let error = address.error_of_server(code, detail);
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.starts_with("redis at h:6379: ") && error.message.contains(words), "{error}");
            assert!(!error.message.contains("ter2") && !error.message.ends_with('.'), "{error}");
        }
    }
}
