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

use super::Shared;
use super::bundle::{self, Bundle, Piece};
use super::class::{Class, Trouble};
use super::connection::Connection;
use super::inbox::{Round, rounds};
use super::pipeline::{Answered, Pipeline, Value};
use super::positions::BEGIN;
use super::rejected;
use super::statement::Prepared;
use crate::effect::{Answer, Call, Complete, Effect, Error, Failed, Rejected, Step};
use crate::words::counted;

/// How many requests may be under way.
const UNDER_WAY_MAX: usize = 4_096;
/// After so many records the server gets what was written for it, and begins with that while the rest is written.
const SEND_RECORDS: usize = 64;
/// Behind a query that fails where the transaction has failed: then it is not carried out, and the failure is seen.
/// Alone it would be answered by ROLLBACK, which looks like success.
const COMMIT: &str = "select 1; commit";

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Begin,
    /// The update of a step's row.
    Row(usize),
    /// A round of the inbox.
    Round(usize),
    /// A savepoint before the record with this number.
    Savepoint(usize),
    /// A statement of the record with this number, by the statement's own.
    Record(usize, u32),
    /// A bundle of calls of the statement with this number.
    Bundle(usize),
    /// A step's redo.
    Redo,
    Commit,
}

/// What a transaction is about.
pub(super) struct Batch<'a> {
    pub steps: &'a [Step<'a>],
    /// The steps in the order of their keys.
    order: Vec<usize>,
    /// The records in their order: the step's number, the effect's number.
    pub records: Vec<(usize, usize)>,
    pub statements: &'a [Prepared],
    rounds: Vec<Round<'a>>,
    /// Whether the sink answers for each record.
    answers: bool,
    /// Whether one of the statements has `expect_rows`.
    pub expects_rows: bool,
}

impl<'a> Batch<'a> {
    fn new(steps: &'a [Step<'a>], statements: &'a [Prepared], shared: &Shared) -> Self {
        let mut order: Vec<usize> = (0..steps.len()).collect();
        order.sort_by_key(|&step| steps[step].key);
        let of_step = |(number, step): (usize, &Step<'_>)| (0..step.effects.len()).map(move |effect| (number, effect));
        let records: Vec<_> = steps.iter().enumerate().flat_map(of_step).collect();
        let rounds = match shared.settings.inbox {
            Some(_) => rounds(steps.iter().flat_map(|step| step.effects.iter())),
            None => Vec::new(),
        };
        let expects_rows = statements.iter().any(|statement| statement.expect_rows.is_some());
        Self { steps, order, records, statements, rounds, answers: shared.answers(), expects_rows }
    }

    pub fn record(&self, number: usize) -> Effect<'a> {
        let (step, effect) = self.records[number];
        self.steps[step].effects.get(effect)
    }

    /// Why a record cannot be sent at all.
    pub fn unsendable(&self, number: usize) -> Option<String> {
        self.record(number).calls().find_map(|call| {
            let number = call.statement() as usize;
            let given = call.parameters().len();
            match self.statements.get(number) {
                None => Some(format!("there is no statement {}", number + 1)),
                Some(statement) if statement.parameters != given => {
                    let has = statement.parameters;
                    Some(format!("statement {} has {}, but is given {given}", number + 1, counted(has, "parameter")))
                }
                Some(_) => None,
            }
        })
    }
}

/// A transaction that is under way.
pub(super) struct Run<'a> {
    pub connection: &'a Connection,
    pub batch: &'a Batch<'a>,
    pub pipeline: Pipeline<'a, What>,
    /// The steps whose rows are not as their marks say.
    fenced: Vec<usize>,
    /// Whether the inbox has not had the record before.
    pub is_new: Vec<bool>,
    /// The rows that came back for each record.
    rows: Vec<Vec<String>>,
    /// The record before which the last savepoint stands.
    pub savepoint: usize,
    /// The first thing that went wrong.
    pub trouble: Option<(What, Trouble)>,
}

impl<'a> Run<'a> {
    pub fn new(connection: &'a Connection, batch: &'a Batch<'a>) -> Self {
        let count = batch.records.len();
        Self {
            connection,
            batch,
            pipeline: connection.pipeline(),
            fenced: Vec::new(),
            is_new: vec![batch.rounds.is_empty(); count],
            rows: vec![Vec::new(); if batch.answers { count } else { 0 }],
            savepoint: 0,
            trouble: None,
        }
    }

    /// Begins, updates the rows, and asks the inbox, whose answer is waited for.
    pub async fn begin(&mut self, redos: &'a [Vec<u8>]) -> Result<(), Failed> {
        self.pipeline.simple(What::Begin, BEGIN);
        for &number in &self.batch.order {
            let redo = redos.get(number).map(Vec::as_slice);
            let (statement, values) = self.connection.rows.update(&self.batch.steps[number], redo);
            self.pipeline.execute(What::Row(number), statement, values);
        }
        if let Some(inbox) = &self.connection.inbox {
            for (number, round) in self.batch.rounds.iter().enumerate() {
                let (statement, values) = inbox.round(round);
                self.pipeline.query(What::Round(number), statement, values);
            }
            self.settle(0).await?;
        }
        Ok(())
    }

    /// Sends what a record causes, unless the inbox has it.
    pub fn send(&mut self, number: usize) {
        if !self.is_new[number] {
            return;
        }
        for call in self.batch.record(number).calls() {
            self.send_one(number, call);
        }
    }

    /// Sends a call of a record.
    fn send_one(&mut self, number: usize, call: Call<'a>) {
        let Some(statement) = self.batch.statements.get(call.statement() as usize) else { return };
        let texts = statement.takes_texts.then(|| call.texts());
        let values: Vec<_> = call.parameters().chain(texts).map(Value::text).collect();
        if statement.returns {
            self.pipeline.query(What::Record(number, call.statement()), &statement.sql, values);
        } else {
            self.pipeline.execute(What::Record(number, call.statement()), &statement.sql, values);
        }
    }

    /// Sends a piece, without the records that the inbox has. Says how many there were.
    fn send_piece(&mut self, piece: &Piece<'a>) -> usize {
        match piece {
            Piece::One(record, call) if self.is_new[*record] => self.send_one(*record, *call),
            Piece::One(..) => return 0,
            Piece::Bundle(Bundle { statement, way, rows }) => {
                let new = rows.iter().filter(|(record, _)| self.is_new[*record]);
                let new: Vec<_> = new.map(|(_, row)| *row).collect();
                let count = new.len();
                if count > 0 {
                    self.pipeline.execute(What::Bundle(*statement), &way.sql, way.values(new.into_iter()));
                }
                return count;
            }
        }
        1
    }

    /// Waits until at most so many requests are under way, or something went wrong.
    pub async fn settle(&mut self, left: usize) -> Result<(), Failed> {
        while self.trouble.is_none() && self.pipeline.len() > left {
            self.absorb().await;
        }
        if self.trouble.is_some() {
            // What follows an error fails because of it. The fence is known then: the rows' updates went first.
            while self.pipeline.len() > 0 {
                self.absorb().await;
            }
            return Err(self.stopped());
        }
        if left == 0 && !self.fenced.is_empty() { Err(self.stopped()) } else { Ok(()) }
    }

    /// Waits until the rows' updates are known to have found their rows.
    async fn settle_rows(&mut self) -> Result<(), Failed> {
        // They were sent first: what is under way beyond them are records.
        while self.pipeline.oldest().is_some_and(|what| matches!(what, What::Begin | What::Row(_))) {
            self.absorb().await;
        }
        if self.trouble.is_some() || !self.fenced.is_empty() || self.pipeline.has_refused {
            self.settle(0).await?;
        }
        Ok(())
    }

    async fn absorb(&mut self) {
        let Some((what, answered)) = self.pipeline.next().await else { return };
        let taken = answered.and_then(|answered| self.take(what, answered));
        if let Err(trouble) = taken
            && self.trouble.is_none()
        {
            let trouble = self.connection.explained(trouble);
            self.trouble = Some((what, self.named(what, trouble)));
        }
    }

    /// What the server says of a statement, with the statement before it.
    fn named(&self, what: What, trouble: Trouble) -> Trouble {
        match what {
            What::Record(_, number) if trouble.is_answer && !trouble.is_fatal => {
                let statement = self.batch.statements.get(number as usize);
                match statement {
                    Some(statement) => trouble.of(&statement.name),
                    None => trouble,
                }
            }
            _ => trouble,
        }
    }

    fn take(&mut self, what: What, answered: Answered) -> Result<(), Trouble> {
        match what {
            What::Begin => self.connection.check_process(&answered)?,
            What::Row(step) if answered.count == 0 => self.fenced.push(step),
            What::Round(number) => self.batch.rounds[number].mark(&answered, &mut self.is_new)?,
            What::Savepoint(record) => self.savepoint = record,
            What::Record(record, number) => {
                let rows = answered.count.max(answered.rows.len() as u64);
                let statement = self.batch.statements.get(number as usize);
                if let Some(message) = statement.and_then(|statement| statement.refuses(rows)) {
                    return Err(Trouble::data(message));
                }
                for row in &answered.rows {
                    self.rows[record].push(row.try_get(0)?);
                }
            }
            What::Redo if answered.count == 0 => return Err(Trouble::passing("a row is gone within its transaction")),
            What::Row(_) | What::Bundle(_) | What::Redo | What::Commit => {}
        }
        Ok(())
    }

    /// Why it stopped, where nothing was committed.
    fn stopped(&mut self) -> Failed {
        if !self.fenced.is_empty() {
            self.fenced.sort_unstable();
            return Failed::Fenced(self.fenced.clone());
        }
        let trouble = self.trouble.as_ref().map(|(_, trouble)| trouble.clone());
        Failed::Held(trouble.unwrap_or_else(|| Trouble::passing("it stopped without a reason")).into_error())
    }

    /// The statement whose bundle failed, for a reason that each call has to give for itself.
    fn refused_bundle(&self) -> Option<usize> {
        match &self.trouble {
            Some((What::Bundle(statement), trouble)) if self.fenced.is_empty() => {
                matches!(trouble.class, Class::Data | Class::Doubtful | Class::Lasting).then_some(*statement)
            }
            _ => None,
        }
    }

    /// The record whose data it stopped because of, or may have, and why.
    pub fn refused(&self) -> Option<(usize, &Trouble)> {
        match &self.trouble {
            Some((What::Record(record, _), trouble)) if self.fenced.is_empty() => {
                matches!(trouble.class, Class::Data | Class::Doubtful).then_some((*record, trouble))
            }
            _ => None,
        }
    }

    /// Whether a record's statement cannot be carried out as it was prepared, and that does not pass: the table may have
    /// changed since.
    fn is_out_of_date(&self) -> bool {
        matches!(&self.trouble, Some((What::Record(..), trouble)) if trouble.class == Class::Lasting)
    }

    /// The answers for the records of a step.
    fn answers(&mut self, step: usize) -> Vec<Answer> {
        let from = self.batch.records.partition_point(|(of, _)| *of < step);
        let to = self.batch.records.partition_point(|(of, _)| *of <= step);
        let answer = |record: usize| match self.is_new[record] {
            true => Answer::Done(std::mem::take(&mut self.rows[record])),
            false => Answer::InInbox,
        };
        (from..to).map(answer).collect()
    }
}

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
