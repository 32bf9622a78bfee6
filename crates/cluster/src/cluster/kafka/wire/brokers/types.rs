//! The types in the interface of [`super::Brokers`].
//!
//! The edge ([`Edge`](super::super::edge::Edge), or a simulation) carries out the operations on sockets.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::super::connection::Body;
use super::super::login::Login;

/// The address at which a broker listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A text that is not `host:port`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a broker's host:port")]
pub struct InvalidAddress(String);

impl FromStr for Address {
    type Err = InvalidAddress;

    /// Parses `host:port` or `[IPv6]:port`.
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains([':', '[', ']']) {
            return Err(invalid());
        }
        let host = bare.unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0 && !host.is_empty()).ok_or_else(invalid)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

/// How a client of brokers behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name under which brokers know this client, for their logs and quotas.
    pub client_id: String,
    /// The timeout of the requests that [`super::Brokers`] sends on its own: versions, login, metadata.
    pub request_timeout: Duration,
    /// The timeout for opening a connection, including the wait until an attempt may be made, the look-up of the name,
    /// and TLS.
    pub connect_timeout: Duration,
    /// The shortest backoff before a connection is attempted again, and before metadata is requested again.
    pub reconnect_backoff: Duration,
    /// The longest such backoff.
    pub reconnect_backoff_max: Duration,
    /// The longest response; a longer one breaks the connection.
    pub response_bytes_max: usize,
    /// The age at which metadata is requested again even without another reason.
    pub metadata_max_age: Duration,
    /// How to log in.
    pub login: Login,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            client_id: "ratchet".to_owned(),
            request_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            reconnect_backoff: Duration::from_millis(20),
            reconnect_backoff_max: Duration::from_secs(1),
            response_bytes_max: 100 << 20,
            metadata_max_age: Duration::from_secs(300),
            login: Login::None,
        }
    }
}

/// What a connection is used for. A broker handles the requests of a connection one after the other, so requests that
/// may take long have a connection of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Fetch requests, which wait at the broker.
    Fetch,
    /// Produce requests.
    Produce,
    /// All other requests: metadata, coordinators, offsets.
    Control,
}

/// The leader of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// The broker's number.
    pub node: i32,
    /// The epoch of its leadership; -1 if the broker does not report it.
    pub epoch: i32,
}

/// The id of a request; unique and ascending within one [`super::Brokers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// The number of a connection at the edge; unique within one [`super::Brokers`], never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(pub u64);

/// An operation on a socket, which the edge has to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Open a connection, and report [`super::Brokers::connected`] or [`super::Brokers::broke`].
    Connect {
        /// The number of the new connection.
        link: Link,
        /// The broker's address.
        address: Address,
    },
    /// Close a connection; no report is needed.
    Close {
        /// The number of the connection.
        link: Link,
    },
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Event {
    /// The broker has responded.
    Responded {
        /// The request.
        id: RequestId,
        /// The version of the response, which is that of the request.
        version: i16,
        /// The response.
        body: Body,
    },
    /// The request will receive no response.
    Failed {
        /// The request.
        id: RequestId,
        /// Whether any byte of the request was written: if not, it had no effect; if so, its effect is unknown.
        sent: bool,
        /// Why the request failed; never contains a secret.
        reason: String,
    },
}

/// The kind of a [`Trouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// The broker refuses the login, or does not prove that it knows the password.
    Login,
    /// The certificate of the broker or of the client is not accepted.
    Certificate,
    /// The broker's name is unknown.
    Host,
    /// The peer does not speak Kafka's protocol as this client does.
    Protocol,
}

/// A problem that a person has to fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of the problem.
    pub kind: TroubleKind,
    /// The address of the broker concerned.
    pub address: Address,
    /// What happened, for a log; never contains a secret.
    pub message: String,
}
