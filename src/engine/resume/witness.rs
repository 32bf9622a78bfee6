//! Whether a changelog still holds what a store has applied of it, also where it has lost its tail (by an unclean leader
//! election, say) and has grown again, to where the store stands or beyond. Its length tells nothing then.
//!
//! One record witnesses it: the position record of the store's last transaction. The store knows where that stands. While
//! it stands there, with its token, nothing before it can be lost: a tail goes from its end on, and nobody writes that
//! transaction again. It stays for as long as nothing committed follows, since the cleaner only removes what was
//! superseded, and every transaction ends with a position record.
//!
//! | at its offset | then | verdict |
//! |---|---|---|
//! | it stands there | whatever | nothing was lost of what the store has applied |
//! | another record | whatever | lost |
//! | no record | nothing committed follows | lost: what has grown since was taken back, or is not of ratchet |
//! | no record | something committed follows | superseded, most likely, and compacted away: it says nothing |
//!
//! Epochs of leaders (KIP-320), by which the input's loss is noticed, are known of what was read. Whoever writes is not told
//! any: a store at work would have to ask after each transaction, or would know them only up to where it began.
//!
//! Who can make a changelog grow that has lost its tail, and how it is noticed:
//!
//! - **Its task at work**: by the delivery of its next transaction ([`crate::engine::fallback`]), of which nothing is
//!   committed. Killed before it has told its store, it leaves what it has written, aborted: the second but last row.
//! - **An instance that rebuilds its store** does not begin: the group names a transaction that it does not find. Unless
//!   the group was reset, or the group's own topic has lost its tail as well: then it goes on without what was lost, by
//!   what it can know rightly, and other stores that have come further meet what it has written: the second row, or the
//!   last one, where nothing is noticed.
//! - **Others**: one that was held up in a transaction that can never be committed, or a stranger. Where such a one writes
//!   as much as was lost, and under a task at work, before that task's next transaction, nothing is noticed.
//!
//! **Failure**: brokers that do not know that they are replaced may answer as of before, so a refusal is doubted first.

use crate::cluster::Seen;
use crate::format::POSITION_KEY;

use super::Refusal;

/// Refuses a changelog that has lost what the store has applied. `position` is the position record as the store has it,
/// `seen` what the changelog holds from where that stood.
pub fn check_witness(seen: &Seen, position: Option<&[u8]>) -> Result<(), Refusal> {
    let stands = match &seen.first {
        Some(first) if first.offset > seen.from => true,
        Some(first) => first.key.as_deref() == Some(POSITION_KEY) && first.value.as_deref() == position,
        None => false,
    };
    if stands { Ok(()) } else { Err(Refusal::ChangelogRewritten { at: seen.from }) }
}
