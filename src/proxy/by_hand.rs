//! Requests of an embedded store, listed and settled by hand while a proxy has the store open: through a socket in its
//! folder, which only the proxy's user can enter.
//!
//! A client sends a question as one line of JSON and gets one line back. Questions are answered one after the other,
//! each within [`WAIT`].
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
use crate::http::request::by_hand::{Decision, Listed, Seen, SeenAs, Settle, Settled};
use crate::http::request::{Answer, Error, Id, Reply, Token};

/// The socket, in the store's folder.
const SOCKET: &str = "by-hand.sock";
/// How long a question may take, from its connection to its answer.
const WAIT: Duration = Duration::from_secs(30);
/// The longest question: a decision with the largest answer, in hexadecimal digits.
const QUESTION_BYTES_MAX: u64 = 4 << 20;
/// The longest answer: the longest list.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Question {
    List {
        begins: String,
        answered: bool,
        max: usize,
    },
    /// Ids, tokens and answers are in hexadecimal digits; without an answer the request is forgotten.
    Settle {
        id: String,
        token: String,
        answer: Option<String>,
    },
}

/// The answer to a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Listed(Vec<Line>),
    Settled(Settled),
    Unavailable(String),
    Full(String),
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    id: String,
    state: SeenAs,
    lease_until_ms: Option<i64>,
    until_ms: i64,
}

/// Answers questions for as long as it is polled.
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
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        match tokio::time::timeout(WAIT, answer(stream, &*store)).await {
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
    BufReader::new(reader.take(QUESTION_BYTES_MAX)).read_line(&mut line).await?;
    if line.is_empty() {
        // The client only checked whether a proxy listens.
        return Ok(());
    }
    let said = match serde_json::from_str(&line) {
        Ok(question) => carry_out(question, store).await,
        Err(error) => Said::Refused(format!("the proxy does not understand the question: {error}")),
    };
    let mut line = serde_json::to_vec(&said).map_err(io::Error::other)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

async fn carry_out(question: Question, store: &dyn Settle) -> Said {
    let said = match question {
        Question::List { begins, answered, max } => {
            let listed = store.list(&Listed { begins, answered, max }).await;
            listed.map(|all| Said::Listed(all.iter().map(Line::of).collect()))
        }
        Question::Settle { id, token, answer } => match read(&id, &token, answer.as_deref()) {
            Some((id, token, decision)) => {
                let request = id.short();
                let settled = store.settle(id, &decision, token).await;
                match &settled {
                    Ok(settled) => {
                        tracing::info!(request, outcome = settled.as_str(), "an operator has asked to settle a request")
                    }
                    Err(error) => tracing::warn!(request, reason = %error, "a request could not be settled by hand"),
                }
                settled.map(Said::Settled)
            }
            None => Err(Error::Refused("the proxy does not understand the question".to_owned())),
        },
    };
    said.unwrap_or_else(|error| match error {
        Error::Unavailable(why) => Said::Unavailable(why),
        Error::Full(why) => Said::Full(why),
        Error::Refused(why) => Said::Refused(why),
    })
}

fn read(id: &str, token: &str, answer: Option<&str>) -> Option<(Id, Token, Decision)> {
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
    /// The proxy that has this folder open; `None` if none listens there.
    pub async fn connect(dir: &Path) -> Option<Self> {
        let path = dir.join(SOCKET);
        UnixStream::connect(&path).await.ok().map(|_| Self { path })
    }

    async fn ask(&self, question: &Question) -> Result<Said, Error> {
        let asked = async {
            let (reader, mut writer) = UnixStream::connect(&self.path).await?.into_split();
            let mut line = serde_json::to_vec(question).map_err(io::Error::other)?;
            line.push(b'\n');
            writer.write_all(&line).await?;
            let mut said = String::new();
            BufReader::new(reader.take(ANSWER_BYTES_MAX)).read_line(&mut said).await?;
            serde_json::from_str(&said).map_err(io::Error::other)
        };
        let said = tokio::time::timeout(WAIT, asked).await;
        match said.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut))) {
            Ok(Said::Unavailable(why)) => Err(Error::Unavailable(why)),
            Ok(Said::Full(why)) => Err(Error::Full(why)),
            Ok(Said::Refused(why)) => Err(Error::Refused(why)),
            Ok(said) => Ok(said),
            Err(error) => Err(Error::Unavailable(format!(
                "the proxy that has {} open does not answer: {error}",
                self.path.display()
            ))),
        }
    }
}

impl Settle for Remote {
    fn list<'a>(&'a self, Listed { begins, answered, max }: &'a Listed) -> Reply<'a, Vec<Seen>> {
        let question = Question::List { begins: begins.clone(), answered: *answered, max: *max };
        Box::pin(async move {
            match self.ask(&question).await? {
                Said::Listed(lines) => Ok(lines.iter().filter_map(Line::seen).collect()),
                said => Err(unexpected(&said)),
            }
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        let answer = match decision {
            Decision::Answer(answer) => Some(format::hex(&answer.encode())),
            Decision::Forget => None,
        };
        let question = Question::Settle { id: format::hex(&id.0), token: format::hex(&token.0), answer };
        Box::pin(async move {
            match self.ask(&question).await? {
                Said::Settled(settled) => Ok(settled),
                said => Err(unexpected(&said)),
            }
        })
    }
}

fn unexpected(said: &Said) -> Error {
    Error::Refused(format!("unexpected answer from the proxy: {said:?}"))
}

impl Line {
    fn of(seen: &Seen) -> Self {
        let Seen { id, state, lease_until_ms, until_ms } = *seen;
        Self { id: format::hex(&id.0), state, lease_until_ms, until_ms }
    }

    fn seen(&self) -> Option<Seen> {
        let Self { state, lease_until_ms, until_ms, .. } = *self;
        Some(Seen { id: Id::read(&self.id)?, state, lease_until_ms, until_ms })
    }
}
