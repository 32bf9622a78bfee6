//! Finding the records that the database refuses: all of them, in few round trips.
//!
//! The batch is taken once more in a transaction that is rolled back at its end. Savepoints stand before runs of
//! records, not before each one. PostgreSQL's answers come in order, so the first error names the record: back to the
//! last savepoint, that record is left out, and on from there. PostgreSQL does not stop at a
//! record that `expect_rows` refuses: if a statement has it, each record is awaited.
//!
//! Some errors may be the record's fault or the statement's. Such a record is refused only where another one passes the
//! same statements in the same transaction.

use std::collections::HashSet;

use super::batch::Batch;
use super::class::Class;
use super::connection::Connection;
use super::run::{Run, What};
use crate::effect::{Error, ErrorKind, Failed, Rejected};

/// How many records stand between two savepoints: as many are carried out again for each one that is refused. Fewer
/// where many are refused.
const RUN_RECORDS_MAX: usize = 64;
const RUN_RECORDS_MIN: usize = 4;
/// How many records are sent before their answers are waited for; fewer where many are refused.
const WINDOW_RECORDS_MAX: usize = 2_048;

const SAVEPOINT: &str = "savepoint ratchet";
const NEXT_SAVEPOINT: &str = "release savepoint ratchet; savepoint ratchet";
const BACK: &str = "rollback to savepoint ratchet";

/// Finds the records that are refused, of a batch of which at least one was, for this reason.
pub(super) async fn find(connection: &Connection, batch: &Batch<'_>, reason: &str) -> Failed {
    let mut run = Run::new(connection, batch);
    let found = search(&mut run).await;
    drop(run);
    connection.roll_back().await;
    match found {
        Err(failed) => failed,
        Ok(rejected) if rejected.is_empty() => Failed::Held(Error {
            kind: ErrorKind::Passing,
            message: format!("the database has refused something once, but not a second time: {reason}"),
        }),
        Ok(rejected) => Failed::Rejected(rejected),
    }
}

/// Why a record is refused.
#[derive(Clone)]
struct Refusal {
    message: String,
    /// Whether the statement may be to blame as well.
    is_doubtful: bool,
}

async fn search(run: &mut Run<'_>) -> Result<Vec<Rejected>, Failed> {
    let count = run.batch.records.len();
    let unsendable = |record| run.batch.unsendable(record).map(|message| Refusal { message, is_doubtful: false });
    let mut refused: Vec<Option<Refusal>> = (0..count).map(unsendable).collect();
    run.begin(&[]).await?;
    run.pipeline.simple(What::Savepoint(0), SAVEPOINT);
    let window_max = if run.batch.expects_rows { 1 } else { WINDOW_RECORDS_MAX };
    let (mut at, mut window, mut between) = (0, window_max, RUN_RECORDS_MAX);
    loop {
        let end = count.min(at + window);
        for (record, refusal) in refused.iter().enumerate().take(end).skip(at) {
            if record > at && (record - at).is_multiple_of(between) {
                run.pipeline.simple(What::Savepoint(record), NEXT_SAVEPOINT);
            }
            if refusal.is_none() {
                run.send(record);
            }
        }
        let Err(failed) = run.settle(0).await else {
            if end == count {
                break;
            }
            run.pipeline.simple(What::Savepoint(end), NEXT_SAVEPOINT);
            (at, window) = (end, window_max.min(window * 2));
            between = RUN_RECORDS_MAX.min(between * 2);
            continue;
        };
        let Some((record, trouble)) = run.refused() else { return Err(failed) };
        let is_doubtful = trouble.class == Class::Doubtful;
        refused[record] = Some(Refusal { message: trouble.message.clone(), is_doubtful });
        run.trouble = None;
        at = run.savepoint;
        between = RUN_RECORDS_MIN.max(between / 2);
        window = window_max.min(between.max(window / 2));
        run.pipeline.simple(What::Savepoint(at), BACK);
    }
    named(run, &refused)
}

/// Those of the refused records that are to blame. Doubtful ones are where another record has passed all of their
/// statements; if there are only others, the statement is, and nothing is rejected because of it.
fn named(run: &Run<'_>, refused: &[Option<Refusal>]) -> Result<Vec<Rejected>, Failed> {
    let mut passed = HashSet::new();
    for (record, refusal) in refused.iter().enumerate() {
        if refusal.is_none() && run.is_new[record] {
            passed.extend(run.batch.record(record).calls().map(|call| call.statement()));
        }
    }
    let (mut rejected, mut doubtful) = (Vec::new(), None);
    for (record, refusal) in refused.iter().enumerate() {
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
                "{message}; whether the record or the statement is to blame shows when another record passes it"
            );
            Err(Failed::Held(Error { kind: ErrorKind::Lasting, message }))
        }
        _ => Ok(rejected),
    }
}
