//! The part of a window that a transaction writes.

use crate::effect::call::Stage;
use crate::engine::calling::grants;
use crate::engine::calling::window::{Slot, SlotStage, Window};
use crate::engine::share::Position;

/// The part of a window to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// Everything that is due.
    All,
    /// Settlements and the outcomes of handlers' steps, but nothing that authorises a new call.
    Settlements,
    /// Like `Settlements`, and also releases of reservations whose calls cannot have acted, for a task that leaves.
    Releases,
}

impl Portion {
    /// Whether there is anything to write for a window whose task has committed this position.
    pub fn is_due_in(self, window: &Window, committed: &Position) -> bool {
        let shortens_grant = || self == Self::Releases && grants::shortened_end(window, committed).is_some();
        // Records that a former owner has settled leave the window without a transaction.
        let has_advanced = window.settled_end() > committed.next;
        self.has_due_slot(window) || has_advanced || shortens_grant()
    }

    /// Whether a slot of this window is due and may be written now.
    pub fn has_due_slot(self, window: &Window) -> bool {
        self.due_slots(window).next().is_some()
    }

    /// The slots of this window that are due and that the required order permits to write now.
    pub fn due_slots(self, window: &Window) -> impl Iterator<Item = &Slot> {
        let last_in_order = window.last_in_order();
        let is_in_turn = move |index: usize, slot: &Slot| !slot.can_be_settled() || index <= last_in_order;
        let is_due = move |(index, slot): &(usize, &Slot)| self.is_due(slot) && is_in_turn(*index, slot);
        window.slots().enumerate().filter(is_due).map(|(_, slot)| slot)
    }

    /// Whether a slot is due.
    pub fn is_due(self, slot: &Slot) -> bool {
        match (&slot.stage, self) {
            (SlotStage::Judged(judged), _) => !judged.is_written,
            (SlotStage::Called(called), _) if called.is_written => false,
            (SlotStage::Called(called), _) if called.has_unwritten_steps() => true,
            (SlotStage::Called(called), _) => match called.call.stage() {
                Stage::Decided(_) => true,
                _ if self == Self::Releases => called.call.can_release_reservation() && !called.is_released,
                Stage::Waits(_) => self == Self::All,
                Stage::Writing(_) | Stage::Ready | Stage::Sent => false,
            },
            _ => false,
        }
    }
}
