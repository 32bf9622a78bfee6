//! A pipeline of requests on one connection: each is sent when it is pushed, and the responses arrive in the same
//! order.

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

/// How long the server may take for one request once the previous ones are answered. Longer than `lock_timeout`.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A parameter of a statement.
pub(super) enum Value<'a> {
    Null,
    /// The value's text, which the server's parser reads, whatever the type.
    Text(&'a str),
    /// The same, owned.
    Owned(String),
    /// For `bytea`.
    Bytes(&'a [u8]),
    /// For `bytea[]`.
    ByteList(&'a [Option<&'a [u8]>]),
    /// For `text[]`.
    TextList(&'a [String]),
    /// For `text[]`, with nulls.
    NullableTexts(Vec<Option<Cow<'a, str>>>),
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
    /// Omits the content: parameters are the users' data, and tokio-postgres logs them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, r#type: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Owned(text) => out.extend_from_slice(text.as_bytes()),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::ByteList(list) => return list.to_sql(r#type, out),
            Self::TextList(list) => return list.to_sql(r#type, out),
            Self::NullableTexts(list) => return list.to_sql(r#type, out),
            Self::Numbers(list) => return list.to_sql(r#type, out),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Null | Self::Text(_) | Self::Owned(_) => Format::Text,
            Self::Bytes(_) | Self::ByteList(_) | Self::TextList(_) | Self::NullableTexts(_) | Self::Numbers(_) => {
                Format::Binary
            }
        }
    }

    to_sql_checked!();
}

/// The server's response to a request.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// The number of changed or selected rows, of a statement sent by [`Pipeline::execute`].
    pub row_count: u64,
    /// The returned rows, of a statement sent by [`Pipeline::query`].
    pub rows: Vec<Row>,
    /// The first value of the first row, of SQL sent by [`Pipeline::simple`].
    pub first_value: Option<String>,
}

type ResponseResult = Result<Response, tokio_postgres::Error>;
/// A request, which is sent by its first poll.
type Request<'a> = Pin<Box<dyn Future<Output = ResponseResult> + 'a>>;

enum Sent<'a> {
    Pending(Request<'a>),
    /// Finished, or failed to be sent.
    Received(ResponseResult),
}

/// The pending requests, each with a tag that says what it is.
pub(super) struct Pipeline<'a, T> {
    client: &'a Client,
    sent: VecDeque<(T, Sent<'a>)>,
    /// Whether a request could not be sent, so that the requests behind it cannot be relied on.
    pub has_unsent: bool,
    /// Whether a response has timed out: then no other response is waited for.
    has_timed_out: bool,
}

impl<'a, T> Pipeline<'a, T> {
    pub fn new(client: &'a Client) -> Self {
        Self { client, sent: VecDeque::new(), has_unsent: false, has_timed_out: false }
    }

    /// The number of pending requests.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// The tag of the oldest pending request.
    pub fn oldest(&self) -> Option<&T> {
        self.sent.front().map(|(tag, _)| tag)
    }

    /// Sends one or more statements as a simple query: those behind one that fails are not executed.
    pub fn simple(&mut self, tag: T, sql: &'a str) {
        let client = self.client;
        self.push(
            tag,
            Box::pin(async move {
                let messages = client.simple_query(sql).await?;
                let first_value = messages.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                });
                Ok(Response { first_value, ..Response::default() })
            }),
        );
    }

    /// Sends a statement whose returned rows are ignored.
    pub fn execute<I>(&mut self, tag: T, statement: &'a Statement, values: I)
    where
        I: IntoIterator<Item = Value<'a>, IntoIter: ExactSizeIterator + 'a>,
    {
        let (client, values) = (self.client, values.into_iter());
        self.push(
            tag,
            Box::pin(async move {
                let row_count = client.execute_raw(statement, values).await?;
                Ok(Response { row_count, ..Response::default() })
            }),
        );
    }

    /// Sends a statement whose returned rows are kept.
    pub fn query<I>(&mut self, tag: T, statement: &'a Statement, values: I)
    where
        I: IntoIterator<Item = Value<'a>, IntoIter: ExactSizeIterator + 'a>,
    {
        let (client, values) = (self.client, values.into_iter());
        self.push(
            tag,
            Box::pin(async move {
                let rows = client.query_raw(statement, values).await?.try_collect().await?;
                Ok(Response { rows, ..Response::default() })
            }),
        );
    }

    fn push(&mut self, tag: T, mut request: Request<'a>) {
        // A waker is not needed: `next` polls again.
        let sent = match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Sent::Pending(request),
            Poll::Ready(response) => {
                self.has_unsent |= response.is_err();
                Sent::Received(response)
            }
        };
        self.sent.push_back((tag, sent));
    }

    /// Waits for the response to the oldest request; `None` if no request is pending.
    pub async fn next(&mut self) -> Option<(T, Result<Response, Trouble>)> {
        let (tag, sent) = self.sent.pop_front()?;
        let response = match sent {
            Sent::Received(response) => response.map_err(send_error),
            Sent::Pending(mut request) => match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(response) => response.map_err(Trouble::from),
                Poll::Pending if self.has_timed_out => Err(timeout_error()),
                Poll::Pending => match tokio::time::timeout(RESPONSE_TIMEOUT, request).await {
                    Ok(response) => response.map_err(Trouble::from),
                    Err(_) => {
                        self.has_timed_out = true;
                        Err(timeout_error())
                    }
                },
            },
        };
        Some((tag, response))
    }
}

/// Runs several requests within the time for one.
pub(super) async fn within_timeout<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    tokio::time::timeout(RESPONSE_TIMEOUT, work).await.unwrap_or_else(|_| Err(timeout_error()))
}

/// The error of a request whose response has timed out.
fn timeout_error() -> Trouble {
    Trouble::lost(format!("the server has not answered for {} s", RESPONSE_TIMEOUT.as_secs()))
}

/// The error of a request that could not be sent: the connection is gone, or a parameter cannot be encoded.
fn send_error(error: tokio_postgres::Error) -> Trouble {
    if error.is_closed() { Trouble::from(error) } else { Trouble::data(format!("it cannot be sent: {error}")) }
}
