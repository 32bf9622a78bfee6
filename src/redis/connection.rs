//! A connection to a server: made, looked over, and asked.
//!
//! It is made on a thread of its own, since neither the resolution of a name nor a handshake can be bounded otherwise. One
//! that comes too late is not lost: the next call takes it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ::redis::{Cmd, ConnectionLike as _, Value};

use super::error::{CLUSTER, REPLICA};
use super::{Address, Error, ErrorKind, VERSION_MIN};

/// How long a thread tries to connect at most, once a name is resolved.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// No time at all cannot be waited for.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// How much later than its deadline an answer may come: the socket is told of the time that is left whenever so much has
/// passed, since telling it costs more than reading an answer.
const BOUND_STEP: Duration = Duration::from_millis(100);

/// A connection to a server.
pub struct Connection {
    inner: ::redis::Connection,
}

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Connecting(Receiver<Result<Connection, Error>>);

/// A time by which something has to be over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// In this time from now.
    #[expect(clippy::disallowed_methods, reason = "bounds how long a socket is waited for")]
    pub fn within(wait: Duration) -> Self {
        Self(Instant::now() + wait)
    }

    /// How long that is from now; `None` if it has passed.
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
    /// Begins to connect.
    pub fn begin(address: &Address) -> Result<Self, Error> {
        let (sender, receiver) = sync_channel(1);
        let to = address.clone();
        let connect = move || {
            // Nobody may wait for it any more.
            let _ = sender.send(Connection::open(&to, CONNECT_WAIT));
        };
        let started = thread::Builder::new().name("redis-connect".to_owned()).spawn(connect);
        started.map_err(|error| address.error(ErrorKind::Passing, &format!("no thread to connect: {error}")))?;
        Ok(Self(receiver))
    }

    /// The connection, if it is there in time; `None` if it is still being made then.
    pub fn wait(&self, address: &Address, deadline: Deadline) -> Option<Result<Connection, Error>> {
        match self.0.recv_timeout(deadline.left().unwrap_or_default()) {
            Ok(connected) => Some(connected),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(address.error(ErrorKind::Passing, "connecting has panicked")))
            }
        }
    }
}

impl Connection {
    /// Connects within a time, once the host's name is resolved, and checks what the server is.
    ///
    /// # Errors
    /// [`ErrorKind::Lasting`] for a server that is too old or one of a cluster, a wrong password, a missing right.
    pub fn open(address: &Address, wait: Duration) -> Result<Self, Error> {
        let deadline = Deadline::within(wait);
        let inner = address.client().get_connection_with_timeout(wait).map_err(|error| address.error_of(&error))?;
        let mut connection = Self { inner };
        connection.bound(address, deadline)?;
        let hello = connection.inner.req_command(&::redis::cmd("HELLO"));
        match hello {
            Ok(hello) => check(address, &hello)?,
            // Before 6.0 there is no such command.
            Err(error) if error.code() == Some("ERR") => return Err(too_old(address, "older than 6.0")),
            Err(error) => return Err(address.error_of(&error)),
        }
        Ok(connection)
    }

    /// Sends commands, encoded one after the other, and hands over each of their answers, in their order.
    ///
    /// # Errors
    /// The first answer that is an error, or whatever has become of the connection: it must not be used again.
    pub(super) fn exchange(
        &mut self,
        address: &Address,
        (commands, count): (&[u8], usize),
        deadline: Deadline,
        mut each: impl FnMut(Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.bound(address, deadline)?;
        self.inner.send_packed_command(commands).map_err(|error| address.error_of(&error))?;
        let mut bound = self.bound(address, deadline)?;
        for _ in 0..count {
            // However slowly one answer comes after the other.
            if deadline.left().is_none_or(|left| left + BOUND_STEP <= bound) {
                bound = self.bound(address, deadline)?;
            }
            let answer = self.inner.recv_response().map_err(|error| address.error_of(&error))?;
            match answer {
                Value::ServerError(error) => {
                    return Err(address.error_of_server(error.code(), error.details().unwrap_or_default()));
                }
                answer => each(answer)?,
            }
        }
        Ok(())
    }

    /// Carries out one command.
    pub(super) fn one(&mut self, address: &Address, command: &Cmd, deadline: Deadline) -> Result<(), Error> {
        self.exchange(address, (&command.get_packed_command(), 1), deadline, |_| Ok(()))
    }

    /// Waits for the socket no longer than this; how long that is.
    fn bound(&self, address: &Address, deadline: Deadline) -> Result<Duration, Error> {
        let left = deadline.left().ok_or_else(|| address.error(ErrorKind::Passing, LATE))?;
        let bounded = self.inner.set_read_timeout(Some(left)).and_then(|()| self.inner.set_write_timeout(Some(left)));
        bounded.map(|()| left).map_err(|error| address.error_of(&error))
    }
}

pub(super) const LATE: &str = "it does not answer in time";

/// Checks what a server says of itself.
pub(super) fn check(address: &Address, hello: &Value) -> Result<(), Error> {
    let version = text_of(hello, "version").unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let version_is = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version_is < VERSION_MIN {
        return Err(too_old(address, &version));
    }
    if text_of(hello, "mode").as_deref() == Some("cluster") {
        return Err(address.error(ErrorKind::Lasting, CLUSTER));
    }
    Ok(())
}

/// Checks that a server says of itself that it is no replica, which takes no changes.
pub(super) fn check_master(address: &Address, hello: &Value) -> Result<(), Error> {
    match text_of(hello, "role").as_deref() {
        Some("replica" | "slave") => Err(address.error(ErrorKind::Passing, REPLICA)),
        _ => Ok(()),
    }
}

fn too_old(address: &Address, version: &str) -> Error {
    let (major, minor) = VERSION_MIN;
    let message = format!("it is version {version}, and {major}.{minor} or later is needed");
    address.error(ErrorKind::Lasting, &message)
}

/// The text under a name in what HELLO answers.
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
    //! Goal: a server that cannot do what is asked of it is refused before anything is asked.

    use super::*;

    fn hello(version: &str, mode: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pairs = [("server", "redis"), ("version", version), ("mode", mode), ("role", "master")];
        Value::Array(pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect())
    }

    #[test]
    fn servers_of_7_0_and_later_that_stand_alone_will_do() {
        let address = Address::read("redis://h").unwrap();
        for version in ["7.0.0", "7.0.15", "7.2.4", "8.4.0", "10.0.0", "255.255.255"] {
            assert_eq!(check(&address, &hello(version, "standalone")), Ok(()), "{version}");
        }
        for (version, mode, words) in [
            ("6.2.14", "standalone", "it is version 6.2.14, and 7.0 or later is needed"),
            ("", "standalone", "7.0 or later"),
            ("7.2.4", "cluster", "one of a cluster"),
        ] {
            let error = check(&address, &hello(version, mode)).unwrap_err();
            assert!(error.kind == ErrorKind::Lasting && error.message.contains(words), "{error}");
        }
    }
}
