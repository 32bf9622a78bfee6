//! Writes records outside of any transaction, with an idempotent producer: a record that is sent again after a lost
//! response is still written once.
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
/// How many bytes an [`Appender`] holds before they are written.
const QUEUED_KBYTES_MAX: &str = "65536";
/// The largest batch that an [`Appender`] makes of several records: below what brokers take by default.
const BATCH_BYTES: i64 = 1_000_000;
/// How long an [`Appender`] tries to deliver a record: others wait before it in the queue.
const DELIVERY_TIMEOUT_MS: &str = "120000";

/// Writes a record, and returns its offset.
pub(super) fn append(properties: &Properties, message: &Message<'_>) -> Result<i64, Error> {
    let mut appender = Appender::open(properties, message.topic)?;
    appender.name = format!("{}:{}", message.topic, message.partition);
    appender.send(message)?;
    appender.settle()?;
    let without = || Error::new(ErrorKind::Unknown, format!("writing to {}: no offset in the response", appender.name));
    appender.last.ok_or_else(without)
}

/// Writes records to one topic, each partition's in the order in which they are sent.
pub struct Appender {
    client: Arc<Client>,
    reports: Arc<Reports>,
    // Its threads receive the reports, and end when it is dropped.
    _call_thread: CallThread,
    topic: Topic,
    name: String,
    delivery_timeout: Duration,
    /// How many records were sent.
    sent: u64,
    /// How many of them are known to be written.
    written: u64,
    /// The offset of the last one that is known to be written.
    last: Option<i64>,
}

impl Appender {
    /// The properties for many records, unless the user has set others. `batch_bytes_max`: the largest batch that the topic
    /// takes; a larger one would be refused with all of its records.
    pub(super) fn properties(properties: &Properties, batch_bytes_max: Option<i64>) -> Properties {
        let batch_bytes = batch_bytes_max.map_or(BATCH_BYTES, |max| max.clamp(1, BATCH_BYTES)).to_string();
        let own = [
            (&["message.timeout.ms", "delivery.timeout.ms"][..], DELIVERY_TIMEOUT_MS),
            (&["queue.buffering.max.kbytes"], QUEUED_KBYTES_MAX),
            (&["batch.size"], &batch_bytes),
        ];
        own.into_iter().fold(properties.clone(), |properties, (names, value)| {
            let is_set = names.iter().any(|name| properties.is_set_by_user(name));
            if is_set { properties } else { properties.with(names[0], value) }
        })
    }

    /// Opens a producer for this topic; it connects in the background.
    pub(super) fn open(properties: &Properties, topic: &str) -> Result<Self, Error> {
        let delivery_timeout = Duration::from_millis(properties.delivery_timeout_ms()?);
        let reports = Arc::new(Reports::default());
        let (delivered, broke) = (Arc::clone(&reports), Arc::clone(&reports));
        let listener = Listener::new(
            move |opaque, offset| delivered.delivered(opaque, offset),
            move || broke.note_broken_connection(Instant::now()),
        );
        let client = Client::with(properties, Some(listener))?;
        let call_thread = CallThread::start(Arc::clone(&client), Arc::clone(&reports))?;
        let handle = Topic::new(&client, &c_string(topic)?).map_err(|failure| failure.plain(topic))?;
        Ok(Self {
            client,
            reports,
            _call_thread: call_thread,
            topic: handle,
            name: topic.to_owned(),
            delivery_timeout,
            sent: 0,
            written: 0,
            last: None,
        })
    }

    /// Hands over a record, whatever topic it names; waits while the queue is full. An error may be that of an earlier
    /// record.
    pub fn send(&mut self, message: &Message<'_>) -> Result<(), Error> {
        let mut patience = Patience::new(self.delivery_timeout);
        let opaque = Reports::opaque(Ticket { number: self.sent, report: true });
        while let Some(failure) = self.topic.produce(opaque, message) {
            patience.wait_or_fail(&failure, message.topic, message.partition)?;
        }
        self.sent += 1;
        self.hear()
    }

    /// Waits until all records are written.
    pub fn settle(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + self.delivery_timeout + GRACE;
        loop {
            // Before the reports are taken: they are there once nothing is in flight. One without an offset is not.
            let is_done = self.client.in_flight() == 0;
            self.hear()?;
            if is_done {
                self.written = self.sent;
                return Ok(());
            }
            if Instant::now() >= deadline {
                // If a login was refused, that is the reason why no report came.
                let trouble =
                    self.reports.take_trouble().map_or("no response".to_owned(), |failure| failure.to_string());
                return Err(Error::new(ErrorKind::Unknown, format!("writing to {}: {trouble}", self.name)));
            }
            self.client.flush(CHECK_INTERVAL);
        }
    }

    /// How many records are known to be written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Takes the reports that have arrived.
    fn hear(&mut self) -> Result<(), Error> {
        let delivered = self.reports.take_delivered();
        self.written += delivered.len() as u64;
        self.last = delivered.last().map(|(_, offset)| *offset).or(self.last);
        let Some(failure) = self.reports.take_failures().into_iter().min_by_key(|failure| failure.number) else {
            return Ok(());
        };
        let kind = if failure.refused { ErrorKind::Refused } else { ErrorKind::Unknown };
        let number = match self.sent {
            1 => String::new(),
            _ => format!(" (record {} of those sent)", failure.number + 1),
        };
        Err(Error::new(kind, format!("writing to {}{number}: {}", self.name, failure.message)))
    }
}
