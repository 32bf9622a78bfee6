//! What stands in a topology's control topic: commands that somebody has given, and what its tasks have made of them.
//!
//! Every task reads all commands, in order, carries each out once, in a transaction of its own owner, and acknowledges it
//! in the same one; how far it has come is in its position record ([`super::Control`]).
//!
//! | a record | key | value |
//! |---|---|---|
//! | a command | its id: 32 lower-case hex digits, drawn at random | JSON, as below |
//! | an acknowledgement | the command's id, a blank, the task's `TOPIC:PARTITION` | JSON, as below |
//!
//! A record with another key is neither, now and in later releases. So one that a release cannot read is known to be a
//! command or not, and is acknowledged as [`Outcome::NotUnderstood`] or passed over.
//!
//! | a command | value |
//! |---|---|
//! | format | number: [`CONTROL_FORMAT`] |
//! | topic_id | text: the id of the control topic that it was given in, 32 hex digits |
//! | at | number: when, by the wall clock of its sender, milliseconds since the epoch |
//! | command | text: `settle` |
//! | identity | text: the key of the identity in the changelog, in hex digits |
//! | as | text: `done`, `retry`, `drop` |
//!
//! | an acknowledgement | value |
//! |---|---|
//! | format | number: [`CONTROL_FORMAT`] |
//! | outcome | text: a word of [`Outcome`] |
//! | was | text or null: what was remembered before, in a word |
//!
//! What a later release adds to a command is a field or a word that this one does not know, and so refuses.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Error, IDENTITY_BYTES_MAX, KIND_IDENTITY, KIND_IDENTITY_DIGEST, hex, unhex};

/// The format of commands and acknowledgements that is written.
pub const CONTROL_FORMAT: u32 = 1;

const COMMAND: &str = "a command";
const ACKNOWLEDGEMENT: &str = "an acknowledgement";
/// The bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// Names a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u128);

/// What somebody has commanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The control topic's id: a copy of it elsewhere commands nothing.
    pub topic_id: [u8; 16],
    /// When it was given, by the wall clock of its sender: milliseconds since the epoch.
    pub at_ms: i64,
    /// What the tasks have to do.
    pub instruction: Instruction,
}

/// What the tasks have to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Settle a call as an operator has decided.
    Settle {
        /// The key of the call's identity in the changelog.
        identity_key: Vec<u8>,
        /// The operator's decision.
        decision: ManualDecision,
    },
}

/// An operator's decision on a call, or on an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManualDecision {
    /// It has happened.
    Done,
    /// It has not happened, or that does not matter: it is forgotten, and the next record of its identity calls.
    Retry,
    /// It has not happened, and will not be done.
    Drop,
}

/// What a task has made of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// What has come of it.
    pub outcome: Outcome,
    /// What was remembered before, in a word; `None` if nothing was.
    pub was: Option<String>,
}

/// What has come of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is settled as it was said.
    Settled,
    /// It is forgotten.
    Forgotten,
    /// It was so already, or is done and stays so.
    Already,
    /// Nothing is known of the identity.
    Unknown,
    /// The task's release does not know the command.
    NotUnderstood,
    /// It was given in another topic, of which this one is a copy.
    Elsewhere,
    /// It is not done: a handler's steps would be done again under keys that were used.
    StepsWereDone,
}

impl Outcome {
    /// All of them, in the order in which they are declared.
    pub const ALL: [Self; 7] = [
        Self::Settled,
        Self::Forgotten,
        Self::Already,
        Self::Unknown,
        Self::NotUnderstood,
        Self::Elsewhere,
        Self::StepsWereDone,
    ];

    /// The word for it, which acknowledgements have too.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Forgotten => "forgotten",
            Self::Already => "already",
            Self::Unknown => "unknown",
            Self::NotUnderstood => "not_understood",
            Self::Elsewhere => "elsewhere",
            Self::StepsWereDone => "steps_were_done",
        }
    }
}

impl CommandId {
    const DIGITS: usize = 32;

    /// The id in the key of a command; `None` if it is not the key of one.
    pub fn of_command(key: &[u8]) -> Option<Self> {
        let digits = <&[u8; Self::DIGITS]>::try_from(key).ok()?;
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        let digits = digits.iter().all(is_digit).then(|| std::str::from_utf8(digits).ok())??;
        u128::from_str_radix(digits, 16).ok().map(Self)
    }

    /// The key of the command.
    pub fn key(self) -> String {
        format!("{:032x}", self.0)
    }

    /// The key of a task's acknowledgement.
    pub fn key_of_acknowledgement(self, topic: &str, partition: i32) -> String {
        format!("{:032x} {topic}:{partition}", self.0)
    }

    /// The id and the task in the key of an acknowledgement; `None` if it is not the key of one.
    pub fn of_acknowledgement(key: &[u8]) -> Option<(Self, &str, i32)> {
        let (id, rest) = key.split_at_checked(Self::DIGITS)?;
        let (topic, partition) = std::str::from_utf8(rest).ok()?.strip_prefix(' ')?.rsplit_once(':')?;
        Some((Self::of_command(id)?, topic, partition.parse().ok()?))
    }
}

/// The value of a command.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCommand {
    format: u32,
    topic_id: String,
    at: i64,
    command: String,
    identity: String,
    r#as: ManualDecision,
}

/// The value of an acknowledgement.
#[derive(Serialize, Deserialize)]
struct WrittenAcknowledgement {
    format: u32,
    outcome: Outcome,
    was: Option<String>,
}

/// Says which format a value has, whatever else is in it.
#[derive(Deserialize)]
struct Formatted {
    format: u32,
}

fn damaged(what: &'static str, reason: impl ToString) -> Error {
    Error::Damaged { what, reason: reason.to_string() }
}

/// Reads a value of the format that this release knows.
fn read<'a, T: Deserialize<'a>>(what: &'static str, value: &'a [u8]) -> Result<T, Error> {
    let Formatted { format } = serde_json::from_slice(value).map_err(|error| damaged(what, error))?;
    if format != CONTROL_FORMAT {
        return Err(Error::Format { what, found: format, expected: CONTROL_FORMAT });
    }
    serde_json::from_slice(value).map_err(|error| damaged(what, error))
}

fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these structs have no key that is not text")
}

/// Whether an identity can have this key.
fn is_key(key: &[u8]) -> bool {
    match key.split_first() {
        Some((&KIND_IDENTITY, identity)) => identity.len() <= IDENTITY_BYTES_MAX,
        Some((&KIND_IDENTITY_DIGEST, digest)) => digest.len() == DIGEST_BYTES,
        _ => false,
    }
}

impl Command {
    /// Reads a command's value.
    pub fn decode(value: &[u8]) -> Result<Self, Error> {
        let written: WrittenCommand = read(COMMAND, value)?;
        if written.command != "settle" {
            return Err(damaged(COMMAND, format_args!("{:?} is unknown", written.command)));
        }
        let topic_id = unhex(&written.topic_id).and_then(|id| id.try_into().ok());
        let identity_key = unhex(&written.identity).filter(|key| is_key(key));
        let no_key = || damaged(COMMAND, "its identity is not the key of an identity");
        Ok(Self {
            topic_id: topic_id.ok_or_else(|| damaged(COMMAND, "its topic_id is not the id of a topic"))?,
            at_ms: written.at,
            instruction: Instruction::Settle { identity_key: identity_key.ok_or_else(no_key)?, decision: written.r#as },
        })
    }

    /// The command's value.
    pub fn encode(&self) -> Vec<u8> {
        let Instruction::Settle { identity_key, decision } = &self.instruction;
        write(&WrittenCommand {
            format: CONTROL_FORMAT,
            topic_id: hex(&self.topic_id),
            at: self.at_ms,
            command: "settle".to_owned(),
            identity: hex(identity_key),
            r#as: *decision,
        })
    }
}

impl Acknowledgement {
    /// Reads an acknowledgement's value.
    pub fn decode(value: &[u8]) -> Result<Self, Error> {
        let WrittenAcknowledgement { outcome, was, .. } = read(ACKNOWLEDGEMENT, value)?;
        Ok(Self { outcome, was })
    }

    /// The acknowledgement's value.
    pub fn encode(&self) -> Vec<u8> {
        let Self { outcome, was } = self.clone();
        write(&WrittenAcknowledgement { format: CONTROL_FORMAT, outcome, was })
    }
}

impl ManualDecision {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Done, Self::Retry, Self::Drop];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Drop => "drop",
        }
    }
}

impl FromStr for ManualDecision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|decision| decision.as_str() == text);
        known.ok_or_else(|| "write done, retry or drop".to_owned())
    }
}

#[cfg(test)]
#[path = "control/tests.rs"]
mod tests;
