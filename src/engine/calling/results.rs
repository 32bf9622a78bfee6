//! Writes the responses of calls to the results topic: once when a record is settled, and again for each duplicate if
//! the topology repeats results.

use crate::cluster::{Cluster, Message};
use crate::effect::provider::Body;
use crate::engine::failure::{Failure, Unprocessable};
use crate::format::{How, Remembered, ResultRef, hex};
use crate::record::{HeaderBuf, Record};

use sha2::{Digest, Sha256};

use super::window::{CalledRecord, LastResponse};
use super::writing::SlotWriter;

impl<C: Cluster> SlotWriter<'_, '_, C> {
    /// Writes the response of a call. If Kafka has refused it before, with the message `kafka_refusal`, the body is
    /// omitted.
    pub(super) fn write_result(
        &mut self,
        record: &Record<'_>,
        called: &CalledRecord,
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        match result_of(called) {
            Some(result) => self.send_result(record, (How::Done, Some(result)), false, kafka_refusal),
            None => Ok(()),
        }
    }

    /// Writes the remembered result once more, for a duplicate; `former` is the stored state of its identity.
    pub(super) fn repeat_result(
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
        // Returns the reason if the producer refuses the message at once: then the result is sent without its body.
        let send = |writer: &mut Self, result, kafka_refusal: Option<&str>| {
            let (mut headers, value) = result_record(record, (how, result), is_repeated);
            if let Some(kafka_refusal) = kafka_refusal {
                push_header(&mut headers, "unsent", kafka_refusal);
            }
            writer.outlet.send(&Message { value, headers: headers.as_headers(), ..message })
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

fn push_header(headers: &mut HeaderBuf, name: &str, value: &str) {
    headers.push(format!("__ratchet.result.{name}").as_bytes(), Some(value.as_bytes()));
}

/// Adds the status header; a handler's response has no status.
fn push_status_header(headers: &mut HeaderBuf, status: u16) {
    if status != 0 {
        push_header(headers, "status", &status.to_string());
    }
}

/// The headers and the value of the record that carries a result.
fn result_record<'a>(
    record: &Record<'_>,
    (how, result): (How, Option<ResultRef<'a>>),
    is_repeated: bool,
) -> (HeaderBuf, Option<&'a [u8]>) {
    let mut headers = HeaderBuf::default();
    let (partition, offset) = (record.partition.to_string(), record.offset.to_string());
    for (name, value) in [("topic", record.topic), ("partition", &partition), ("offset", &offset)] {
        push_header(&mut headers, name, value);
    }
    push_header(&mut headers, "verdict", how.as_str());
    if is_repeated {
        push_header(&mut headers, "repeated", "true");
    }
    let value = match result {
        Some(ResultRef::Whole { status, body }) => {
            push_status_header(&mut headers, status);
            Some(body)
        }
        Some(ResultRef::Digest { status, sha256, bytes }) => {
            push_status_header(&mut headers, status);
            push_header(&mut headers, "digest", &format!("sha256:{}", hex(&sha256)));
            push_header(&mut headers, "bytes", &bytes.to_string());
            None
        }
        Some(ResultRef::Reason(reason)) => {
            push_header(&mut headers, "reason", reason);
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

/// The result to remember: a call's last response.
pub(super) fn result_of(called: &CalledRecord) -> Option<ResultRef<'_>> {
    let LastResponse { status, body, .. } = called.last_response.as_ref()?;
    let status = status.unwrap_or_default();
    Some(match body {
        Body::Whole(body) => ResultRef::Whole { status, body },
        Body::Digest { sha256, bytes } => ResultRef::Digest { status, sha256: *sha256, bytes: *bytes },
        Body::None => ResultRef::Whole { status, body: &[] },
    })
}
