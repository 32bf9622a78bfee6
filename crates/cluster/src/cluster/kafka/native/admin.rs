//! librdkafka's admin calls. rust-rdkafka does not offer topic ids.
//!
//! **Failure**: a topic that does not exist is `None`, not an error; a cluster that does not respond in time is
//! [`Code::RD_KAFKA_RESP_ERR__TIMED_OUT`], unless missing rights or a wrong password are the cause.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::client::Client;
use super::conversions::{c_millis, c_string};
use super::event::Event;
use super::list::List;
use super::queue::Queue;
use crate::cluster::{Denied, Detail, Error, ErrorKind, NewTopic, Rights, TopicId};
use crate::record::TopicPartition;

/// How long to wait for a response.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(15);
/// The longest timeout that librdkafka accepts for an admin call.
const NEVER: Duration = Duration::from_secs(3600);
/// How often a waiting call checks for the cause of the delay.
const TROUBLE_STEP: Duration = Duration::from_millis(500);
/// Extra time for librdkafka to report its own timeout.
const GRACE: Duration = Duration::from_secs(1);

/// A topic, without its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Its id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partition_count: i32,
    /// Whether each of them has a leader.
    pub is_led: bool,
    /// Replicas of the partition with the fewest.
    pub replicas: i32,
    /// What this client may do with it.
    pub rights: Option<Rights>,
}

/// Options of one admin call.
struct Options(NonNull<rd::rd_kafka_AdminOptions_t>);

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_AdminOptions_destroy(self.0.as_ptr()) }
    }
}

/// Who responds to an admin call.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// Any broker, or the controller.
    Anybody,
    /// The same, for a call about this topic.
    About(&'a CStr),
    /// A group's coordinator, with this time to respond. A client must not be used again after its query got no answer:
    /// librdkafka keeps a query to a coordinator past its timeout, and ends the process when the coordinator is found
    /// (<https://github.com/confluentinc/librdkafka/issues/4605>). So the query has no timeout here, and goes with its
    /// client.
    Coordinator(Duration),
}

/// Makes an admin call and waits for its response; `call` is passed the options and the queue for the response.
fn ask(
    client: &Arc<Client>,
    api: rd::rd_kafka_admin_op_t,
    target: Target<'_>,
    call: impl FnOnce(*const rd::rd_kafka_AdminOptions_t, *mut rd::rd_kafka_queue_t),
) -> Result<Event, Failure> {
    let (time_out, deadline) = match target {
        Target::Anybody | Target::About(_) => (ANSWER_DEADLINE, Instant::now() + ANSWER_DEADLINE + GRACE),
        Target::Coordinator(wait) => (NEVER, Instant::now() + wait),
    };
    let queue = Queue::new(client);
    let mut message = [0 as c_char; 256];
    // SAFETY: the client is alive; the buffer has the given length. The timeouts are within bounds.
    let options = unsafe {
        let raw = rd::rd_kafka_AdminOptions_new(client.raw(), api);
        let options = Options(NonNull::new(raw).expect("librdkafka knows all of its calls"));
        rd::rd_kafka_AdminOptions_set_request_timeout(raw, c_millis(time_out), message.as_mut_ptr(), message.len());
        if matches!(target, Target::Coordinator(_)) || api == rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS
        {
            // Fails only for calls without this option.
            let _ = Failure::take(rd::rd_kafka_AdminOptions_set_include_authorized_operations(raw, 1));
        }
        if api == rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATETOPICS {
            rd::rd_kafka_AdminOptions_set_operation_timeout(
                raw,
                c_millis(ANSWER_DEADLINE),
                message.as_mut_ptr(),
                message.len(),
            );
        }
        options
    };
    // Errors from before say nothing about this call.
    client.trouble();
    call(options.0.as_ptr(), queue.raw());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match queue.next_event(TROUBLE_STEP.min(left)) {
            Some(answer) => {
                return match answer.failure() {
                    None => {
                        client.answered();
                        Ok(answer)
                    }
                    Some(failure) => Err(client.explain(failure)),
                };
            }
            None if Instant::now() >= deadline => {
                let late = Failure::new(Code::RD_KAFKA_RESP_ERR__TIMED_OUT, "the cluster does not answer");
                return Err(client.explain(late));
            }
            None => {
                // A wrong password would be reported as a timeout, and late.
                client.trouble().map_or(Ok(()), Err)?;
                // A client that reads nothing does not look for another broker: it would wait for one that
                // is gone.
                if let Target::About(topic) = target {
                    client.ask_for_topic(topic, TROUBLE_STEP);
                }
            }
        }
    }
}

/// A slice of `count` of librdkafka's pointers at `start`.
///
/// # Safety
/// `start` points to that many pointers that live for `'a`, or `count` is 0.
unsafe fn pointers<'a, T>(start: *mut *const T, count: usize) -> &'a [*const T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// The string at `text`, empty for null.
///
/// # Safety
/// `text` is null or a string that ends in NUL.
unsafe fn c_text(text: *const c_char) -> String {
    // SAFETY: by the caller's promise.
    if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}

/// Describes `topic`, without its settings.
pub fn outline(client: &Arc<Client>, topic: &str) -> Result<Option<Outline>, Failure> {
    let Ok(name) = CString::new(topic) else { return Ok(None) };
    let answer = ask(
        client,
        rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
        Target::About(&name),
        |options, queue| {
            let mut names = [name.as_ptr()];
            // SAFETY: everything is alive for the call, which copies what it needs.
            unsafe {
                let topics = rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
                rd::rd_kafka_DescribeTopics(client.raw(), topics, options, queue);
                rd::rd_kafka_TopicCollection_destroy(topics);
            }
        },
    )?;
    // SAFETY: the response is alive and of this call's type; everything it points to lives as long.
    unsafe {
        let result = rd::rd_kafka_event_DescribeTopics_result(answer.raw());
        let mut count = 0;
        let topics = pointers(rd::rd_kafka_DescribeTopics_result_topics(result, &mut count), count);
        let Some(&topic) = topics.first() else { return Ok(None) };
        let error = rd::rd_kafka_TopicDescription_error(topic);
        let code = if error.is_null() { Code::RD_KAFKA_RESP_ERR_NO_ERROR } else { rd::rd_kafka_error_code(error) };
        match Failure::of(code) {
            None => Ok(Some(read_outline(topic))),
            Some(failure) if failure.code == Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART => Ok(None),
            Some(failure) => Err(failure),
        }
    }
}

/// # Safety
/// `topic` is a description that is alive.
unsafe fn read_outline(topic: *const rd::rd_kafka_TopicDescription_t) -> Outline {
    // SAFETY: by the caller's promise; everything it points to lives as long.
    unsafe {
        let id = rd::rd_kafka_TopicDescription_topic_id(topic);
        let high = rd::rd_kafka_Uuid_most_significant_bits(id).cast_unsigned();
        let low = rd::rd_kafka_Uuid_least_significant_bits(id).cast_unsigned();
        let mut count = 0;
        let partitions = pointers(rd::rd_kafka_TopicDescription_partitions(topic, &mut count), count);
        let is_led = |partition: &*const rd::rd_kafka_TopicPartitionInfo_t| {
            let leader = rd::rd_kafka_TopicPartitionInfo_leader(*partition);
            !leader.is_null() && rd::rd_kafka_Node_id(leader) >= 0
        };
        let replicas = |partition: &*const rd::rd_kafka_TopicPartitionInfo_t| {
            let mut count = 0;
            rd::rd_kafka_TopicPartitionInfo_replicas(*partition, &mut count);
            i32::try_from(count).unwrap_or(i32::MAX)
        };
        let mut allowed = 0;
        let operations = rd::rd_kafka_TopicDescription_authorized_operations(topic, &mut allowed);
        Outline {
            id: TopicId((u128::from(high) << 64 | u128::from(low)).to_be_bytes()),
            partition_count: i32::try_from(partitions.len()).unwrap_or(i32::MAX),
            is_led: partitions.iter().all(is_led),
            replicas: partitions.iter().map(replicas).min().unwrap_or(0),
            rights: rights(operations, allowed),
        }
    }
}

/// The rights that these operations stand for; `None` if the cluster does not say.
///
/// # Safety
/// `operations` is null or points to `count` operations that are alive.
unsafe fn rights(operations: *const rd::rd_kafka_AclOperation_t, count: usize) -> Option<Rights> {
    use rd::rd_kafka_AclOperation_t as Operation;
    // A client without any right gets an error instead: some implementations of Kafka's protocol return an empty list.
    if operations.is_null() || count == 0 {
        return None;
    }
    // SAFETY: by the caller's promise.
    let operations = unsafe { std::slice::from_raw_parts(operations, count) };
    let may =
        |operation| operations.contains(&operation) || operations.contains(&Operation::RD_KAFKA_ACL_OPERATION_ALL);
    Some(Rights {
        read: may(Operation::RD_KAFKA_ACL_OPERATION_READ),
        write: may(Operation::RD_KAFKA_ACL_OPERATION_WRITE),
        describe: may(Operation::RD_KAFKA_ACL_OPERATION_DESCRIBE),
        alter: may(Operation::RD_KAFKA_ACL_OPERATION_DELETE),
    })
}

/// Information about the cluster, and about all topics or those that the client knows.
struct Overview(*const rd::rd_kafka_metadata);

impl Drop for Overview {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_metadata_destroy(self.0) }
    }
}

fn overview(client: &Arc<Client>, all_topics: bool) -> Result<Overview, Failure> {
    let mut metadata = std::ptr::null();
    // Errors from before say nothing about this call.
    client.trouble();
    // SAFETY: the client is alive and the out-pointer valid for the call; null means no single topic.
    let code = unsafe {
        let all = c_int::from(all_topics);
        rd::rd_kafka_metadata(client.raw(), all, std::ptr::null_mut(), &mut metadata, c_millis(ANSWER_DEADLINE))
    };
    match Failure::of(code) {
        None => {
            client.answered();
            Ok(Overview(metadata))
        }
        Some(failure) => Err(client.explain(failure)),
    }
}

/// The names of all visible topics.
pub fn list_topics(client: &Arc<Client>) -> Result<Vec<String>, Error> {
    let overview = overview(client, true).map_err(|failure| failure.plain("listing the topics"))?;
    // SAFETY: the response is alive, and everything it points to lives as long.
    unsafe {
        let count = usize::try_from((*overview.0).topic_cnt).unwrap_or(0);
        let topics = if count == 0 { &[] } else { std::slice::from_raw_parts((*overview.0).topics, count) };
        Ok(topics.iter().map(|topic| c_text(topic.topic)).collect())
    }
}

/// The number of brokers, if less than the number of replicas; `None` also if the cluster does not respond.
fn too_few_brokers(client: &Arc<Client>, replicas: i32) -> Option<i32> {
    let overview = overview(client, false).ok()?;
    // SAFETY: the response is alive.
    let brokers = unsafe { (*overview.0).broker_cnt };
    (1..replicas).contains(&brokers).then_some(brokers)
}

/// A coordinator's description of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What this client may do with it; `None` if the cluster does not say.
    pub rights: Option<Rights>,
    /// How many members it has.
    pub members: usize,
}

/// Queries the group's coordinator for it, waiting no longer than `wait`.
pub fn describe_group(client: &Arc<Client>, group: &str, wait: Duration) -> Result<Group, Error> {
    let what = || format!("describing the group {group}");
    let name = c_string(group)?;
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    let answer = ask(client, api, Target::Coordinator(wait), |options, queue| {
        // SAFETY: everything is alive for the call, which copies what it needs.
        unsafe { rd::rd_kafka_DescribeConsumerGroups(client.raw(), [name.as_ptr()].as_mut_ptr(), 1, options, queue) }
    })
    .map_err(|failure| failure.plain(what()))?;
    // SAFETY: the response is alive and of this call's type; everything it points to lives as long.
    unsafe {
        let result = rd::rd_kafka_event_DescribeConsumerGroups_result(answer.raw());
        let mut count = 0;
        let groups = pointers(rd::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count), count);
        let Some(&group) = groups.first() else { return Ok(Group::default()) };
        let error = rd::rd_kafka_ConsumerGroupDescription_error(group);
        let code = if error.is_null() { Code::RD_KAFKA_RESP_ERR_NO_ERROR } else { rd::rd_kafka_error_code(error) };
        match Failure::of(code) {
            None => {
                let operations = rd::rd_kafka_ConsumerGroupDescription_authorized_operations(group, &mut count);
                let members = rd::rd_kafka_ConsumerGroupDescription_member_count(group);
                Ok(Group { rights: rights(operations, count), members })
            }
            Some(failure) if failure.code == Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED => {
                Ok(Group { rights: Some(Rights::default()), members: 0 })
            }
            Some(failure) if failure.code == Code::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND => Ok(Group::default()),
            Some(failure) => Err(failure.plain(what())),
        }
    }
}

/// What `group`, of whichever group the client is, has committed for `partitions`, as far as its coordinator says within
/// `wait`. If only what is `stable` counts, a partition on whose offset a transaction is pending has
/// [`Code::RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT`] in its element. An answer that lacks one of the partitions is an
/// error.
///
/// The client has to be in some group: told that a coordinator has moved, librdkafka looks for its own group's, and ends
/// the process if it has none. It keeps asking the former one, too.
pub fn group_offsets(
    client: &Arc<Client>,
    group: &str,
    partitions: &List,
    stable: bool,
    wait: Duration,
) -> Result<List, Failure> {
    let name = CString::new(group).unwrap_or_default();
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS;
    let answer = ask(client, api, Target::Coordinator(wait), |options, queue| {
        // SAFETY: everything is alive for the calls, which copy what they need; the options are ours.
        unsafe {
            let stable = c_int::from(stable);
            // Fails only for calls without this option.
            let _ = Failure::take(rd::rd_kafka_AdminOptions_set_require_stable_offsets(options.cast_mut(), stable));
            let asked = rd::rd_kafka_ListConsumerGroupOffsets_new(name.as_ptr(), partitions.raw());
            rd::rd_kafka_ListConsumerGroupOffsets(client.raw(), [asked].as_mut_ptr(), 1, options, queue);
            rd::rd_kafka_ListConsumerGroupOffsets_destroy(asked);
        }
    })?;
    // SAFETY: the response is alive and of this call's type; everything it points to lives as long.
    unsafe {
        let result = rd::rd_kafka_event_ListConsumerGroupOffsets_result(answer.raw());
        let mut count = 0;
        let groups = pointers(rd::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &mut count), count);
        let Some(&group) = groups.first() else { return Err(incomplete("the group")) };
        let error = rd::rd_kafka_group_result_error(group);
        let code = if error.is_null() { Code::RD_KAFKA_RESP_ERR_NO_ERROR } else { rd::rd_kafka_error_code(error) };
        Failure::of(code).map_or(Ok(()), Err)?;
        let answered = List::copied(rd::rd_kafka_group_result_partitions(group));
        answered.first_missing(partitions).map_or(Ok(answered), |partition| Err(incomplete(partition)))
    }
}

/// The answer says nothing of what was asked: that is not the same as that nothing is there.
fn incomplete(lacks: impl fmt::Display) -> Failure {
    Failure::new(Code::RD_KAFKA_RESP_ERR__PARTIAL, format!("the answer lacks {lacks}"))
}

/// A topic's settings with these names, defaults included; empty if the cluster does not give one.
pub fn settings<const N: usize>(client: &Arc<Client>, topic: &str, names: [&str; N]) -> Result<[String; N], Failure> {
    let name = CString::new(topic).unwrap_or_default();
    let answer = ask(
        client,
        rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS,
        Target::About(&name),
        |options, queue| {
            // SAFETY: everything is alive for the call, which copies what it needs.
            unsafe {
                let resource = rd::rd_kafka_ConfigResource_new(
                    rd::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
                    name.as_ptr(),
                );
                rd::rd_kafka_DescribeConfigs(client.raw(), [resource].as_mut_ptr(), 1, options, queue);
                rd::rd_kafka_ConfigResource_destroy(resource);
            }
        },
    )?;
    let mut found = [const { String::new() }; N];
    // SAFETY: the response is alive and of this call's type; everything it points to lives as long.
    unsafe {
        let result = rd::rd_kafka_event_DescribeConfigs_result(answer.raw());
        let mut count = 0;
        let resources = pointers(rd::rd_kafka_DescribeConfigs_result_resources(result, &mut count), count);
        for &resource in resources {
            if let Some(mut failure) = Failure::of(rd::rd_kafka_ConfigResource_error(resource)) {
                failure.message = c_text(rd::rd_kafka_ConfigResource_error_string(resource));
                return Err(failure);
            }
            let entries = pointers(rd::rd_kafka_ConfigResource_configs(resource, &mut count), count);
            for &entry in entries {
                let name = c_text(rd::rd_kafka_ConfigEntry_name(entry));
                if let Some(index) = names.iter().position(|wanted| *wanted == name) {
                    found[index] = c_text(rd::rd_kafka_ConfigEntry_value(entry));
                }
            }
        }
    }
    Ok(found)
}

/// A topic to be created, in librdkafka's form.
struct NewTopicHandle(NonNull<rd::rd_kafka_NewTopic_t>);

impl Drop for NewTopicHandle {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_NewTopic_destroy(self.0.as_ptr()) }
    }
}

fn new_topic(topic: &NewTopic<'_>) -> Result<NewTopicHandle, Error> {
    let name = c_string(topic.name)?;
    let mut explained = [0 as c_char; 256];
    // SAFETY: strings end in NUL, the buffer has the given length, and the result is owned.
    let raw = unsafe {
        let (partitions, replicas) = (topic.partition_count, topic.replication_factor);
        rd::rd_kafka_NewTopic_new(name.as_ptr(), partitions, replicas, explained.as_mut_ptr(), explained.len())
    };
    // SAFETY: librdkafka ends what it wrote with NUL, and the buffer began as zeros.
    let explain = || {
        Error::new(
            ErrorKind::Refused,
            format!("creating the topic {}: {}", topic.name, unsafe { c_text(explained.as_ptr()) }),
        )
    };
    let handle = NewTopicHandle(NonNull::new(raw).ok_or_else(explain)?);
    for (setting, value) in topic.settings {
        let (c_setting, c_value) = (c_string(setting)?, c_string(value)?);
        // SAFETY: all three are alive; both strings are copied.
        let code = unsafe { rd::rd_kafka_NewTopic_set_config(handle.0.as_ptr(), c_setting.as_ptr(), c_value.as_ptr()) };
        if let Some(failure) = Failure::of(code) {
            return Err(failure.plain(format_args!("creating the topic {} with {setting}", topic.name)));
        }
    }
    Ok(handle)
}

/// Creates a topic, or only checks whether it could be created (`validate_only`). Succeeds if it already exists.
pub fn create_or_validate(client: &Arc<Client>, topic: &NewTopic<'_>, validate_only: bool) -> Result<(), Error> {
    let handle = new_topic(topic)?;
    let mut explained = [0 as c_char; 256];
    let what = || format!("creating the topic {}", topic.name);
    let answer =
        ask(client, rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATETOPICS, Target::Anybody, |options, queue| {
            // SAFETY: everything is alive for the calls, which copy what they need; the options are ours, and the
            // buffer has the given length.
            unsafe {
                let validate = c_int::from(validate_only);
                rd::rd_kafka_AdminOptions_set_validate_only(
                    options.cast_mut(),
                    validate,
                    explained.as_mut_ptr(),
                    explained.len(),
                );
                rd::rd_kafka_CreateTopics(client.raw(), [handle.0.as_ptr()].as_mut_ptr(), 1, options, queue);
            }
        })
        .map_err(|failure| failure.plain(what()))?;
    // SAFETY: the response is alive and of this call's type; everything it points to lives as long.
    unsafe {
        let result = rd::rd_kafka_event_CreateTopics_result(answer.raw());
        let mut count = 0;
        for &created in pointers(rd::rd_kafka_CreateTopics_result_topics(result, &mut count), count) {
            let Some(mut failure) = Failure::of(rd::rd_kafka_topic_result_error(created)) else { continue };
            if failure.code != Code::RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS {
                failure.message = c_text(rd::rd_kafka_topic_result_error_string(created));
                let denied = failure.is_denied_topic();
                let error = failure.plain(what());
                return Err(match failure.code {
                    _ if denied => error.with(Some(Detail::Denied(Some(Denied::Topic)))),
                    Code::RD_KAFKA_RESP_ERR_INVALID_REPLICATION_FACTOR => {
                        error.with(too_few_brokers(client, topic.replication_factor).map(Detail::TooFewBrokers))
                    }
                    _ => error,
                });
            }
        }
    }
    Ok(())
}

/// The latest timestamp of anything in `partition`, transaction markers included; `None` if it is empty, or brokers are
/// too old to say (before Kafka 3.0).
pub fn latest_time(client: &Arc<Client>, partition: &TopicPartition) -> Result<Option<i64>, Error> {
    let what = || format!("querying the latest timestamp in {partition}");
    let name = c_string(&partition.topic)?;
    let latest = rd::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_MAX_TIMESTAMP as i64;
    let list = List::of(std::slice::from_ref(partition), latest)?;
    let api = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS;
    let answer = ask(client, api, Target::About(&name), |options, queue| {
        // SAFETY: everything is alive for the call, which copies what it needs.
        unsafe { rd::rd_kafka_ListOffsets(client.raw(), list.raw(), options, queue) }
    });
    let answer = match answer {
        Err(failure) if failure.code == Code::RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE => return Ok(None),
        answer => answer.map_err(|failure| failure.plain(what()))?,
    };
    // SAFETY: the response is alive and of this call's type; everything it points to lives as long.
    unsafe {
        let result = rd::rd_kafka_event_ListOffsets_result(answer.raw());
        let mut count = 0;
        let found = pointers(rd::rd_kafka_ListOffsets_result_infos(result, &mut count), count);
        let Some(&found) = found.first() else { return Ok(None) };
        let of = rd::rd_kafka_ListOffsetsResultInfo_topic_partition(found);
        match Failure::of((*of).err) {
            None => Ok(Some(rd::rd_kafka_ListOffsetsResultInfo_timestamp(found)).filter(|ms| *ms >= 0)),
            Some(failure) if failure.code == Code::RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION => Ok(None),
            Some(failure) => Err(failure.plain(what())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_list_of_rights_means_unknown() {
        let read = [rd::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ];
        // SAFETY: as many operations as given are alive.
        let (none, null, one) =
            unsafe { (rights(read.as_ptr(), 0), rights(std::ptr::null(), 0), rights(read.as_ptr(), read.len())) };
        assert_eq!((none, null), (None, None));
        assert!(one.is_some_and(|rights| rights.read && !rights.write));
    }

    #[test]
    fn incomplete_answer_is_an_error_to_retry() {
        let error = incomplete("in:3").plain("querying the offsets");
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::Retry, "querying the offsets: the answer lacks in:3")
        );
    }
}
