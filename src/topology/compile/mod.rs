//! The second step: turns a raw spec into a topology with everything resolved, and checks what its values mean
//! together, as far as they could be read.

use std::sync::Arc;

use crate::dedup::{Contents, Epoch, Identity, Retention, Rules, Source};
use crate::schemas::Sources;
use crate::yaml::{File, Place, Report, units};

use super::compiled::Topology;
use super::input::Start;
use super::presets::Preset;
use super::sink::Dedup;
use super::spec::{IdentitySpec, Spec, VersionSpec};

mod actions;
pub mod compiler;
mod nulls;
mod rules;
pub(super) mod samples;
pub mod topics;

use actions::actions;
use compiler::Compiler;
use topics::Written;

/// Where a topology says what others of its run may say differently.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// The output's name, or the sink.
    pub destination: Place,
    /// The inbox, or the sink, or the output's name.
    pub inbox: Place,
    /// The gate, or the destination.
    pub gate: Place,
}

/// The topology that `spec` describes, and where its parts are. `spec` includes the blocks of `preset`.
pub fn compile(
    spec: &Spec,
    preset: Option<&'static Preset>,
    file: &Arc<File>,
    report: &mut Report,
) -> Option<(Topology, Marks)> {
    let mut compiler = Compiler { spec, preset, file, report };
    let name = compiler.name();
    let input = compiler.input();
    compiler.check_rules();
    compiler.check_actions();
    let retention = compiler.retention();
    let future_max_ms = compiler.future_max_ms(retention);
    let topics = compiler.topics(name.as_deref(), input.as_ref());
    compiler.check_partitioning();
    compiler.check_clock();
    compiler.check_schema_ids();
    compiler.check_sink();
    compiler.check_gate();
    let gate = compiler.gate(name.as_deref());
    let destination = compiler.destination(&topics, name.as_deref(), input.as_ref());
    let tests = compiler.tests(input.as_ref());
    compiler.check_no_versions_expected();
    if !compiler.report.is_fine() {
        return None;
    }
    let Written { dead_letter, audit, .. } = topics;
    let has_key = spec.identity.parts.iter().any(|part| part.value.holds_key());
    let rules = build(spec, retention, future_max_ms);
    // A safety net: rules that load never contradict themselves in any other way either.
    for problem in rules.problems() {
        compiler.mistake(spec.identity_place, problem.to_string(), "the rules contradict themselves", "");
    }
    if !compiler.report.is_fine() {
        return None;
    }
    let topology = Topology {
        name: name?,
        preset: preset.map(Preset::pinned),
        input: input?,
        start: spec.input.start.as_ref().map_or(Start::Earliest, |start| start.value),
        rules: Arc::new(rules),
        schemas: Sources::default(),
        destination: destination?,
        gate: gate?,
        dead_letter: dead_letter?,
        audit,
        only_said_to_be_partitioned: spec.partitioned_by_identity && !has_key,
        tests,
    };
    let sink = spec.sink.as_ref().map(|sink| sink.place);
    let destination = spec.output.as_ref().map(|output| output.place).or(sink)?;
    let inbox = spec.sink.as_ref().and_then(|sink| sink.postgres.as_ref()?.inbox.as_ref()).map(|inbox| inbox.place);
    let gate = spec.gate.as_ref().map_or(destination, |gate| gate.place);
    Some((topology, Marks { destination, inbox: inbox.unwrap_or(destination), gate }))
}

/// Reports only mistakes that do not depend on a preset, for a topology whose preset is unknown.
pub fn check_without_preset(spec: &Spec, file: &Arc<File>, report: &mut Report) {
    let mut compiler = Compiler { spec, preset: None, file, report };
    let name = compiler.name();
    let input = compiler.input();
    if let Some(retention) = &spec.retention {
        compiler.future_max_ms(retention.value);
    }
    compiler.topics(name.as_deref(), input.as_ref());
    compiler.check_sink();
    compiler.check_gate();
    compiler.tests(input.as_ref());
}

/// The rules of a spec without mistakes.
fn build(spec: &Spec, retention: Retention, future_max_ms: i64) -> Rules {
    let parts = spec.identity.parts.iter().map(|part| part.value.clone()).collect();
    let mut rules = Rules::new(Identity { parts }, spec.version.as_ref().map(VersionSpec::version));
    rules.key_format = spec.input.key_format.as_ref().map_or(rules.key_format, |format| format.value);
    rules.value_format = spec.input.value_format.as_ref().map_or(rules.value_format, |format| format.value);
    rules.json_format = spec.input.json_format.as_ref().map_or(rules.json_format, |format| format.value);
    rules.epoch =
        spec.epoch.as_ref().map(|parts| Epoch { parts: parts.iter().map(|part| part.value.clone()).collect() });
    rules.kinds = spec.kinds.as_ref().and_then(|kinds| kinds.kinds.clone());
    rules.retention = retention;
    rules.refresh = spec.refresh.as_ref().map_or(rules.refresh, |refresh| refresh.value);
    rules.future_max_ms = future_max_ms;
    rules.contents = contents(spec, rules.contents.take());
    rules.actions = actions(spec);
    rules.limits = spec.limits;
    rules
}

/// The written contents, or the default. Calls are compared by what they ask for instead.
fn contents(spec: &Spec, default: Option<Contents>) -> Option<Contents> {
    if spec.sink.as_ref().is_some_and(|sink| sink.terms().is_some()) {
        return None;
    }
    spec.contents.as_ref().map_or(default, |contents| contents.value.clone())
}

impl Compiler<'_> {
    /// The retention, unless one was written that could not be read.
    pub fn known_retention(&self, retention: Retention) -> Option<Retention> {
        (self.spec.retention.is_some() || !self.spec.retention_given).then_some(retention)
    }

    /// The retention, as written or by default.
    pub fn retention_or_default(&self) -> Retention {
        // Only whether there is a version matters, not what it is.
        let default = || match self.spec.version_place {
            Some(_) => Retention::Forever,
            None => Retention::default_for(None),
        };
        self.spec.retention.as_ref().map_or_else(default, |retention| retention.value)
    }

    fn retention(&mut self) -> Retention {
        let retention = self.retention_or_default();
        if let Some(Retention::Forever) = self.known_retention(retention) {
            let help = "remove it, or limit the retention, e.g. `retention: 30d`";
            if let Some(late) = &self.spec.actions.late {
                let message = "`on_late` has no effect: without a limited retention no record is late".to_owned();
                self.warning(late.place, message, "never looked at", help);
            }
            if let Some(refresh) = &self.spec.refresh {
                let message = "`refresh` has no effect: what is remembered forever never expires".to_owned();
                self.warning(refresh.place, message, "never looked at", help);
            }
        }
        if let Some(Retention::For { ms }) = self.known_retention(retention) {
            self.check_buckets(ms);
        }
        retention
    }

    /// Warns about buckets that last longer than the retention.
    fn check_buckets(&mut self, retention_ms: i64) {
        let spec = self.spec;
        for part in &spec.identity.parts {
            if let Some(ms) = part.value.bucket_ms().filter(|ms| *ms > retention_ms) {
                let message = format!(
                    "the bucket lasts longer than the retention, which is {}",
                    units::show_duration_ms(retention_ms)
                );
                let help = format!("write `retention: {}` or more", units::show_duration_ms(ms.saturating_mul(2)));
                self.warning(part.place, message, "a duplicate late in the bucket would pass", help);
            }
        }
    }

    fn future_max_ms(&mut self, retention: Retention) -> i64 {
        let Some(future_max) = &self.spec.future_max_ms else { return retention.default_future_max_ms() };
        if let Some(Retention::For { ms }) = self.known_retention(retention)
            && future_max.value >= ms
        {
            let message =
                format!("`future_max` must be less than the retention, which is {}", units::show_duration_ms(ms));
            let help = format!(
                "write less, e.g. `future_max: {}`",
                units::show_duration_ms(retention.default_future_max_ms().max(1))
            );
            self.mistake(future_max.place, message, "one wrong timestamp could expire everything", help);
        }
        future_max.value
    }

    /// Warns of an identity that says where a record is, and not which thing it is about. (For effects outside of Kafka there
    /// is another warning.) Returns whether it did.
    fn check_places(&mut self) -> bool {
        let IdentitySpec { parts, complete } = &self.spec.identity;
        let is_place = parts.iter().all(|part| part.value.is_place() || part.value.is_constant());
        if self.spec.sink.is_some() || !complete || !is_place || !parts.iter().any(|part| part.value.is_place()) {
            return false;
        }
        let message =
            "`identity` is only where a record is in Kafka: one that is sent again is at another place, and is \
                       forwarded again"
                .to_owned();
        let help = "name what the record is about, e.g. `identity: value.order_id` or `identity: key`; without anything like \
                    that, `identity: value` recognises a value that is sent again byte for byte";
        self.warning(self.spec.identity_place, message, "no repetition is recognised by this", help);
        true
    }

    /// Warns if the record's timestamp is the last part of a version.
    fn check_clock(&mut self) {
        let Some(version) = &self.spec.version else { return };
        let Some(part) = version.parts.last() else { return };
        if !part.part.of.iter().any(|path| path.source == Source::Timestamp) {
            return;
        }
        let message = "`meta.timestamp` as a version: times of a producer's clock tie, and may go back. What becomes of a \
                       second change of a thing within one millisecond is up to `on_conflict` if its contents are new, and to \
                       `on_equal` if they are not"
            .to_owned();
        let help = "the records of a partition are in order anyway: leave `version` out if none comes late, or name a counter \
                    of the source, alone or behind the time, e.g. `version: {of: value.revision, as: integer}`";
        self.warning(self.spec.version_place.unwrap_or_default(), message, "a clock, in milliseconds", help);
    }

    /// Warns of an identity that holds the bytes that name a schema.
    fn check_schema_ids(&mut self) {
        let (input, parts) = (&self.spec.input, &self.spec.identity.parts);
        for (source, format, what) in
            [(Source::Key, &input.key_format, "key"), (Source::Value, &input.value_format, "value")]
        {
            let names_schemas = format.as_ref().is_some_and(|format| format.value.has_schemas());
            let Some(part) = parts.iter().find(|part| names_schemas && part.value.holds_bytes(&source)) else {
                continue;
            };
            let message = format!(
                "`{what}` is all bytes of the {what}, which may include the id of its schema: once the producer changes to \
                 another version of the schema, the same {what} has other bytes, and a repetition is forwarded"
            );
            let help = format!("write `{{content: {what}}}`, which is what the {what} says, whatever its schema");
            self.warning(part.place, message, "another schema, another identity", help);
        }
    }

    /// Warns if records with the same identity may be in different partitions.
    fn check_partitioning(&mut self) {
        if self.check_places() {
            return;
        }
        let identity = &self.spec.identity;
        let has_key = identity.parts.iter().any(|part| part.value.holds_key());
        let dedup = self.spec.sink.as_ref().and_then(|sink| sink.postgres.as_ref()?.dedup.as_ref());
        let has_inbox = dedup.is_some_and(|dedup| dedup.value == Dedup::Inbox);
        if has_key || self.spec.partitioned_by_identity || !identity.complete || has_inbox || self.spec.gate.is_some() {
            return;
        }
        let message =
            "duplicates are recognised within one partition only, and `identity` does not contain the key".to_owned();
        let help = "if the producer always sends one identity to one partition, write `partitioned_by_identity: true`; \
                    else let the producer use the identity as the record's key (`key` added here would make records \
                    with different keys different things)";
        let label = "are its records in one partition?";
        self.warning(self.spec.identity_place, message, label, help);
    }
}
