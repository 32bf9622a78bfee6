//! A connection to a server: connects, checks the server, and exchanges commands.
//!
//! [`Connecting`] connects on a thread of its own, since neither name resolution nor a handshake can be bounded
//! otherwise. A caller whose deadline passes meanwhile keeps it, and waits for the same connection in its next call.
//!
//! The command HELLO asks a server for its version, its mode (standalone or in a cluster) and its role (master or
//! replica).

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ::redis::{Cmd, ConnectionLike as _, Value};

use super::error::{CLUSTER, LATE, REPLICA};
use super::{Address, Error, ErrorKind, VERSION_MIN};

/// The longest that a thread tries to connect, after the name is resolved.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The shortest timeout that is set on a socket. A socket accepts no timeout of zero.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// How much later than its deadline a reply may come: the socket's timeout is shortened only in steps of this length,
/// since setting it costs more than reading a reply.
const TIMEOUT_STEP: Duration = Duration::from_millis(100);

/// A connection to a server.
pub struct Connection {
    inner: ::redis::Connection,
}

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Connecting(Receiver<Result<Connection, Error>>);

/// The time by which something must be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// The deadline that is `wait` from now.
    #[expect(clippy::disallowed_methods, reason = "bounds how long a socket is waited for")]
    pub fn within(wait: Duration) -> Self {
        Self(Instant::now() + wait)
    }

    /// The time left; `None` if it is less than [`WAIT_MIN`].
    #[expect(clippy::disallowed_methods, reason = "bounds how long a socket is waited for")]
    fn left(self) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (left >= WAIT_MIN).then_some(left)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connecting {
    /// Starts connecting, on a thread of its own.
    pub fn begin(address: &Address) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel(1);
        let own_address = address.clone();
        let connect = move || {
            // Fails if the receiver was dropped: the connection is no longer needed.
            let _ = sender.send(Connection::open(&own_address, CONNECT_WAIT));
        };
        let started = thread::Builder::new().name("redis-connect".to_owned()).spawn(connect);
        started.map_err(|error| {
            address.error(ErrorKind::Transient, &format!("cannot start a thread to connect: {error}"))
        })?;
        Ok(Self(receiver))
    }

    /// The connection, if it is ready in time; `None` if it is still being made at the deadline.
    pub fn wait(&self, address: &Address, deadline: Deadline) -> Option<Result<Connection, Error>> {
        match self.0.recv_timeout(deadline.left().unwrap_or_default()) {
            Ok(connected) => Some(connected),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(address.error(ErrorKind::Transient, "the connecting thread panicked")))
            }
        }
    }
}

impl Connection {
    /// Connects within `wait`, not counting name resolution, and checks the server's version and mode.
    ///
    /// # Errors
    /// [`ErrorKind::Permanent`] for a server that is too old or in a cluster, a wrong password, or a missing right.
    pub fn open(address: &Address, wait: Duration) -> Result<Self, Error> {
        let deadline = Deadline::within(wait);
        let inner = address.client().get_connection_with_timeout(wait).map_err(|error| address.error_of(&error))?;
        let mut connection = Self { inner };
        connection.set_timeouts(address, deadline)?;
        let hello = connection.inner.req_command(&::redis::cmd("HELLO"));
        match hello {
            Ok(hello) => check_version_and_mode(address, &hello)?,
            // Before 6.0 there is no command HELLO.
            Err(error) if error.code() == Some("ERR") => return Err(too_old(address, "older than 6.0")),
            Err(error) => return Err(address.error_of(&error)),
        }
        Ok(connection)
    }

    /// Sends `count` encoded commands, and passes the replies to `on_reply` in order.
    ///
    /// # Errors
    /// The first reply that is an error, or a failure of the connection. The connection must not be used again.
    pub(super) fn exchange(
        &mut self,
        address: &Address,
        (commands, count): (&[u8], usize),
        deadline: Deadline,
        mut on_reply: impl FnMut(Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.set_timeouts(address, deadline)?;
        self.inner.send_packed_command(commands).map_err(|error| address.error_of(&error))?;
        let mut socket_timeout = self.set_timeouts(address, deadline)?;
        for _ in 0..count {
            // Keeps to the deadline even if replies trickle in.
            if deadline.left().is_none_or(|left| left + TIMEOUT_STEP <= socket_timeout) {
                socket_timeout = self.set_timeouts(address, deadline)?;
            }
            let reply = self.inner.recv_response().map_err(|error| address.error_of(&error))?;
            match reply {
                Value::ServerError(error) => {
                    return Err(address.error_of_server(error.code(), error.details().unwrap_or_default()));
                }
                reply => on_reply(reply)?,
            }
        }
        Ok(())
    }

    /// Carries out one command.
    pub(super) fn carry_out(&mut self, address: &Address, command: &Cmd, deadline: Deadline) -> Result<(), Error> {
        self.exchange(address, (&command.get_packed_command(), 1), deadline, |_| Ok(()))
    }

    /// Sets the socket's timeouts to the time left until `deadline`, and returns that time.
    fn set_timeouts(&self, address: &Address, deadline: Deadline) -> Result<Duration, Error> {
        let left = deadline.left().ok_or_else(|| address.error(ErrorKind::Transient, LATE))?;
        let result = self.inner.set_read_timeout(Some(left)).and_then(|()| self.inner.set_write_timeout(Some(left)));
        result.map(|()| left).map_err(|error| address.error_of(&error))
    }
}

/// Checks the version and the mode in a server's reply to HELLO.
pub(super) fn check_version_and_mode(address: &Address, hello: &Value) -> Result<(), Error> {
    let version = text_of(hello, "version").unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < VERSION_MIN {
        return Err(too_old(address, &version));
    }
    if text_of(hello, "mode").as_deref() == Some("cluster") {
        return Err(address.error(ErrorKind::Permanent, CLUSTER));
    }
    Ok(())
}

/// Checks in a server's reply to HELLO that it is not a replica, which accepts no changes.
pub(super) fn check_master(address: &Address, hello: &Value) -> Result<(), Error> {
    match text_of(hello, "role").as_deref() {
        Some("replica" | "slave") => Err(address.error(ErrorKind::Transient, REPLICA)),
        _ => Ok(()),
    }
}

fn too_old(address: &Address, version: &str) -> Error {
    let (major, minor) = VERSION_MIN;
    let message = format!("it is version {version}; {major}.{minor} or later is required");
    address.error(ErrorKind::Permanent, &message)
}

/// The text of a field in the reply to HELLO, which is a map or, in the older version of the protocol, an array in
/// which each name is followed by its value. `None` if there is no such text.
fn text_of(hello: &Value, name: &str) -> Option<String> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    match hello {
        Value::Array(parts) => {
            let mut pairs = parts.chunks_exact(2);
            pairs.find(|pair| text(&pair[0]).as_deref() == Some(name)).and_then(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => {
            pairs.iter().find(|(key, _)| text(key).as_deref() == Some(name)).and_then(|(_, value)| text(value))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Goal: an unsuitable server is refused before any other command is sent to it.

    use super::*;

    fn hello(version: &str, mode: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pairs = [("server", "redis"), ("version", version), ("mode", mode), ("role", "master")];
        Value::Array(pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect())
    }

    #[test]
    fn only_standalone_servers_of_7_0_and_later_are_accepted() {
        let address = Address::read("redis://h").unwrap();
        for version in ["7.0.0", "7.0.15", "7.2.4", "8.4.0", "10.0.0", "255.255.255"] {
            assert_eq!(check_version_and_mode(&address, &hello(version, "standalone")), Ok(()), "{version}");
        }
        for (version, mode, words) in [
            ("6.2.14", "standalone", "it is version 6.2.14; 7.0 or later is required"),
            ("", "standalone", "7.0 or later"),
            ("7.2.4", "cluster", "part of a cluster"),
        ] {
            let error = check_version_and_mode(&address, &hello(version, mode)).unwrap_err();
            assert!(error.kind == ErrorKind::Permanent && error.message.contains(words), "{error}");
        }
    }
}
