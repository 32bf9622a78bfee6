//! One transaction: the rows' updates, the inbox, the effects, COMMIT.
//!
//! Calls go in pieces, several as one where that is the same (`bundle`); a piece of several that is refused says nothing
//! of one, so everything is tried again call by call.
//!
//! Everything is sent as early as it may be. Only two things are waited for: the inbox's answers, where there is one,
//! before the effects, and the counts of the rows' updates before COMMIT. What fails is seen in the order in which it
//! was sent, so that the first error is the one that counts: PostgreSQL refuses whatever follows it.
//!
//! The number of rows that a statement has to change is compared here, not by PostgreSQL: if a statement has `expect_rows`, all
//! answers are awaited before COMMIT.

use tokio::task::yield_now;

use super::batch::Batch;
use super::bundle::{self, Piece};
use super::class::{Class, Trouble};
use super::connection::Connection;
use super::rejected;
use super::run::{Run, What};
use super::settings::Shared;
use crate::effect::{Complete, Error, Failed, Rejected, Step};

/// How many requests may be under way.
const UNDER_WAY_MAX: usize = 4_096;
/// After so many records the server gets what was written for it, and begins with that while the rest is written.
const SEND_RECORDS: usize = 64;
/// Behind a query that fails where the transaction has failed: then it is not carried out, and the failure is seen.
/// Alone it would be answered by ROLLBACK, which looks like success.
const COMMIT: &str = "select 1; commit";

/// Commits one transaction.
pub(super) async fn commit(
    connection: &Connection,
    shared: &Shared,
    steps: &[Step<'_>],
    redos: &mut dyn Complete,
) -> Result<(), Failed> {
    let held = |trouble: Trouble| Failed::Held(connection.explained(trouble).into_error());
    let statements = connection.statements(&shared.settings).await.map_err(held)?;
    let batch = Batch::new(steps, &statements, shared);
    if (0..batch.records.len()).any(|record| batch.unsendable(record).is_some()) {
        return Err(rejected::find(connection, &batch, "a record cannot be sent").await);
    }
    let mut first = Vec::new();
    if !batch.answers {
        first = (0..steps.len()).map(|step| redos.redo(step, &[])).collect();
    }
    let pieces = bundle::bundled(&connection.client, &batch).await;
    let mut failure = attempt(connection, &batch, &pieces, &first, redos).await.err();
    if let Some(statement) = failure.as_ref().and_then(|failure| failure.bundle) {
        // Nothing was committed, and what is said of a bundle is not what is said of a record.
        failure = attempt(connection, &batch, &bundle::apart(&batch), &first, redos).await.err();
        if let (None, Some(many)) = (&failure, &statements[statement].many) {
            many.keep_apart();
        }
    }
    let Some(Failure { failed, refused, is_out_of_date, .. }) = failure else { return Ok(()) };
    if is_out_of_date {
        // What is wrong with a statement for good is said as it will be said at the next try.
        connection.statements_anew(&shared.settings).await.map_err(held)?;
    }
    match refused {
        Some(reason) => Err(find_refused(connection, shared, steps, &reason).await),
        None => Err(failed),
    }
}

/// Why a try has failed.
struct Failure {
    failed: Failed,
    /// The statement whose bundle is to be carried out call by call.
    bundle: Option<usize>,
    /// What was said of a record that is refused, or may be.
    refused: Option<String>,
    is_out_of_date: bool,
}

/// Tries once; what fails is rolled back, unless it may have been committed.
async fn attempt(
    connection: &Connection,
    batch: &Batch<'_>,
    pieces: &[Piece<'_>],
    first: &[Vec<u8>],
    redos: &mut dyn Complete,
) -> Result<(), Failure> {
    let mut last = Vec::new();
    let mut run = Run::new(connection, batch);
    let carried_out = carry_out(&mut run, pieces, first).await;
    let committed = match carried_out {
        Ok(()) if batch.answers => {
            for step in 0..batch.steps.len() {
                let answers = run.answers(step);
                last.push(redos.redo(step, &answers));
            }
            finish(&mut run, &last).await
        }
        Ok(()) => finish(&mut run, &[]).await,
        Err(failed) => Err(failed),
    };
    let Err(failed) = committed else { return Ok(()) };
    if matches!(failed, Failed::Unknown(_)) {
        return Err(Failure { failed, bundle: None, refused: None, is_out_of_date: false });
    }
    let refused = run.refused().map(|(_, trouble)| trouble.message.clone());
    let (bundle, is_out_of_date) = (run.refused_bundle(), run.is_out_of_date());
    drop(run);
    connection.roll_back().await;
    Err(Failure { failed, bundle, refused, is_out_of_date })
}

/// Finds the records that are refused, by statements that are prepared anew: a table may have other types by now, and
/// statements from before keep to the old ones.
async fn find_refused(connection: &Connection, shared: &Shared, steps: &[Step<'_>], reason: &str) -> Failed {
    match connection.statements_anew(&shared.settings).await {
        Ok(statements) => rejected::find(connection, &Batch::new(steps, &statements, shared), reason).await,
        Err(trouble) => Failed::Held(connection.explained(trouble).into_error()),
    }
}

/// Everything but the end.
async fn carry_out<'a>(run: &mut Run<'a>, pieces: &[Piece<'a>], redos: &'a [Vec<u8>]) -> Result<(), Failed> {
    run.begin(redos).await?;
    let mut written = 0;
    for piece in pieces {
        written += run.send_piece(piece);
        if run.pipeline.len() > UNDER_WAY_MAX {
            run.settle(UNDER_WAY_MAX / 2).await?;
        } else if written >= SEND_RECORDS {
            written = 0;
            yield_now().await;
        }
    }
    let waits = run.batch.answers || run.batch.expects_rows;
    if waits { run.settle(0).await } else { run.settle_rows().await }
}

/// The redos, where they had to wait for the answers, and COMMIT.
async fn finish<'a>(run: &mut Run<'a>, redos: &'a [Vec<u8>]) -> Result<(), Failed> {
    for (step, redo) in run.batch.steps.iter().zip(redos) {
        let (statement, values) = run.connection.rows.redo(step, redo);
        run.pipeline.execute(What::Redo, statement, values);
    }
    if !redos.is_empty() {
        run.settle(0).await?;
    }
    run.pipeline.simple(What::Commit, COMMIT);
    let Err(failed) = run.settle(0).await else { return Ok(()) };
    let Some((what, trouble)) = &run.trouble else { return Err(failed) };
    let is_certain = trouble.is_answer && !(*what == What::Commit && trouble.is_fatal);
    let unknown = |message| Failed::Unknown(Error { kind: crate::effect::ErrorKind::Passing, message });
    match (what, trouble.class) {
        // Nothing of it has happened if the server has said so of what came before. What it says of COMMIT while its
        // session ends may be about what it did next.
        _ if !is_certain && !run.pipeline.has_refused => Err(unknown(trouble.message.clone())),
        // A deferred constraint, or a trigger that is one: the statements themselves have passed.
        (What::Commit, class) if class == Class::Data || trouble.is_users() => match run.batch.records.as_slice() {
            &[(step, effect)] => {
                Err(Failed::Rejected(vec![Rejected { step, effect, message: trouble.message.clone() }]))
            }
            _ => Err(Failed::Refused(trouble.message.clone())),
        },
        _ => Err(failed),
    }
}
