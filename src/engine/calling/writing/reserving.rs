//! Writes reservations, adds the outcomes of handlers' steps to them, and releases them.
//!
//! A **reservation** ([`Reservation`]) is stored with an identity, and says that the call of one of its records may
//! have been sent. It holds the **journal** of a handler: the outcomes of its steps. Where the provider honours no
//! keys, a **mark** at the end of the journal announces a step before it begins.
//!
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::sync::Arc;

use super::SlotWriter;
use crate::cluster::Cluster;
use crate::effect::provider::{Payload, is_open};
use crate::engine::calling::window::{CalledRecord, Slot, SlotStage};
use crate::engine::failure::Failure;
use crate::format::{EntryRef, How, Journal, JournalWriter, Place, Remembered, Reservation, ResultRef, Settled};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};

impl<C: Cluster> SlotWriter<'_, '_, C> {
    /// Writes the reservation that a call waits for.
    pub(super) fn reserve(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &mut CalledRecord,
    ) -> Result<(), Failure> {
        let journal = Arc::clone(&called.journal);
        let first_attempt_at_ms = self.put_reservation(record, key, called, (None, journal.as_journal()))?;
        self.on_permit_written(called, first_attempt_at_ms);
        Ok(())
    }

    /// Writes a reservation for a call in doubt before whose record the task stops, unless its identity has one. A call
    /// that was sent under a grant has none, so an operator's command would find nothing to settle.
    pub(super) fn reserve_in_doubt(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &CalledRecord,
    ) -> Result<(), Failure> {
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let is_reserved = former.is_some_and(|former| former.reservation.is_some());
        match called.call.first_attempt_at_ms().filter(|_| !is_reserved) {
            Some(first_attempt_at_ms) => {
                let journal = Arc::clone(&called.journal);
                self.put_reservation(record, key, called, (Some(first_attempt_at_ms), journal.as_journal())).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Writes a call's reservation. Returns the earliest time at which, according to the reservation, the call may have
    /// been made: `first_attempt_at_ms`, or else the time of the call's first attempt, or else now.
    fn put_reservation(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &CalledRecord,
        (first_attempt_at_ms, journal): (Option<i64>, Journal<'_>),
    ) -> Result<i64, Failure> {
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let place = self.place_of(record);
        let (mut settled, mut former_reservation) = (None, None);
        if let Some(former) = former {
            (settled, former_reservation) = (former.settled, former.reservation);
        }
        // A handler that continues another record's work has taken over that record's journal.
        let is_other = |other: &Reservation<'_>| other.place != place && called.journal.is_empty();
        if let Some(other) = former_reservation.filter(is_other) {
            let Reservation { entry, place, first_attempt_at_ms, fingerprint, journal, .. } = other;
            let (how, result) = match journal.is_empty() {
                true => (How::GivenUp { first_attempt_at_ms }, None),
                // A new attempt would repeat steps that were done long ago.
                false => (How::InDoubt, Some(ResultRef::Reason(OVERTAKEN))),
            };
            settled = Some(Settled { entry, how, place: Some(place), fingerprint, result });
            self.report_overtaken(record, &other);
        }
        let first_attempt_at_ms = first_attempt_at_ms.or(called.call.first_attempt_at_ms()).unwrap_or(self.now.wall_ms);
        let entry = called.kept.entry.clone().expect("a record that calls has an entry");
        let reservation = Reservation {
            entry: EntryRef::decode(&entry).expect("just written"),
            place,
            first_attempt_at_ms,
            // A handler's attempts are counted per step, and its next step has had no attempt.
            attempts: if journal.is_empty() { called.call.attempts() } else { 0 },
            may_have_acted: called.call.may_have_acted(),
            // A handler's next step may begin as soon as this reservation is committed.
            was_sent: called.call.may_have_acted() || matches!(called.payload, Payload::Handler(_)),
            fingerprint: Some(called.payload.fingerprint().to_bytes()),
            journal,
        };
        let settled = settled.filter(|_| !sabotage::is_on(Sabotage::ReservationOverSettlement));
        if !sabotage::is_on(Sabotage::ReservationNotWritten) {
            self.put_remembered(key, Remembered { settled, reservation: Some(reservation) });
        }
        // The entry names its scope by number, so the scope is written with it.
        called.kept.start(&mut self.outlet.share.position.progress);
        Ok(first_attempt_at_ms)
    }

    /// Reports that a handler's work stays unfinished: steps are recorded in the `other` reservation, but a newer
    /// `record` replaces that reservation's record. Reports nothing if no steps are recorded.
    pub(super) fn report_overtaken(&mut self, record: &Record<'_>, other: &Reservation<'_>) {
        if !other.journal.is_empty() {
            self.outlet.added.settled.in_doubt += 1;
            let (offset, newer, steps) = (other.place.offset, record.offset, other.journal.len());
            tracing::warn!(task = %self.outlet.work.task.input, offset, newer, steps, "{OVERTAKEN}");
        }
    }

    /// Leaves a handler's reservation to the next owner, without the mark of a step that has not begun, and with the
    /// note that no attempt at a further step was sent. Returns `false`, and writes nothing, if the journal then
    /// contains no step.
    pub(super) fn leave_reservation(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &CalledRecord,
    ) -> Result<bool, Failure> {
        let journal = without_mark(called.journal.as_journal());
        if journal.is_empty() {
            return Ok(false);
        }
        self.put_reservation(record, key, called, (None, journal.as_journal()))?;
        let written = self.remembered(key)?.unwrap_or_default();
        let written = Remembered::decode(&written).expect("just written");
        let reservation = written.reservation.map(|reservation| Reservation {
            was_sent: false,
            may_have_acted: false,
            ..reservation
        });
        self.put_remembered(key, Remembered { reservation, ..written });
        Ok(true)
    }

    /// Writes the outcomes of a handler's steps into the call's reservation. The handler continues once they are
    /// committed.
    pub(super) fn write_journal(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &mut CalledRecord,
    ) -> Result<(), Failure> {
        let now_ms = self.now.wall_ms;
        let Some(reported) = &called.reported_steps else { return Ok(()) };
        let mut journal = (*called.journal).clone();
        for step in &reported.steps {
            assert!(journal.push(step.as_step()), "a handler reports no more steps than fit into the journal");
        }
        self.put_reservation(record, key, called, (Some(now_ms), journal.as_journal()))?;
        called.reported_steps.iter_mut().for_each(|steps| steps.written_ms = Some(now_ms));
        Ok(())
    }

    /// Removes the reservation of the record at this place, since no attempt has acted. All other state is preserved.
    pub(super) fn forget_reservation(&mut self, key: &[u8], former: Option<Remembered<'_>>, place: Place) {
        let Some(former) = former else { return };
        let reservation = former.reservation.filter(|reservation| reservation.place != place);
        if reservation != former.reservation {
            self.put_remembered(key, Remembered { reservation, ..former });
        }
    }

    /// Releases the reservation of a record whose call cannot have acted: leaves it to the next owner if a handler has
    /// done steps, and otherwise removes it.
    pub(super) fn release_reservation(&mut self, slot: &mut Slot) -> Result<(), Failure> {
        let Some(key) = slot.key.as_deref() else { return Ok(()) };
        if let SlotStage::Called(called) = &mut slot.stage {
            called.is_released = true;
            if self.leave_reservation(&slot.record.record(), key, called)? {
                return Ok(());
            }
        }
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let place = self.place_of(&slot.record.record());
        self.forget_reservation(key, former, place);
        Ok(())
    }
}

/// Why unfinished work of a handler stays in doubt.
const OVERTAKEN: &str = "a newer record arrived when only some of its steps were done";

/// The journal without the mark that announces its last step, if that step has no outcome.
fn without_mark(journal: Journal<'_>) -> JournalWriter {
    let ends_with_mark = is_open(journal) && !sabotage::is_on(Sabotage::MarkLeft);
    let step_count = journal.len() - usize::from(ends_with_mark);
    let mut trimmed = JournalWriter::default();
    assert!(journal.steps().take(step_count).all(|step| trimmed.push(step)), "the journal is no longer than before");
    trimmed
}
