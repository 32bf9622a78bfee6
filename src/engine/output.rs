//! Sends a judged record to the output, the dead letter topic or the audit topic. `on_unsendable` decides about a
//! record that the output refuses.

use std::borrow::Cow;

use crate::cluster::{Cluster, ErrorKind, Message, Producer, Ticket};
use crate::dedup::{self, Action, Decision, Evaluation, Reason, Rejection, Row, Verdict};
use crate::format::RedoRecord;
use crate::record::{HeaderBuf, Headers, Record};
use crate::rendering::Renderer;

use super::capacity::Added;
use super::context::Context;
use super::failure::{Cause, Failure, Unprocessable};
use super::share::{AwaitedRecord, Share};
use super::task::Work;

/// What a sink needs about a record, besides the record itself.
pub(super) struct SinkInput<'a> {
    /// The rows that were read from the record, and the bytes that they point into.
    pub(super) rows: (&'a [Row], &'a [u8]),
    /// Renders the record's effects.
    pub(super) renderer: &'a mut Renderer,
    /// The audit record to write if the sink has processed the record already; `None` if the sink does not check that.
    pub(super) explanation: Option<Vec<u8>>,
}

/// The destinations of a transaction's records.
pub(super) struct Outlet<'a, C: Cluster> {
    pub(super) context: &'a Context,
    pub(super) work: &'a Work<'a, C>,
    pub(super) share: &'a mut Share,
    pub(super) producer: &'a mut C::Producer,
    pub(super) headers: &'a mut HeaderBuf,
    pub(super) added: &'a mut Added,
}

impl<C: Cluster> Outlet<'_, C> {
    /// Carries out the record's evaluation. Returns the decision that was carried out, which differs if the output
    /// refuses the record.
    pub(super) fn emit(
        &mut self,
        record: &Record<'_>,
        evaluation: &Evaluation,
        sink_input: Option<SinkInput<'_>>,
    ) -> Result<Decision, Failure> {
        let rejection = match evaluation.decision.action {
            Action::Drop => {
                let reason = evaluation.decision.reason;
                if reason.is_conflict() {
                    self.share.noted.conflicts.add(record, reason, reason.meaning());
                }
                return Ok(evaluation.decision);
            }
            Action::DeadLetter => {
                self.dead_letter(record, evaluation.decision.reason, &description(self.context, evaluation), &[])?;
                return Ok(evaluation.decision);
            }
            Action::Fail => unreachable!("the caller stops before"),
            Action::Forward => match sink_input {
                Some(sink_input) => self.add_effects(record, evaluation, sink_input),
                None => self.forward(record)?,
            },
        };
        let Some(rejection) = rejection else { return Ok(evaluation.decision) };
        let decision = dedup::reject(&self.context.rules, &rejection);
        match decision.action {
            Action::DeadLetter => self.dead_letter(record, rejection.reason, &rejection.message, &[])?,
            Action::Fail => {
                return Err(Failure::refused_at(
                    self.share.task,
                    record.offset,
                    Unprocessable::Failed(rejection.message),
                ));
            }
            Action::Forward | Action::Drop => {}
        }
        Ok(Decision { verdict: Verdict::Invalid, ..decision })
    }

    /// The cluster's message if it has refused the record before.
    fn unsendable(&self, record: &Record<'_>) -> Option<&str> {
        let (offset, message) = self.work.task.trouble.quarantine.as_ref()?.unsendable.as_ref()?;
        (*offset == record.offset).then_some(message)
    }

    /// Adds the record's effects on the sink. Returns a rejection if they cannot be rendered, or if the sink has
    /// refused them before.
    fn add_effects(
        &mut self,
        record: &Record<'_>,
        evaluation: &Evaluation,
        sink_input: SinkInput<'_>,
    ) -> Option<Rejection> {
        let SinkInput { rows: (rows, arena), renderer, explanation } = sink_input;
        let rejected = |message: String| Some(Rejection { reason: Reason::Rejected, message });
        if let Some(message) = self.work.task.destination.rejection(record.offset) {
            return rejected(format!("the sink refuses what the record causes: {message}"));
        }
        let before = self.share.effects.byte_len();
        if let Err(message) = renderer.render(record, rows, arena, &mut self.share.effects) {
            return rejected(message);
        }
        self.added.bytes += self.share.effects.byte_len() - before;
        if let Some(explanation) = explanation {
            let topic = &self.work.task.topics.facts;
            self.share.awaited.push(AwaitedRecord {
                partitions: [topic.result_partitions, topic.audit_partitions].map(|count| record.partition % count),
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                reason: evaluation.decision.reason,
                explanation,
            });
        }
        None
    }

    /// Forwards the record unchanged. Returns a rejection if the output refuses it.
    fn forward(&mut self, record: &Record<'_>) -> Result<Option<Rejection>, Failure> {
        let refused = |refusal: &str| Rejection {
            reason: Reason::Unsendable,
            message: format!("the output refuses the record: {refusal}"),
        };
        if let Some(message) = self.unsendable(record) {
            return Ok(Some(refused(message)));
        }
        let message = Message {
            topic: &self.work.task.topics.output,
            partition: record.partition,
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: record.timestamp,
        };
        Ok(self.send(&message)?.as_deref().map(refused))
    }

    /// Sends a message, or stores it to be sent after the sink's commit. Returns the cluster's error message if the
    /// cluster refuses it.
    pub(super) fn send(&mut self, message: &Message<'_>) -> Result<Option<String>, Failure> {
        if self.context.sink.is_some() {
            let Message { topic, partition, key, value, headers, timestamp } = *message;
            self.share.redo.push(RedoRecord::Topic { topic, partition, timestamp, headers, key, value });
            self.added.bytes += message.held_bytes();
            return Ok(None);
        }
        match self.producer.send(Ticket { number: self.share.task, report: false }, message) {
            Ok(()) => {
                self.added.bytes += message.held_bytes();
                Ok(None)
            }
            Err(error) if error.kind == ErrorKind::Refused => Ok(Some(error.message)),
            // If the producer does not accept a record, only its task fails, not the lane.
            Err(error) if error.kind == ErrorKind::Abort => {
                Err(Failure { task: Some(self.share.task), cause: Cause::Cluster(error) })
            }
            Err(error) => Err(Failure::cluster(error)),
        }
    }

    /// Sends the original bytes to the dead letter topic, with headers that contain the record's place, the reason, the
    /// message and the `extra_headers`. A timestamp that a topic may refuse is replaced by the current time.
    pub(super) fn dead_letter(
        &mut self,
        record: &Record<'_>,
        reason: Reason,
        message: &str,
        extra_headers: &[(&str, &str)],
    ) -> Result<(), Failure> {
        self.headers.clear();
        self.headers.extend(record.headers);
        let name = &self.context.topology.name;
        let coordinates = [record.partition.to_string(), record.offset.to_string()];
        for (field, value) in [
            ("topology", name.as_str()),
            ("topic", record.topic),
            ("partition", &coordinates[0]),
            ("offset", &coordinates[1]),
            ("reason", reason.as_str()),
            ("message", message),
        ]
        .iter()
        .chain(extra_headers)
        {
            self.headers.push(format!("__ratchet.errors.{field}").as_bytes(), Some(value.as_bytes()));
        }
        let keeps_timestamp = !matches!(reason, Reason::TimestampInFuture | Reason::Unsendable);
        let headers = std::mem::take(self.headers);
        let letter = Message {
            topic: &self.context.topology.dead_letter,
            partition: record.partition % self.work.task.topics.facts.dead_letter_partitions,
            key: record.key,
            value: record.value,
            headers: headers.as_headers(),
            timestamp: record.timestamp.filter(|_| keeps_timestamp),
        };
        let refusal = self.send(&letter)?;
        *self.headers = headers;
        if let Some(refusal) = refusal {
            return Err(Failure::refused_at(self.share.task, record.offset, Unprocessable::Letter(refusal)));
        }
        self.added.dead_letters += 1;
        self.share.noted.letters.add(record, reason, message);
        Ok(())
    }

    /// Sends the explanation of a drop to the audit topic. If a topic has refused the record before, that may have been
    /// because of its timestamp, so the current time is used instead.
    pub(super) fn explain(&mut self, record: &Record<'_>, topic: &str, value: &[u8]) -> Result<(), Failure> {
        let keeps_timestamp = self.unsendable(record).is_none();
        let explanation = Message {
            topic,
            partition: record.partition % self.work.task.topics.facts.audit_partitions,
            key: record.key,
            value: Some(value),
            headers: Headers::default(),
            timestamp: record.timestamp.filter(|_| keeps_timestamp),
        };
        match self.send(&explanation)? {
            None => Ok(()),
            Some(refusal) => {
                Err(Failure::refused_at(self.share.task, record.offset, Unprocessable::Explanation(refusal)))
            }
        }
    }
}

/// The description of why a record becomes a dead letter, or why the task stops before it.
pub(super) fn description<'a>(context: &Context, evaluation: &'a Evaluation) -> Cow<'a, str> {
    match &evaluation.rejection {
        Some(rejection) => context.topology.rejection(rejection),
        None => context.topology.meaning(evaluation.decision.reason),
    }
}
