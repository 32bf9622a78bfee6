//! An open transaction: sends its requests, and processes their responses.

use super::batch::Batch;
use super::bundle::{Bundle, Piece};
use super::class::{ErrorClass, Trouble};
use super::connection::{BEGIN, Connection};
use super::pipeline::{Pipeline, Response, Value};
use crate::effect::{Answer, Call, CommitError};

/// The kind of a request in a transaction's pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Begin,
    /// The update of a step's row.
    Row(usize),
    /// A round of the inbox.
    Round(usize),
    /// A savepoint before the record with this number.
    Savepoint(usize),
    /// A call of the record with this number, to the statement with this number.
    Record(usize, u32),
    /// A bundle of calls of the statement with this number.
    Bundle(usize),
    /// A step's redo.
    Redo,
    Commit,
}

/// An open transaction.
pub(super) struct Run<'a> {
    pub connection: &'a Connection,
    pub batch: &'a Batch<'a>,
    pub pipeline: Pipeline<'a, RequestKind>,
    /// The numbers of the steps whose rows do not have the expected marks.
    fenced: Vec<usize>,
    /// For each record, whether it is new to the inbox; `true` without an inbox.
    pub is_new: Vec<bool>,
    /// For each record, the rows that its statements have returned; empty if the sink returns no answers.
    rows: Vec<Vec<String>>,
    /// The number of the record before which the last savepoint was set.
    pub savepoint_record: usize,
    /// The first error, and the request that failed.
    pub trouble: Option<(RequestKind, Trouble)>,
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
            rows: vec![Vec::new(); if batch.has_answers { count } else { 0 }],
            savepoint_record: 0,
            trouble: None,
        }
    }

    /// Begins the transaction, updates the steps' rows, and writes to the inbox. Waits only for the inbox's responses.
    pub async fn begin(&mut self, redos: &'a [Vec<u8>]) -> Result<(), CommitError> {
        self.pipeline.simple(RequestKind::Begin, BEGIN);
        for &number in &self.batch.steps_by_key {
            let redo = redos.get(number).map(Vec::as_slice);
            let (statement, values) = self.connection.rows.update(&self.batch.steps[number], redo);
            self.pipeline.execute(RequestKind::Row(number), statement, values);
        }
        if let Some(inbox) = &self.connection.inbox {
            for (number, round) in self.batch.rounds.iter().enumerate() {
                let (statement, values) = inbox.round(round);
                self.pipeline.query(RequestKind::Round(number), statement, values);
            }
            self.drain_to(0).await?;
        }
        Ok(())
    }

    /// Sends a record's calls, unless the inbox has recognised the record.
    pub fn send(&mut self, number: usize) {
        if !self.is_new[number] {
            return;
        }
        for call in self.batch.record(number).calls() {
            self.send_call(number, call);
        }
    }

    /// Sends one of a record's calls.
    fn send_call(&mut self, number: usize, call: Call<'a>) {
        let Some(statement) = self.batch.statements.get(call.statement() as usize) else { return };
        let texts = statement.takes_texts.then(|| call.texts());
        let values: Vec<_> = call.parameters().chain(texts).map(Value::text).collect();
        if statement.returns {
            self.pipeline.query(RequestKind::Record(number, call.statement()), &statement.sql, values);
        } else {
            self.pipeline.execute(RequestKind::Record(number, call.statement()), &statement.sql, values);
        }
    }

    /// Sends a piece, without the records that the inbox has recognised. Returns the number of calls sent.
    pub fn send_piece(&mut self, piece: &Piece<'a>) -> usize {
        match piece {
            Piece::Single(record, call) if self.is_new[*record] => self.send_call(*record, *call),
            Piece::Single(..) => return 0,
            Piece::Bundle(Bundle { statement, bulk_statement, rows }) => {
                let new_rows = rows.iter().filter(|(record, _)| self.is_new[*record]);
                let new_rows: Vec<_> = new_rows.map(|(_, row)| *row).collect();
                let count = new_rows.len();
                if count > 0 {
                    self.pipeline.execute(
                        RequestKind::Bundle(*statement),
                        &bulk_statement.sql,
                        bulk_statement.values(new_rows.into_iter()),
                    );
                }
                return count;
            }
        }
        1
    }

    /// Waits until at most `max_pending` requests are pending. Fails if a request has failed, or, once none is pending,
    /// if a step was fenced.
    pub async fn drain_to(&mut self, max_pending: usize) -> Result<(), CommitError> {
        while self.trouble.is_none() && self.pipeline.len() > max_pending {
            self.receive().await;
        }
        if self.trouble.is_some() {
            // The requests after an error fail because of it. The rows' updates went first, so fenced steps are known
            // by then.
            while self.pipeline.len() > 0 {
                self.receive().await;
            }
            return Err(self.failure());
        }
        if max_pending == 0 && !self.fenced.is_empty() { Err(self.failure()) } else { Ok(()) }
    }

    /// Waits for the responses to the rows' updates.
    pub async fn await_row_updates(&mut self) -> Result<(), CommitError> {
        // They were sent first: all other pending requests are records' calls.
        while self.pipeline.oldest().is_some_and(|kind| matches!(kind, RequestKind::Begin | RequestKind::Row(_))) {
            self.receive().await;
        }
        if self.trouble.is_some() || !self.fenced.is_empty() || self.pipeline.has_unsent {
            self.drain_to(0).await?;
        }
        Ok(())
    }

    /// Waits for the oldest request's response, and applies it.
    async fn receive(&mut self) {
        let Some((kind, response)) = self.pipeline.next().await else { return };
        let applied = response.and_then(|response| self.apply(kind, response));
        if let Err(trouble) = applied
            && self.trouble.is_none()
        {
            let trouble = self.connection.with_end_reason(trouble);
            self.trouble = Some((kind, self.with_statement_name(kind, trouble)));
        }
    }

    /// Prefixes an error that the server has reported for a record's call with the statement's name.
    fn with_statement_name(&self, kind: RequestKind, trouble: Trouble) -> Trouble {
        match kind {
            RequestKind::Record(_, number) if trouble.had_no_effect && !trouble.is_fatal => {
                let statement = self.batch.statements.get(number as usize);
                match statement {
                    Some(statement) => trouble.with_context(&statement.name),
                    None => trouble,
                }
            }
            _ => trouble,
        }
    }

    /// Applies a response to the transaction's state.
    fn apply(&mut self, kind: RequestKind, response: Response) -> Result<(), Trouble> {
        match kind {
            RequestKind::Begin => self.connection.check_process(&response)?,
            RequestKind::Row(step) if response.row_count == 0 => self.fenced.push(step),
            RequestKind::Round(number) => self.batch.rounds[number].mark_new(&response, &mut self.is_new)?,
            RequestKind::Savepoint(record) => self.savepoint_record = record,
            RequestKind::Record(record, number) => {
                let rows = response.row_count.max(response.rows.len() as u64);
                let statement = self.batch.statements.get(number as usize);
                if let Some(message) = statement.and_then(|statement| statement.refusal(rows)) {
                    return Err(Trouble::data(message));
                }
                for row in &response.rows {
                    self.rows[record].push(row.try_get(0)?);
                }
            }
            RequestKind::Redo if response.row_count == 0 => {
                return Err(Trouble::transient("a task's row has disappeared within the transaction"));
            }
            RequestKind::Row(_) | RequestKind::Bundle(_) | RequestKind::Redo | RequestKind::Commit => {}
        }
        Ok(())
    }

    /// The failure of a transaction of which nothing was committed.
    fn failure(&mut self) -> CommitError {
        if !self.fenced.is_empty() {
            self.fenced.sort_unstable();
            return CommitError::Fenced(self.fenced.clone());
        }
        let trouble = self.trouble.as_ref().map(|(_, trouble)| trouble.clone());
        let trouble = trouble.unwrap_or_else(|| Trouble::transient("the transaction has stopped without an error"));
        CommitError::Held(trouble.into_error())
    }

    /// The number of the statement whose bundle has failed, if the bundle's calls have to be executed one by one to
    /// find the cause.
    pub fn refused_bundle_statement(&self) -> Option<usize> {
        match &self.trouble {
            Some((RequestKind::Bundle(statement), trouble)) if self.fenced.is_empty() => {
                matches!(trouble.class, ErrorClass::Data | ErrorClass::Doubtful | ErrorClass::Permanent)
                    .then_some(*statement)
            }
            _ => None,
        }
    }

    /// The number of the record that has caused, or may have caused, the transaction's failure, and the error.
    pub fn refused_record(&self) -> Option<(usize, &Trouble)> {
        match &self.trouble {
            Some((RequestKind::Record(record, _), trouble)) if self.fenced.is_empty() => {
                matches!(trouble.class, ErrorClass::Data | ErrorClass::Doubtful).then_some((*record, trouble))
            }
            _ => None,
        }
    }

    /// Whether a record's statement has failed permanently as it was prepared: its table may have been altered since.
    pub fn has_stale_statement(&self) -> bool {
        matches!(&self.trouble, Some((RequestKind::Record(..), trouble)) if trouble.class == ErrorClass::Permanent)
    }

    /// The answers for the records of a step.
    pub fn answers(&mut self, step: usize) -> Vec<Answer> {
        let from = self.batch.records.partition_point(|(number, _)| *number < step);
        let to = self.batch.records.partition_point(|(number, _)| *number <= step);
        let answer = |record: usize| match self.is_new[record] {
            true => Answer::Done(std::mem::take(&mut self.rows[record])),
            false => Answer::InInbox,
        };
        (from..to).map(answer).collect()
    }
}
