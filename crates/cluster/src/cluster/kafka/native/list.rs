//! librdkafka's lists of partitions, with an offset, a string and an error each.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use rdkafka::bindings as rd;

use super::super::errors::Failure;
use super::conversions::c_string;
use crate::cluster::Error;
use crate::record::TopicPartition;

/// A list of partitions.
pub(in super::super) struct List(NonNull<rd::rd_kafka_topic_partition_list_t>);

// SAFETY: plain memory that is owned.
unsafe impl Send for List {}

/// One element of a list.
pub(in super::super) struct Element<'a>(&'a rd::rd_kafka_topic_partition_t);

impl List {
    /// An empty list with room for `capacity`.
    pub fn new(capacity: usize) -> Self {
        // SAFETY: only allocates; librdkafka aborts when out of memory.
        let raw = unsafe { rd::rd_kafka_topic_partition_list_new(c_int::try_from(capacity).unwrap_or(c_int::MAX)) };
        Self(NonNull::new(raw).expect("librdkafka never returns null here"))
    }

    /// A copy of a list; null is empty.
    ///
    /// # Safety
    /// `list` is null or alive.
    pub(super) unsafe fn copied(list: *const rd::rd_kafka_topic_partition_list_t) -> Self {
        if list.is_null() {
            return Self::new(0);
        }
        // SAFETY: promised by the caller; the copy is owned.
        let raw = unsafe { rd::rd_kafka_topic_partition_list_copy(list) };
        Self(NonNull::new(raw).expect("librdkafka never returns null here"))
    }

    /// The given partitions, each with the offset `offset`.
    pub fn of(partitions: &[TopicPartition], offset: i64) -> Result<Self, Error> {
        let mut list = Self::new(partitions.len());
        for partition in partitions {
            list.push(partition, offset, None)?;
        }
        Ok(list)
    }

    /// Adds a partition with an offset and, optionally, the text stored with it.
    pub fn push(&mut self, partition: &TopicPartition, offset: i64, metadata: Option<&str>) -> Result<(), Error> {
        let topic = c_string(&partition.topic)?;
        // SAFETY: the list is owned; it copies the name, and takes ownership of the metadata's memory, which has
        // to come from malloc. The element is not used after the list may have grown.
        unsafe {
            let element = rd::rd_kafka_topic_partition_list_add(self.raw(), topic.as_ptr(), partition.partition);
            (*element).offset = offset;
            if let Some(text) = metadata.filter(|text| !text.is_empty()) {
                let copy = libc::malloc(text.len());
                assert!(!copy.is_null(), "memory has ended");
                std::ptr::copy_nonoverlapping(text.as_ptr(), copy.cast(), text.len());
                (*element).metadata = copy.cast();
                (*element).metadata_size = text.len();
            }
        }
        Ok(())
    }

    /// The same with the epoch of the leader that wrote the record before the offset, if known.
    pub fn push_in_epoch(
        &mut self,
        partition: &TopicPartition,
        offset: i64,
        epoch: Option<i32>,
        metadata: Option<&str>,
    ) -> Result<(), Error> {
        self.push(partition, offset, metadata)?;
        if let Some(epoch) = epoch {
            // SAFETY: the list is owned, and the element that was just added is its last.
            unsafe {
                let list = &*self.raw();
                let last = list.elems.add(list.cnt as usize - 1);
                rd::rd_kafka_topic_partition_set_leader_epoch(last, epoch);
            }
        }
        Ok(())
    }

    /// The C handle.
    pub fn raw(&self) -> *mut rd::rd_kafka_topic_partition_list_t {
        self.0.as_ptr()
    }

    /// The elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        // SAFETY: owned.
        unsafe { elements(self.raw()) }
    }

    /// The first partition of `asked` that is not in this list.
    pub fn first_missing(&self, asked: &Self) -> Option<TopicPartition> {
        let mut asked = asked.iter().map(|element| element.partition());
        asked.find(|partition| self.iter().all(|element| element.partition() != *partition))
    }

    /// The first error in an element, with its partition.
    pub fn failure(&self) -> Option<(TopicPartition, Failure)> {
        self.iter().find_map(|element| Some((element.partition(), element.failure()?)))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_topic_partition_list_destroy(self.raw()) }
    }
}

/// The elements of a list that lives for `'a`; null has none.
///
/// # Safety
/// `list` is null or a list that is neither changed nor destroyed during `'a`.
pub(super) unsafe fn elements<'a>(
    list: *const rd::rd_kafka_topic_partition_list_t,
) -> impl Iterator<Item = Element<'a>> {
    // SAFETY: by the caller's promise; `elems` holds `cnt` elements.
    let elements = unsafe {
        match list.as_ref() {
            Some(list) if list.cnt > 0 => std::slice::from_raw_parts(list.elems, list.cnt as usize),
            _ => &[],
        }
    };
    elements.iter().map(Element)
}

impl Element<'_> {
    /// The partition.
    pub fn partition(&self) -> TopicPartition {
        // SAFETY: every element has a name.
        let topic = unsafe { CStr::from_ptr(self.0.topic) }.to_string_lossy();
        TopicPartition::new(Arc::<str>::from(topic.as_ref()), self.0.partition)
    }

    /// Its offset; negative if there is none.
    pub fn offset(&self) -> i64 {
        self.0.offset
    }

    /// The epoch of the leader that wrote the record before the offset, if known.
    pub fn epoch(&self) -> Option<i32> {
        // SAFETY: the element is alive, and only read.
        let epoch = unsafe { rd::rd_kafka_topic_partition_get_leader_epoch(self.0) };
        (epoch >= 0).then_some(epoch)
    }

    /// The text stored with the offset; bytes that are not UTF-8 become replacement characters.
    pub fn metadata(&self) -> String {
        if self.0.metadata.is_null() {
            return String::new();
        }
        // SAFETY: librdkafka provides that many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.metadata.cast::<u8>(), self.0.metadata_size) };
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Its error.
    pub fn failure(&self) -> Option<Failure> {
        Failure::of(self.0.err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_keeps_each_epoch_with_its_offset() {
        let mut list = List::new(1);
        let push = |list: &mut List, partition, epoch| {
            list.push_in_epoch(&TopicPartition::new("a", partition), 7, epoch, Some("text")).unwrap();
        };
        push(&mut list, 0, Some(0));
        push(&mut list, 1, None);
        push(&mut list, 2, Some(5));
        // SAFETY: the list is alive.
        let list = unsafe { List::copied(list.raw()) };
        let seen: Vec<_> = list.iter().map(|e| (e.partition().partition, e.epoch(), e.metadata())).collect();
        assert_eq!(seen, [(0, Some(0)), (1, None), (2, Some(5))].map(|(p, epoch)| (p, epoch, "text".to_owned())));
    }

    #[test]
    fn partition_that_an_answer_leaves_out_is_found_in_any_order() {
        let of = |numbers: &[i32]| {
            let partitions: Vec<_> = numbers.iter().map(|number| TopicPartition::new("a", *number)).collect();
            List::of(&partitions, -1).unwrap()
        };
        for (answer, asked, missing) in [
            (&[2, 1, 0][..], &[0, 1, 2][..], None),
            (&[0, 2], &[0, 1, 2], Some(1)),
            (&[], &[7], Some(7)),
            (&[], &[], None),
        ] {
            let found = of(answer).first_missing(&of(asked));
            assert_eq!(found.map(|partition| partition.partition), missing, "{answer:?}");
        }
        let other = List::of(&[TopicPartition::new("b", 0)], -1).unwrap();
        assert_eq!(other.first_missing(&of(&[0])), Some(TopicPartition::new("a", 0)));
    }

    #[test]
    fn list_returns_what_was_pushed() {
        let mut list = List::new(1);
        list.push(&TopicPartition::new("a", 3), 7, Some("text")).unwrap();
        list.push(&TopicPartition::new("b", 0), -1, None).unwrap();
        let seen: Vec<_> = list.iter().map(|e| (e.partition().to_string(), e.offset(), e.metadata())).collect();
        assert_eq!(seen, [("a:3".to_owned(), 7, "text".to_owned()), ("b:0".to_owned(), -1, String::new())]);
        assert!(list.failure().is_none());
    }
}
