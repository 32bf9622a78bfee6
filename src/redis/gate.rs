//! A gate that is kept in Redis.
//!
//! | key | value |
//! |---|---|
//! | `ratchet:gate:NAME:` and the identity, 32 characters of base64url | the coordinates of the record that came first: `topology/topic/id/partition/offset`, the topic's id as 32 hexadecimal digits |
//!
//! A mark is left, and the one that is there is read, by `SET key coordinates NX PX retention GET`; the marks of a batch
//! go as one pipeline. It is taken back by a script that compares it first.
//!
//! **Invariant**: a mark is never changed, only left where there is none, taken back by whoever has left it, or removed by
//! its time. **Failure**: after an error the connection is dropped, and the next call makes another.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::connection::{Connecting, Deadline, LATE};
use super::{Address, Connection, Error, ErrorKind};
use crate::effect::gate::{self, Answer, Asked, Gate, IDENTITY_BYTES, Identity, Place};

/// How long a call may take, connecting included: a lane serves its group only in between, and its transaction may be
/// open.
const WAIT: Duration = Duration::from_secs(2);
/// The characters of an identity in base64url.
const IDENTITY_CHARS: usize = IDENTITY_BYTES * 4 / 3;
/// Takes a mark back if it is that of the one who asks.
const TAKE_BACK: &[u8] = b"if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// What a gate of this kind is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the server is.
    pub address: Address,
    /// The gate's name.
    pub name: String,
    /// How long an identity is kept, in milliseconds.
    pub retention_ms: i64,
}

/// A gate that is a server of Redis.
#[derive(Clone, Debug)]
pub struct Redis {
    settings: Arc<Settings>,
}

impl Redis {
    /// A gate with these settings. Connects to nothing.
    pub fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings) }
    }
}

impl Gate for Redis {
    fn session(&self) -> Box<dyn gate::Session> {
        Box::new(Session::new(Arc::clone(&self.settings)))
    }
}

/// A lane's way to the server.
struct Session {
    settings: Arc<Settings>,
    encoder: Encoder,
    connection: Option<Connection>,
    connecting: Option<Connecting>,
    /// The start of the coordinates of all records of a place.
    place: String,
}

impl Session {
    fn new(settings: Arc<Settings>) -> Self {
        let encoder = Encoder::new(&settings.name, settings.retention_ms);
        Self { settings, encoder, connection: None, connecting: None, place: String::new() }
    }

    /// Carries out what was encoded, over the connection there is or another one.
    fn exchange(&mut self, count: usize, each: impl FnMut(Value) -> Result<(), Error>) -> Result<(), Error> {
        let deadline = Deadline::within(WAIT);
        let mut connection = self.connection(deadline)?;
        let commands = (&self.encoder.commands[..], count);
        connection.exchange(&self.settings.address, commands, deadline, each)?;
        self.connection = Some(connection);
        Ok(())
    }

    /// The connection, which is to be given back unless it has failed.
    fn connection(&mut self, deadline: Deadline) -> Result<Connection, Error> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let address = &self.settings.address;
        let connecting = match self.connecting.take() {
            Some(connecting) => connecting,
            None => Connecting::begin(address)?,
        };
        match connecting.wait(address, deadline) {
            Some(connected) => connected,
            None => {
                // Goes on meanwhile.
                self.connecting = Some(connecting);
                Err(address.error(ErrorKind::Passing, LATE))
            }
        }
    }
}

impl gate::Session for Session {
    fn ask(&mut self, place: &Place<'_>, asked: &[Asked], answers: &mut Vec<Answer>) -> Result<(), Error> {
        answers.clear();
        if asked.is_empty() {
            return Ok(());
        }
        self.place = place.to_string();
        self.encoder.marks(&self.place, asked);
        let (place, address) = (std::mem::take(&mut self.place), self.settings.address.clone());
        let answered = self.exchange(asked.len(), |answer| {
            answers.push(match answer {
                Value::Nil => Answer::First,
                Value::BulkString(mark) if mark.starts_with(place.as_bytes()) => Answer::Own,
                Value::BulkString(_) => Answer::Elsewhere,
                _ => return Err(address.error(ErrorKind::Lasting, "it answers SET with something else")),
            });
            Ok(())
        });
        self.place = place;
        answered
    }

    fn take_back(&mut self, place: &Place<'_>, asked: &[Asked]) -> Result<(), Error> {
        if asked.is_empty() {
            return Ok(());
        }
        self.place = place.to_string();
        self.encoder.take_back(&self.place, asked);
        self.exchange(asked.len(), |_| Ok(()))
    }

    fn reach(&mut self) -> Result<(), Error> {
        let deadline = Deadline::within(WAIT);
        let mut connection = self.connection(deadline)?;
        connection.one(&self.settings.address, &::redis::cmd("PING"), deadline)?;
        self.connection = Some(connection);
        Ok(())
    }
}

/// Writes commands as the server reads them, into memory that is used again: nothing is allocated for a record.
struct Encoder {
    /// `$LENGTH\r\nratchet:gate:NAME:`, with the identity to follow.
    key: Vec<u8>,
    /// What follows the coordinates in SET.
    conditions: Vec<u8>,
    commands: Vec<u8>,
}

impl Encoder {
    fn new(name: &str, retention_ms: i64) -> Self {
        let prefix = format!("ratchet:gate:{name}:");
        let key = format!("${}\r\n{prefix}", prefix.len() + IDENTITY_CHARS).into_bytes();
        let mut conditions = Vec::new();
        for word in ["NX", "PX", &retention_ms.to_string(), "GET"] {
            bulk(&mut conditions, word.as_bytes());
        }
        Self { key, conditions, commands: Vec::new() }
    }

    /// Leaves the marks of these records, where there are none.
    fn marks(&mut self, place: &str, asked: &[Asked]) {
        let Self { key, conditions, commands } = self;
        commands.clear();
        for Asked { identity, offset } in asked {
            commands.extend_from_slice(b"*7\r\n$3\r\nSET\r\n");
            put_key(commands, key, *identity);
            put_mark(commands, place, *offset);
            commands.extend_from_slice(conditions);
        }
    }

    /// Takes the marks of these records back.
    fn take_back(&mut self, place: &str, asked: &[Asked]) {
        let Self { key, commands, .. } = self;
        commands.clear();
        for Asked { identity, offset } in asked {
            commands.extend_from_slice(b"*5\r\n$4\r\nEVAL\r\n");
            bulk(commands, TAKE_BACK);
            bulk(commands, b"1");
            put_key(commands, key, *identity);
            put_mark(commands, place, *offset);
        }
    }
}

fn put_key(commands: &mut Vec<u8>, key: &[u8], Identity(identity): Identity) {
    commands.extend_from_slice(key);
    let start = commands.len();
    commands.resize(start + IDENTITY_CHARS, 0);
    let written = URL_SAFE_NO_PAD.encode_slice(identity, &mut commands[start..]);
    debug_assert_eq!(written, Ok(IDENTITY_CHARS), "24 bytes are 32 characters");
    commands.extend_from_slice(b"\r\n");
}

fn put_mark(commands: &mut Vec<u8>, place: &str, offset: i64) {
    let digits = offset.checked_ilog10().map_or(1, |log| log as usize + 1);
    // Writing to memory does not fail.
    let _ = write!(commands, "${}\r\n{place}{offset}\r\n", place.len() + digits);
}

/// A part of a command.
fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    // Writing to memory does not fail.
    let _ = write!(out, "${}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    //! Goal: what is encoded by hand is what the crate would send.

    use super::*;

    #[test]
    fn commands_are_as_the_crate_encodes_them() {
        let mut encoder = Encoder::new("shop", 604_800_000);
        let asked: Vec<Asked> = [0, 9, 10, 99, 100, 1_000_000, i64::MAX]
            .into_iter()
            .map(|offset| Asked { identity: Identity([offset.to_be_bytes()[7]; IDENTITY_BYTES]), offset })
            .collect();
        let (mut marks, mut taken_back) = (Vec::new(), Vec::new());
        for Asked { identity, offset } in &asked {
            let key = format!("ratchet:gate:shop:{}", URL_SAFE_NO_PAD.encode(identity.0));
            let mark = format!("pay/in/3/{offset}");
            let mut set = ::redis::cmd("SET");
            set.arg(&key).arg(&mark).arg("NX").arg("PX").arg(604_800_000).arg("GET");
            marks.extend(set.get_packed_command());
            let mut eval = ::redis::cmd("EVAL");
            eval.arg(TAKE_BACK).arg(1).arg(&key).arg(&mark);
            taken_back.extend(eval.get_packed_command());
        }
        encoder.marks("pay/in/3/", &asked);
        assert_eq!(String::from_utf8_lossy(&encoder.commands), String::from_utf8_lossy(&marks));
        encoder.take_back("pay/in/3/", &asked);
        assert_eq!(String::from_utf8_lossy(&encoder.commands), String::from_utf8_lossy(&taken_back));
    }
}
