//! A committing sink's rows: a task's claim of its row, and how the row compares with Kafka.
//!
//! The row is always compared with the changelog's position record, after the task has settled and its store is
//! current. The text beside the group's offset never decides: a reset removes it, and a late copy of a commit may bring
//! an old text back. An owner writes the row again only after Kafka has the row's last transaction, so the row is never
//! more than one transaction ahead.
//!
//! **Failure**: if the two differ without an explanation, Kafka and then the row are read once more, since another
//! owner may be at work. If no other owner has claimed the row in between, the database or Kafka has gone back in time,
//! and the task stops.

use crate::effect::{ClaimedRow, Row, RowKey, RowMark};
use crate::format::Token;

use super::share::Position;

/// A task's claim of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowClaim {
    /// The row's key.
    pub key: RowKey,
    /// The epoch of the claim, and the row's token.
    pub mark: RowMark,
}

/// A task's last transaction in Kafka.
#[derive(Clone, Copy, Debug)]
pub struct RecordedTransaction<'a> {
    /// The position record's token; `None` if there is no position record.
    pub token: Option<&'a Token>,
    /// The end of the range that the position record covers.
    pub end: i64,
    /// The changelog's id.
    pub changelog_id: [u8; 16],
}

/// How a row compares with the position record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Both are of the same transaction.
    Same,
    /// The row is one transaction ahead: its redo must be played.
    OneAhead,
    /// The row is behind.
    Behind,
    /// The row is ahead by more than one transaction, or has no redo.
    Ahead,
}

/// The end of the range that the position record of a task at this position covers.
pub fn covered_end(position: &Position) -> i64 {
    position.progress.processed.as_pairs().last().map_or(position.next, |&(_, end)| end)
}

/// Compares the row with the position record.
pub fn compare(row: &Row, recorded: RecordedTransaction<'_>) -> Relation {
    let token = row.mark.token.as_ref();
    if token == recorded.token {
        return Relation::Same;
    }
    // Without the id, the first transaction of a deleted changelog would be mistaken for one of this changelog.
    let is_of_changelog = token.is_some_and(|token| token.changelog_id == recorded.changelog_id);
    if is_of_changelog && row.former.as_ref() == recorded.token && row.redo.is_some() {
        return Relation::OneAhead;
    }
    let is_ahead = match (token, recorded.token) {
        // Offsets do not decide here: a transaction of the sweeper does not move them.
        (Some(row), Some(known)) if (row.lane, row.changelog_id) == (known.lane, known.changelog_id) => {
            row.transaction > known.transaction
        }
        (_, known) => known.is_none() || row.next > recorded.end,
    };
    if is_ahead { Relation::Ahead } else { Relation::Behind }
}

/// Whether two checks have found the same difference, and no other owner has claimed or written the row in between.
/// `doubted` is the row's mark at the first check.
pub fn is_certain(claimed: &ClaimedRow, doubted: Option<&RowMark>) -> bool {
    doubted.is_some_and(|doubted| doubted.epoch == claimed.former_epoch && doubted.token == claimed.row.mark.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(transaction: u64, changelog: u8) -> Token {
        Token { lane: 1, transaction, changelog_id: [changelog; 16], partition: 0 }
    }

    fn row(token: Option<Token>, former: Option<Token>, next: i64) -> Row {
        let redo = token.map(|_| vec![1]);
        Row { mark: RowMark { epoch: 3, token }, former, redo, next }
    }

    fn relation(row: &Row, known: Option<Token>, end: i64) -> Relation {
        compare(row, RecordedTransaction { token: known.as_ref(), end, changelog_id: [7; 16] })
    }

    #[test]
    fn token_of_the_row_decides_its_relation_to_kafka() {
        let [one, two, three] = [1, 2, 3].map(|transaction| Some(token(transaction, 7)));
        let cases = [
            (row(None, None, 0), None, 0, Relation::Same),
            (row(one, None, 5), one, 5, Relation::Same),
            (row(one, None, 5), None, 0, Relation::OneAhead),
            (row(two, one, 9), one, 5, Relation::OneAhead),
            (row(three, two, 12), one, 5, Relation::Ahead),
            (row(one, None, 5), two, 9, Relation::Behind),
            (row(None, None, 0), one, 5, Relation::Behind),
            (row(two, one, 9), None, 0, Relation::Ahead),
        ];
        for (row, known, end, expected) in cases {
            assert_eq!(relation(&row, known, end), expected, "{row:?} {known:?}");
        }
    }

    #[test]
    fn transaction_numbers_of_one_lane_decide_between_ahead_and_behind_if_offsets_are_equal() {
        let [one, two, three] = [1, 2, 3].map(|transaction| Some(token(transaction, 7)));
        assert_eq!(relation(&row(three, two, 5), one, 5), Relation::Ahead);
        assert_eq!(relation(&row(one, None, 5), three, 5), Relation::Behind);
    }

    #[test]
    fn row_of_another_changelog_is_not_one_ahead() {
        assert_eq!(relation(&row(Some(token(1, 8)), None, 5), None, 0), Relation::Ahead);
        assert_eq!(relation(&row(Some(token(2, 8)), Some(token(1, 7)), 3), Some(token(1, 7)), 5), Relation::Behind);
    }

    #[test]
    fn row_without_a_redo_is_not_one_ahead() {
        let without = Row { redo: None, ..row(Some(token(1, 7)), None, 5) };
        assert_eq!(relation(&without, None, 0), Relation::Ahead);
    }

    #[test]
    fn difference_is_certain_only_if_no_other_owner_has_claimed_or_written_the_row_in_between() {
        let claimed = ClaimedRow { former_epoch: 4, row: row(Some(token(1, 7)), None, 0) };
        let mark = |epoch, transaction| RowMark { epoch, token: Some(token(transaction, 7)) };
        let results = [mark(3, 1), mark(4, 1), mark(5, 1), mark(4, 2)].map(|mark| is_certain(&claimed, Some(&mark)));
        assert_eq!(results, [false, true, false, false]);
        assert!(!is_certain(&claimed, None));
    }
}
