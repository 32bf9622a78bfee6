//! What is remembered of HTTP requests, in a table of PostgreSQL: a [`request::Store`](Store) that processes share.
//!
//! ```no_run
//! use ratchet::effect::postgres::requests::Requests;
//! use ratchet::http::Idempotency;
//!
//! # fn layer() -> Result<Idempotency, Box<dyn std::error::Error>> {
//! let store = Requests::new(&std::env::var("DATABASE_URL")?, "ratchet")?;
//! let idempotency = Idempotency::new(store).required(true).caller_required(true);
//! # Ok(idempotency) }
//! ```
//!
//! `request` is a table of ratchet's own, a row for each request. It is read and changed by functions alone, which run with
//! their owner's rights: a store's role may execute them, and needs no right to the table. Each change has the token in its
//! condition, so the database itself refuses what is not its holder's. Leases and retention pass on the database's clock.
//!
//! **The service's own transaction.** The function `answer_request` remembers an answer within the transaction in which
//! the service does its work, and raises an error if the reservation is not its any more: so both are there or neither
//! is, and nothing is done twice. What the layer would remember later changes nothing then.
//!
//! No statement waits for such a transaction, since others wait behind it: rows that are locked are passed over, and
//! looked at again where an answer is to be remembered.
//!
//! Statements are sent one after the other on a few connections without waiting for each other's answers; those of one
//! request on one connection, so that they come in the order in which they were sent.
//!
//! **Failure.** A connection that is lost, or whose server takes no writes or has other statements by now, is made anew by
//! the next call that needs it; if that fails, the calls of some moments fail at once. A standby is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use super::class::{Class, Trouble};
use super::own_table;
use super::pipeline::answered;
use super::quoting::quoted;
use super::server::{FAREWELL_WAIT, Server, connect, greet};
use crate::effect::lazy::{Asked, Lazy};
use crate::request::{Answer, AnswerBody, Error, Found, Held, Kept, OnInDoubt, Reply, Store, Wanted};

mod by_hand;
mod sql;

use sql::{For, SEARCH_PATH, ddl, functions, functions_ddl, rights};

/// How many connections there are at most.
const CONNECTIONS: usize = 4;
/// How often, and how soon at first, a row is looked at again that is locked where an answer is to be remembered; each
/// pause is twice as long as the one before. Together more than a second.
const LOCKED_LOOKS_MAX: usize = 9;
const LOCKED_PAUSE: Duration = Duration::from_millis(5);

/// Answers in PostgreSQL.
pub struct Requests {
    place: Arc<Place>,
    connections: [Lazy<Open, Error>; CONNECTIONS],
    next: AtomicUsize,
}

/// Where the table is.
struct Place {
    server: Server,
    schema: String,
}

/// A connection with its statements.
struct Open {
    client: Client,
    task: JoinHandle<()>,
    reserve: Statement,
    extend: Statement,
    complete: Statement,
    release: Statement,
    tidy: Statement,
}

impl Requests {
    /// The database at this address: `postgresql://user:password@host/database` or `host=... user=...`; the table
    /// `request` is in this schema. Connects to nothing yet.
    ///
    /// # Errors
    /// What is wrong with the address; never quotes it.
    pub fn new(url: &str, schema: impl Into<String>) -> Result<Self, Error> {
        let server = Server::read(url).map_err(|error| Error::Refused(format!("the database's address: {error}")))?;
        let place = Arc::new(Place { server, schema: schema.into() });
        Ok(Self { place, connections: Default::default(), next: AtomicUsize::new(0) })
    }

    /// The SQL that creates the table and its functions, for somebody who may.
    pub fn ddl(schema: &str) -> String {
        ddl(&quoted(schema))
    }

    /// The connection of a request, made if there is none.
    async fn of(&self, held: &Held) -> Result<Asked<'_, Open, Error>, Error> {
        self.open(held.id.0[0].into()).await
    }

    /// One connection after the other, for what is no request's.
    async fn any(&self) -> Result<Asked<'_, Open, Error>, Error> {
        self.open(self.next.fetch_add(1, Ordering::Relaxed)).await
    }

    async fn open(&self, number: usize) -> Result<Asked<'_, Open, Error>, Error> {
        let connect = || {
            let place = Arc::clone(&self.place);
            async move { Open::connect(&place).await.map_err(of) }
        };
        self.connections[number % CONNECTIONS].get(|open| !open.client.is_closed(), connect).await
    }
}

/// What was said over a connection, and whether that one is of use after it.
fn said<T>(open: Asked<'_, Open, Error>, said: Result<T, Trouble>) -> Result<T, Error> {
    let trouble = match said {
        Ok(said) => {
            open.answered();
            return Ok(said);
        }
        Err(trouble) => trouble,
    };
    let is_broken = trouble.is_fatal || matches!(trouble.class, Class::Anew | Class::Lost);
    let error = of(trouble);
    if is_broken {
        open.broken(&error)
    } else {
        open.answered()
    }
    Err(error)
}

/// As the layer sees it.
fn of(trouble: Trouble) -> Error {
    match trouble.class {
        _ if trouble.code == Some(SqlState::DISK_FULL) => Error::Full(trouble.message),
        Class::Passing | Class::Anew | Class::Lost => Error::Unavailable(trouble.message),
        Class::Lasting | Class::Data | Class::Doubtful => Error::Refused(trouble.message),
    }
}

impl Open {
    async fn connect(place: &Place) -> Result<Self, Trouble> {
        let Place { server, schema } = place;
        let (client, task, _) = connect(server, "requests").await?;
        let prepared = answered(async {
            greet(&client).await?;
            check_writable(&client).await.map_err(|trouble| trouble.of(&server.shown()))?;
            let quoted = quoted(schema);
            own_table::ensure(&client, schema, "request", (&ddl(&quoted), &rights(&quoted))).await?;
            renew_functions(&client, schema).await?;
            let mut all = Vec::with_capacity(5);
            for call in [
                "outcome, remembered from {}.reserve_request($1, $2, $3, $4, $5, $6)",
                "{}.extend_request($1, $2, $3)",
                "{}.complete_request($1, $2, $3, $4, $5)",
                "{}.release_request($1, $2)",
                "{}.tidy_requests()",
            ] {
                all.push(client.prepare(&format!("select {}", call.replace("{}", &quoted))).await?);
            }
            Ok(all)
        });
        let Ok([reserve, extend, complete, release, tidy]) = <[Statement; 5]>::try_from(prepared.await?) else {
            return Err(Trouble::lasting("a statement was not prepared"));
        };
        Ok(Self { client, task, reserve, extend, complete, release, tidy })
    }

    /// Reserves, or says why not.
    async fn reserve(&self, wanted: &Wanted) -> Result<Found, Trouble> {
        let Wanted { held, fingerprint, on_in_doubt, .. } = wanted;
        let (lease, until) = (wanted.lease.as_secs_f64(), wanted.retention.max(wanted.lease).as_secs_f64());
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &&held.id.0[..],
            &&held.token.0[..],
            &&fingerprint.0[..],
            &lease,
            &until,
            &(*on_in_doubt == OnInDoubt::Refuse),
        ];
        let row = self.client.query_one(&self.reserve, &parameters).await?;
        Ok(match row.try_get(0)? {
            "reserved" => Found::Reserved { taken_over: false },
            "taken_over" => Found::Reserved { taken_over: true },
            "answered" => {
                let answer = Answer::decode(&Bytes::copy_from_slice(row.try_get(1)?));
                Found::Answered(answer.map_err(|error| Trouble::lasting(error.to_string()))?)
            }
            "in_progress" => Found::InProgress,
            "in_doubt" => Found::InDoubt,
            "other" => Found::Other,
            other => return Err(said_something_else(other)),
        })
    }

    async fn extend(&self, held: &Held, lease: Duration) -> Result<Kept, Trouble> {
        let parameters: [&(dyn ToSql + Sync); 3] = [&&held.id.0[..], &&held.token.0[..], &lease.as_secs_f64()];
        let is_kept = self.client.query_one(&self.extend, &parameters).await?.try_get(0)?;
        Ok(if is_kept { Kept::Yes } else { Kept::Fenced })
    }

    /// Remembers an answer: it must not be lost because the service's transaction still has the row.
    async fn complete(&self, held: &Held, answer: &Answer, retention: Duration) -> Result<Kept, Trouble> {
        let (bytes, is_whole) = (answer.encode(), answer.body != AnswerBody::CutOff);
        let parameters: [&(dyn ToSql + Sync); 5] =
            [&&held.id.0[..], &&held.token.0[..], &bytes, &is_whole, &retention.as_secs_f64()];
        let mut pause = LOCKED_PAUSE;
        for look in 0..LOCKED_LOOKS_MAX {
            if look > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let row = self.client.query_one(&self.complete, &parameters).await?;
            return Ok(match row.try_get(0)? {
                "kept" => Kept::Yes,
                "fenced" => Kept::Fenced,
                // It should have been changed.
                "locked" => continue,
                other => return Err(said_something_else(other)),
            });
        }
        Err(Trouble::passing("the request's row is locked: the service has not committed yet"))
    }

    async fn release(&self, held: &Held) -> Result<Kept, Trouble> {
        let parameters: [&(dyn ToSql + Sync); 2] = [&&held.id.0[..], &&held.token.0[..]];
        let is_released = self.client.query_one(&self.release, &parameters).await?.try_get(0)?;
        Ok(if is_released { Kept::Yes } else { Kept::Fenced })
    }

    async fn tidy(&self) -> Result<usize, Trouble> {
        let removed: i64 = self.client.query_one(&self.tidy, &[]).await?.try_get(0)?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}

fn said_something_else(word: &str) -> Trouble {
    Trouble::lasting(format!("a function of the table `request` says `{word}`: a later release has replaced it"))
}

impl Drop for Open {
    /// What is still to be sent is sent; a server that does not listen is not waited for.
    fn drop(&mut self) {
        let task = self.task.abort_handle();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(FAREWELL_WAIT).await;
                task.abort();
            });
        }
    }
}

/// Refuses a standby, which would take no reservation.
async fn check_writable(client: &Client) -> Result<(), Trouble> {
    let said = client.simple_query("select pg_is_in_recovery()").await?;
    let is_standby =
        said.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t")));
    if is_standby {
        let message = "it is a standby, which takes no writes: name the primary in the url, or several hosts and \
                       target_session_attrs=read-write";
        return Err(Trouble { class: Class::Anew, ..Trouble::passing(message) });
    }
    Ok(())
}

impl Store for Requests {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async {
            let open = self.of(&wanted.held).await?;
            let found = open.reserve(wanted).await;
            said(open, found)
        })
    }

    fn extend(&self, held: Held, lease: Duration) -> Reply<'_, Kept> {
        Box::pin(async move {
            let open = self.of(&held).await?;
            let kept = open.extend(&held, lease).await;
            said(open, kept)
        })
    }

    fn complete<'a>(&'a self, held: Held, answer: &'a Answer, retention: Duration) -> Reply<'a, Kept> {
        Box::pin(async move {
            let open = self.of(&held).await?;
            let kept = open.complete(&held, answer, retention).await;
            said(open, kept)
        })
    }

    fn release(&self, held: Held) -> Reply<'_, Kept> {
        Box::pin(async move {
            let open = self.of(&held).await?;
            let kept = open.release(&held).await;
            said(open, kept)
        })
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            let open = self.any().await?;
            let removed = open.tidy().await;
            said(open, removed)
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async {
            let open = self.any().await?;
            let checked = check_writable(&open.client).await;
            said(open, checked)
        })
    }
}

/// Creates the functions that are missing, and replaces those of another release. One who may not is told what to run.
///
/// # Errors
/// The store's own functions are not there, or this role may not execute them.
async fn renew_functions(client: &Client, schema: &str) -> Result<(), Trouble> {
    let quoted = quoted(schema);
    let path = format!("search_path={SEARCH_PATH}");
    let look = "select f.name is not null, coalesce(p.prosrc = $2 and p.prosecdef and $3 = any (p.proconfig) \
                and not has_function_privilege('public', p.oid, 'execute'), false), \
                coalesce(has_function_privilege(p.oid, 'execute'), false) \
                from (select to_regprocedure($1) as name) f left join pg_catalog.pg_proc p on p.oid = f.name";
    let look = client.prepare(look).await?;
    let (mut is_current, mut is_usable, mut failure) = (true, true, None);
    for is_renewed in [false, true] {
        (is_current, is_usable) = (true, true);
        for function in functions(&quoted) {
            let row = client.query_one(&look, &[&function.name, &function.body, &path]).await?;
            let (is_there, is_this, is_allowed): (bool, bool, bool) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            is_current &= is_this;
            is_usable &= is_there && is_allowed || function.of != For::Store;
        }
        if is_current || is_renewed {
            break;
        }
        // After a failure too: another one may have made them meanwhile.
        failure = own_table::replace(client, schema, &functions_ddl(&quoted)).await.err();
    }
    let why = failure.as_ref().map_or_else(String::new, |trouble| format!(" ({})", trouble.message));
    let sql = format!("begin;\n{};\ncommit;\n{}", functions_ddl(&quoted), rights(&quoted));
    let run = "have the table's owner run this, with this role's name in place of ROLE";
    if !is_usable {
        if let Some(trouble) = failure.filter(Trouble::may_pass) {
            return Err(trouble);
        }
        let message = format!(
            "functions of the table {quoted}.request are missing, or this role may not execute them{why}; {run}:\n{sql}"
        );
        return Err(Trouble::lasting(message));
    }
    if !is_current {
        tracing::warn!("the functions of the table {quoted}.request are not this release's{why}; {run}:\n{sql}");
    }
    Ok(())
}
