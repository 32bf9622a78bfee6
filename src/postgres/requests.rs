//! A store of HTTP requests and their responses in a PostgreSQL table: a [`request::Store`](Store) that processes
//! share.
//!
//! ```no_run
//! use ratchet::postgres::requests::Requests;
//! use ratchet::http::Idempotency;
//!
//! # fn layer() -> Result<Idempotency, Box<dyn std::error::Error>> {
//! let store = Requests::new(&std::env::var("DATABASE_URL")?, "ratchet")?;
//! let idempotency = Idempotency::new(store).required(true).caller_required(true);
//! # Ok(idempotency) }
//! ```
//!
//! `request` is a table of ratchet's own, with a row for each request. It is read and changed only by functions, which
//! run with their owner's rights: a store's role may execute them, and needs no right to the table. Each change has the
//! token in its condition, so the database itself refuses a change by anyone but the reservation's holder. Leases and
//! retention are measured by the database's clock.
//!
//! **The service's own transaction.** The function `answer_request` stores a response within the transaction in which
//! the service does its work, and raises an error if the service no longer holds the reservation: so the work and the
//! response are committed together or not at all, and no work is done twice. The layer's own attempt to store the
//! response afterwards has no effect.
//!
//! No statement waits for such a transaction, since other statements would wait behind it: locked rows are skipped, and
//! checked again if a response has to be stored.
//!
//! Statements are pipelined on a few connections. The statements of one request use the same connection, so that they
//! are executed in the order in which they were sent.
//!
//! **Failure.** A connection that is lost, or whose server has become a standby or lost its prepared statements, is
//! replaced by the next call that needs it. If that fails, calls fail at once for a short time. A standby is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use super::class::{ErrorClass, Trouble};
use super::own_table;
use super::pipeline::within_timeout;
use super::quoting::quoted;
use super::server::{CLOSE_TIMEOUT, Server, check_server, connect};
use crate::effect::lazy::{Exchange, Lazy};
use crate::request::{Answer, AnswerBody, Error, Found, OnInDoubt, Reply, Reservation, StillHeld, Store, Wanted};

mod settling;
mod sql;

use sql::{Caller, SEARCH_PATH, ddl, functions, functions_ddl, rights};

/// The maximum number of connections.
const CONNECTIONS: usize = 4;
/// The number of attempts to change a row that is locked, and the first pause between two; each further pause is twice
/// as long. More than a second in total.
const LOCKED_ATTEMPTS_MAX: usize = 9;
const LOCKED_PAUSE: Duration = Duration::from_millis(5);

/// A store of requests in PostgreSQL.
pub struct Requests {
    location: Arc<TableLocation>,
    connections: [Lazy<StoreConnection, Error>; CONNECTIONS],
    next: AtomicUsize,
}

/// The location of the table.
struct TableLocation {
    server: Server,
    schema: String,
}

/// A connection with its statements.
struct StoreConnection {
    client: Client,
    task: JoinHandle<()>,
    reserve: Statement,
    extend: Statement,
    complete: Statement,
    release: Statement,
    tidy: Statement,
}

impl Requests {
    /// The store in the database at this address: `postgresql://user:password@host/database` or `host=... user=...`;
    /// the table `request` is in this schema. Does not connect yet.
    ///
    /// # Errors
    /// What is wrong with the address; never quotes it.
    pub fn new(url: &str, schema: impl Into<String>) -> Result<Self, Error> {
        let server = Server::parse(url).map_err(|error| Error::Refused(format!("the database's address: {error}")))?;
        let location = Arc::new(TableLocation { server, schema: schema.into() });
        Ok(Self { location, connections: Default::default(), next: AtomicUsize::new(0) })
    }

    /// The SQL that creates the table and its functions, for a role with the right to create them.
    pub fn ddl(schema: &str) -> String {
        ddl(&quoted(schema))
    }

    /// The connection for a request's statements, opened if necessary.
    async fn connection_for(&self, held: &Reservation) -> Result<Exchange<'_, StoreConnection, Error>, Error> {
        self.connection(held.id.0[0].into()).await
    }

    /// The next connection in turn, for statements that do not belong to a request.
    async fn next_connection(&self) -> Result<Exchange<'_, StoreConnection, Error>, Error> {
        self.connection(self.next.fetch_add(1, Ordering::Relaxed)).await
    }

    async fn connection(&self, number: usize) -> Result<Exchange<'_, StoreConnection, Error>, Error> {
        let connect = || {
            let location = Arc::clone(&self.location);
            async move { StoreConnection::connect(&location).await.map_err(store_error) }
        };
        self.connections[number % CONNECTIONS].get(|connection| !connection.client.is_closed(), connect).await
    }
}

/// Reports to the connection whether it can be used again, and returns the call's result.
fn finish_call<T>(connection: Exchange<'_, StoreConnection, Error>, result: Result<T, Trouble>) -> Result<T, Error> {
    let trouble = match result {
        Ok(value) => {
            connection.answered();
            return Ok(value);
        }
        Err(trouble) => trouble,
    };
    let is_broken = trouble.is_fatal || matches!(trouble.class, ErrorClass::Reconnect | ErrorClass::Lost);
    let error = store_error(trouble);
    if is_broken {
        connection.broken(&error)
    } else {
        connection.answered()
    }
    Err(error)
}

/// The store's error.
fn store_error(trouble: Trouble) -> Error {
    match trouble.class {
        _ if trouble.code == Some(SqlState::DISK_FULL) => Error::Full(trouble.message),
        ErrorClass::Transient | ErrorClass::Reconnect | ErrorClass::Lost => Error::Unavailable(trouble.message),
        ErrorClass::Permanent | ErrorClass::Data | ErrorClass::Doubtful => Error::Refused(trouble.message),
    }
}

impl StoreConnection {
    async fn connect(location: &TableLocation) -> Result<Self, Trouble> {
        let TableLocation { server, schema } = location;
        let (client, task, _) = connect(server, "requests").await?;
        let prepared = within_timeout(async {
            check_server(&client).await?;
            check_writable(&client).await.map_err(|trouble| trouble.with_context(&server.description()))?;
            let quoted = quoted(schema);
            own_table::ensure(&client, schema, "request", (&ddl(&quoted), &rights(&quoted))).await?;
            renew_functions(&client, schema).await?;
            let mut prepared = Vec::with_capacity(5);
            for call in [
                "outcome, remembered from {}.reserve_request($1, $2, $3, $4, $5, $6)",
                "{}.extend_request($1, $2, $3)",
                "{}.complete_request($1, $2, $3, $4, $5)",
                "{}.release_request($1, $2)",
                "{}.tidy_requests()",
            ] {
                prepared.push(client.prepare(&format!("select {}", call.replace("{}", &quoted))).await?);
            }
            Ok(prepared)
        });
        let Ok([reserve, extend, complete, release, tidy]) = <[Statement; 5]>::try_from(prepared.await?) else {
            return Err(Trouble::permanent("a statement was not prepared"));
        };
        Ok(Self { client, task, reserve, extend, complete, release, tidy })
    }

    /// Reserves a request, or returns its state.
    async fn reserve(&self, wanted: &Wanted) -> Result<Found, Trouble> {
        let Wanted { held, fingerprint, on_in_doubt, .. } = wanted;
        let (lease, retention) = (wanted.lease.as_secs_f64(), wanted.retention.max(wanted.lease).as_secs_f64());
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &&held.id.0[..],
            &&held.token.0[..],
            &&fingerprint.0[..],
            &lease,
            &retention,
            &(*on_in_doubt == OnInDoubt::Refuse),
        ];
        let row = self.client.query_one(&self.reserve, &parameters).await?;
        Ok(match row.try_get(0)? {
            "reserved" => Found::Reserved { taken_over: false },
            "taken_over" => Found::Reserved { taken_over: true },
            "answered" => {
                let answer = Answer::decode(&Bytes::copy_from_slice(row.try_get(1)?));
                Found::Answered(answer.map_err(|error| Trouble::permanent(error.to_string()))?)
            }
            "in_progress" => Found::InProgress,
            "in_doubt" => Found::InDoubt,
            "other" => Found::OtherRequest,
            other => return Err(unexpected_outcome(other)),
        })
    }

    async fn extend(&self, held: &Reservation, lease: Duration) -> Result<StillHeld, Trouble> {
        let parameters: [&(dyn ToSql + Sync); 3] = [&&held.id.0[..], &&held.token.0[..], &lease.as_secs_f64()];
        let is_kept = self.client.query_one(&self.extend, &parameters).await?.try_get(0)?;
        Ok(if is_kept { StillHeld::Yes } else { StillHeld::Fenced })
    }

    /// Stores a response. Tries again while the service's transaction has locked the row, so that the response is not
    /// lost.
    async fn complete(&self, held: &Reservation, answer: &Answer, retention: Duration) -> Result<StillHeld, Trouble> {
        let (bytes, is_whole) = (answer.encode(), answer.body != AnswerBody::CutOff);
        let parameters: [&(dyn ToSql + Sync); 5] =
            [&&held.id.0[..], &&held.token.0[..], &bytes, &is_whole, &retention.as_secs_f64()];
        let mut pause = LOCKED_PAUSE;
        for attempt in 0..LOCKED_ATTEMPTS_MAX {
            if attempt > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let row = self.client.query_one(&self.complete, &parameters).await?;
            return Ok(match row.try_get(0)? {
                "kept" => StillHeld::Yes,
                "fenced" => StillHeld::Fenced,
                // The row should have been changed: try again.
                "locked" => continue,
                other => return Err(unexpected_outcome(other)),
            });
        }
        Err(Trouble::transient("the request's row is locked: the service has not committed yet"))
    }

    async fn release(&self, held: &Reservation) -> Result<StillHeld, Trouble> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&&held.id.0[..], &&held.token.0[..]];
        let is_released = self.client.query_one(&self.release, &parameters).await?.try_get(0)?;
        Ok(if is_released { StillHeld::Yes } else { StillHeld::Fenced })
    }

    async fn tidy(&self) -> Result<usize, Trouble> {
        let removed: i64 = self.client.query_one(&self.tidy, &[]).await?.try_get(0)?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}

/// The error for an outcome that this release does not know.
fn unexpected_outcome(outcome: &str) -> Trouble {
    Trouble::permanent(format!(
        "a function of the table `request` has returned an unknown outcome, `{outcome}`: run the release that has \
         created it"
    ))
}

impl Drop for StoreConnection {
    /// Gives the task some time to send what is pending, and then ends it.
    fn drop(&mut self) {
        let task = self.task.abort_handle();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(CLOSE_TIMEOUT).await;
                task.abort();
            });
        }
    }
}

/// Refuses a standby, which would accept no reservation.
async fn check_writable(client: &Client) -> Result<(), Trouble> {
    let messages = client.simple_query("select pg_is_in_recovery()").await?;
    let is_standby =
        messages.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t")));
    if is_standby {
        let message = "it is a standby, which takes no writes: name the primary in the url, or several hosts and \
                       target_session_attrs=read-write";
        return Err(Trouble { class: ErrorClass::Reconnect, ..Trouble::transient(message) });
    }
    Ok(())
}

impl Store for Requests {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async {
            let connection = self.connection_for(&wanted.held).await?;
            let found = connection.reserve(wanted).await;
            finish_call(connection, found)
        })
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        Box::pin(async move {
            let connection = self.connection_for(&held).await?;
            let kept = connection.extend(&held, lease).await;
            finish_call(connection, kept)
        })
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        Box::pin(async move {
            let connection = self.connection_for(&held).await?;
            let kept = connection.complete(&held, answer, retention).await;
            finish_call(connection, kept)
        })
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        Box::pin(async move {
            let connection = self.connection_for(&held).await?;
            let kept = connection.release(&held).await;
            finish_call(connection, kept)
        })
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            let connection = self.next_connection().await?;
            let removed = connection.tidy().await;
            finish_call(connection, removed)
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async {
            let connection = self.next_connection().await?;
            let checked = check_writable(&connection.client).await;
            finish_call(connection, checked)
        })
    }
}

/// Creates missing functions, and replaces those of another release. If this role may not do that, the SQL is logged,
/// or is part of the error.
///
/// # Errors
/// Functions that the store needs are missing, or this role may not execute them.
async fn renew_functions(client: &Client, schema: &str) -> Result<(), Trouble> {
    let quoted = quoted(schema);
    let path = format!("search_path={SEARCH_PATH}");
    let sql = "select f.name is not null, coalesce(p.prosrc = $2 and p.prosecdef and $3 = any (p.proconfig) \
               and not has_function_privilege('public', p.oid, 'execute'), false), \
               coalesce(has_function_privilege(p.oid, 'execute'), false) \
               from (select to_regprocedure($1) as name) f left join pg_catalog.pg_proc p on p.oid = f.name";
    let statement = client.prepare(sql).await?;
    let (mut is_current, mut is_usable, mut failure) = (true, true, None);
    for is_retry in [false, true] {
        (is_current, is_usable) = (true, true);
        for function in functions(&quoted) {
            let row = client.query_one(&statement, &[&function.name, &function.body, &path]).await?;
            let (exists, is_same, is_allowed): (bool, bool, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            is_current &= is_same;
            is_usable &= exists && is_allowed || function.caller != Caller::Store;
        }
        if is_current || is_retry {
            break;
        }
        // Checked again even after a failure: another process may have replaced the functions in the meantime.
        failure = own_table::replace(client, schema, &functions_ddl(&quoted)).await.err();
    }
    let reason = failure.as_ref().map_or_else(String::new, |trouble| format!(" ({})", trouble.message));
    let sql = format!("begin;\n{};\ncommit;\n{}", functions_ddl(&quoted), rights(&quoted));
    let instruction = "have the table's owner run this, with this role's name in place of ROLE";
    if !is_usable {
        if let Some(trouble) = failure.filter(Trouble::may_pass) {
            return Err(trouble);
        }
        let message = format!(
            "functions of the table {quoted}.request are missing, or this role may not execute them{reason}; \
             {instruction}:\n{sql}"
        );
        return Err(Trouble::permanent(message));
    }
    if !is_current {
        tracing::warn!(
            "the functions of the table {quoted}.request are not this release's{reason}; {instruction}:\n{sql}"
        );
    }
    Ok(())
}
