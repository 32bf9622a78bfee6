//! Whether a changelog still holds what a store has applied, even if it has lost its tail (by an unclean leader
//! election, for example) and has grown again to the store's position or beyond. Its length proves nothing then.
//!
//! One record is the witness: the position record of the store's last transaction, whose offset the store knows. While
//! that record is there, with its token, nothing before it can be lost: a tail is lost from its end backwards, and
//! nobody writes that transaction again. It stays until something committed follows it, since the cleaner removes only
//! superseded records and every transaction ends with a position record.
//!
//! | at its offset | then | verdict |
//! |---|---|---|
//! | the position record | anything | nothing that the store has applied was lost |
//! | another record | anything | lost |
//! | no record | nothing committed follows | lost: what was written since was aborted, or is not ratchet's |
//! | no record | something committed follows | most likely superseded and compacted away: it proves nothing |
//!
//! Leader epochs (KIP-320), which reveal a loss in the input, are known only for records that were read. Producers do
//! not receive them: a store at work would have to ask after each transaction, or would know them only up to where it
//! started.
//!
//! Who can make a changelog grow after it has lost its tail, and how that is noticed:
//!
//! - **Its task at work**: by the delivery of its next transaction ([`crate::engine::changelog_loss`]), which is then not
//!   committed. If it is killed before its store has noted that, its aborted records remain: the last but one row.
//! - **An instance that rebuilds its store** does not start: the group names a transaction that it does not find.
//!   Unless the group was reset, or the group's own topic has lost its tail as well: then the instance continues
//!   without what was lost, and rightly as far as it can know, and other stores that have come further meet what it has
//!   written: the second row, or the last, in which nothing is noticed.
//! - **Others**: an instance that was held up in a transaction that can never be committed, or a foreign program. If it
//!   writes as much as was lost, and under a task at work does so before that task's next transaction, nothing is
//!   noticed.
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
