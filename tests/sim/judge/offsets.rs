//! The committed offsets and the texts beside them, compared with the position records.

use std::collections::BTreeMap;

use crate::kafka::{Committed, Partition};
use crate::profile::Upheaval;

use super::runs::Run;
use super::{Case, Ruling, Seen};

/// Every committed offset names a transaction and is its end; the current one is the last transaction's.
pub fn check(case: &Case<'_>, (input, records): (&Partition, &[Seen]), runs: &[Run<'_>], ruling: &mut Ruling) {
    let by_token: BTreeMap<String, &Run<'_>> = runs.iter().map(|run| (run.position.token.text(), run)).collect();
    for found in case.history.committed(input.number) {
        check_seen(case, (input, records), &by_token, found, ruling);
    }
    let committed = match case.broker.groups.committed(case.rules.group, input, true) {
        Ok(committed) => committed,
        Err(code) => return ruling.report(10, input, None, "a committed offset that is stable", format!("{code:?}")),
    };
    match (committed, runs.last()) {
        // Without a transaction there is none to name; what was committed is checked above.
        (_, None) => {}
        (None, Some(_)) if case.history.had(Upheaval::GroupDeleted) => {}
        (None, Some(run)) => ruling.report(4, input, run.end(), "a committed offset for the transactions", "none"),
        (Some(found), Some(_)) if found.metadata.is_empty() && case.history.had_reset() => {}
        (Some(found), Some(run)) => {
            let token = run.position.token.text();
            let is_repeated = case.broker.groups.repeated_by(case.rules.group, input, &found).is_some();
            if found.metadata.split(' ').nth(1) != Some(&token[..]) && !is_repeated {
                let expected = format!("the last transaction's token, {token}");
                ruling.report(4, input, found.offset, expected, format!("{:?}", found.metadata));
            }
        }
    }
}

/// An offset that was committed at some time.
fn check_seen(
    case: &Case<'_>,
    (input, records): (&Partition, &[Seen]),
    by_token: &BTreeMap<String, &Run<'_>>,
    found: &Committed,
    ruling: &mut Ruling,
) {
    // Set when the group was created, before anything was read, or by a reset.
    if found.metadata.is_empty() && (found.offset == 0 || case.history.had_reset()) {
        return;
    }
    let parts: Vec<&str> = found.metadata.split(' ').collect();
    let ["ratchet/1", token, digest, owner] = parts[..] else {
        return ruling.report(
            4,
            input,
            found.offset,
            "ratchet/1, token, digest, owner",
            format!("{:?}", found.metadata),
        );
    };
    if owner != "released" && !owner.starts_with(&format!("{}.", case.rules.group)) {
        ruling.report(7, input, found.offset, "an id of the group, or released", owner);
    }
    let Some(run) = by_token.get(token) else {
        return ruling.report(4, input, found.offset, "the token of a transaction of the changelog", token);
    };
    let rules: String = run.position.rules_digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    if digest != rules {
        ruling.report(4, input, found.offset, format!("the rules of the transaction, {rules}"), digest);
    }
    let end = run.end();
    // After a reset, what was processed before is read and committed again.
    let may_be_less = case.history.had(Upheaval::GroupReset)
        || case.broker.groups.is_committed_again(case.rules.group, input, found.offset);
    if found.offset < end && !may_be_less {
        let expected = format!("{end}, after the last record of the transaction");
        ruling.report(4, input, found.offset, expected, format!("{}", found.offset));
    }
    // Markers and gaps may lie between.
    if let Some(left) = records.iter().find(|record| (end..found.offset).contains(&record.offset)) {
        let expected = format!("nothing committed that was not processed, which is up to {end}");
        ruling.report(3, input, left.offset, expected, format!("{} committed", found.offset));
    }
}
