//! Where a judged record goes: the output, the dead letter topic, the audit topic. A record that the output refuses
//! goes where `on_unsendable` says.

use std::borrow::Cow;

use crate::cluster::{Cluster, ErrorKind, Message, Producer, Ticket};
use crate::dedup::{self, Action, Decision, Evaluation, Reason, Rejection, Row, Verdict};
use crate::format::RedoRecord;
use crate::record::{HeaderBuf, Headers, Record};
use crate::rendering::Renderer;

use super::capacity::Added;
use super::context::Context;
use super::failure::{Cause, Failure, Unprocessable};
use super::share::{Asked, Share};
use super::task::Work;

/// What a record that goes to a sink is known by, beside itself.
pub(super) struct Known<'a> {
    /// What was read of it, and the bytes that it points into.
    pub(super) rows: (&'a [Row], &'a [u8]),
    /// What renders its effects.
    pub(super) renderer: &'a mut Renderer,
    /// The audit record to write if the sink has it already; `None` if that is not asked.
    pub(super) explanation: Option<Vec<u8>>,
}

/// Where the records of a transaction go.
pub(super) struct Outlet<'a, C: Cluster> {
    pub(super) context: &'a Context,
    pub(super) work: &'a Work<'a, C>,
    pub(super) share: &'a mut Share,
    pub(super) producer: &'a mut C::Producer,
    pub(super) headers: &'a mut HeaderBuf,
    pub(super) added: &'a mut Added,
}

impl<C: Cluster> Outlet<'_, C> {
    /// Sends the record where its evaluation says. Returns the decision that was carried out: a different one if the
    /// output refuses the record.
    pub(super) fn emit(
        &mut self,
        record: &Record<'_>,
        evaluation: &Evaluation,
        known: Option<Known<'_>>,
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
                self.dead_letter(record, evaluation.decision.reason, &words(self.context, evaluation), &[])?;
                return Ok(evaluation.decision);
            }
            Action::Fail => unreachable!("the caller stops before"),
            Action::Forward => match known {
                Some(known) => self.affect(record, evaluation, known),
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

    /// Adds what the record causes in the sink; says why if it cannot be, or if the sink has refused it before.
    fn affect(&mut self, record: &Record<'_>, evaluation: &Evaluation, known: Known<'_>) -> Option<Rejection> {
        let Known { rows: (rows, arena), renderer, explanation } = known;
        let rejected = |message: String| Some(Rejection { reason: Reason::Rejected, message });
        if let Some(message) = self.work.task.ending.rejection(record.offset) {
            return rejected(format!("the sink refuses what the record causes: {message}"));
        }
        let before = self.share.effects.byte_len();
        if let Err(message) = renderer.render(record, rows, arena, &mut self.share.effects) {
            return rejected(message);
        }
        self.added.bytes += self.share.effects.byte_len() - before;
        if let Some(explanation) = explanation {
            let topic = &self.work.task.topics.facts;
            self.share.asked.push(Asked {
                partitions: [topic.result_partitions, topic.audit_partitions].map(|count| record.partition % count),
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                reason: evaluation.decision.reason,
                explanation,
            });
        }
        None
    }

    /// Forwards the record unchanged; says why if the output refuses it.
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

    /// Sends a message, or keeps it for after the sink's commit; returns the cluster's message if it refuses it.
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
            // A record that cannot even be handed to the producer is its task's trouble, not the lane's.
            Err(error) if error.kind == ErrorKind::Abort => {
                Err(Failure { task: Some(self.share.task), cause: Cause::Cluster(error) })
            }
            Err(error) => Err(Failure::cluster(error)),
        }
    }

    /// Sends the original bytes to the dead letter topic, with headers that say where the record was and what is wrong
    /// with it, and `more`. A timestamp that a topic may refuse is replaced by the current time.
    pub(super) fn dead_letter(
        &mut self,
        record: &Record<'_>,
        reason: Reason,
        message: &str,
        more: &[(&str, &str)],
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
        .chain(more)
        {
            self.headers.push(format!("__ratchet.errors.{field}").as_bytes(), Some(value.as_bytes()));
        }
        let believable = !matches!(reason, Reason::TimestampInFuture | Reason::Unsendable);
        let headers = std::mem::take(self.headers);
        let letter = Message {
            topic: &self.context.topology.dead_letter,
            partition: record.partition % self.work.task.topics.facts.dead_letter_partitions,
            key: record.key,
            value: record.value,
            headers: headers.as_headers(),
            timestamp: record.timestamp.filter(|_| believable),
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
        let believable = self.unsendable(record).is_none();
        let explanation = Message {
            topic,
            partition: record.partition % self.work.task.topics.facts.audit_partitions,
            key: record.key,
            value: Some(value),
            headers: Headers::default(),
            timestamp: record.timestamp.filter(|_| believable),
        };
        match self.send(&explanation)? {
            None => Ok(()),
            Some(refusal) => {
                Err(Failure::refused_at(self.share.task, record.offset, Unprocessable::Explanation(refusal)))
            }
        }
    }
}

/// Why a record is set aside or the task stops before it, in words.
pub(super) fn words<'a>(context: &Context, evaluation: &'a Evaluation) -> Cow<'a, str> {
    match &evaluation.rejection {
        Some(rejection) => context.topology.rejection(rejection),
        None => context.topology.meaning(evaluation.decision.reason),
    }
}
