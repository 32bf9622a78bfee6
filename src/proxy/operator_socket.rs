//! Lets an operator list and settle requests of an embedded store, which is a folder, while a proxy has the store open:
//! through a socket in the folder, which only the proxy's user can enter. To settle a request in doubt is to record its
//! answer, or to forget it.
//!
//! A client sends a query as one line of JSON and gets one line back. Queries are answered one after the other, each
//! within [`QUERY_WAIT`].
//!
//! **Failure.** A proxy that cannot open the socket logs that, and runs without it.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::format;
use crate::http::request::operator::{Decision, ListFilter, ListedRequest, RequestStatus, Settle, Settled};
use crate::http::request::{Answer, Error, Id, Reply, Token};

/// The socket, in the store's folder.
const SOCKET: &str = "by-hand.sock";
/// How long a query may take, from its connection to its reply.
const QUERY_WAIT: Duration = Duration::from_secs(30);
/// The longest query: a decision with the largest answer, in hexadecimal digits.
const QUERY_BYTES_MAX: u64 = 4 << 20;
/// The longest reply: the longest list.
const REPLY_BYTES_MAX: u64 = 64 << 20;
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// A query.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Query {
    /// As [`ListFilter`]: `begins` is its `id_prefix`, `answered` its `includes_answered`.
    List { begins: String, answered: bool, max: usize },
    /// Id, token and answer are in hexadecimal digits. Without an answer the request is forgotten. The token is a new
    /// one, under which the decision is written.
    Settle { id: String, token: String, answer: Option<String> },
}

/// The reply to a query: its result, or the store's [`Error`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QueryReply {
    Listed(Vec<EncodedRequest>),
    Settled(Settled),
    Unavailable(String),
    Full(String),
    Refused(String),
}

/// A [`ListedRequest`], with its id in hexadecimal digits.
#[derive(Debug, Serialize, Deserialize)]
struct EncodedRequest {
    id: String,
    state: RequestStatus,
    lease_until_ms: Option<i64>,
    /// Until when the request is remembered.
    until_ms: i64,
}

/// Answers queries until it is dropped; returns only if the socket cannot be opened.
pub async fn serve(dir: PathBuf, store: Arc<dyn Settle>) {
    let path = dir.join(SOCKET);
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(
                path = %path.display(), %error,
                "`ratchet requests` cannot reach this proxy: to settle requests by hand, stop the proxy first"
            );
            return;
        }
    };
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection of `ratchet requests` could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match tokio::time::timeout(QUERY_WAIT, answer(stream, &*store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "`ratchet requests` closed its connection early"),
            Err(_) => tracing::debug!("a query from `ratchet requests` timed out"),
        }
    }
}

/// Opens the socket. This process has the folder's lock, so an existing socket is that of a former process.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn answer(stream: UnixStream, store: &dyn Settle) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(QUERY_BYTES_MAX)).read_line(&mut line).await?;
    if line.is_empty() {
        // The client only checked whether a proxy listens.
        return Ok(());
    }
    let reply = match serde_json::from_str(&line) {
        Ok(query) => carry_out(query, store).await,
        Err(error) => QueryReply::Refused(format!("the proxy does not understand the query: {error}")),
    };
    let mut line = serde_json::to_vec(&reply).map_err(io::Error::other)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

async fn carry_out(query: Query, store: &dyn Settle) -> QueryReply {
    let reply = match query {
        Query::List { begins, answered, max } => {
            let listed = store.list(&ListFilter { id_prefix: begins, includes_answered: answered, max }).await;
            listed.map(|requests| QueryReply::Listed(requests.iter().map(EncodedRequest::encode).collect()))
        }
        Query::Settle { id, token, answer } => match parse_settle(&id, &token, answer.as_deref()) {
            Some((id, token, decision)) => {
                let request = id.short();
                let settled = store.settle(id, &decision, token).await;
                match &settled {
                    Ok(settled) => {
                        tracing::info!(request, outcome = settled.as_str(), "an operator has asked to settle a request")
                    }
                    Err(error) => tracing::warn!(request, reason = %error, "a request could not be settled by hand"),
                }
                settled.map(QueryReply::Settled)
            }
            None => Err(Error::Refused("the proxy does not understand the query".to_owned())),
        },
    };
    reply.unwrap_or_else(|error| match error {
        Error::Unavailable(why) => QueryReply::Unavailable(why),
        Error::Full(why) => QueryReply::Full(why),
        Error::Refused(why) => QueryReply::Refused(why),
    })
}

fn parse_settle(id: &str, token: &str, answer: Option<&str>) -> Option<(Id, Token, Decision)> {
    let token = Token(format::unhex(token)?.try_into().ok()?);
    let decision = match answer {
        Some(digits) => Decision::Answer(Answer::decode(&Bytes::from(format::unhex(digits)?)).ok()?),
        None => Decision::Forget,
    };
    Some((Id::read(id)?, token, decision))
}

/// A store that a running proxy has open.
pub struct Remote {
    path: PathBuf,
}

impl Remote {
    /// The store of the proxy that has this folder open; `None` if no proxy listens there.
    pub async fn connect(dir: &Path) -> Option<Self> {
        let path = dir.join(SOCKET);
        UnixStream::connect(&path).await.ok().map(|_| Self { path })
    }

    async fn ask(&self, query: &Query) -> Result<QueryReply, Error> {
        let exchange = async {
            let (reader, mut writer) = UnixStream::connect(&self.path).await?.into_split();
            let mut line = serde_json::to_vec(query).map_err(io::Error::other)?;
            line.push(b'\n');
            writer.write_all(&line).await?;
            let mut reply = String::new();
            BufReader::new(reader.take(REPLY_BYTES_MAX)).read_line(&mut reply).await?;
            serde_json::from_str(&reply).map_err(io::Error::other)
        };
        let reply = tokio::time::timeout(QUERY_WAIT, exchange).await;
        match reply.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut))) {
            Ok(QueryReply::Unavailable(why)) => Err(Error::Unavailable(why)),
            Ok(QueryReply::Full(why)) => Err(Error::Full(why)),
            Ok(QueryReply::Refused(why)) => Err(Error::Refused(why)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(Error::Unavailable(format!(
                "the proxy that has {} open does not answer: {error}",
                self.path.display()
            ))),
        }
    }
}

impl Settle for Remote {
    fn list<'a>(&'a self, filter: &'a ListFilter) -> Reply<'a, Vec<ListedRequest>> {
        let ListFilter { id_prefix, includes_answered, max } = filter.clone();
        let query = Query::List { begins: id_prefix, answered: includes_answered, max };
        Box::pin(async move {
            match self.ask(&query).await? {
                QueryReply::Listed(requests) => Ok(requests.iter().filter_map(EncodedRequest::decode).collect()),
                reply => Err(unexpected_reply(&reply)),
            }
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        let answer = match decision {
            Decision::Answer(answer) => Some(format::hex(&answer.encode())),
            Decision::Forget => None,
        };
        let query = Query::Settle { id: format::hex(&id.0), token: format::hex(&token.0), answer };
        Box::pin(async move {
            match self.ask(&query).await? {
                QueryReply::Settled(settled) => Ok(settled),
                reply => Err(unexpected_reply(&reply)),
            }
        })
    }
}

fn unexpected_reply(reply: &QueryReply) -> Error {
    Error::Refused(format!("unexpected reply from the proxy: {reply:?}"))
}

impl EncodedRequest {
    fn encode(request: &ListedRequest) -> Self {
        let ListedRequest { id, state, lease_until_ms, remembered_until_ms } = *request;
        Self { id: format::hex(&id.0), state, lease_until_ms, until_ms: remembered_until_ms }
    }

    fn decode(&self) -> Option<ListedRequest> {
        let Self { state, lease_until_ms, until_ms, .. } = *self;
        Some(ListedRequest { id: Id::read(&self.id)?, state, lease_until_ms, remembered_until_ms: until_ms })
    }
}
