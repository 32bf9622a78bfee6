//! The types of the interface of [`super::Brokers`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::super::connection::Body;
use super::super::login::Login;

/// Where a broker listens.
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

/// The text is not `host:port`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a broker's host:port")]
pub struct NotAddress(String);

impl FromStr for Address {
    type Err = NotAddress;

    /// `host:port`, or `[IPv6]:port`.
    fn from_str(text: &str) -> Result<Self, NotAddress> {
        let not = || NotAddress(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(not)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains([':', '[', ']']) {
            return Err(not());
        }
        let host = bare.unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0 && !host.is_empty()).ok_or_else(not)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

/// How a client of brokers behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name that brokers know this client by, for their logs and quotas.
    pub client_id: String,
    /// Timeout of the requests that [`super::Brokers`] makes on its own: versions, login, metadata.
    pub request_timeout: Duration,
    /// Timeout of opening a connection, including the name's look-up and TLS.
    pub connect_timeout: Duration,
    /// The shortest wait before a broker is tried again, and before metadata is requested again.
    pub reconnect_backoff: Duration,
    /// The longest such wait.
    pub reconnect_backoff_max: Duration,
    /// The longest response; a longer one breaks the connection.
    pub response_bytes_max: usize,
    /// Metadata of this age is requested again without another reason.
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

/// What a connection is for: a broker answers the requests of a connection one after the other, so requests that may
/// take long have a connection of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Use {
    /// Fetching, which waits at the broker.
    Fetch,
    /// Producing.
    Produce,
    /// All else: metadata, coordinators, offsets.
    Control,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// The broker.
    pub node: i32,
    /// The epoch of its leadership; -1 if the broker does not tell.
    pub epoch: i32,
}

/// A request that was sent; unique within one [`super::Brokers`], rising.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A connection's number at the edge; unique within one [`super::Brokers`], never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(pub u64);

/// What the edge has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Open a connection, and report [`super::Brokers::connected`] or [`super::Brokers::broke`].
    Connect {
        /// Its number from now on.
        link: Link,
        /// Where to.
        address: Address,
    },
    /// Close it; no report is needed.
    Close {
        /// Which one.
        link: Link,
    },
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Event {
    /// The broker answered.
    Answered {
        /// Which request.
        id: RequestId,
        /// The version of the answer, which is the request's.
        version: i16,
        /// The answer.
        body: Body,
    },
    /// There will be no answer.
    Failed {
        /// Which request.
        id: RequestId,
        /// Whether any byte of it was written: if not, it cannot have had an effect; if so, that is unknown.
        sent: bool,
        /// Why; never holds a secret.
        reason: String,
    },
}

/// What kind of trouble a person has to fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// The broker refuses the login, or does not prove that it knows the password.
    Login,
    /// The certificate of the broker or of the client is not accepted.
    Certificate,
    /// The broker's name is unknown.
    Host,
    /// The other side does not speak Kafka's protocol as this client does.
    Protocol,
}

/// Trouble that a person has to fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What kind.
    pub kind: TroubleKind,
    /// With which broker.
    pub address: Address,
    /// What happened, for a log; never holds a secret.
    pub message: String,
}
