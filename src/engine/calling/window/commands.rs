//! Queries and changes of a window by an operator's commands (`ratchet settle`), each of which is about one identity.
//!
//! A **reservation**, stored with an identity, says that the call of one of its records may have been sent.

use super::{SlotStage, Window};

impl Window {
    /// Whether this identity has an open call, or a record that the next transaction settles without a call.
    pub fn is_open(&self, identity: &[u8]) -> bool {
        self.slots.iter().any(|slot| {
            slot.key.as_deref() == Some(identity) && matches!(slot.stage, SlotStage::Judged(_) | SlotStage::Called(_))
        })
    }

    /// Whether the record at this offset, which has a reservation, is not judged yet: once it is, its call continues.
    pub fn will_judge(&self, offset: i64) -> bool {
        match self.find(offset) {
            Some(index) => matches!(self.slot(index).stage, SlotStage::Unjudged),
            None => {
                let is_settled = |&(from, to): &(i64, i64)| from <= offset && offset < to;
                offset >= self.read_to && !self.beyond.iter().any(is_settled)
            }
        }
    }

    /// Has those records of this identity judged again before which the task would stop.
    pub fn judge_again(&mut self, identity: &[u8]) {
        for slot in &mut self.slots {
            if slot.key.as_deref() == Some(identity) && matches!(slot.stage, SlotStage::MustStopTask(_)) {
                slot.stage = SlotStage::Unjudged;
                self.needs_processing = true;
            }
        }
    }

    /// Stream time after all records that were read.
    pub fn stream_time(&self) -> i64 {
        self.tail.stream_time
    }
}
