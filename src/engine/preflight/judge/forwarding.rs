//! Findings about the input's settings, and about those of input and output together.

use crate::cluster::TopicDescription;
use crate::dedup::{Path, Retention, Rules, Source};
use crate::engine::preflight::finding::Finding;
use crate::words::counted;
use crate::yaml::units::show_duration_ms;

use super::Judge;

impl Judge<'_> {
    /// Findings about the input alone.
    pub(super) fn reading(&self, name: &str, input: &TopicDescription, findings: &mut Vec<Finding>) {
        let rules = &self.topology.rules;
        if let Retention::For { ms } = rules.retention {
            let kept = kept_for(input);
            if kept <= ms && kept > ms / 2 {
                findings.push(Finding::warning(
                    format!(
                        "input topic {name:?} keeps its records for {} (retention.ms), and longer: Kafka removes whole \
                         segments, by default up to 7 days later (segment.ms). Identities are remembered {} (retention): a \
                         record that somebody sends again after that, from what the topic still holds, is forwarded again",
                        show_duration_ms(kept),
                        show_duration_ms(ms)
                    ),
                    format!(
                        "set `retention` to {}, twice as long as the topic keeps records",
                        show_duration_ms(kept.saturating_mul(2))
                    ),
                ));
            } else if kept > ms {
                let kept = if kept == i64::MAX { "for ever".to_owned() } else { show_duration_ms(kept) };
                let bytes = match input.retention_bytes {
                    i64::MAX => String::new(),
                    bytes => format!(", at most {bytes} bytes a partition"),
                };
                findings.push(Finding::warning(
                    format!(
                        "input topic {name:?} keeps its records {kept}{bytes} (cleanup.policy={}), and identities are \
                         remembered {} (retention): a record that was sent again after that is forwarded again",
                        input.cleanup_policy,
                        show_duration_ms(ms)
                    ),
                    "set `retention` to twice as long as the topic keeps its records, or the topic's retention.ms to half of it",
                ));
            }
        }
        if input.stamps && reads_time(rules) {
            findings.push(Finding::warning(
                format!(
                    "input topic {name:?} stamps its records itself (message.timestamp.type=LogAppendTime), and the \
                     rules read the timestamp: a record that is sent again has another one"
                ),
                "read a time that the producer has set, or set the topic's message.timestamp.type to CreateTime",
            ));
        }
    }

    /// Findings about input and output together.
    pub(super) fn forwarding(
        &self,
        (from, input): (&str, &TopicDescription),
        (to, output): (&str, &TopicDescription),
        findings: &mut Vec<Finding>,
    ) {
        if output.partition_count < input.partition_count {
            findings.push(Finding::refused(
                format!(
                    "output topic {to:?} has {} and its input {from:?} has {}: records are forwarded to the partition \
                     they came from",
                    counted(output.partition_count, "partition"),
                    input.partition_count
                ),
                "add partitions to the output",
            ));
        }
        if output.message_bytes_max < input.message_bytes_max {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} takes batches of {} bytes and its input {from:?} takes {}: it may refuse \
                     records (on_unsendable)",
                    output.message_bytes_max, input.message_bytes_max
                ),
                "raise max.message.bytes of the output",
            ));
        }
        if output.stamps {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} stamps its records itself (message.timestamp.type=LogAppendTime): forwarded \
                     records lose their timestamps"
                ),
                "set its message.timestamp.type to CreateTime",
            ));
            return;
        }
        let oldest = input.timestamp_before_max_ms.saturating_add(kept_for(input));
        if output.timestamp_before_max_ms < oldest {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} refuses records that are older than {} (message.timestamp.before.max.ms), and \
                     those of its input {from:?} may be {}",
                    show_duration_ms(output.timestamp_before_max_ms),
                    if oldest == i64::MAX {
                        "of any age".to_owned()
                    } else {
                        format!("{} old", show_duration_ms(oldest))
                    },
                ),
                "raise it, or expect such records under on_unsendable",
            ));
        }
        let ahead = self.topology.rules.future_max_ms.min(input.timestamp_after_max_ms);
        if output.timestamp_after_max_ms < ahead {
            findings.push(Finding::warning(
                format!(
                    "output topic {to:?} refuses records that are more than {} ahead (message.timestamp.after.max.ms), \
                     and those that are forwarded may be {} ahead",
                    show_duration_ms(output.timestamp_after_max_ms),
                    show_duration_ms(ahead)
                ),
                "raise it, or lower `future_max`",
            ));
        }
    }
}

/// How long a topic keeps a record at most, in milliseconds; `i64::MAX` for ever.
fn kept_for(topic: &TopicDescription) -> i64 {
    if topic.cleanup_policy.contains("delete") { topic.retention_ms } else { i64::MAX }
}

/// Whether identity or version depend on the record's timestamp.
fn reads_time(rules: &Rules) -> bool {
    let is_time = |path: &Path| path.source == Source::Timestamp;
    rules.paths().into_iter().any(is_time) || rules.identity.parts.iter().any(|part| part.bucket_ms().is_some())
}
