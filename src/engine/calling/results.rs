//! Writes the answers of calls to the results topic: once when a record is settled, and again for each duplicate that
//! is to be answered.

use crate::cluster::{Cluster, Message};
use crate::effect::provider::Body;
use crate::engine::failure::{Failure, Unprocessable};
use crate::format::{How, Remembered, ResultRef, hex};
use crate::record::{HeaderBuf, Record};

use sha2::{Digest, Sha256};

use super::window::{Called, LastAnswer};
use super::writing::Pen;

impl<C: Cluster> Pen<'_, '_, C> {
    /// Writes the answer of a call. If Kafka has refused it before, with the message `kafka_refusal`, the body is left
    /// out.
    pub(super) fn write_result(
        &mut self,
        record: &Record<'_>,
        called: &Called,
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        match result_of(called) {
            Some(result) => self.send_result(record, (How::Done, Some(result)), false, kafka_refusal),
            None => Ok(()),
        }
    }

    /// Answers a duplicate with the remembered result.
    pub(super) fn answer_duplicate(
        &mut self,
        record: &Record<'_>,
        former: &[u8],
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        let settled = Remembered::decode(former).expect("it was judged against").settled;
        match settled.filter(|settled| settled.result.is_some()) {
            Some(settled) => {
                self.outlet.added.settled.duplicate_result += u64::from(self.terms.result.is_some());
                self.send_result(record, (settled.how, settled.result), true, kafka_refusal)
            }
            None => Ok(()),
        }
    }

    fn send_result(
        &mut self,
        record: &Record<'_>,
        (how, result): (How, Option<ResultRef<'_>>),
        is_repeated: bool,
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(results) = &self.terms.result else { return Ok(()) };
        let message = Message {
            topic: &results.topic,
            partition: record.partition % self.outlet.work.task.topics.facts.result_partitions,
            key: record.key,
            value: None,
            headers: Default::default(),
            timestamp: record.timestamp,
        };
        let send = |pen: &mut Self, result, kafka_refusal: Option<&str>| {
            let (mut headers, value) = headers(record, (how, result), is_repeated);
            if let Some(kafka_refusal) = kafka_refusal {
                push(&mut headers, "unsent", kafka_refusal);
            }
            pen.outlet.send(&Message { value, headers: headers.as_headers(), ..message })
        };
        let refusal = match kafka_refusal {
            None => match send(self, result, None)? {
                None => return Ok(()),
                Some(refusal) => send(self, result.map(digest), Some(&refusal))?,
            },
            Some(kafka_refusal) => send(self, result.map(digest), Some(kafka_refusal))?,
        };
        match refusal {
            None => Ok(()),
            Some(refusal) => {
                let cause = Unprocessable::Result(refusal);
                Err(Failure::refused_at(self.outlet.share.task, record.offset, cause))
            }
        }
    }
}

fn push(headers: &mut HeaderBuf, name: &str, value: &str) {
    headers.push(format!("__ratchet.result.{name}").as_bytes(), Some(value.as_bytes()));
}

/// A handler's reply has no status.
fn push_status(headers: &mut HeaderBuf, status: u16) {
    if status != 0 {
        push(headers, "status", &status.to_string());
    }
}

/// The headers of a result's record, and its value.
fn headers<'a>(
    record: &Record<'_>,
    (how, result): (How, Option<ResultRef<'a>>),
    is_repeated: bool,
) -> (HeaderBuf, Option<&'a [u8]>) {
    let mut headers = HeaderBuf::default();
    let (partition, offset) = (record.partition.to_string(), record.offset.to_string());
    for (name, value) in [("topic", record.topic), ("partition", &partition), ("offset", &offset)] {
        push(&mut headers, name, value);
    }
    push(&mut headers, "verdict", how.as_str());
    if is_repeated {
        push(&mut headers, "repeated", "true");
    }
    let value = match result {
        Some(ResultRef::Whole { status, body }) => {
            push_status(&mut headers, status);
            Some(body)
        }
        Some(ResultRef::Digest { status, sha256, bytes }) => {
            push_status(&mut headers, status);
            push(&mut headers, "digest", &format!("sha256:{}", hex(&sha256)));
            push(&mut headers, "bytes", &bytes.to_string());
            None
        }
        Some(ResultRef::Reason(reason)) => {
            push(&mut headers, "reason", reason);
            None
        }
        None => None,
    };
    (headers, value)
}

/// A result without its body.
fn digest(result: ResultRef<'_>) -> ResultRef<'_> {
    match result {
        ResultRef::Whole { status, body } => {
            ResultRef::Digest { status, sha256: Sha256::digest(body).into(), bytes: body.len() as u64 }
        }
        result => result,
    }
}

/// The result that is remembered of a call's last answer.
pub(super) fn result_of(called: &Called) -> Option<ResultRef<'_>> {
    let LastAnswer { status, body, .. } = called.last_answer.as_ref()?;
    let status = status.unwrap_or_default();
    Some(match body {
        Body::Whole(body) => ResultRef::Whole { status, body },
        Body::Digest { sha256, bytes } => ResultRef::Digest { status, sha256: *sha256, bytes: *bytes },
        Body::None => ResultRef::Whole { status, body: &[] },
    })
}
