//! The committed offset and the text beside it against the last position record.

use crate::kafka::{Committed, Partition};
use crate::profile::Upheaval;

use super::runs::Run;
use super::{Case, Ruling, Seen};

/// What is committed is the last transaction's, and names it.
pub fn check(case: &Case<'_>, input: &Partition, records: &[Seen], last: Option<&Run<'_>>, ruling: &mut Ruling) {
    let committed = match case.broker.groups.committed(case.rules.group, input, true) {
        Ok(committed) => committed,
        Err(code) => return ruling.tell(10, input, None, "a committed offset that is stable", format!("{code:?}")),
    };
    let had = |upheaval: Upheaval| case.history.had(upheaval);
    match (committed, last) {
        (None, None) => {}
        (None, Some(_)) if had(Upheaval::GroupDeleted) => {}
        (None, Some(run)) => ruling.tell(4, input, run.end(), "a committed offset beside the transactions", "none"),
        (Some(found), _) if found.metadata.is_empty() && case.history.had_reset() => {}
        // Set by whoever made the group, before anything was read.
        (Some(found), None) if found.metadata.is_empty() && found.offset == 0 => {}
        (Some(found), None) => {
            ruling.tell(4, input, found.offset, "no committed offset without a position record", format!("{found:?}"));
        }
        (Some(found), Some(run)) => check_last(case, (input, records), run, &found, ruling),
    }
}

fn check_last(
    case: &Case<'_>,
    (input, records): (&Partition, &[Seen]),
    run: &Run<'_>,
    found: &Committed,
    ruling: &mut Ruling,
) {
    let parts: Vec<&str> = found.metadata.split(' ').collect();
    let token = run.position.token.text();
    let [format, named, _, owner] = parts[..] else {
        return ruling.tell(4, input, found.offset, format!("the token {token}"), format!("{:?}", found.metadata));
    };
    if (format, named) != ("ratchet/1", &token[..]) {
        ruling.tell(4, input, found.offset, format!("ratchet/1 {token}"), format!("{format} {named}"));
    }
    if owner != "released" && !owner.starts_with(&format!("{}.", case.rules.group)) {
        ruling.tell(7, input, found.offset, "an id of the group's, or released", owner);
    }
    let end = run.end();
    // After a reset, what was processed before is read again, and committed again.
    let may_be_less = case.history.had(Upheaval::GroupReset);
    if found.offset < end && !may_be_less {
        let expected = format!("{end}, behind the last record of the transaction");
        ruling.tell(4, input, found.offset, expected, format!("{}", found.offset));
    }
    // Markers and gaps may lie between.
    if let Some(left) = records.iter().find(|record| (end..found.offset).contains(&record.offset)) {
        let expected = format!("nothing committed that was not processed, which is up to {end}");
        ruling.tell(3, input, left.offset, expected, format!("{} committed", found.offset));
    }
}
