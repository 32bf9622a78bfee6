//! Many requests under way at once on one connection: each is sent when it is pushed, and answered in that order.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use postgres_types::private::BytesMut;
use postgres_types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement};

use super::class::Trouble;

/// How long the server may work at one request once those before it are answered. Locks are not waited for that long.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// A parameter.
pub(super) enum Value<'a> {
    Null,
    /// Its text, which the server's own parser reads, whatever the type.
    Text(&'a str),
    /// The same, for what is written for the purpose.
    Written(String),
    /// For `bytea`.
    Bytes(&'a [u8]),
    /// For `bytea[]`.
    ByteList(&'a [Option<&'a [u8]>]),
    /// For `text[]`.
    TextList(&'a [String]),
    /// The same with nulls, of what is borrowed one by one.
    Texts(Vec<Option<Cow<'a, str>>>),
    /// For `int[]`.
    Numbers(&'a [i32]),
}

impl<'a> Value<'a> {
    pub fn text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }

    pub fn bytes(bytes: Option<&'a [u8]>) -> Self {
        bytes.map_or(Self::Null, Self::Bytes)
    }
}

impl fmt::Debug for Value<'_> {
    /// Says nothing: parameters are the users' data, and tokio-postgres writes them to logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, r#type: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Written(text) => out.extend_from_slice(text.as_bytes()),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::ByteList(list) => return list.to_sql(r#type, out),
            Self::TextList(list) => return list.to_sql(r#type, out),
            Self::Texts(list) => return list.to_sql(r#type, out),
            Self::Numbers(list) => return list.to_sql(r#type, out),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Null | Self::Text(_) | Self::Written(_) => Format::Text,
            Self::Bytes(_) | Self::ByteList(_) | Self::TextList(_) | Self::Texts(_) | Self::Numbers(_) => {
                Format::Binary
            }
        }
    }

    to_sql_checked!();
}

/// What a request has brought.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// How many rows were written.
    pub count: u64,
    /// The rows that came back.
    pub rows: Vec<Row>,
    /// The first value of the first row, of a simple query.
    pub first: Option<String>,
}

type Answer = Result<Answered, tokio_postgres::Error>;
/// A request that is sent when it is polled first.
type Request<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

enum Sent<'a> {
    Waiting(Request<'a>),
    /// Also one that could not be sent.
    Answered(Answer),
}

/// Requests under way, each with what it is.
pub(super) struct Pipeline<'a, T> {
    client: &'a Client,
    sent: VecDeque<(T, Sent<'a>)>,
    /// Whether one could not be sent, so that what follows is not to be relied on.
    pub has_refused: bool,
    /// Whether the server has been waited for in vain: then nothing more is waited for.
    is_silent: bool,
}

impl<'a, T> Pipeline<'a, T> {
    pub fn new(client: &'a Client) -> Self {
        Self { client, sent: VecDeque::new(), has_refused: false, is_silent: false }
    }

    /// How many are not answered yet.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// What is waited for next.
    pub fn oldest(&self) -> Option<&T> {
        self.sent.front().map(|(what, _)| what)
    }

    /// Sends SQL as it is: several statements, of which those behind one that fails are not carried out.
    pub fn simple(&mut self, what: T, sql: &'a str) {
        let client = self.client;
        self.push(
            what,
            Box::pin(async move {
                let messages = client.simple_query(sql).await?;
                let first = messages.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                });
                Ok(Answered { first, ..Answered::default() })
            }),
        );
    }

    /// Sends a statement whose rows do not matter.
    pub fn execute<I>(&mut self, what: T, statement: &'a Statement, values: I)
    where
        I: IntoIterator<Item = Value<'a>, IntoIter: ExactSizeIterator + 'a>,
    {
        let (client, values) = (self.client, values.into_iter());
        self.push(
            what,
            Box::pin(async move {
                let count = client.execute_raw(statement, values).await?;
                Ok(Answered { count, ..Answered::default() })
            }),
        );
    }

    /// Sends a statement whose rows matter.
    pub fn query<I>(&mut self, what: T, statement: &'a Statement, values: I)
    where
        I: IntoIterator<Item = Value<'a>, IntoIter: ExactSizeIterator + 'a>,
    {
        let (client, values) = (self.client, values.into_iter());
        self.push(
            what,
            Box::pin(async move {
                let rows = client.query_raw(statement, values).await?.try_collect().await?;
                Ok(Answered { rows, ..Answered::default() })
            }),
        );
    }

    fn push(&mut self, what: T, mut request: Request<'a>) {
        // Nobody needs to be woken: the caller polls again.
        let sent = match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Sent::Waiting(request),
            Poll::Ready(answer) => {
                self.has_refused |= answer.is_err();
                Sent::Answered(answer)
            }
        };
        self.sent.push_back((what, sent));
    }

    /// Waits for the oldest request's answer; `None` if none is under way.
    pub async fn next(&mut self) -> Option<(T, Result<Answered, Trouble>)> {
        let (what, sent) = self.sent.pop_front()?;
        let answer = match sent {
            Sent::Answered(answer) => answer.map_err(unsent),
            Sent::Waiting(mut request) => match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => answer.map_err(Trouble::from),
                Poll::Pending if self.is_silent => Err(silent()),
                Poll::Pending => match tokio::time::timeout(ANSWER_WAIT, request).await {
                    Ok(answer) => answer.map_err(Trouble::from),
                    Err(_) => {
                        self.is_silent = true;
                        Err(silent())
                    }
                },
            },
        };
        Some((what, answer))
    }
}

/// Waits for what several requests in a row bring, as for one.
pub(super) async fn answered<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    tokio::time::timeout(ANSWER_WAIT, work).await.unwrap_or_else(|_| Err(silent()))
}

/// What a request is that the server has not answered.
fn silent() -> Trouble {
    Trouble::lost(format!("the server has not answered for {} s", ANSWER_WAIT.as_secs()))
}

/// What a request is that could not be sent: the connection is gone, or its parameters are to blame.
fn unsent(error: tokio_postgres::Error) -> Trouble {
    if error.is_closed() { Trouble::from(error) } else { Trouble::data(format!("it cannot be sent: {error}")) }
}
