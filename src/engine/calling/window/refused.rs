//! The search for a record whose settlement Kafka refuses, for example because its result is too large for the topic.
//!
//! Kafka's error concerns the transaction and does not name the record. All records that the transaction would have
//! settled become suspects: they are settled apart from the others, half as many at a time, until a single record is
//! refused. Meanwhile, no record is read again, and no call is sent again: an abort restores the window. The refused
//! record is settled alone and reduced: a result without its body, and no message with the record's timestamp.

use super::Window;
use super::slot::{RefusalState, Slot, SlotStage};
use crate::record::Record;

impl Window {
    /// Whether the open transaction may also settle the record of this slot. A refused record is settled alone, so that
    /// another refusal is certainly about it.
    pub fn may_settle(&self, index: usize) -> bool {
        if !self.has_refusal {
            return true;
        }
        let is_refused = |slot: &Slot| {
            matches!(slot.refusal, RefusalState::Refused(_))
                && (slot.may_enter_transaction() || slot.is_in_transaction())
        };
        if let Some(refused) = self.slots.iter().position(is_refused) {
            return index == refused && self.written_count() == 0;
        }
        let is_suspect = self.slots[index].refusal == RefusalState::Suspect;
        !self.bisect.is_searching() || (is_suspect && self.written_count() < self.bisect.records_max())
    }

    /// How many records have a settlement or steps in the open transaction.
    fn written_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_in_transaction()).count()
    }

    /// Handles Kafka's refusal of a record in the open transaction; to be called before the transaction is aborted.
    /// Returns whether the transaction contains a record that may be the refused one.
    pub fn on_refused(&mut self, message: &str) -> bool {
        let written = self.written_count();
        for slot in &mut self.slots {
            slot.refusal = match (slot.is_in_transaction(), std::mem::take(&mut slot.refusal)) {
                (false, refused @ RefusalState::Refused(_)) => refused,
                // It was not in this transaction, so it is not the refused one, or not the only one.
                (false, _) => RefusalState::None,
                // It was refused although it was alone and reduced: nothing else can be tried.
                (true, RefusalState::Refused(_)) if written == 1 => {
                    let Record { topic, partition, offset, .. } = slot.record.record();
                    let refusal = match slot.is_written() {
                        true => "the topic for its result or dead letter refuses the message",
                        false => "the changelog refuses the outcomes of its steps (`max.message.bytes`)",
                    };
                    let reason = format!("{topic}:{partition}:{offset}: {refusal}: {message}");
                    slot.stage = SlotStage::MustStopTask(reason);
                    RefusalState::None
                }
                (true, _) if written == 1 => RefusalState::Refused(message.to_owned()),
                (true, _) => RefusalState::Suspect,
            };
        }
        match written {
            0 | 1 => self.bisect.end(),
            _ => self.bisect.on_refused(written),
        }
        self.has_refusal = true;
        self.needs_processing = true;
        written > 0
    }

    /// Ends the search if no suspect is left, and the special treatment if no record is refused either.
    pub(super) fn end_search_if_done(&mut self) {
        if self.has_refusal {
            let is_suspect = |slot: &Slot| slot.refusal == RefusalState::Suspect;
            if !self.slots.iter().any(is_suspect) {
                self.bisect.end();
            }
            self.has_refusal = self.slots.iter().any(|slot| slot.refusal != RefusalState::None);
        }
    }
}
