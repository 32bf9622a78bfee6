//! Whether a changelog still holds what a store has applied, even if it has lost its tail (by an unclean leader
//! election, for example) and has grown again to the store's position or beyond. Its length proves nothing then.
//!
//! One record is the witness: the position record of the store's last transaction, whose offset the store knows. While
//! that record is there, with its token, no earlier record can be lost: a tail is lost from its end backwards, and no
//! owner writes that transaction again. The record stays until a committed transaction follows it, since the cleaner
//! removes only superseded records and every transaction ends with a position record.
//!
//! | at its offset | later offsets | verdict |
//! |---|---|---|
//! | the position record | any | no record that the store has applied was lost |
//! | another record | any | lost |
//! | no record | no committed record | lost: later records were aborted, or are not ratchet's |
//! | no record | a committed record | most likely superseded and compacted away: no proof |
//!
//! Leader epochs (KIP-320), which reveal a loss in the input, are known only for records that were read. Producers do
//! not receive them: a task at work would have to request them after each transaction, or would know them only up to
//! the offset at which it started.
//!
//! Who can make a changelog grow after it has lost its tail, and how the loss is noticed:
//!
//! - **Its task at work**: by the delivery of its next transaction ([`crate::engine::changelog_loss`]), which is then
//!   not committed. If it is killed before its store has noted that, its aborted records remain: the third row.
//! - **An instance that rebuilds its store** does not start: the group names a transaction that it does not find.
//!   Unless the group was reset, or the group's own topic has lost its tail as well: then the instance continues
//!   without the lost records, since it cannot know about them, and other stores that have applied more find what it
//!   has written: the second row, or the last row, in which the loss is not noticed.
//! - **Other writers**: an instance that was held up in a transaction that can never be committed, or a foreign
//!   program. If it writes as many records as were lost, and under a task at work does so before that task's next
//!   transaction, the loss is not noticed.
//!
//! **Failure**: brokers that do not know they were replaced may give outdated responses, so a refusal is doubted first.

use crate::cluster::Seen;
use crate::format::POSITION_KEY;

use super::Refusal;

/// Refuses a changelog that has lost what the store has applied. `position` is the store's position record, `seen` what
/// the changelog holds from that record's offset on.
pub fn check_witness(seen: &Seen, position: Option<&[u8]>) -> Result<(), Refusal> {
    let is_there = match &seen.first {
        Some(first) if first.offset > seen.from => true,
        Some(first) => first.key.as_deref() == Some(POSITION_KEY) && first.value.as_deref() == position,
        None => false,
    };
    if is_there { Ok(()) } else { Err(Refusal::ChangelogRewritten { at: seen.from }) }
}
