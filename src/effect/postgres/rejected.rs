//! Finding the records that the database refuses: all of them, in few round trips.
//!
//! The batch is taken once more in a transaction that is rolled back at its end. Savepoints stand before runs of
//! records, not before each one. PostgreSQL's answers come in order, so the first error names the record: back to the
//! last savepoint, that record is left out, and on from there.

use super::class::{Class, Trouble};
use super::connection::Connection;
use super::transaction::{Batch, Run, What};
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

async fn search(run: &mut Run<'_>) -> Result<Vec<Rejected>, Failed> {
    let count = run.batch.records.len();
    let mut refused: Vec<Option<String>> = (0..count).map(|record| run.batch.unsendable(record)).collect();
    run.begin(&[]).await?;
    run.pipeline.simple(What::Savepoint(0), SAVEPOINT);
    let (mut at, mut window, mut between) = (0, WINDOW_RECORDS_MAX, RUN_RECORDS_MAX);
    loop {
        let end = count.min(at + window);
        for (record, reason) in refused.iter().enumerate().take(end).skip(at) {
            if record > at && (record - at).is_multiple_of(between) {
                run.pipeline.simple(What::Savepoint(record), NEXT_SAVEPOINT);
            }
            if reason.is_none() {
                run.send(record);
            }
        }
        let Err(failed) = run.settle(0).await else {
            if end == count {
                break;
            }
            run.pipeline.simple(What::Savepoint(end), NEXT_SAVEPOINT);
            (at, window) = (end, WINDOW_RECORDS_MAX.min(window * 2));
            between = RUN_RECORDS_MAX.min(between * 2);
            continue;
        };
        match run.trouble.take() {
            Some((What::Record(record), Trouble { class: Class::Data, message, .. })) => {
                refused[record] = Some(message);
                at = run.savepoint;
                between = RUN_RECORDS_MIN.max(between / 2);
                window = between.max(window / 2);
                run.pipeline.simple(What::Savepoint(at), BACK);
            }
            _ => return Err(failed),
        }
    }
    let rejected = |((step, effect), message): ((usize, usize), Option<String>)| {
        message.map(|message| Rejected { step, effect, message })
    };
    Ok(run.batch.records.iter().copied().zip(refused).filter_map(rejected).collect())
}
