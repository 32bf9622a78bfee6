//! A group's members and their partitions, as reported by the broker, in the same way for every contender.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::broker;
use crate::failure::{Failure, Outcome};

/// How long a request to the broker may take.
const ASK: Duration = Duration::from_secs(10);

/// A group, seen from outside.
pub struct Group {
    client: BaseConsumer,
    name: String,
    topic: String,
    partitions: usize,
}

impl Group {
    /// Watches who owns the partitions of `topic`.
    pub fn new(brokers: &str, name: &str, topic: &str, partitions: usize) -> Outcome<Group> {
        let client = broker::client(brokers).create()?;
        Ok(Group { client, name: name.to_owned(), topic: topic.to_owned(), partitions })
    }

    /// How many members there are, including dead ones whose session has not ended.
    pub fn members(&self) -> Outcome<usize> {
        let groups = self.client.fetch_group_list(Some(&self.name), ASK)?;
        Ok(groups.groups().iter().map(|group| group.members().len()).sum())
    }

    /// The member that has each partition; `None` while the group is rebalancing or a partition has no owner.
    pub fn owners(&self) -> Outcome<Option<Vec<String>>> {
        let groups = self.client.fetch_group_list(Some(&self.name), ASK)?;
        let Some(group) = groups.groups().first().filter(|group| group.state() == "Stable") else { return Ok(None) };
        let mut owners = vec![None; self.partitions];
        for member in group.members() {
            for (topic, partition) in assigned(member.assignment().unwrap_or_default())? {
                if topic == self.topic
                    && let Some(owner) = owners.get_mut(partition as usize)
                {
                    *owner = Some(member.id().to_owned());
                }
            }
        }
        Ok(owners.into_iter().collect())
    }
}

/// The consumer protocol's assignment: version, then for each topic its name and its partitions.
fn assigned(bytes: &[u8]) -> Outcome<Vec<(String, i32)>> {
    let mut assigned = Vec::new();
    if bytes.is_empty() {
        return Ok(assigned);
    }
    let mut rest = bytes;
    let _version = take::<2>(&mut rest)?;
    for _ in 0..i32::from_be_bytes(take(&mut rest)?) {
        let length = i16::from_be_bytes(take(&mut rest)?) as usize;
        let (name, behind) = rest.split_at_checked(length).ok_or_else(cut)?;
        rest = behind;
        let name = String::from_utf8_lossy(name).into_owned();
        for _ in 0..i32::from_be_bytes(take(&mut rest)?) {
            assigned.push((name.clone(), i32::from_be_bytes(take(&mut rest)?)));
        }
    }
    Ok(assigned)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Outcome<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    *bytes = rest;
    Ok(*taken)
}

fn cut() -> Failure {
    Failure("a member's assignment is cut off".to_owned())
}
