//! The last timestamp that a broker gave in a partition: brokers give the marker that ends a transaction their own
//! time, whatever the timestamps of its records. A client that reads records does not return markers, so their batch is
//! fetched here.
//!
//! **Failure**: a broker that does not answer in time, or no longer leads the partition, is [`ErrorKind::Retry`].

use std::time::{Duration, Instant};

use super::super::wire::brokers::{Brokers, Event, Leader, RequestId, Use};
use super::super::wire::connection::{Body, Request};
use super::super::wire::messages::fetch::{self, Limits, Response, Session, Wanted};
use super::super::wire::records::{Batch, Batches};
use super::connecting::ClientSettings;
use crate::cluster::{Error, ErrorKind};
use crate::record::TopicPartition;

/// More than a marker takes; a larger batch is sent all the same.
const BYTES_MAX: i32 = 1 << 16;

/// The timestamp of the last batch before `end`, where all transactions have ended, in milliseconds since the epoch;
/// `None` if it was not given by a broker.
pub fn last_stamp(
    client: &ClientSettings,
    partition: &TopicPartition,
    end: i64,
    patience: Duration,
) -> Result<Option<i64>, Error> {
    if end <= 0 {
        return Ok(None);
    }
    let (mut network, mut brokers) = client.open();
    let until = network.now() + patience;
    brokers.tick(network.now());
    brokers.watch(std::slice::from_ref(&partition.topic));
    let mut asked: Option<(RequestId, Leader)> = None;
    loop {
        let now = network.now();
        if asked.is_none() {
            match ask(&mut brokers, partition, end, until.saturating_duration_since(now), now) {
                Ok(sent) => asked = sent,
                Err(Unsupported) => return Ok(None),
            }
        }
        while let Some(event) = brokers.next_event() {
            let Some((_, leader)) = asked.take_if(|(id, _)| *id == id_of(&event)) else { continue };
            match answer(&event, partition, end) {
                Some(stamp) => return Ok(stamp),
                None => brokers.doubt(&partition.topic, partition.partition, Some(leader), now),
            }
        }
        if now >= until {
            let reason = brokers.failure().unwrap_or("no answer");
            let message = format!("querying the last timestamp in {partition}: {reason}");
            return Err(Error::new(ErrorKind::Retry, message));
        }
        network.drive(&mut brokers, until.saturating_duration_since(now));
    }
}

/// The broker does not support the request.
struct Unsupported;

/// Asks the partition's leader for the batch before `end`, once it is known and connected.
fn ask(
    brokers: &mut Brokers,
    partition: &TopicPartition,
    end: i64,
    timeout: Duration,
    now: Instant,
) -> Result<Option<(RequestId, Leader)>, Unsupported> {
    let Some(leader) = brokers.leader(&partition.topic, partition.partition) else { return Ok(None) };
    let Some(versions) = brokers.ready(leader.node, Use::Fetch, now) else { return Ok(None) };
    versions.pick(fetch::API_KEY, fetch::VERSION..=fetch::VERSION).ok_or(Unsupported)?;
    let limits = Limits { max_wait_ms: 0, bytes_min: 1, bytes_max: BYTES_MAX };
    let mut request = fetch::Request::new(brokers.buffer(), limits, Session::NONE);
    let wanted =
        Wanted { partition: partition.partition, leader_epoch: leader.epoch, offset: end - 1, bytes_max: BYTES_MAX };
    request.want(&partition.topic, wanted);
    let request = Request { api_key: fetch::API_KEY, version: fetch::VERSION, body: request.finish().into() };
    Ok(Some((brokers.send(leader.node, Use::Fetch, request, timeout, now), leader)))
}

fn id_of(event: &Event) -> RequestId {
    match event {
        Event::Answered { id, .. } | Event::Failed { id, .. } => *id,
    }
}

/// The timestamp in an answer; the outer `None` if the leader has to be asked again.
fn answer(event: &Event, partition: &TopicPartition, end: i64) -> Option<Option<i64>> {
    let Event::Answered { body, .. } = event else { return None };
    stamp(body, partition, end)
}

fn stamp(body: &Body, partition: &TopicPartition, end: i64) -> Option<Option<i64>> {
    let response = Response::read(body.as_slice()).ok().filter(|response| response.error == 0)?;
    let is_it = |of: &fetch::Partition<'_>| of.topic == &*partition.topic && of.partition == partition.partition;
    let found = response.partitions().find(is_it).filter(|found| found.error == 0)?;
    let last = Batches::new(found.records).map_while(Result::ok).take_while(|batch| batch.last_offset < end).last();
    let is_whole = |batch: &Batch<'_>| batch.check().is_ok();
    Some(
        last.filter(is_whole).filter(|batch| batch.is_control() || batch.is_stamped()).map(|batch| batch.max_timestamp),
    )
}
