//! A gate that is kept in Redis.
//!
//! A **gate** is asked, before a record is passed on, whether a record with the same **identity** (a digest of all that
//! makes two records the same) was passed on elsewhere. It keeps a **mark** for each identity: the coordinates of the
//! record that came first. A **task** is the work on one input partition; a **lane** is a thread with several tasks.
//!
//! | key | value |
//! |---|---|
//! | `rgate:` and 24 bytes: the identity, each byte of which is combined by XOR with that of a digest of the gate's name | the coordinates of the record that came first: `topology/topic/id/partition/offset`, the topic's id as 32 hexadecimal digits |
//!
//! **Keys are short** because a server holds one for each record within the retention. With header and terminator, a
//! key of 30 bytes takes 32 bytes there; one of 31 bytes takes 48, and setting its mark takes about a third more of the
//! server's time. So a key has no room for the gate's name. Two gates share a mark only if two identities differ
//! exactly as the digests of the gates' names do; such identities are infeasible to find.
//!
//! `SET key coordinates NX PX retention GET` sets a mark or reads the existing one; the commands for all records of a
//! query are sent at once. A script removes a mark if it is still the caller's.
//!
//! **Invariant**: a mark is never changed. It is set only where there is none, and removed only by the task that set it
//! or when it expires. **Failure**: after an error the connection is dropped, and the next call opens another.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use sha2::{Digest as _, Sha256};

use super::connection::{Connecting, Deadline};
use super::error::LATE;
use super::{Address, Connection, Error, ErrorKind};
use crate::effect::gate::{self, Gate, GateRecord, GateVerdict, IDENTITY_BYTES, Identity, SourcePartition};

/// The longest that a call may take, connecting included: meanwhile the lane does not serve its consumer group, and its
/// transaction may be open.
const WAIT: Duration = Duration::from_secs(2);
/// The prefix of keys.
const KEY_PREFIX: &str = "rgate:";
/// Makes digests of gates' names differ from all other digests.
const NAME_DOMAIN: &[u8] = b"ratchet gate's name 1";
/// A script that removes a mark if it is still the caller's.
const REMOVE_MARK: &[u8] = b"if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// The settings of a gate in Redis.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server's address.
    pub address: Address,
    /// The gate's name.
    pub name: String,
    /// How long a mark is kept, in milliseconds.
    pub retention_ms: i64,
}

/// A gate kept in Redis.
#[derive(Clone, Debug)]
pub struct RedisGate {
    settings: Arc<Settings>,
}

impl RedisGate {
    /// A gate with these settings. Does not connect yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings) }
    }
}

impl Gate for RedisGate {
    fn session(&self) -> Box<dyn gate::Session> {
        Box::new(Session::new(Arc::clone(&self.settings)))
    }
}

/// A lane's session with the server.
struct Session {
    settings: Arc<Settings>,
    encoder: Encoder,
    /// `None` before the first call, and after an error.
    connection: Option<Connection>,
    /// A connection that was not ready in time for the last call.
    connecting: Option<Connecting>,
}

impl Session {
    fn new(settings: Arc<Settings>) -> Self {
        let encoder = Encoder::new(&settings.name, settings.retention_ms);
        Self { settings, encoder, connection: None, connecting: None }
    }

    /// Sends the encoder's commands, `count` of them, over the existing connection or a new one.
    fn exchange(&mut self, count: usize, on_reply: impl FnMut(Value) -> Result<(), Error>) -> Result<(), Error> {
        let deadline = Deadline::within(WAIT);
        let mut connection = self.connection(deadline)?;
        let commands = (&self.encoder.commands[..], count);
        connection.exchange(&self.settings.address, commands, deadline, on_reply)?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Takes the connection; the caller puts it back unless it has failed.
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
                // Connecting continues, for the next call.
                self.connecting = Some(connecting);
                Err(address.error(ErrorKind::Transient, LATE))
            }
        }
    }
}

impl gate::Session for Session {
    fn ask(
        &mut self,
        source: &SourcePartition<'_>,
        records: &[GateRecord],
        verdicts: &mut Vec<GateVerdict>,
    ) -> Result<(), Error> {
        verdicts.clear();
        if records.is_empty() {
            return Ok(());
        }
        // A record's mark is `mark_start` followed by the record's offset.
        let (mark_start, address) = (source.to_string(), self.settings.address.clone());
        self.encoder.set_marks(&mark_start, records);
        self.exchange(records.len(), |reply| {
            verdicts.push(match reply {
                Value::Nil => GateVerdict::First,
                Value::BulkString(mark) if mark.starts_with(mark_start.as_bytes()) => GateVerdict::Own,
                Value::BulkString(_) => GateVerdict::Elsewhere,
                _ => return Err(address.error(ErrorKind::Permanent, "unexpected reply to SET")),
            });
            Ok(())
        })
    }

    fn remove_marks(&mut self, source: &SourcePartition<'_>, records: &[GateRecord]) -> Result<(), Error> {
        if records.is_empty() {
            return Ok(());
        }
        self.encoder.remove_marks(&source.to_string(), records);
        self.exchange(records.len(), |_| Ok(()))
    }

    fn reach(&mut self) -> Result<(), Error> {
        let deadline = Deadline::within(WAIT);
        let mut connection = self.connection(deadline)?;
        connection.carry_out(&self.settings.address, &::redis::cmd("PING"), deadline)?;
        self.connection = Some(connection);
        Ok(())
    }
}

/// Encodes commands in Redis's protocol, into reused memory: nothing is allocated per record.
struct Encoder {
    key: KeyEncoder,
    /// The arguments of SET that follow the coordinates.
    conditions: Vec<u8>,
    /// The commands that were encoded last.
    commands: Vec<u8>,
}

impl Encoder {
    fn new(name: &str, retention_ms: i64) -> Self {
        let mut conditions = Vec::new();
        for word in ["NX", "PX", &retention_ms.to_string(), "GET"] {
            put_bulk_string(&mut conditions, word.as_bytes());
        }
        Self { key: KeyEncoder::new(name), conditions, commands: Vec::new() }
    }

    /// Encodes commands that set these records' marks where there are none.
    fn set_marks(&mut self, mark_start: &str, records: &[GateRecord]) {
        let Self { key, conditions, commands } = self;
        commands.clear();
        for GateRecord { identity, offset } in records {
            commands.extend_from_slice(b"*7\r\n$3\r\nSET\r\n");
            key.put(commands, *identity);
            put_mark(commands, mark_start, *offset);
            commands.extend_from_slice(conditions);
        }
    }

    /// Encodes commands that remove these records' marks.
    fn remove_marks(&mut self, mark_start: &str, records: &[GateRecord]) {
        let Self { key, commands, .. } = self;
        commands.clear();
        for GateRecord { identity, offset } in records {
            commands.extend_from_slice(b"*5\r\n$4\r\nEVAL\r\n");
            put_bulk_string(commands, REMOVE_MARK);
            put_bulk_string(commands, b"1");
            key.put(commands, *identity);
            put_mark(commands, mark_start, *offset);
        }
    }
}

/// Encodes the keys of a gate.
struct KeyEncoder {
    /// The start of each encoded key: `$LENGTH\r\n` and the prefix.
    start: Vec<u8>,
    name_digest: [u8; IDENTITY_BYTES],
}

impl KeyEncoder {
    fn new(name: &str) -> Self {
        let start = format!("${}\r\n{KEY_PREFIX}", KEY_PREFIX.len() + IDENTITY_BYTES).into_bytes();
        let digest = Sha256::new().chain_update(NAME_DOMAIN).chain_update(name).finalize();
        let mut name_digest = [0; IDENTITY_BYTES];
        name_digest.copy_from_slice(&digest[..IDENTITY_BYTES]);
        Self { start, name_digest }
    }

    /// Writes the key of an identity, as one part of a command.
    fn put(&self, commands: &mut Vec<u8>, Identity(identity): Identity) {
        let mut bytes = identity;
        bytes.iter_mut().zip(self.name_digest).for_each(|(byte, digest)| *byte ^= digest);
        commands.extend_from_slice(&self.start);
        commands.extend_from_slice(&bytes);
        commands.extend_from_slice(b"\r\n");
    }
}

/// Writes a record's mark, as one part of a command.
fn put_mark(commands: &mut Vec<u8>, mark_start: &str, offset: i64) {
    let digits = offset.checked_ilog10().map_or(1, |log| log as usize + 1);
    // Writing to memory does not fail.
    let _ = write!(commands, "${}\r\n{mark_start}{offset}\r\n", mark_start.len() + digits);
}

/// Writes one part of a command.
fn put_bulk_string(out: &mut Vec<u8>, bytes: &[u8]) {
    // Writing to memory does not fail.
    let _ = write!(out, "${}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    //! Goal: the encoder writes the same bytes as the crate `redis`, and keys never change: marks under other keys
    //! would be lost.

    use super::*;

    /// The beginning of SHA-256 of `ratchet gate's name 1shop`.
    const SHOP: [u8; IDENTITY_BYTES] = [
        0xc6, 0x91, 0x28, 0x6e, 0x02, 0xdb, 0xa0, 0xdc, 0x7e, 0xd6, 0x8e, 0xa2, 0x38, 0xa5, 0x12, 0x5d, 0x24, 0xa0,
        0xa5, 0x94, 0x07, 0x85, 0x0d, 0x6f,
    ];

    #[test]
    fn commands_are_encoded_as_the_redis_crate_does() {
        let mut encoder = Encoder::new("shop", 604_800_000);
        let records: Vec<GateRecord> = [0, 9, 10, 99, 100, 1_000_000, i64::MAX]
            .into_iter()
            .map(|offset| GateRecord { identity: Identity([offset.to_be_bytes()[7]; IDENTITY_BYTES]), offset })
            .collect();
        let (mut marks, mut removals) = (Vec::new(), Vec::new());
        for GateRecord { identity, offset } in &records {
            let key: Vec<u8> =
                b"rgate:".iter().copied().chain(identity.0.iter().zip(SHOP).map(|(a, b)| a ^ b)).collect();
            let mark = format!("pay/in/3/{offset}");
            let mut set = ::redis::cmd("SET");
            set.arg(&key).arg(&mark).arg("NX").arg("PX").arg(604_800_000).arg("GET");
            marks.extend(set.get_packed_command());
            let mut eval = ::redis::cmd("EVAL");
            eval.arg(REMOVE_MARK).arg(1).arg(&key).arg(&mark);
            removals.extend(eval.get_packed_command());
        }
        encoder.set_marks("pay/in/3/", &records);
        assert_eq!(String::from_utf8_lossy(&encoder.commands), String::from_utf8_lossy(&marks));
        encoder.remove_marks("pay/in/3/", &records);
        assert_eq!(String::from_utf8_lossy(&encoder.commands), String::from_utf8_lossy(&removals));
    }

    #[test]
    fn gates_with_different_names_have_different_keys() {
        let key = |name| {
            let mut commands = Vec::new();
            KeyEncoder::new(name).put(&mut commands, Identity([7; IDENTITY_BYTES]));
            commands
        };
        assert_eq!(key("shop"), key("shop"));
        assert_ne!(key("shop"), key("shop-2"));
        assert!(key("shop").starts_with(b"$30\r\nrgate:"));
    }
}
