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
//! `request` is a table of ratchet's own, a row for each request. Each change is one statement with the token in its
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
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use super::class::{Class, Trouble};
use super::connection::{FAREWELL_WAIT, answered, connect, greet};
use super::url::Target;
use super::{own_table, quoted};
use crate::effect::lazy::{Asked, Lazy};
use crate::request::{
    Answer, AnswerBody, Error, Fingerprint, Found, Held, Kept, OnInDoubt, Reply, Store, Token, Wanted,
};

mod by_hand;
mod sql;

use sql::{ddl, function_body, function_ddl, statements};

/// How many connections there are at most.
const CONNECTIONS: usize = 4;
/// How often a request is looked at again that others change at the same moment.
const LOOKS_MAX: usize = 10;
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
    target: Target,
    schema: String,
}

/// A connection with its statements.
struct Open {
    client: Client,
    task: JoinHandle<()>,
    insert: Statement,
    look: Statement,
    take: Statement,
    extend: Statement,
    complete: Statement,
    release: Statement,
    tidy: Statement,
}

/// What a row says.
struct Row {
    token: Token,
    fingerprint: Fingerprint,
    is_over: bool,
    is_forgotten: bool,
    answer: Option<Answer>,
}

impl Requests {
    /// The database at this address: `postgresql://user:password@host/database` or `host=... user=...`; the table
    /// `request` is in this schema. Connects to nothing yet.
    ///
    /// # Errors
    /// What is wrong with the address; never quotes it.
    pub fn new(url: &str, schema: impl Into<String>) -> Result<Self, Error> {
        let target = Target::read(url).map_err(|error| Error::Refused(format!("the database's address: {error}")))?;
        let place = Arc::new(Place { target, schema: schema.into() });
        Ok(Self { place, connections: Default::default(), next: AtomicUsize::new(0) })
    }

    /// The SQL that creates the table and the function, for somebody who may.
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
        let Place { target, schema } = place;
        let (client, task, _) = connect(target, "requests").await?;
        let prepared = answered(async {
            greet(&client).await?;
            check_writable(&client).await.map_err(|trouble| trouble.of(&target.shown()))?;
            own_table::ensure(&client, schema, "request", &ddl(&quoted(schema))).await?;
            renew_function(&client, schema).await?;
            let mut all = Vec::with_capacity(7);
            for sql in statements(&quoted(schema)) {
                all.push(client.prepare(&sql).await?);
            }
            Ok(all)
        });
        let Ok([insert, look, take, extend, complete, release, tidy]) = <[Statement; 7]>::try_from(prepared.await?)
        else {
            return Err(Trouble::lasting("a statement was not prepared"));
        };
        Ok(Self { client, task, insert, look, take, extend, complete, release, tidy })
    }

    /// Reserves, or says why not.
    async fn reserve(&self, wanted: &Wanted) -> Result<Found, Trouble> {
        for _ in 0..LOOKS_MAX {
            if let Some(found) = self.try_to_reserve(wanted).await? {
                return Ok(found);
            }
        }
        // Somebody is at it, again and again.
        Ok(Found::InProgress)
    }

    /// Tries to reserve; `None` if another has changed the row meanwhile.
    async fn try_to_reserve(&self, wanted: &Wanted) -> Result<Option<Found>, Trouble> {
        let Wanted { held, fingerprint, .. } = wanted;
        let (id, token, fingerprint) = (&held.id.0[..], &held.token.0[..], &fingerprint.0[..]);
        let (lease, until) = (wanted.lease.as_secs_f64(), wanted.retention.max(wanted.lease).as_secs_f64());
        let inserted = self.client.execute(&self.insert, &[&id, &token, &fingerprint, &lease, &until]).await?;
        if inserted == 1 {
            return Ok(Some(Found::Reserved { taken_over: false }));
        }
        let Some(row) = self.look(held).await? else { return Ok(None) };
        let taken_over = match row {
            Row { is_forgotten: true, .. } => false,
            Row { fingerprint, .. } if fingerprint != wanted.fingerprint => return Ok(Some(Found::Other)),
            Row { answer: Some(answer), .. } => return Ok(Some(Found::Answered(answer))),
            Row { token, .. } if token == held.token => false,
            Row { is_over: false, .. } => return Ok(Some(Found::InProgress)),
            Row { .. } if wanted.on_in_doubt == OnInDoubt::Refuse => return Ok(Some(Found::InDoubt)),
            Row { .. } => true,
        };
        let former = &row.token.0[..];
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&id, &token, &fingerprint, &lease, &until, &former];
        let taken = self.client.execute(&self.take, &parameters).await?;
        Ok((taken == 1).then_some(Found::Reserved { taken_over }))
    }

    async fn look(&self, held: &Held) -> Result<Option<Row>, Trouble> {
        let found = self.client.query_opt(&self.look, &[&&held.id.0[..]]).await?;
        let Some(found) = found else { return Ok(None) };
        let damaged = || Trouble::lasting("a row of the table `request` is not as it was written");
        let bytes = |column| found.try_get::<_, &[u8]>(column);
        let answer: Option<&[u8]> = found.try_get(4)?;
        let answer = answer.map(|bytes| Answer::decode(&Bytes::copy_from_slice(bytes))).transpose();
        Ok(Some(Row {
            token: Token(bytes(0)?.try_into().map_err(|_| damaged())?),
            fingerprint: Fingerprint(bytes(1)?.try_into().map_err(|_| damaged())?),
            is_over: found.try_get(2)?,
            is_forgotten: found.try_get(3)?,
            answer: answer.map_err(|error| Trouble::lasting(error.to_string()))?,
        }))
    }

    /// The row, if it is this holder's.
    async fn look_for(&self, held: &Held) -> Result<Option<Row>, Trouble> {
        Ok(self.look(held).await?.filter(|row| !row.is_forgotten && row.token == held.token))
    }

    async fn extend(&self, held: &Held, lease: Duration) -> Result<Kept, Trouble> {
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&&held.id.0[..], &&held.token.0[..], &lease.as_secs_f64()];
        let is_kept =
            self.client.execute(&self.extend, &parameters).await? == 1 || self.look_for(held).await?.is_some();
        Ok(if is_kept { Kept::Yes } else { Kept::Fenced })
    }

    /// Remembers an answer: it must not be lost because the service's transaction still has the row.
    async fn complete(&self, held: &Held, answer: &Answer, retention: Duration) -> Result<Kept, Trouble> {
        let (bytes, is_whole) = (answer.encode(), answer.body != AnswerBody::CutOff);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&&held.id.0[..], &&held.token.0[..], &bytes, &is_whole, &retention.as_secs_f64()];
        let mut pause = LOCKED_PAUSE;
        for look in 0..LOCKED_LOOKS_MAX {
            if look > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            if self.client.execute(&self.complete, &parameters).await? == 1 {
                return Ok(Kept::Yes);
            }
            match self.look_for(held).await? {
                None => return Ok(Kept::Fenced),
                Some(Row { answer: Some(answer), .. }) if answer.body != AnswerBody::CutOff => return Ok(Kept::Yes),
                // It should have been changed, and is locked.
                Some(_) => {}
            }
        }
        Err(Trouble::passing("the request's row is locked: the service has not committed yet"))
    }

    async fn release(&self, held: &Held) -> Result<Kept, Trouble> {
        let released = self.client.execute(&self.release, &[&&held.id.0[..], &&held.token.0[..]]).await?;
        Ok(if released == 1 { Kept::Yes } else { Kept::Fenced })
    }
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
            let removed = open.client.execute(&open.tidy, &[]).await.map_err(Trouble::from);
            said(open, removed).map(|removed| usize::try_from(removed).unwrap_or(usize::MAX))
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

/// Replaces a function that another release has left, or somebody has removed. One who may not is told what to run:
/// the store itself does not need the function.
async fn renew_function(client: &Client, schema: &str) -> Result<(), Trouble> {
    let quoted = quoted(schema);
    let (name, body) = (format!("{quoted}.answer_request(text, integer, text, bytea)"), function_body(&quoted));
    let is_current = "select exists (select from pg_catalog.pg_proc where oid = to_regprocedure($1) and prosrc = $2)";
    if client.query_one(is_current, &[&name, &body]).await?.try_get(0)? {
        return Ok(());
    }
    let sql = function_ddl(&quoted);
    if let Err(trouble) = own_table::replace(client, schema, &sql).await {
        let error = trouble.message;
        tracing::warn!(%error, "the function {name} is not this release's; let its owner run this:\n{sql};");
    }
    Ok(())
}
