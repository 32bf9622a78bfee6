//! Makes an attempt of a call: gets a connection, checks for the last time whether the request may be sent, sends it,
//! and reads the response.
//!
//! The calls are made for the records of a lane, which is another thread. The lane may withdraw a request until
//! [`Job::take_from_lane`] takes it. The key's window is the time for which the provider honours the request's key.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use http_body_util::Full;
use hyper::Request;
use hyper::http::response::Parts;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::connect::h2_error_message;
use super::message::Message;
use super::pool::{Pool, PooledConnection, Sender};
use super::response::{Stream, read};
use super::settings::Shared;
use crate::effect::call::AttemptOutcome;
use crate::effect::provider::{self, Body, Payload};
use crate::provider::job::Job;
use crate::words::error_text;

/// How many connections in a row may give a request back, because they end before they begin to write it.
const GIVEN_BACK_MAX: usize = 3;
/// How long a connection may take to be ready again after its response was read. A server that has not even read the
/// whole request by then is not worth a longer wait.
const READY_WAIT: Duration = Duration::from_millis(100);

/// A request in the form of its connection's version of HTTP.
enum Outgoing {
    Http1(Request<Full<Bytes>>),
    Http2(Request<()>, Option<Bytes>),
}

/// The outcome of a request that was given to a connection.
enum SendOutcome {
    /// A response has begun.
    Answered(Box<Parts>, Stream),
    /// The connection ended before it began to write the request.
    GivenBack(String),
    /// There is no response.
    Lost(String),
}

/// Makes an attempt. The permit counts it as in flight, and is released once the connection can be used again or is
/// closed.
pub(super) async fn run_attempt(pool: Rc<Pool>, mut job: Job, _permit: OwnedSemaphorePermit) {
    let shared = &pool.shared;
    let mut last_failure = String::new();
    for _ in 0..GIVEN_BACK_MAX {
        let (mut connection, outgoing) = match prepare(&pool, &job).await {
            Ok((connection, outgoing)) => {
                // From here on nothing awaits until the connection has the request.
                // If the lane has withdrawn the request, nobody waits for a report.
                if !job.take_from_lane() {
                    return;
                }
                if is_too_late(shared, job.request()) {
                    let why = "the key's window has passed, or would pass before a response could arrive";
                    return job.report(AttemptOutcome::TooLate, Body::None, Some(why.to_owned()));
                }
                (connection, outgoing)
            }
            Err(why) => return job.report_not_sent(why),
        };
        let deadline = job.mark_may_act() + shared.timeout;
        match send(shared, &mut connection, outgoing, deadline).await {
            SendOutcome::Answered(head, stream) => {
                return receive(shared, job, connection, (&head, stream), deadline).await;
            }
            SendOutcome::Lost(why) => {
                connection.retire();
                return job.report(AttemptOutcome::Lost, Body::None, Some(why));
            }
            SendOutcome::GivenBack(why) => {
                job.mark_given_back();
                connection.retire();
                last_failure = why;
            }
        }
    }
    job.report_not_sent(last_failure);
}

/// Gets a connection, and puts the request into the form of its version of HTTP.
async fn prepare(pool: &Pool, job: &Job) -> Result<(PooledConnection, Outgoing), String> {
    let Payload::Http(rendered) = &job.request().payload else { return Err("it is not an HTTP request".to_owned()) };
    let message = Message::of(&pool.shared, rendered)?;
    let connection = pool.connection(&message.origin).await?;
    let outgoing = if connection.is_http1() {
        Outgoing::Http1(message.into_http1()?)
    } else {
        let (request, body) = message.into_http2()?;
        Outgoing::Http2(request, body)
    };
    Ok((connection, outgoing))
}

/// Whether the key's window forbids writing a request now. A request without a key is never too late.
fn is_too_late(shared: &Shared, request: &provider::Request) -> bool {
    let window = shared.key_window.as_ref().filter(|_| request.payload.key().is_some());
    window.is_some_and(|window| !window.allows(request.first_attempt_at_ms, (shared.clock)()))
}

async fn send(
    shared: &Shared,
    connection: &mut PooledConnection,
    outgoing: Outgoing,
    deadline: Instant,
) -> SendOutcome {
    let exchange = async {
        match (connection.sender(), outgoing) {
            (Some(Sender::Http1(http1)), Outgoing::Http1(request)) => {
                match http1.sender.try_send_request(request).await {
                    Ok(response) => {
                        let (head, body) = response.into_parts();
                        SendOutcome::Answered(Box::new(head), Stream::Http1(body))
                    }
                    Err(mut error) => {
                        // The error has the request if the connection has written none of it.
                        let is_given_back = error.take_message().is_some();
                        let why = error_text(&error.into_error());
                        if is_given_back { SendOutcome::GivenBack(why) } else { SendOutcome::Lost(why) }
                    }
                }
            }
            (Some(Sender::Http2(sender)), Outgoing::Http2(request, body)) => send_http2(sender, request, body).await,
            _ => unreachable!("the request has the form of its connection"),
        }
    };
    let outcome = tokio::time::timeout_at(deadline, exchange).await;
    outcome.unwrap_or_else(|_| SendOutcome::Lost(format!("no answer within {:?}", shared.timeout)))
}

async fn send_http2(
    mut sender: h2::client::SendRequest<Bytes>,
    request: Request<()>,
    body: Option<Bytes>,
) -> SendOutcome {
    let (mut response, stream) = match sender.send_request(request, body.is_none()) {
        Ok(exchange) => exchange,
        Err(error) => return SendOutcome::GivenBack(h2_error_message(&error)),
    };
    let mut sending = std::pin::pin!(send_body(stream, body));
    let mut is_sending = true;
    loop {
        tokio::select! {
            biased;
            // The response may come before the whole body was sent; then the rest is not sent.
            received = &mut response => return match received {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    SendOutcome::Answered(Box::new(head), Stream::Http2(body))
                }
                Err(error) => SendOutcome::Lost(h2_error_message(&error)),
            },
            () = &mut sending, if is_sending => is_sending = false,
        }
    }
}

/// Sends a body as fast as the other side accepts it. An error ends it silently: the response reports the error too.
async fn send_body(mut stream: SendStream<Bytes>, body: Option<Bytes>) {
    let Some(mut body) = body else { return };
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(room)) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else { return };
        let part = body.split_to(room.min(body.len()));
        if stream.send_data(part, body.is_empty()).is_err() {
            return;
        }
    }
}

/// Reads a response to its end, and puts the connection back if it can be used again.
async fn receive(
    shared: &Shared,
    mut job: Job,
    mut connection: PooledConnection,
    response: (&Parts, Stream),
    deadline: Instant,
) {
    let (head, stream) = response;
    let read = read(shared, head, stream, deadline).await;
    let is_reusable = read.is_whole && !head.status.is_informational();
    job.report(AttemptOutcome::Status(read.status), read.body, read.message);
    if !connection.is_http1() {
        // An HTTP/2 connection stays in the pool while it is used.
        return;
    }
    let Some(Sender::Http1(http1)) = connection.sender().filter(|_| is_reusable) else { return };
    if matches!(tokio::time::timeout(READY_WAIT, http1.sender.ready()).await, Ok(Ok(()))) {
        connection.mark_reusable();
    }
}
