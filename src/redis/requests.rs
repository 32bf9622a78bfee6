//! Remembers HTTP requests in Redis: a [`request::Store`](Store) that several processes can share.
//!
//! ```no_run
//! use ratchet::http::Idempotency;
//! use ratchet::redis::{Address, requests::Requests};
//!
//! # fn layer() -> Result<Idempotency, Box<dyn std::error::Error>> {
//! let store = Requests::new(Address::read(&std::env::var("REDIS_URL")?)?);
//! let idempotency = Idempotency::new(store).required(true).caller_required(true);
//! # Ok(idempotency) }
//! ```
//!
//! A request is reserved before it is carried out. The reservation has a **token**, which names this attempt, and a
//! **lease**: as long as it lasts, nobody else carries the request out. A caller whose token is no longer the request's
//! is **fenced**: it can change nothing.
//!
//! A request is a hash under the key `ratchet:request:` followed by its id in hex digits. Its fields are `token`,
//! `fingerprint` (a digest of what it asks for) and `lease` (the lease's end, in milliseconds since the Unix epoch);
//! once it is answered, `answer` and `whole` (1 unless the answer's body was cut off) replace `lease`. Each change is a
//! script, which Redis runs atomically: the token cannot change between a script's check and its write. Leases and
//! retention are measured by the server's clock, and Redis itself removes expired requests.
//!
//! **Durability.** A response is as safe as the server: with `appendfsync always` it survives a crash of the machine,
//! with weaker settings it may be lost, and a replica that takes over may lack it. A server that evicts keys forgets
//! requests: a warning is logged when connecting to one.
//!
//! **Failure.** After a connection is lost, or its server has become a replica, the next call reconnects; if that
//! fails, calls fail immediately for a moment. A replica is refused.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, FromRedisValue, RedisError, Script, ScriptInvocation, Value};
use bytes::Bytes;

use super::connection::{check_master, check_version_and_mode};
use super::error::NO_ROOM;
use super::{Address, ErrorKind};
use crate::effect::lazy::{Exchange, Lazy};
use crate::format;
use crate::request::{Answer, AnswerBody, Error, Found, Id, OnInDoubt, Reply, Reservation, StillHeld, Store, Wanted};

mod settling;

/// The longest that connecting may take.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The longest that a reply may take.
const REPLY_WAIT: Duration = Duration::from_secs(5);
/// The error codes of a server that has become a replica: to a change, and to any command while it has lost its master.
const DEMOTED: [&str; 2] = ["READONLY", "MASTERDOWN"];
/// The prefix of keys.
const PREFIX: &str = "ratchet:request:";

/// Requests and their responses in Redis.
pub struct Requests {
    address: Address,
    connection: Lazy<MultiplexedConnection, Error>,
    scripts: Scripts,
}

/// The scripts, each of which makes one change to a request.
struct Scripts {
    reserve: Script,
    extend: Script,
    complete: Script,
    release: Script,
    settle: Script,
}

impl Requests {
    /// The store on the server at this address. Does not connect yet.
    pub fn new(address: Address) -> Self {
        let scripts = Scripts {
            reserve: Script::new(include_str!("scripts/reserve.lua")),
            extend: Script::new(include_str!("scripts/extend.lua")),
            complete: Script::new(include_str!("scripts/complete.lua")),
            release: Script::new(include_str!("scripts/release.lua")),
            settle: Script::new(include_str!("scripts/settle.lua")),
        };
        Self { address, connection: Lazy::default(), scripts }
    }

    /// The connection to the server; connects first if necessary.
    async fn open(&self) -> Result<Exchange<'_, MultiplexedConnection, Error>, Error> {
        let connect = || {
            let address = self.address.clone();
            async move { connect(&address).await.map_err(http_error) }
        };
        self.connection.get(|_| true, connect).await
    }

    /// The reply to a command. Records whether its connection can still be used.
    fn check_reply<T>(
        &self,
        connection: Exchange<'_, MultiplexedConnection, Error>,
        reply: Result<T, RedisError>,
    ) -> Result<T, Error> {
        let error = match reply {
            Ok(reply) => {
                connection.answered();
                return Ok(reply);
            }
            Err(error) => error,
        };
        let store_error = http_error_of(&self.address, &error);
        let is_demoted = error.code().is_some_and(|code| DEMOTED.contains(&code));
        if is_demoted || error.is_unrecoverable_error() || error.is_connection_dropped() {
            connection.broken(&store_error);
        } else if error.is_timeout() {
            // As if the caller had stopped waiting: the connection is replaced only if it does not answer for too long.
            drop(connection);
        } else {
            connection.answered();
        }
        Err(store_error)
    }

    /// Runs a script, and returns its reply.
    async fn run<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Error> {
        let connection = self.open().await?;
        let reply = script.invoke_async(&mut connection.clone()).await;
        self.check_reply(connection, reply)
    }

    /// Runs a script that changes a request only if the caller still holds it, and returns whether it does.
    async fn run_fenced(&self, script: &ScriptInvocation<'_>) -> Result<StillHeld, Error> {
        Ok(if self.run::<bool>(script).await? { StillHeld::Yes } else { StillHeld::Fenced })
    }
}

/// Connects, and checks that requests can be kept on the server.
async fn connect(address: &Address) -> Result<MultiplexedConnection, super::Error> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_WAIT)).set_response_timeout(Some(REPLY_WAIT));
    let connected = address.client().get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = connected.map_err(|error| address.error_of(&error))?;
    let hello: Value =
        ::redis::cmd("HELLO").query_async(&mut connection).await.map_err(|error| address.error_of(&error))?;
    check_version_and_mode(address, &hello)?;
    check_master(address, &hello)?;
    // Best effort: the user may lack the right to CONFIG.
    let policy =
        ::redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").query_async::<Vec<String>>(&mut connection).await;
    if let Some(policy) =
        policy.ok().and_then(|policy| policy.into_iter().nth(1)).filter(|policy| policy != "noeviction")
    {
        tracing::warn!(
            server = address.display_name(), %policy,
            "this Redis evicts remembered requests when it is full: set its maxmemory-policy to noeviction"
        );
    }
    Ok(connection)
}

/// The key of a request.
fn key(id: Id) -> String {
    format!("{PREFIX}{}", format::hex(&id.0))
}

/// Translates an error of the crate `redis` for the HTTP layer.
fn http_error_of(address: &Address, error: &RedisError) -> Error {
    let classified = address.error_of(error);
    if error.code() == Some(NO_ROOM) { Error::Full(classified.message) } else { http_error(classified) }
}

/// Translates an error for the HTTP layer.
fn http_error(error: super::Error) -> Error {
    match error.kind {
        ErrorKind::Transient => Error::Unavailable(error.message),
        ErrorKind::Permanent => Error::Refused(error.message),
    }
}

/// A duration in milliseconds; at most 2^50, so that a script's numbers, which are doubles, hold any sum exactly.
fn to_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX).min(1 << 50)
}

impl Store for Requests {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async move {
            let mut script = self.scripts.reserve.key(key(wanted.held.id));
            script.arg(&wanted.held.token.0[..]).arg(&wanted.fingerprint.0[..]);
            script.arg(to_ms(wanted.lease)).arg(to_ms(wanted.retention.max(wanted.lease)));
            script.arg(wanted.on_in_doubt == OnInDoubt::Refuse);
            let (word, answer): (String, Option<Vec<u8>>) = self.run(&script).await?;
            match (word.as_str(), answer) {
                ("new", _) => Ok(Found::Reserved { taken_over: false }),
                ("taken_over", _) => Ok(Found::Reserved { taken_over: true }),
                ("in_progress", _) => Ok(Found::InProgress),
                ("in_doubt", _) => Ok(Found::InDoubt),
                ("other", _) => Ok(Found::OtherRequest),
                ("answered", Some(answer)) => {
                    let answer = Answer::decode(&Bytes::from(answer));
                    answer.map(Found::Answered).map_err(|error| Error::Refused(error.to_string()))
                }
                (word, _) => Err(Error::Refused(format!("unexpected reply from the script: {word:?}"))),
            }
        })
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        Box::pin(async move {
            let mut script = self.scripts.extend.key(key(held.id));
            self.run_fenced(script.arg(&held.token.0[..]).arg(to_ms(lease))).await
        })
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        Box::pin(async move {
            let mut script = self.scripts.complete.key(key(held.id));
            script
                .arg(&held.token.0[..])
                .arg(answer.encode())
                .arg(answer.body != AnswerBody::CutOff)
                .arg(to_ms(retention));
            self.run_fenced(&script).await
        })
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        Box::pin(async move {
            let mut script = self.scripts.release.key(key(held.id));
            self.run_fenced(script.arg(&held.token.0[..])).await
        })
    }

    /// Does nothing: Redis itself removes expired requests.
    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async { Ok(0) })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async {
            let connection = self.open().await?;
            let hello = ::redis::cmd("HELLO").query_async::<Value>(&mut connection.clone()).await;
            let hello = match hello {
                Ok(hello) => hello,
                Err(error) => return self.check_reply(connection, Err(error)),
            };
            let checked = check_master(&self.address, &hello).map_err(http_error);
            match &checked {
                Ok(()) => connection.answered(),
                Err(error) => connection.broken(error),
            }
            checked
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_server_is_recognised_by_its_error_code() {
        let address = Address::read("redis://h").unwrap();
        let error_of = |line: &str| {
            let reply = ::redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
            http_error_of(&address, &reply.and_then(Value::extract_error).unwrap_err())
        };
        let full = error_of("OOM command not allowed when used memory > 'maxmemory'.");
        assert!(matches!(&full, Error::Full(words) if words.contains("raise its maxmemory")), "{full}");
        let other = error_of("MISCONF it is full: raise its maxmemory, or shorten the retention");
        assert!(matches!(other, Error::Unavailable(_)), "its code counts, not its text: {other}");
        assert!(matches!(error_of("NOPERM this user has no permissions"), Error::Refused(_)));
    }
}
