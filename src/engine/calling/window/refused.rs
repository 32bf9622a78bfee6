//! The search for a record whose settlement Kafka refuses, for example because its result is too large for the topic.
//!
//! Kafka names the transaction, not the record. All records that it was to settle become suspects: they are settled
//! apart from the others, half as many at a time, until one alone is refused. Nothing is read or called again
//! meanwhile: an abort leaves the window as it was.

use super::Window;
use super::slot::{Slot, SlotStage, Trouble};
use crate::record::Record;

impl Window {
    /// Whether the open transaction may also settle the record of this slot. A refused record is settled alone, so that
    /// another refusal is certainly about it.
    pub fn may_settle(&self, at: usize) -> bool {
        if !self.is_in_trouble {
            return true;
        }
        let is_refused = |slot: &Slot| {
            matches!(slot.trouble, Trouble::Refused(_)) && (slot.may_enter_transaction() || slot.is_in_transaction())
        };
        if let Some(refused) = self.slots.iter().position(is_refused) {
            return at == refused && self.written_count() == 0;
        }
        let is_suspect = self.slots[at].trouble == Trouble::Suspect;
        !self.bisect.is_searching() || (is_suspect && self.written_count() < self.bisect.records_max())
    }

    /// How many records have a settlement or steps in the open transaction.
    fn written_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_in_transaction()).count()
    }

    /// Kafka has refused a record of the open transaction; to be called before the transaction is aborted. Returns
    /// whether there is anything to search.
    pub fn on_refused(&mut self, message: &str) -> bool {
        let written = self.written_count();
        for slot in &mut self.slots {
            slot.trouble = match (slot.is_in_transaction(), std::mem::take(&mut slot.trouble)) {
                (false, refused @ Trouble::Refused(_)) => refused,
                // It was not in this transaction, so it is not the refused one, or not the only one.
                (false, _) => Trouble::None,
                // Refused when it was alone, too: nothing else can be tried.
                (true, Trouble::Refused(_)) if written == 1 => {
                    let Record { topic, partition, offset, .. } = slot.record.record();
                    let refusal = match slot.is_written() {
                        true => "the topic for its result or dead letter refuses the message",
                        false => "the changelog refuses the outcomes of its steps (`max.message.bytes`)",
                    };
                    let reason = format!("{topic}:{partition}:{offset}: {refusal}: {message}");
                    slot.stage = SlotStage::Stops(reason);
                    Trouble::None
                }
                (true, _) if written == 1 => Trouble::Refused(message.to_owned()),
                (true, _) => Trouble::Suspect,
            };
        }
        match written {
            0 | 1 => self.bisect.end(),
            _ => self.bisect.on_refused(written),
        }
        self.is_in_trouble = true;
        self.is_touched = true;
        written > 0
    }

    /// Ends the search if no suspect is left, and the trouble if no record is refused either.
    pub(super) fn end_search_if_done(&mut self) {
        if self.is_in_trouble {
            let is_suspect = |slot: &Slot| slot.trouble == Trouble::Suspect;
            if !self.slots.iter().any(is_suspect) {
                self.bisect.end();
            }
            self.is_in_trouble = self.slots.iter().any(|slot| slot.trouble != Trouble::None);
        }
    }
}
