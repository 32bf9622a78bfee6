//! What is remembered of HTTP requests, in a table of PostgreSQL: a [`request::Store`](Store) that processes share.
//!
//! `request` is a table of ratchet's own, a row for each request. Each change is one statement with the token in its
//! condition, so the database itself refuses what is not its holder's. Leases and retention pass on the database's clock.
//!
//! **The service's own transaction.** The function `answer_request` remembers an answer within the transaction in which
//! the service does its work, and raises an error if the reservation is not its any more: so both are there or neither
//! is, and nothing is done twice. What the layer would remember later changes nothing then.
//!
//! No statement but the one that remembers an answer waits for such a transaction: rows that are locked are passed over.
//!
//! Statements are sent one after the other on a few connections without waiting for each other's answers.
//!
//! **Failure.** A connection that is lost is made anew by the next call that needs it; if that fails, the calls of some
//! moments fail at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::{Client, Statement};

use super::class::{Class, Trouble};
use super::connection::{answered, connect, greet};
use super::url::Target;
use super::{own_table, quoted};
use crate::effect::lazy::Lazy;
use crate::request::{
    Answer, AnswerBody, Error, Fingerprint, Found, Held, Kept, OnInDoubt, Reply, Store, Token, Wanted,
};

/// How many connections there are at most.
const CONNECTIONS: usize = 4;
/// How many rows are removed at once.
const TIDY_ROWS_MAX: u32 = 1_000;
/// How often a request is looked at again that others change at the same moment.
const LOOKS_MAX: usize = 10;

/// Answers in PostgreSQL.
pub struct Requests {
    target: Target,
    schema: String,
    connections: [Lazy<Open, Error>; CONNECTIONS],
    next: AtomicUsize,
}

/// A connection with its statements.
struct Open {
    client: Client,
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
        Ok(Self { target, schema: schema.into(), connections: Default::default(), next: AtomicUsize::new(0) })
    }

    /// The SQL that creates the table and the function, for somebody who may.
    pub fn ddl(schema: &str) -> String {
        ddl(&quoted(schema))
    }

    /// A connection, made if there is none.
    async fn open(&self) -> Result<Arc<Open>, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        let connect = async || Open::connect(&self.target, &self.schema).await.map_err(of);
        self.connections[number].get(|open| !open.client.is_closed(), connect).await
    }

    async fn reserve(&self, wanted: &Wanted) -> Result<Found, Error> {
        let open = self.open().await?;
        for _ in 0..LOOKS_MAX {
            if let Some(found) = open.reserve(wanted).await? {
                return Ok(found);
            }
        }
        // Somebody is at it, again and again.
        Ok(Found::InProgress)
    }
}

/// As the layer sees it.
fn of(trouble: Trouble) -> Error {
    match trouble.class {
        Class::Passing | Class::Anew | Class::Lost => Error::Unavailable(trouble.message),
        Class::Lasting | Class::Data | Class::Doubtful => Error::Refused(trouble.message),
    }
}

fn failed(error: tokio_postgres::Error) -> Error {
    of(Trouble::from(error))
}

impl Open {
    async fn connect(target: &Target, schema: &str) -> Result<Self, Trouble> {
        // Its task ends with the client.
        let (client, _task, _) = connect(target, "requests").await?;
        let prepared = answered(async {
            greet(&client).await?;
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
        Ok(Self { client, insert, look, take, extend, complete, release, tidy })
    }

    /// Tries to reserve; `None` if another has changed the row meanwhile.
    async fn reserve(&self, wanted: &Wanted) -> Result<Option<Found>, Error> {
        let Wanted { held, fingerprint, .. } = wanted;
        let (id, token, fingerprint) = (&held.id.0[..], &held.token.0[..], &fingerprint.0[..]);
        let (lease, until) = (wanted.lease.as_secs_f64(), wanted.retention.max(wanted.lease).as_secs_f64());
        let inserted =
            self.client.execute(&self.insert, &[&id, &token, &fingerprint, &lease, &until]).await.map_err(failed)?;
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
        let taken = self.client.execute(&self.take, &parameters).await.map_err(failed)?;
        Ok((taken == 1).then_some(Found::Reserved { taken_over }))
    }

    async fn look(&self, held: &Held) -> Result<Option<Row>, Error> {
        let found = self.client.query_opt(&self.look, &[&&held.id.0[..]]).await.map_err(failed)?;
        let Some(found) = found else { return Ok(None) };
        let damaged = || Error::Refused("a row of the table `request` is not as it was written".to_owned());
        let bytes = |column| found.try_get::<_, &[u8]>(column).map_err(failed);
        let answer: Option<&[u8]> = found.try_get(4).map_err(failed)?;
        let answer = answer.map(|bytes| Answer::decode(&Bytes::copy_from_slice(bytes))).transpose();
        Ok(Some(Row {
            token: Token(bytes(0)?.try_into().map_err(|_| damaged())?),
            fingerprint: Fingerprint(bytes(1)?.try_into().map_err(|_| damaged())?),
            is_over: found.try_get(2).map_err(failed)?,
            is_forgotten: found.try_get(3).map_err(failed)?,
            answer: answer.map_err(|error| Error::Refused(error.to_string()))?,
        }))
    }

    /// Whether the holder has it, where nothing was changed.
    async fn kept(&self, held: &Held, changed: bool) -> Result<Kept, Error> {
        if changed {
            return Ok(Kept::Yes);
        }
        let row = self.look(held).await?.filter(|row| !row.is_forgotten && row.token == held.token);
        Ok(if row.is_some() { Kept::Yes } else { Kept::Fenced })
    }
}

impl Store for Requests {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(self.reserve(wanted))
    }

    fn extend(&self, held: Held, lease: Duration) -> Reply<'_, Kept> {
        Box::pin(async move {
            let open = self.open().await?;
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&&held.id.0[..], &&held.token.0[..], &lease.as_secs_f64()];
            let extended = open.client.execute(&open.extend, &parameters).await.map_err(failed)?;
            open.kept(&held, extended == 1).await
        })
    }

    fn complete<'a>(&'a self, held: Held, answer: &'a Answer, retention: Duration) -> Reply<'a, Kept> {
        Box::pin(async move {
            let open = self.open().await?;
            let (bytes, is_whole) = (answer.encode(), answer.body != AnswerBody::CutOff);
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&&held.id.0[..], &&held.token.0[..], &bytes, &is_whole, &retention.as_secs_f64()];
            let completed = open.client.execute(&open.complete, &parameters).await.map_err(failed)?;
            open.kept(&held, completed == 1).await
        })
    }

    fn release(&self, held: Held) -> Reply<'_, Kept> {
        Box::pin(async move {
            let open = self.open().await?;
            let released = open.client.execute(&open.release, &[&&held.id.0[..], &&held.token.0[..]]).await;
            Ok(if released.map_err(failed)? == 1 { Kept::Yes } else { Kept::Fenced })
        })
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            let open = self.open().await?;
            let removed = open.client.execute(&open.tidy, &[]).await.map_err(failed)?;
            Ok(usize::try_from(removed).unwrap_or(usize::MAX))
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async {
            let open = self.open().await?;
            open.client.simple_query("").await.map(drop).map_err(failed)
        })
    }
}

/// Each statement, in the order of [`Open`]'s fields. The schema's name is quoted.
fn statements(schema: &str) -> [String; 7] {
    let table = format!("{schema}.request");
    let now = "clock_timestamp()";
    // A row that another transaction has locked is passed over: its service is about to answer.
    let locked =
        |condition: &str| format!("id = (select id from {table} where id = $1 and {condition} for update skip locked)");
    let kept = locked(&format!("token = $2 and until > {now} and lease_until is not null"));
    [
        // A row that is there is only read: an insert that finds it would wait for whoever has locked it.
        format!(
            "insert into {table} (id, token, fingerprint, lease_until, until) select $1, $2, $3, \
             {now} + make_interval(secs => $4), {now} + make_interval(secs => $5) \
             where not exists (select from {table} where id = $1) on conflict (id) do nothing"
        ),
        format!(
            "select token, fingerprint, coalesce(lease_until <= {now}, false), until <= {now}, answer from {table} where id = $1"
        ),
        format!(
            "update {table} set token = $2, fingerprint = $3, lease_until = {now} + make_interval(secs => $4), \
             until = {now} + make_interval(secs => $5), answer = null, is_whole = false where {}",
            locked(&format!(
                "token = $6 and (until <= {now} or (answer is null and (lease_until <= {now} or token = $2)))"
            ))
        ),
        format!(
            "update {table} set lease_until = {now} + make_interval(secs => $3), \
             until = greatest(until, {now} + make_interval(secs => $3)) where {kept}"
        ),
        // The one that waits for its row: an answer must not be lost.
        format!(
            "update {table} set answer = $3, is_whole = $4, lease_until = null, until = {now} + make_interval(secs => $5) \
             where id = $1 and token = $2 and until > {now} and not is_whole"
        ),
        format!("delete from {table} where {kept}"),
        format!(
            "delete from {table} where id in (select id from {table} where until <= {now} \
             order by until limit {TIDY_ROWS_MAX} for update skip locked)"
        ),
    ]
}

/// The SQL that creates the table and the function in a schema, whose name is quoted.
fn ddl(schema: &str) -> String {
    let function = function_ddl(schema);
    format!(
        "create table if not exists {schema}.request (
    id bytea not null primary key,
    token bytea not null,
    fingerprint bytea not null,
    lease_until timestamptz,
    until timestamptz not null,
    answer bytea,
    is_whole boolean not null default false,
    check (answer is not null or not is_whole)
);
create index if not exists request_until on {schema}.request (until);
{function}"
    )
}

fn function_ddl(schema: &str) -> String {
    let body = function_body(schema);
    format!(
        "create or replace function {schema}.answer_request(reservation text, status int, content_type text, body bytea) \
         returns void
language plpgsql as $ratchet${body}$ratchet$"
    )
}

/// What `answer_request` does. An answer without a type has no such header; one without a body has an empty one. Each
/// part has to be something: with one NULL among them the whole would be NULL, and no answer.
fn function_body(schema: &str) -> String {
    format!(
        "
declare
    kind bytea := convert_to(content_type, 'UTF8');
begin
    if reservation is null then
        raise exception 'the reservation is null: hand over what the header said';
    end if;
    if status is null or status not between 200 and 599 then
        raise exception 'the status is no final one of HTTP: %', status;
    end if;
    update {schema}.request set lease_until = null, is_whole = true,
        answer = '\\x01'::bytea || int2send(status::int2) || case when kind is null then int2send(0::int2)
            else int2send(1::int2) || int2send(12::int2) || 'content-type'::bytea || int4send(octet_length(kind)) || kind end
            || '\\x00'::bytea || coalesce(body, ''::bytea)
    where id = decode(split_part(reservation, '.', 1), 'hex') and token = decode(split_part(reservation, '.', 2), 'hex')
        and until > clock_timestamp() and not is_whole;
    if not found then
        raise exception 'the request was taken over, or has an answer';
    end if;
end
"
    )
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
