//! Which part of a window a transaction takes.

use crate::effect::call::Stage;
use crate::engine::calling::grants;
use crate::engine::calling::window::{Slot, SlotStage, Window};
use crate::engine::share::Position;

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    /// Everything that is due.
    All,
    /// Settlements and the outcomes of handlers' steps, and nothing that authorises a new call.
    Settlements,
    /// The same, and the release of reservations whose calls cannot have acted.
    Releases,
}

impl Portion {
    /// Whether there is anything to write for a window whose task is committed up to this position.
    pub fn is_due_in(self, window: &Window, committed: &Position) -> bool {
        let ends_grant = || self == Self::Releases && grants::end_of_open(window, committed).is_some();
        // Records that a former owner has settled leave the window without a transaction.
        let is_ahead = window.next() > committed.next;
        self.has_due(window) || is_ahead || ends_grant()
    }

    /// Whether a slot of this window is due and has its turn.
    pub fn has_due(self, window: &Window) -> bool {
        self.due(window).next().is_some()
    }

    /// The slots of this window that are due and have their turn.
    pub fn due(self, window: &Window) -> impl Iterator<Item = &Slot> {
        let last_in_order = window.last_in_order();
        let has_turn = move |at: usize, slot: &Slot| !slot.is_to_be_settled() || at <= last_in_order;
        let is_due = move |(at, slot): &(usize, &Slot)| self.is_due(slot) && has_turn(*at, slot);
        window.slots().enumerate().filter(is_due).map(|(_, slot)| slot)
    }

    /// Whether a slot is due.
    pub fn is_due(self, slot: &Slot) -> bool {
        match (&slot.stage, self) {
            (SlotStage::Judged(judged), _) => !judged.is_written,
            (SlotStage::Called(called), _) if called.is_written => false,
            (SlotStage::Called(called), _) if called.has_steps_due() => true,
            (SlotStage::Called(called), _) => match called.call.stage() {
                Stage::Decided(_) => true,
                _ if self == Self::Releases => called.call.may_be_released() && !called.is_released,
                Stage::Waits(_) => self == Self::All,
                Stage::Writing(_) | Stage::Ready | Stage::Sent => false,
            },
            _ => false,
        }
    }
}
