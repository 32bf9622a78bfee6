//! Lists requests and settles them for an operator. Listing scans all keys of the database, in batches small enough not
//! to delay other clients; a request that changes meanwhile may be listed in its old or its new state.

use ::redis::Pipeline;

use super::{PREFIX, Requests, key};
use crate::request::by_hand::{Decision, Listed, Seen, SeenAs, Settle, Settled};
use crate::request::{Error, Id, Reply, Token};

/// About how many keys one SCAN visits, and how many hashes are read at once.
const SCAN_BATCH: usize = 1_000;

/// A hash: its lease, whether it has an answer, and when Redis removes it; times in milliseconds since the Unix epoch.
type Hash = (Option<i64>, bool, i64);

impl Requests {
    /// All ids that begin with these digits; some may be listed twice.
    async fn ids(&self, first_digits: &str) -> Result<Vec<Id>, Error> {
        let (mut cursor, mut ids) = (0_u64, Vec::new());
        loop {
            let mut scan = ::redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}{first_digits}*")).arg("COUNT").arg(SCAN_BATCH);
            let connection = self.open().await?;
            let scanned = scan.query_async::<(u64, Vec<String>)>(&mut connection.clone()).await;
            let (next, keys) = self.check_reply(connection, scanned)?;
            ids.extend(keys.iter().filter_map(|key| id(key)));
            cursor = next;
            if cursor == 0 {
                return Ok(ids);
            }
        }
    }

    /// The server's time in milliseconds since the Unix epoch, and the hashes of these requests.
    async fn hashes(&self, ids: &[Id]) -> Result<(i64, Vec<Hash>), Error> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("TIME");
        for id in ids {
            let key = key(*id);
            pipeline.hget(&key, "lease").hexists(&key, "answer").pexpire_time(&key);
        }
        let connection = self.open().await?;
        let replies = pipeline.query_async::<Vec<::redis::Value>>(&mut connection.clone()).await;
        let mut replies = self.check_reply(connection, replies)?.into_iter();
        let read = |value: Option<::redis::Value>| value.unwrap_or(::redis::Value::Nil);
        let refused = |error: ::redis::ParsingError| Error::Refused(error.to_string());
        let (s, us): (i64, i64) = ::redis::from_redis_value(read(replies.next())).map_err(refused)?;
        let mut hashes = Vec::with_capacity(ids.len());
        for _ in ids {
            let lease = ::redis::from_redis_value(read(replies.next())).map_err(refused)?;
            let is_answered = ::redis::from_redis_value(read(replies.next())).map_err(refused)?;
            let removed_ms = ::redis::from_redis_value(read(replies.next())).map_err(refused)?;
            hashes.push((lease, is_answered, removed_ms));
        }
        Ok((s * 1_000 + us / 1_000, hashes))
    }
}

/// The id in a key.
fn id(key: &str) -> Option<Id> {
    let digits = key.strip_prefix(PREFIX)?;
    Id::read(digits)
}

/// The request in a hash; `None` if the hash was removed.
fn to_seen(id: Id, (lease_until_ms, is_answered, removed_ms): Hash, now_ms: i64) -> Option<Seen> {
    let state = match (is_answered, lease_until_ms) {
        (true, _) => SeenAs::Answered,
        (false, Some(until_ms)) if until_ms > now_ms => SeenAs::UnderWay,
        (false, Some(_)) => SeenAs::InDoubt,
        (false, None) => return None,
    };
    let lease_until_ms = lease_until_ms.filter(|_| !is_answered);
    // Keys of requests expire. A key that does not expire is not ours, or somebody has removed its expiry.
    let until_ms = if removed_ms < 0 { i64::MAX } else { removed_ms };
    Some(Seen { id, state, lease_until_ms, until_ms })
}

impl Settle for Requests {
    fn list<'a>(&'a self, wanted: &'a Listed) -> Reply<'a, Vec<Seen>> {
        Box::pin(async {
            let mut ids = self.ids(&wanted.begins).await?;
            ids.sort_unstable();
            ids.dedup();
            let mut all = Vec::new();
            for batch in ids.chunks(SCAN_BATCH) {
                let (now_ms, hashes) = self.hashes(batch).await?;
                let requests = batch.iter().zip(hashes).filter_map(|(id, hash)| to_seen(*id, hash, now_ms));
                all.extend(requests.filter(|request| wanted.has(request)));
            }
            Ok(wanted.sorted(all))
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        Box::pin(async move {
            let mut script = self.scripts.settle.key(key(id));
            if let Decision::Answer(answer) = decision {
                script.arg(&token.0[..]).arg(answer.encode());
            }
            let (word, lease): (String, i64) = self.run(&script).await?;
            match word.as_str() {
                "settled" => Ok(Settled::Answered),
                "answered" => Ok(Settled::Forgotten(SeenAs::Answered)),
                "in_doubt" => Ok(Settled::Forgotten(SeenAs::InDoubt)),
                "already" => Ok(Settled::Already),
                "under_way" => Ok(Settled::UnderWay { lease_until_ms: lease }),
                "unknown" => Ok(Settled::Unknown),
                word => Err(Error::Refused(format!("unexpected reply from the script: {word:?}"))),
            }
        })
    }
}
