//! One attempt: gets a connection, checks for the last time whether anything stops it, sends the request, and reads the
//! answer.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use http_body_util::Full;
use hyper::Request;
use hyper::http::response::Parts;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::{Stream, read};
use super::connect::said_by_two;
use super::message::Message;
use super::pool::{Lease, Pool, Sender};
use super::settings::Shared;
use crate::effect::call::Answer;
use crate::effect::job::Job;
use crate::effect::provider::{self, Asks, Body};
use crate::words::said;

/// How many connections in a row may give a request back.
const GIVEN_BACK_MAX: usize = 3;
/// How long a connection may take to be ready again after an answer was read. If the server has not even read the whole
/// request, longer waiting is not worthwhile.
const READY_WAIT: Duration = Duration::from_millis(100);

/// A request in the form that its connection takes.
enum Outgoing {
    One(Request<Full<Bytes>>),
    Two(Request<()>, Option<Bytes>),
}

/// The outcome of a request that was given to a connection.
enum Sent {
    /// It was answered.
    Answered(Box<Parts>, Stream),
    /// The connection ended before it began to write the request.
    GivenBack(String),
    /// There is no answer.
    Lost(String),
}

/// Makes an attempt. The permit is released once the connection can be used again or is closed.
pub(super) async fn make(pool: Rc<Pool>, mut job: Job, _permit: OwnedSemaphorePermit) {
    let shared = &pool.shared;
    let mut trouble = String::new();
    for _ in 0..GIVEN_BACK_MAX {
        let mut lease = match prepare(&pool, &job).await {
            Ok((lease, outgoing)) => {
                // From here on nothing awaits until the connection has the request.
                if !job.claim() {
                    return;
                }
                if is_too_late(shared, job.request()) {
                    let why = "the key's window has passed, or would pass before an answer could arrive";
                    return job.conclude(Answer::TooLate, Body::None, Some(why.to_owned()));
                }
                (lease, outgoing)
            }
            Err(why) => return job.not_sent(why),
        };
        let deadline = job.written() + shared.timeout;
        match send(shared, &mut lease.0, lease.1, deadline).await {
            Sent::Answered(head, stream) => return hear(shared, job, lease.0, (&head, stream), deadline).await,
            Sent::Lost(why) => {
                lease.0.retire();
                return job.conclude(Answer::Lost, Body::None, Some(why));
            }
            Sent::GivenBack(why) => {
                job.given_back();
                lease.0.retire();
                trouble = why;
            }
        }
    }
    job.not_sent(trouble);
}

/// A connection, and the request in the form that it takes.
async fn prepare(pool: &Pool, job: &Job) -> Result<(Lease, Outgoing), String> {
    let Asks::Http(rendered) = &job.request().asks else { return Err("it is not an HTTP request".to_owned()) };
    let message = Message::of(&pool.shared, rendered)?;
    let lease = pool.lease(&message.origin).await?;
    let outgoing = if lease.is_one() {
        Outgoing::One(message.into_one()?)
    } else {
        let (request, body) = message.into_two()?;
        Outgoing::Two(request, body)
    };
    Ok((lease, outgoing))
}

/// Whether the key's window forbids writing a request now.
fn is_too_late(shared: &Shared, request: &provider::Request) -> bool {
    let window = shared.key_window.as_ref().filter(|_| request.asks.key().is_some());
    window.is_some_and(|window| !window.allows(request.first_at_ms, (shared.clock)()))
}

async fn send(shared: &Shared, lease: &mut Lease, outgoing: Outgoing, deadline: Instant) -> Sent {
    let sent = async {
        match (lease.sender(), outgoing) {
            (Some(Sender::One(one)), Outgoing::One(request)) => match one.sender.try_send_request(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    Sent::Answered(Box::new(head), Stream::One(body))
                }
                Err(mut error) => {
                    let is_given_back = error.take_message().is_some();
                    let why = said(&error.into_error());
                    if is_given_back { Sent::GivenBack(why) } else { Sent::Lost(why) }
                }
            },
            (Some(Sender::Two(two)), Outgoing::Two(request, body)) => send_by_two(two, request, body).await,
            _ => unreachable!("the request has the form of its connection"),
        }
    };
    let sent = tokio::time::timeout_at(deadline, sent).await;
    sent.unwrap_or_else(|_| Sent::Lost(format!("no answer within {:?}", shared.timeout)))
}

async fn send_by_two(mut two: h2::client::SendRequest<Bytes>, request: Request<()>, body: Option<Bytes>) -> Sent {
    let (mut answer, stream) = match two.send_request(request, body.is_none()) {
        Ok(begun) => begun,
        Err(error) => return Sent::GivenBack(said_by_two(&error)),
    };
    let mut sending = std::pin::pin!(send_body(stream, body));
    let mut is_sending = true;
    loop {
        tokio::select! {
            biased;
            // The answer may come before the whole body was sent. The rest is not sent then.
            answered = &mut answer => return match answered {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    Sent::Answered(Box::new(head), Stream::Two(body))
                }
                Err(error) => Sent::Lost(said_by_two(&error)),
            },
            () = &mut sending, if is_sending => is_sending = false,
        }
    }
}

/// Sends a body as fast as the other side takes it. Errors are reported in place of the answer.
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

/// Reads an answer to its end, and puts the connection back if it can be used again.
async fn hear(shared: &Shared, mut job: Job, mut lease: Lease, answer: (&Parts, Stream), deadline: Instant) {
    let (head, stream) = answer;
    let read = read(shared, head, stream, deadline).await;
    let can_be_used = read.is_whole && !head.status.is_informational();
    job.conclude(Answer::Status(read.status), read.body, read.message);
    if !lease.is_one() {
        return;
    }
    let Some(Sender::One(one)) = lease.sender().filter(|_| can_be_used) else { return };
    if matches!(tokio::time::timeout(READY_WAIT, one.sender.ready()).await, Ok(Ok(()))) {
        lease.can_be_used_again();
    }
}
