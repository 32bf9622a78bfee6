//! Goal: the check finds exactly the rows of a sink that a run would refuse.

use super::*;
use crate::cluster::CommittedOffset;
use crate::effect::RowMark;
use crate::engine::preflight::facts::TopicState;
use crate::engine::preflight::finding::Severity;
use crate::engine::preflight::judge::tests::{sound, topic};
use crate::format::Token;

/// The id of the changelog and of the input.
const ID: [u8; 16] = [1; 16];

fn token(transaction: u64) -> Token {
    Token { lane: 9, transaction, changelog_id: ID, partition: 0 }
}

/// The facts about an input of one partition, for which the group has committed this transaction.
fn facts(committed: Option<u64>) -> Facts {
    let text =
        |transaction| OffsetMetadata { token: token(transaction), digest: "d".to_owned(), owner: None }.to_string();
    let metadata = committed.map_or_else(String::new, text);
    Facts { committed: Ok(vec![Some(CommittedOffset { offset: 7, metadata })]), ..sound() }
}

fn row(transaction: u64) -> (RowKey, Row) {
    let key = RowKey { topology: "t".into(), topic: "in".into(), topic_id: ID, partition: 0 };
    let former = transaction.checked_sub(1).filter(|former| *former > 0).map(token);
    let mark = RowMark { epoch: 3, token: Some(token(transaction)) };
    (key, Row { mark, former, redo: Some(Vec::new()), next: 7 })
}

/// The only finding: its severity and its message.
#[track_caller]
fn only(facts: &Facts, rows: &[(RowKey, Row)]) -> (Severity, String) {
    let found = findings(std::slice::from_ref(facts), rows, &[]);
    let [Finding { severity, message, .. }] = &found[..] else { panic!("{found:?}") };
    (*severity, message.clone())
}

#[test]
fn row_that_matches_the_group_leads_to_no_finding() {
    for (committed, rows) in [
        (Some(4), vec![row(4)]),
        // A group that was reset, or has never committed, leads to no finding.
        (None, vec![row(4)]),
        (None, vec![]),
    ] {
        assert_eq!(findings(&[facts(committed)], &rows, &[]), [], "{committed:?} {rows:?}");
    }
    let unseen = Facts {
        input: crate::engine::preflight::facts::NamedTopic { name: "in".to_owned(), state: TopicState::Missing },
        ..facts(Some(4))
    };
    assert_eq!(findings(&[unseen], &[row(1)], &[]), []);
}

#[test]
fn row_that_is_one_ahead_is_noted() {
    let (severity, message) = only(&facts(Some(3)), &[row(4)]);
    assert!(severity == Severity::Note && message.contains("a transaction that Kafka does not have"), "{message}");
}

#[test]
fn database_that_lacks_transactions_in_kafka_is_refused() {
    let (severity, message) = only(&facts(Some(4)), &[row(3)]);
    assert!(
        severity == Severity::Refused && message.contains("is behind Kafka for 1 partition of \"in\""),
        "{message}"
    );
    let (severity, message) = only(&facts(Some(4)), &[]);
    assert!(severity == Severity::Refused && message.contains("has no row for 1 partition"), "{message}");
}

#[test]
fn row_that_seems_to_be_further_ahead_is_a_warning() {
    let (severity, message) = only(&facts(Some(2)), &[row(4)]);
    assert!(severity == Severity::Warning && message.contains("seems to be ahead of Kafka"), "{message}");
}

#[test]
fn row_of_another_changelog_is_refused_and_row_of_another_topic_leads_to_a_warning() {
    let mut other = row(4);
    other.1.mark.token = Some(Token { changelog_id: [2; 16], ..token(4) });
    let (severity, message) = only(&facts(None), &[other]);
    assert!(severity == Severity::Refused && message.contains("of another changelog"), "{message}");
    let mut other = row(4);
    other.0.topic_id = [2; 16];
    let (severity, message) = only(&facts(None), std::slice::from_ref(&other));
    assert!(severity == Severity::Warning && message.contains("id 0202"), "{message}");
    // The topic was recreated once, and the new topic has rows of its own.
    assert_eq!(findings(&[facts(Some(4))], &[other, row(4)], &[]), []);
}

#[test]
fn rows_that_an_instance_is_changing_lead_to_no_finding() {
    assert_eq!(findings(&[facts(Some(9))], &[], &[row(4).0]), []);
    assert_eq!(sound().input.description().map(|input| input.id.0), Some(topic().id.0));
}
