//! Finds all records that the database refuses, in few round trips.
//!
//! The batch is executed once more, in a transaction that is rolled back at its end. Savepoints are set before groups
//! of records, not before each record. PostgreSQL's responses arrive in order, so the first error identifies the
//! record: the transaction is rolled back to the last savepoint, and continues from there without that record.
//! PostgreSQL does not stop at a record that `expect_rows` refuses: if a statement has `expect_rows`, each record's
//! responses are awaited.
//!
//! Some errors may be caused by the record or by the statement. Such a record is rejected only if another one passes
//! the same statements in the same transaction.

use std::collections::HashSet;

use super::batch::Batch;
use super::class::ErrorClass;
use super::connection::Connection;
use super::run::{RequestKind, Run};
use crate::effect::{CommitError, Error, ErrorKind, Rejected};

/// The number of records between two savepoints, which are executed again for each refused record. Smaller where many
/// records are refused.
const SAVEPOINT_RECORDS_MAX: usize = 64;
const SAVEPOINT_RECORDS_MIN: usize = 4;
/// The number of records that are sent before their responses are awaited. Smaller where many records are refused.
const WINDOW_RECORDS_MAX: usize = 2_048;

const SAVEPOINT: &str = "savepoint ratchet";
const NEXT_SAVEPOINT: &str = "release savepoint ratchet; savepoint ratchet";
const ROLLBACK: &str = "rollback to savepoint ratchet";

/// Finds the refused records of a batch. At least one was refused before, for this reason.
pub(super) async fn find(connection: &Connection, batch: &Batch<'_>, reason: &str) -> CommitError {
    let mut run = Run::new(connection, batch);
    let rejected = search(&mut run).await;
    drop(run);
    connection.roll_back().await;
    match rejected {
        Err(error) => error,
        Ok(rejected) if rejected.is_empty() => CommitError::Held(Error {
            kind: ErrorKind::Transient,
            message: format!("the database has refused a record once, but not at the second attempt: {reason}"),
        }),
        Ok(rejected) => CommitError::Rejected(rejected),
    }
}

/// The reason why a record is refused.
#[derive(Clone)]
struct Refusal {
    message: String,
    /// Whether the cause may also be the statement.
    is_doubtful: bool,
}

async fn search(run: &mut Run<'_>) -> Result<Vec<Rejected>, CommitError> {
    let count = run.batch.records.len();
    let unsendable =
        |record| run.batch.unsendable_reason(record).map(|message| Refusal { message, is_doubtful: false });
    let mut refusals: Vec<Option<Refusal>> = (0..count).map(unsendable).collect();
    run.begin(&[]).await?;
    run.pipeline.simple(RequestKind::Savepoint(0), SAVEPOINT);
    let window_max = if run.batch.expects_rows { 1 } else { WINDOW_RECORDS_MAX };
    let (mut start, mut window, mut savepoint_interval) = (0, window_max, SAVEPOINT_RECORDS_MAX);
    loop {
        let end = count.min(start + window);
        for (record, refusal) in refusals.iter().enumerate().take(end).skip(start) {
            if record > start && (record - start).is_multiple_of(savepoint_interval) {
                run.pipeline.simple(RequestKind::Savepoint(record), NEXT_SAVEPOINT);
            }
            if refusal.is_none() {
                run.send(record);
            }
        }
        let Err(error) = run.drain_to(0).await else {
            if end == count {
                break;
            }
            run.pipeline.simple(RequestKind::Savepoint(end), NEXT_SAVEPOINT);
            (start, window) = (end, window_max.min(window * 2));
            savepoint_interval = SAVEPOINT_RECORDS_MAX.min(savepoint_interval * 2);
            continue;
        };
        let Some((record, trouble)) = run.refused_record() else { return Err(error) };
        let is_doubtful = trouble.class == ErrorClass::Doubtful;
        refusals[record] = Some(Refusal { message: trouble.message.clone(), is_doubtful });
        run.trouble = None;
        start = run.savepoint_record;
        savepoint_interval = SAVEPOINT_RECORDS_MIN.max(savepoint_interval / 2);
        window = window_max.min(savepoint_interval.max(window / 2));
        run.pipeline.simple(RequestKind::Savepoint(start), ROLLBACK);
    }
    attributable(run, &refusals)
}

/// The refused records that cause their refusal themselves. A record with a doubtful refusal is among them if other
/// records have passed all of its statements. If all refusals are doubtful, and no record is known to be the cause, the
/// result is an error.
fn attributable(run: &Run<'_>, refusals: &[Option<Refusal>]) -> Result<Vec<Rejected>, CommitError> {
    let mut passed = HashSet::new();
    for (record, refusal) in refusals.iter().enumerate() {
        if refusal.is_none() && run.is_new[record] {
            passed.extend(run.batch.record(record).calls().map(|call| call.statement()));
        }
    }
    let (mut rejected, mut doubtful) = (Vec::new(), None);
    for (record, refusal) in refusals.iter().enumerate() {
        let Some(Refusal { message, is_doubtful }) = refusal else { continue };
        if *is_doubtful && !run.batch.record(record).calls().all(|call| passed.contains(&call.statement())) {
            doubtful.get_or_insert(message);
            continue;
        }
        let (step, effect) = run.batch.records[record];
        rejected.push(Rejected { step, effect, message: message.clone() });
    }
    match doubtful {
        Some(message) if rejected.is_empty() => {
            let message = format!(
                "{message}; whether the record or the statement is the cause is known once another record passes it"
            );
            Err(CommitError::Held(Error { kind: ErrorKind::Permanent, message }))
        }
        _ => Ok(rejected),
    }
}
