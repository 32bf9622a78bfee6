//! The last timestamp that a broker set in a partition: brokers set the timestamp of the marker that ends a transaction
//! from their own clock, independently of the timestamps of its records. Clients that read records do not return
//! markers, so the marker's batch is fetched here.
//!
//! **Failure**: a broker that does not respond in time, or no longer leads the partition, is [`ErrorKind::Retry`].

use std::time::{Duration, Instant};

use super::super::wire::brokers::{Brokers, Event, Leader, Purpose, RequestId};
use super::super::wire::connection::{Body, Request};
use super::super::wire::messages::fetch::{self, FetchPartition, Limits, Response, Session};
use super::super::wire::records::{Batch, Batches};
use super::client_settings::ClientSettings;
use crate::cluster::{Error, ErrorKind};
use crate::record::TopicPartition;

/// More bytes than a marker takes; a broker returns a larger batch all the same.
const BYTES_MAX: i32 = 1 << 16;

/// The timestamp of the last batch before `end`, in milliseconds since the epoch. `None` if a client set it, if there
/// is no whole batch before `end`, or if the broker does not support the request. All transactions before `end` must
/// have ended. `patience`: how long to wait for the broker.
pub fn last_broker_timestamp(
    client: &ClientSettings,
    partition: &TopicPartition,
    end: i64,
    patience: Duration,
) -> Result<Option<i64>, Error> {
    if end <= 0 {
        return Ok(None);
    }
    let (mut network, mut brokers) = client.open();
    let deadline = network.now() + patience;
    brokers.tick(network.now());
    brokers.watch(std::slice::from_ref(&partition.topic));
    let mut pending_request: Option<(RequestId, Leader)> = None;
    loop {
        let now = network.now();
        if pending_request.is_none() {
            match send_request(&mut brokers, partition, end, deadline.saturating_duration_since(now), now) {
                Ok(sent) => pending_request = sent,
                Err(Unsupported) => return Ok(None),
            }
        }
        while let Some(event) = brokers.next_event() {
            let Some((_, leader)) = pending_request.take_if(|(id, _)| *id == id_of(&event)) else { continue };
            match timestamp_in_event(&event, partition, end) {
                Some(stamp) => return Ok(stamp),
                None => brokers.doubt_leader(&partition.topic, partition.partition, Some(leader), now),
            }
        }
        if now >= deadline {
            let reason = brokers.failure().unwrap_or("no response");
            let message = format!("querying the last timestamp in {partition}: {reason}");
            return Err(Error::new(ErrorKind::Retry, message));
        }
        network.drive(&mut brokers, deadline.saturating_duration_since(now));
    }
}

/// The broker does not support the request.
struct Unsupported;

/// Requests the batch before `end` from the partition's leader, once the leader is known and connected.
fn send_request(
    brokers: &mut Brokers,
    partition: &TopicPartition,
    end: i64,
    timeout: Duration,
    now: Instant,
) -> Result<Option<(RequestId, Leader)>, Unsupported> {
    let Some(leader) = brokers.leader(&partition.topic, partition.partition) else { return Ok(None) };
    let Some(versions) = brokers.ensure_ready(leader.node, Purpose::Fetch, now) else { return Ok(None) };
    versions.pick(fetch::API_KEY, fetch::VERSION..=fetch::VERSION).ok_or(Unsupported)?;
    let limits = Limits { max_wait_ms: 0, bytes_min: 1, bytes_max: BYTES_MAX };
    let mut request = fetch::Request::new(brokers.buffer(), limits, Session::NONE);
    let wanted = FetchPartition {
        partition: partition.partition,
        leader_epoch: leader.epoch,
        offset: end - 1,
        bytes_max: BYTES_MAX,
    };
    request.want(&partition.topic, wanted);
    let request = Request { api_key: fetch::API_KEY, version: fetch::VERSION, body: request.finish().into() };
    Ok(Some((brokers.send(leader.node, Purpose::Fetch, request, timeout, now), leader)))
}

fn id_of(event: &Event) -> RequestId {
    match event {
        Event::Responded { id, .. } | Event::Failed { id, .. } => *id,
    }
}

/// The timestamp in the response; the outer `None` if the request has to be repeated.
fn timestamp_in_event(event: &Event, partition: &TopicPartition, end: i64) -> Option<Option<i64>> {
    let Event::Responded { body, .. } = event else { return None };
    timestamp_in_response(body, partition, end)
}

fn timestamp_in_response(body: &Body, partition: &TopicPartition, end: i64) -> Option<Option<i64>> {
    let response = Response::read(body.as_slice()).ok().filter(|response| response.error == 0)?;
    let is_same =
        |found: &fetch::Partition<'_>| found.topic == &*partition.topic && found.partition == partition.partition;
    let found = response.partitions().find(is_same).filter(|found| found.error == 0)?;
    let last = Batches::new(found.records).map_while(Result::ok).take_while(|batch| batch.last_offset < end).last();
    let is_whole = |batch: &Batch<'_>| batch.check().is_ok();
    // The timestamp of a marker is always the broker's. Any other batch states who set its timestamp.
    Some(
        last.filter(is_whole).filter(|batch| batch.is_control() || batch.is_stamped()).map(|batch| batch.max_timestamp),
    )
}
