//! A writer with its connections. To drive them is to write pending requests to the sockets and to process responses.
//!
//! A record is handed to the writer, which keeps it in memory. The connections are driven only once enough bytes were
//! handed over, or enough time has passed, since driving them costs system calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::super::limits::{INIT_DEADLINE, MEANWHILE_STEP};
use super::super::super::wire;
use super::super::super::wire::brokers::Brokers;
use super::super::super::wire::writer::{
    GroupMembership, NewRecord, Offset, Slot, WriteError, WriteErrorKind, WriteSettings, Writer,
};
use super::super::client_settings::ClientSettings;
use super::super::network::Network;
use super::super::trouble::{AcceptedLogins, Outage};
use super::clock::Clock;
use super::errors;
use super::slots::Slots;
use crate::cluster::{Error, ErrorKind, Message, Ticket};
use crate::record::TopicPartition;

/// The longest single wait for the brokers.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// How many bytes are handed over before the connections are driven: no more than a socket takes at once.
const DRIVE_BYTES: usize = 256 << 10;
/// How many bytes of a transaction are handed over before the connections are driven for the first time, which adds
/// partitions to the transaction. All partitions of a small transaction are known by then, so that a single request
/// adds them; a large transaction is hardly delayed by it.
const FIRST_DRIVE_BYTES: usize = 64 << 10;
/// The shortest time after which the connections are driven, even if the linger time is shorter.
const DRIVE_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// How many records of [`WriteClient::send_all`] are handed over at a time.
const RUN_RECORDS: usize = 256;
/// How long to wait for newer metadata if a topic does not seem to have the partition that is written to.
const PARTITION_WAIT: Duration = Duration::from_secs(2);

/// The message about a partition that the topic does not have, in librdkafka's words.
const UNKNOWN_PARTITION: &str = "Local: Unknown partition";

/// A writer with its connections.
pub(super) struct WriteClient {
    network: Box<dyn Network>,
    brokers: Brokers,
    /// Batches records, and decides which requests to send.
    pub writer: Writer,
    delivery_timeout: Duration,
    drive_interval: Duration,
    clock: Clock,
    slots: Slots,
    /// When the connections were last driven.
    last_driven_at: Instant,
    /// The connections are driven again once the writer holds this many bytes.
    drive_at_bytes: usize,
}

impl WriteClient {
    /// Opens a transactional id, and waits until it is open; a transaction that was open under it is aborted. If
    /// brokers refuse the login, the error is [`ErrorKind::Refused`], or [`ErrorKind::Retry`] if a login was accepted
    /// before.
    pub fn open(
        client_settings: &ClientSettings,
        settings: &Arc<WriteSettings>,
        accepted: &AcceptedLogins,
        id: &str,
    ) -> Result<Self, Error> {
        let operation = || format!("opening the transactional id {id}");
        let writer = Writer::new(id, Arc::clone(settings))
            .map_err(|unsupported| Error::new(ErrorKind::Refused, format!("{}: {unsupported}", operation())))?;
        let (network, brokers) = client_settings.open();
        let clock = Clock::new(&*network);
        let mut write_client = Self {
            network,
            brokers,
            writer,
            delivery_timeout: settings.delivery_timeout,
            drive_interval: settings.linger.max(DRIVE_INTERVAL_MIN),
            last_driven_at: clock.now(),
            drive_at_bytes: 0,
            clock,
            slots: Slots::default(),
        };
        write_client.writer.open(INIT_DEADLINE, write_client.clock.now());
        write_client.drive_writer();
        let mut outage = Outage::new(accepted);
        loop {
            if let Some(opened) = write_client.writer.take_outcome() {
                return match opened {
                    Ok(()) => {
                        let version = if write_client.writer.is_v2() { 2 } else { 1 };
                        tracing::info!(transactional_id = id, transaction_version = version, "producer opened");
                        Ok(write_client)
                    }
                    Err(error) => Err(write_client.open_error(id, &error, &outage)),
                };
            }
            if let Some(trouble) = outage.trouble(&mut write_client.brokers, write_client.clock.now()) {
                return Err(Error::new(ErrorKind::Refused, format!("{}: {trouble}", operation())));
            }
            write_client.drive_once(WAIT_MAX);
        }
    }

    /// The error of [`WriteClient::open`], with what is known about the brokers.
    fn open_error(&self, id: &str, error: &WriteError, outage: &Outage) -> Error {
        if error.kind == WriteErrorKind::Retry
            && let Some(trouble) = outage.known_trouble(&self.brokers)
        {
            return Error::new(ErrorKind::Refused, format!("opening the transactional id {id}: {trouble}"));
        }
        let open_error = errors::open_error(id, error);
        match self.brokers.failure().filter(|_| error.code.is_none()) {
            Some(why) => Error::new(open_error.kind, format!("{}: {why}", open_error.message)).with(open_error.detail),
            None => open_error,
        }
    }

    /// Begins a transaction. Connections that were closed meanwhile are noticed first.
    pub fn begin(&mut self) -> Result<(), WriteError> {
        self.drive_without_waiting();
        self.drive_at_bytes = FIRST_DRIVE_BYTES;
        self.writer.begin()
    }

    /// Hands a record over; waits while the writer's send buffer has no room.
    pub fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        let to = (message.topic, message.partition);
        let slot = self.slot(to)?;
        let clock_was_read = self.clock.read_if_due(&*self.network);
        let record = NewRecord {
            timestamp: message.timestamp.unwrap_or(self.clock.wall_ms()),
            key: message.key,
            value: message.value,
            headers: message.headers,
        };
        let ticket = wire::writer::Ticket { number: ticket.number, report: ticket.report };
        let mut waiting_since = None;
        loop {
            match self.writer.send(ticket, slot, &record, self.clock.now()) {
                Ok(true) => break,
                Ok(false) => self.wait_for_room(&mut waiting_since, to)?,
                Err(error) => return Err(self.send_error(&error, to)),
            }
        }
        self.drive_if_due(clock_was_read);
        Ok(())
    }

    /// Hands over records for one partition; waits while the writer's send buffer has no room.
    pub fn send_all<'a>(
        &mut self,
        number: u64,
        to: &TopicPartition,
        records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), Error> {
        let to = (&*to.topic, to.partition);
        let slot = self.slot(to)?;
        let mut records = records.fuse();
        loop {
            let mut run = records.by_ref().take(RUN_RECORDS).peekable();
            if run.peek().is_none() {
                return Ok(());
            }
            self.clock.read(&*self.network);
            let mut waiting_since = None;
            loop {
                match self.writer.send_all(number, slot, self.clock.wall_ms(), &mut run, self.clock.now()) {
                    Ok(true) => break,
                    Ok(false) => self.wait_for_room(&mut waiting_since, to)?,
                    Err(error) => return Err(self.send_error(&error, to)),
                }
            }
            self.drive_if_due(true);
        }
    }

    /// Drives the connections if enough bytes were handed over, or if enough time has passed. `clock_was_read`: whether
    /// the clock was just read; if not, it shows no new time, and only the bytes count.
    #[inline]
    fn drive_if_due(&mut self, clock_was_read: bool) {
        let is_late = || self.clock.now().saturating_duration_since(self.last_driven_at) >= self.drive_interval;
        if self.writer.held_bytes() >= self.drive_at_bytes || (clock_was_read && is_late()) {
            self.drive_without_waiting();
        }
    }

    /// Waits up to [`WAIT_MAX`] for room in the send buffer. Fails once repeated calls together have waited for the
    /// delivery timeout; the first of them sets `since`, the time at which it began.
    #[cold]
    fn wait_for_room(&mut self, since: &mut Option<Instant>, to: (&str, i32)) -> Result<(), Error> {
        let now = self.clock.read(&*self.network);
        let waited = now.saturating_duration_since(*since.get_or_insert(now));
        let Some(left) = self.delivery_timeout.checked_sub(waited).filter(|left| !left.is_zero()) else {
            let message = format!("{}: the send buffer has been full for too long", sending(to));
            return Err(Error::new(self.kind_of_abort(), message));
        };
        self.drive_writer();
        self.drive_once(left.min(WAIT_MAX));
        Ok(())
    }

    /// The error if a record was not accepted. It is a refusal only if it concerns this record alone, and not the whole
    /// transaction.
    #[cold]
    fn send_error(&self, failed: &WriteError, to: (&str, i32)) -> Error {
        let kind = match errors::kind(failed.kind) {
            ErrorKind::Refused if self.writer.trouble().is_none() => ErrorKind::Refused,
            ErrorKind::Refused | ErrorKind::Retry | ErrorKind::Abort => self.kind_of_abort(),
            kind => kind,
        };
        let error = errors::error(failed);
        Error { kind, message: format!("{}: {}", sending(to), error.message), ..error }
    }

    /// The kind of an error after which the transaction has to be aborted: [`ErrorKind::Abort`], or
    /// [`ErrorKind::Fenced`] if the producer can no longer be used: the cause is then the producer, and not the work in
    /// the transaction.
    fn kind_of_abort(&self) -> ErrorKind {
        if self.writer.is_usable() { ErrorKind::Abort } else { ErrorKind::Fenced }
    }

    #[inline]
    fn slot(&mut self, to: (&str, i32)) -> Result<Slot, Error> {
        match self.slots.get(to.0, to.1) {
            Some(slot) => Ok(slot),
            None => self.new_slot(to),
        }
    }

    #[cold]
    fn new_slot(&mut self, to: (&str, i32)) -> Result<Slot, Error> {
        if !self.may_have_partition(to) {
            return Err(Error::new(self.kind_of_abort(), format!("{}: {UNKNOWN_PARTITION}", sending(to))));
        }
        let slot = self.writer.slot(to.0, to.1);
        self.slots.insert(to.0, to.1, slot);
        Ok(slot)
    }

    /// Whether the topic may have this partition. If it is not among the known ones, waits for newer metadata:
    /// partitions may have been added.
    fn may_have_partition(&mut self, (topic, partition): (&str, i32)) -> bool {
        let Ok(partition_index) = usize::try_from(partition) else { return false };
        let until = self.clock.read(&*self.network) + PARTITION_WAIT;
        while self.brokers.partition_count(topic).is_some_and(|count| count <= partition_index) {
            let left = until.saturating_duration_since(self.clock.now());
            if left.is_zero() {
                return false;
            }
            // This query makes the client request metadata again.
            let _ = self.brokers.leader(topic, partition);
            self.drive_once(left.min(WAIT_MAX));
        }
        true
    }

    /// Commits, and waits for the outcome. `meanwhile` is called repeatedly, with how long it may wait.
    pub fn commit(
        &mut self,
        offsets: Vec<Offset>,
        group: GroupMembership,
        meanwhile: Option<&mut dyn FnMut(Duration)>,
    ) -> Result<(), WriteError> {
        let now = self.clock.read(&*self.network);
        self.writer.commit(offsets, group, now);
        self.wait_for_outcome(meanwhile)
    }

    /// Aborts the transaction, and waits for the outcome.
    pub fn abort(&mut self) -> Result<(), WriteError> {
        let now = self.clock.read(&*self.network);
        self.writer.abort(now);
        self.wait_for_outcome(None)
    }

    /// Waits for the outcome; the writer's deadlines limit the wait.
    fn wait_for_outcome(&mut self, mut meanwhile: Option<&mut dyn FnMut(Duration)>) -> Result<(), WriteError> {
        self.drive_writer();
        loop {
            if let Some(outcome) = self.writer.take_outcome() {
                return outcome;
            }
            match &mut meanwhile {
                None => {
                    self.drive_once(WAIT_MAX);
                }
                Some(meanwhile) => {
                    if !self.drive_once(Duration::ZERO) {
                        meanwhile(MEANWHILE_STEP);
                    }
                }
            }
        }
    }

    /// Processes responses about records that were handed over.
    pub fn process_responses(&mut self) {
        self.clock.invalidate();
        if self.writer.in_flight() > 0 {
            self.drive_without_waiting();
        }
    }

    /// Sends the requests that are due, and processes the brokers' responses, without waiting.
    fn drive_without_waiting(&mut self) {
        self.drive_writer();
        if self.drive_once(Duration::ZERO) {
            // Sends the requests that had to wait for these responses.
            self.drive_once(Duration::ZERO);
        }
        self.last_driven_at = self.clock.now();
        self.drive_at_bytes = self.writer.held_bytes() + DRIVE_BYTES;
    }

    /// Writes pending output, waits for the brokers, and processes their responses. Returns whether anything happened
    /// that the client can act upon.
    fn drive_once(&mut self, wait: Duration) -> bool {
        let wait = match self.writer.next_tick().filter(|_| !wait.is_zero()) {
            Some(next) => next.saturating_duration_since(self.clock.now()).min(wait),
            None => wait,
        };
        let before = self.brokers.progress_count();
        self.network.drive(&mut self.brokers, wait);
        self.drive_writer();
        self.brokers.progress_count() != before
    }

    /// Lets the writer process the responses, and queue the next requests.
    fn drive_writer(&mut self) {
        let now = self.clock.read(&*self.network);
        self.writer.drive(&mut self.brokers, now);
    }
}

fn sending((topic, partition): (&str, i32)) -> String {
    format!("sending to {topic}:{partition}")
}
