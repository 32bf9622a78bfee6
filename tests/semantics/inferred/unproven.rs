//! Captures in which nothing repeats. Goal: a proposal that drops none of their records says that this proves nothing, and
//! one that drops some does not.

use super::*;

const COMMENT: &str =
    "the proposal drops nothing here, so these records do not prove that it would recognise a duplicate";
const DOUBT: &str = "the proposal drops none of these records, so nothing proves that it would recognise a duplicate";

#[test]
fn proposal_that_drops_nothing_is_said_to_be_unproven() {
    let (proposal, tally) = proposed(&[change(r#"{"id":1}"#, 10, "c"), change(r#"{"id":2}"#, 20, "c")]);
    assert_eq!(verdicts(&tally), [2, 0, 0, 0]);
    has(&proposal, &["None of the 2 records that were looked at is a duplicate or stale", COMMENT]);
    doubts(&proposal, DOUBT);
    let (proposal, _) = of_values(&[r#"{"temperature":20.5}"#, r#"{"temperature":21.5}"#]);
    has(&proposal, &[COMMENT]);
    doubts(&proposal, DOUBT);
    let (proposal, _) = of_values(&[r#"{"temperature":20.5}"#]);
    has(&proposal, &["The only record that was looked at is no duplicate and not stale"]);
}

#[test]
fn doubt_about_an_identity_that_nothing_repeats_is_not_told_twice() {
    let (proposal, _) = of_values(&[r#"{"event_id":1,"x":"a"}"#, r#"{"event_id":2,"x":"b"}"#]);
    has(&proposal, &[COMMENT]);
    doubts(&proposal, "no record came twice, so nothing shows that value.event_id stays the same");
    assert!(!proposal.unsure.iter().any(|unsure| unsure.contains(DOUBT)), "{:#?}", proposal.unsure);
}

#[test]
fn proposal_that_drops_a_record_is_not_said_to_be_unproven() {
    let (first, second) = (change(r#"{"id":1}"#, 10, "c"), change(r#"{"id":1}"#, 20, "u"));
    for again in [first.clone(), second.clone()] {
        let (proposal, _) = proposed(&[first.clone(), second.clone(), again]);
        let text = format!("{}{}", unwrapped(&proposal), proposal.unsure.join("\n"));
        assert!(!text.contains(COMMENT) && !text.contains(DOUBT), "{text}");
    }
}
