//! Lists requests and **settles** them for an operator: gives a request that is in doubt (its outcome is unknown) an
//! answer, or forgets a request.
//!
//! Listing scans all keys of the database, in batches small enough not to delay other clients; a request that changes
//! meanwhile may be listed in its old or its new state. A request is a hash of Redis: see [`super`].

use ::redis::Pipeline;

use super::{PREFIX, Requests, key};
use crate::request::operator::{Decision, ListFilter, ListedRequest, RequestStatus, Settle, Settled};
use crate::request::{Error, Id, Reply, Token};

/// About how many keys one SCAN visits, and how many requests are read at once.
const SCAN_BATCH: usize = 1_000;

/// What is read of a request's hash. Times are in milliseconds since the Unix epoch.
struct StoredFields {
    /// The end of the lease; `None` if the request is answered, or the hash was removed.
    lease_until_ms: Option<i64>,
    is_answered: bool,
    /// When Redis removes the hash; negative if it does not expire, or was removed.
    expires_at_ms: i64,
}

impl Requests {
    /// All ids that begin with these digits; some ids may occur twice.
    async fn ids(&self, id_prefix: &str) -> Result<Vec<Id>, Error> {
        let (mut cursor, mut ids) = (0_u64, Vec::new());
        loop {
            let mut scan = ::redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}{id_prefix}*")).arg("COUNT").arg(SCAN_BATCH);
            let connection = self.open().await?;
            let scanned = scan.query_async::<(u64, Vec<String>)>(&mut connection.clone()).await;
            let (next_cursor, keys) = self.check_reply(connection, scanned)?;
            ids.extend(keys.iter().filter_map(|key| parse_key(key)));
            cursor = next_cursor;
            if cursor == 0 {
                return Ok(ids);
            }
        }
    }

    /// The server's time in milliseconds since the Unix epoch, and the fields of each of these requests.
    async fn stored_fields(&self, ids: &[Id]) -> Result<(i64, Vec<StoredFields>), Error> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("TIME");
        for id in ids {
            let key = key(*id);
            pipeline.hget(&key, "lease").hexists(&key, "answer").pexpire_time(&key);
        }
        let connection = self.open().await?;
        let replies = pipeline.query_async::<Vec<::redis::Value>>(&mut connection.clone()).await;
        let mut replies = self.check_reply(connection, replies)?.into_iter();
        let or_nil = |reply: Option<::redis::Value>| reply.unwrap_or(::redis::Value::Nil);
        let unreadable = |error: ::redis::ParsingError| Error::Refused(format!("unexpected reply to a query: {error}"));
        let (s, us): (i64, i64) = ::redis::from_redis_value(or_nil(replies.next())).map_err(unreadable)?;
        let mut all_fields = Vec::with_capacity(ids.len());
        for _ in ids {
            let lease_until_ms = ::redis::from_redis_value(or_nil(replies.next())).map_err(unreadable)?;
            let is_answered = ::redis::from_redis_value(or_nil(replies.next())).map_err(unreadable)?;
            let expires_at_ms = ::redis::from_redis_value(or_nil(replies.next())).map_err(unreadable)?;
            all_fields.push(StoredFields { lease_until_ms, is_answered, expires_at_ms });
        }
        Ok((s * 1_000 + us / 1_000, all_fields))
    }
}

/// The request's id in a key; `None` if it is another key.
fn parse_key(key: &str) -> Option<Id> {
    let digits = key.strip_prefix(PREFIX)?;
    Id::read(digits)
}

/// The request with these fields; `None` if its hash was removed.
fn to_listed_request(id: Id, fields: &StoredFields, now_ms: i64) -> Option<ListedRequest> {
    let StoredFields { lease_until_ms, is_answered, expires_at_ms } = *fields;
    let state = match (is_answered, lease_until_ms) {
        (true, _) => RequestStatus::Answered,
        (false, Some(lease_until_ms)) if lease_until_ms > now_ms => RequestStatus::UnderWay,
        (false, Some(_)) => RequestStatus::InDoubt,
        (false, None) => return None,
    };
    let lease_until_ms = lease_until_ms.filter(|_| !is_answered);
    // All keys that ratchet writes expire. If this one does not, another program wrote it or removed its expiry.
    let remembered_until_ms = if expires_at_ms < 0 { i64::MAX } else { expires_at_ms };
    Some(ListedRequest { id, state, lease_until_ms, remembered_until_ms })
}

impl Settle for Requests {
    fn list<'a>(&'a self, filter: &'a ListFilter) -> Reply<'a, Vec<ListedRequest>> {
        Box::pin(async {
            let mut ids = self.ids(&filter.id_prefix).await?;
            ids.sort_unstable();
            ids.dedup();
            let mut matching = Vec::new();
            for batch in ids.chunks(SCAN_BATCH) {
                let (now_ms, all_fields) = self.stored_fields(batch).await?;
                let requests = batch.iter().zip(&all_fields);
                let requests = requests.filter_map(|(id, fields)| to_listed_request(*id, fields, now_ms));
                matching.extend(requests.filter(|request| filter.matches(request)));
            }
            Ok(filter.first_of(matching))
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        Box::pin(async move {
            let mut script = self.scripts.settle.key(key(id));
            if let Decision::Answer(answer) = decision {
                script.arg(&token.0[..]).arg(answer.encode());
            }
            let (word, lease_until_ms): (String, i64) = self.run(&script).await?;
            match word.as_str() {
                "settled" => Ok(Settled::Answered),
                // The script has removed the request, and names its former status.
                "answered" => Ok(Settled::Forgotten(RequestStatus::Answered)),
                "in_doubt" => Ok(Settled::Forgotten(RequestStatus::InDoubt)),
                "already" => Ok(Settled::AlreadyAnswered),
                "under_way" => Ok(Settled::UnderWay { lease_until_ms }),
                "unknown" => Ok(Settled::Unknown),
                word => Err(Error::Refused(format!("unexpected reply from the script: {word:?}"))),
            }
        })
    }
}
