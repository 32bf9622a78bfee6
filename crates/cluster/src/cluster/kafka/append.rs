//! Writes a record outside of any transaction, with an idempotent producer of its own: a record that is sent again
//! after a lost response is still written once.
//!
//! **Failure**: a refused record is certainly not written; after any other error it may have been written
//! ([`ErrorKind::Unknown`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::native::{Client, Listener, Topic, c_string};
use super::properties::Properties;
use super::send::Patience;
use super::threads::{CallThread, Reports};
use crate::cluster::{Error, ErrorKind, Message, Ticket};

/// How long to wait for a delivery report after the delivery timeout.
const GRACE: Duration = Duration::from_secs(2);
/// How long one check for the report waits.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Writes a record, and returns its offset.
pub(super) fn append(properties: &Properties, message: &Message<'_>) -> Result<i64, Error> {
    let delivery_timeout = Duration::from_millis(properties.delivery_timeout_ms()?);
    let reports = Arc::new(Reports::default());
    let (delivered, broke) = (Arc::clone(&reports), Arc::clone(&reports));
    let listener = Listener::new(
        move |opaque, offset| delivered.delivered(opaque, offset),
        move || broke.note_broken_connection(Instant::now()),
    );
    let client = Client::with(properties, Some(listener))?;
    // The threads that this starts receive the reports, and end when `_call_thread` is dropped.
    let _call_thread = CallThread::start(Arc::clone(&client), Arc::clone(&reports))?;
    let topic = Topic::new(&client, &c_string(message.topic)?).map_err(|failure| failure.plain(message.topic))?;
    let mut patience = Patience::new(delivery_timeout);
    while let Some(failure) = topic.produce(Reports::opaque(Ticket { number: 0, report: true }), message) {
        patience.wait_or_fail(&failure, message.topic, message.partition)?;
    }
    let what = format_args!("writing to {}:{}", message.topic, message.partition).to_string();
    let deadline = Instant::now() + delivery_timeout + GRACE;
    loop {
        if let Some((_, offset)) = reports.take_delivered().pop() {
            return Ok(offset);
        }
        if let Some(failure) = reports.take_failures().pop() {
            let kind = if failure.refused { ErrorKind::Refused } else { ErrorKind::Unknown };
            return Err(Error::new(kind, format!("{what}: {}", failure.message)));
        }
        if Instant::now() >= deadline {
            // If a login was refused, that is the reason why no report came.
            let trouble = reports.take_trouble().map_or("no response".to_owned(), |failure| failure.to_string());
            return Err(Error::new(ErrorKind::Unknown, format!("{what}: {trouble}")));
        }
        client.flush(CHECK_INTERVAL);
    }
}
