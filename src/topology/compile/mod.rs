//! The second step: turns a raw spec into a topology with everything resolved, and checks what its values mean
//! together, as far as they could be read.

use std::sync::Arc;

use crate::dedup::{Action, Actions, Contents, Epoch, Identity, OnNull, Retention, Rules, Source};
use crate::effect::call::{OnInDoubt, OnUnavailable};
use crate::yaml::read::clipped;
use crate::yaml::{File, Place, Placed, Report, Text, units};

use super::sink::Dedup;
use super::spec::{IdentitySpec, KindsSpec, Spec, VersionSpec};
use super::{Preset, Start, Topology, names};

mod cases;
mod gate;
mod http;
mod nulls;
mod rules;
pub(super) mod samples;
mod sink;
mod sql;
mod statement;
mod table;
mod terms;
mod topics;

use topics::Written;

/// Where a topology says what others of its run may say differently.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// The output's name, or the sink.
    pub ending: Place,
    /// The inbox, or the sink, or the output's name.
    pub inbox: Place,
    /// The gate, or what the topology ends in.
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
    compiler.check_sink();
    compiler.check_gate();
    let gate = compiler.gate(name.as_deref());
    let ending = compiler.ending(&topics, name.as_deref(), input.as_ref());
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
        ending: ending?,
        gate: gate?,
        dead_letter: dead_letter?,
        audit,
        only_said_to_be_partitioned: spec.partitioned_by_identity && !has_key,
        tests,
    };
    let sink = spec.sink.as_ref().map(|sink| sink.place);
    let ending = spec.output.as_ref().map(|output| output.place).or(sink)?;
    let inbox = spec.sink.as_ref().and_then(|sink| sink.postgres.as_ref()?.inbox.as_ref()).map(|inbox| inbox.place);
    let gate = spec.gate.as_ref().map_or(ending, |gate| gate.place);
    Some((topology, Marks { ending, inbox: inbox.unwrap_or(ending), gate }))
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

/// What to do with a record that has the identity and the version of another with other contents.
fn conflict(spec: &Spec) -> Action {
    match &spec.actions.conflict {
        Some(action) => action.value,
        // An effect would be lost, or happen twice.
        None if spec.sink.is_some() && !spec.keeps_a_table() => Action::DeadLetter,
        None => default_conflict(spec),
    }
}

/// The same for an output or a table, where the topology does not say.
fn default_conflict(spec: &Spec) -> Action {
    let equal = spec.actions.equal.as_ref().map(|equal| equal.value).filter(|equal| *equal != Action::Drop);
    let is_timestamp = |version: &VersionSpec| {
        let mut paths = version.parts.iter().flat_map(|part| &part.part.of).peekable();
        paths.peek().is_some() && paths.all(|path| path.source == Source::Timestamp)
    };
    match equal {
        Some(equal) => equal,
        // A clock does not order two records of one moment.
        None if spec.version.as_ref().is_some_and(is_timestamp) => Action::Forward,
        // With an identity or a version the user says that both records are the same thing.
        None => Action::Drop,
    }
}

/// The way out for a word under `on_null_value` that does not fit the rest.
const OTHER_ON_NULL: &str = "write `on_null_value: forward` or another action";

/// The written actions, with defaults for the others.
fn actions(spec: &Spec) -> Actions {
    let defaults = Actions::default();
    let or = |written: &Option<Placed<Action>>, default| written.as_ref().map_or(default, |action| action.value);
    // What cannot be read cannot have an effect: a preset that would forward it means an output.
    let has_sink = spec.sink.is_some();
    let read = |action| if has_sink && action == Action::Forward { Action::DeadLetter } else { action };
    let postgres = spec.sink.as_ref().and_then(|sink| sink.postgres.as_ref());
    let terms = spec.sink.as_ref().and_then(|sink| sink.terms());
    let rejected = postgres.map(|postgres| &postgres.on_rejected).or(terms.map(|terms| &terms.on_rejected));
    let missing_version = or(&spec.actions.missing_version, defaults.missing_version);
    let in_doubt = terms.and_then(|terms| terms.on_in_doubt.as_ref()).is_some_and(|word| word.value == OnInDoubt::Fail);
    let unavailable =
        terms.and_then(|terms| terms.on_unavailable.as_ref()).is_some_and(|word| word.value == OnUnavailable::Fail);
    let or_fail = |fails| if fails { Action::Fail } else { Action::DeadLetter };
    let null_value = spec.actions.null_value.as_ref().map_or(defaults.null_value, |action| action.value);
    Actions {
        invalid: read(or(&spec.actions.invalid, defaults.invalid)),
        missing_identity: read(or(&spec.actions.missing, defaults.missing_identity)),
        null_value: match null_value {
            OnNull::Act(action) => OnNull::Act(read(action)),
            OnNull::FollowDelete => OnNull::FollowDelete,
            OnNull::Delete => OnNull::Delete,
        },
        equal_version: or(&spec.actions.equal, defaults.equal_version),
        // One key would stand for calls that are not the same.
        missing_version: if terms.is_some() { read(missing_version) } else { missing_version },
        epoch_change: or(&spec.actions.epoch_change, defaults.epoch_change),
        late: or(&spec.actions.late, defaults.late),
        unsendable: or(&spec.actions.unsendable, defaults.unsendable),
        rejected: rejected.map_or(defaults.rejected, |rejected| or(rejected, defaults.rejected)),
        conflict: match terms {
            Some(terms) => or(&terms.on_conflict, Action::DeadLetter),
            None => conflict(spec),
        },
        in_doubt: or_fail(in_doubt),
        unavailable: or_fail(unavailable),
    }
}

struct Compiler<'a> {
    spec: &'a Spec,
    /// The source of some of the spec's blocks.
    preset: Option<&'static Preset>,
    file: &'a Arc<File>,
    report: &'a mut Report,
}

impl Compiler<'_> {
    fn mistake(&mut self, place: Place, message: String, label: impl Into<String>, help: impl Into<String>) {
        self.report.mistake((self.file, place), message, label, help);
    }

    fn warning(&mut self, place: Place, message: String, label: impl Into<String>, help: impl Into<String>) {
        self.report.warning((self.file, place), message, label, help);
    }

    fn name(&mut self) -> Option<String> {
        let name = self.spec.name.as_ref()?;
        let text = name.value.reveal();
        if names::is_name(text) {
            return Some(text.to_owned());
        }
        let message = format!("a topology's name is 1 to {} lower-case letters, digits and `-`", names::NAME_CHARS_MAX);
        let nearest = names::nearest_name(text).filter(|_| !name.value.is_secret());
        let help = format!("write e.g. `name: {}`", nearest.as_deref().unwrap_or("payments"));
        self.mistake(name.place, message, format!("`{}` is not such a name", shown(&name.value)), help);
        None
    }

    fn check_actions(&mut self) {
        let actions = &self.spec.actions;
        let versioned = self.spec.version_place.is_some();
        for (key, action) in [("on_equal", &actions.equal), ("on_missing_version", &actions.missing_version)] {
            if let Some(action) = action.as_ref().filter(|_| !versioned) {
                let help = format!("remove `{key}`, or add `version: {{of: value.version, as: integer}}`");
                let message = format!("`{key}` has no effect without a `version`");
                self.mistake(action.place, message, "never looked at", help);
            }
        }
        if let Some(action) = &actions.epoch_change
            && !self.has_scope()
        {
            let message = "`on_epoch_change` has no effect without an `epoch`".to_owned();
            let help = "remove it, or add what scopes the versions, e.g. `epoch: value.server_id`";
            self.mistake(action.place, message, "never looked at", help);
        }
        if let Some(action) = actions.unsendable.as_ref().filter(|action| action.value == Action::Forward) {
            let message = "`on_unsendable` cannot be `forward`".to_owned();
            let help = "write `on_unsendable: dead_letter`, `drop` or `fail`";
            self.mistake(action.place, message, "the output has refused the record already", help);
        }
        if let Some(action) = actions.null_value.as_ref().filter(|action| action.value == OnNull::FollowDelete) {
            self.check_follow_delete(action.place);
        }
        if let Some(action) = actions.null_value.as_ref().filter(|action| action.value == OnNull::Delete) {
            self.check_null_identity(action.place, "delete");
            self.check_null_version(action.place);
        }
        self.check_conflict();
    }

    /// `contents` and `on_conflict` have an effect, and on each other.
    fn check_conflict(&mut self) {
        let (contents, conflict) = (self.spec.contents.as_ref(), self.spec.actions.conflict.as_ref());
        let written = [("contents", contents.map(|it| it.place)), ("on_conflict", conflict.map(|it| it.place))];
        if let Some(terms) = self.spec.sink.as_ref().and_then(|sink| sink.terms()) {
            for (key, place) in written.into_iter().filter_map(|(key, place)| Some((key, place?))) {
                let message = format!("`{key}` has no effect with a `{}`: what is asked for is compared", terms.named);
                let help = format!("remove it, or write `on_conflict` under `{}`", terms.named);
                self.mistake(place, message, "never looked at", help);
            }
            return;
        }
        let is_none = self.spec.contents.as_ref().is_some_and(|contents| contents.value.is_none());
        if let Some(conflict) = conflict {
            let (value, place) = (conflict.value, conflict.place);
            let postgres = self.spec.sink.as_ref().and_then(|sink| sink.postgres.as_ref());
            let inbox = postgres.and_then(|postgres| postgres.dedup.as_ref());
            if is_none {
                let message = "`on_conflict` has no effect with `contents: none`".to_owned();
                self.mistake(place, message, "never looked at", "remove one of them");
            } else if contents.is_none() && self.identity_says_all() {
                let message = "`on_conflict` has no effect: the identity is the whole value".to_owned();
                let help = "remove it: records with the same identity say the same";
                self.mistake(place, message, "never looked at", help);
            } else if value == Action::Forward && inbox.is_some_and(|dedup| dedup.value == Dedup::Inbox) {
                let message = "`on_conflict: forward` has no effect with `dedup: inbox`".to_owned();
                let help = "write `on_conflict: dead_letter`, `drop` or `fail`";
                self.mistake(place, message, "the inbox knows identities, and would drop the record", help);
            }
        }
        if let (Some(contents), false) = (contents, self.spec.identity.has_rows()) {
            let place = contents.place;
            if contents.value.as_ref().is_some_and(Contents::has_rows) {
                let message = "`rows` in `contents` needs `rows` in `identity`".to_owned();
                let help = "name the path alone, without `rows`, or write `rows` in `identity` too";
                self.mistake(place, message, "no record has several rows", help);
            }
        }
    }

    /// Whether records with one identity cannot say different things, so that contents are not compared by default.
    fn identity_says_all(&self) -> bool {
        let parts = self.spec.identity.parts.iter().map(|part| part.value.clone()).collect();
        self.spec.identity.complete && Contents::default_for(&Identity { parts }).is_none()
    }

    /// `follow_delete` needs deletes, and identities that null values also have.
    fn check_follow_delete(&mut self, place: Place) {
        let kinds = self.spec.kinds.as_ref();
        let deletes = kinds.map_or(self.spec.kinds_given, |kinds| kinds.key("delete").is_some());
        // Beside a preset, such kinds were reported.
        let is_reported = self.preset.is_some() && kinds.is_some_and(KindsSpec::names_no_kind);
        if !deletes && !is_reported {
            let message = "`follow_delete` has no effect without `kinds.delete`".to_owned();
            let help = format!(
                "say what a delete looks like, e.g. `kinds: {{of: value.op, delete: [d]}}`, or {OTHER_ON_NULL}"
            );
            self.mistake(place, message, "no delete is known", help);
        }
        self.check_null_identity(place, "follow_delete");
    }

    /// What judges null values needs identities that they have, too.
    fn check_null_identity(&mut self, place: Place, word: &str) {
        let identity = &self.spec.identity;
        if identity.complete && !identity.parts.iter().all(|part| part.value.is_outside_value()) {
            let message = format!("`{word}` needs an identity that is not read from the value");
            let help = format!("name what identifies the key, e.g. `identity: {{content: key}}`, or {OTHER_ON_NULL}");
            self.mistake(place, message, "a null value has nothing in it", help);
        }
    }

    /// A null that is a delete can be newer than what is known.
    fn check_null_version(&mut self, place: Place) {
        let is_outside = |version: &VersionSpec| {
            let parts = version.version().parts;
            !version.complete || parts.iter().flat_map(|part| &part.of).any(|path| path.source != Source::Value)
        };
        if !self.spec.version.as_ref().map_or(self.spec.version_place.is_some(), is_outside) {
            let message = "`delete` needs a `version` that is not only read from the value".to_owned();
            let help =
                format!("name what orders it, e.g. `version: {{of: header.lsn, as: integer}}`, or {OTHER_ON_NULL}");
            self.mistake(place, message, "nothing says whether a null value is newer than the row", help);
        }
    }

    /// The retention, unless one was written that could not be read.
    fn known_retention(&self, retention: Retention) -> Option<Retention> {
        (self.spec.retention.is_some() || !self.spec.retention_given).then_some(retention)
    }

    /// The retention, as written or by default.
    fn retention_or_default(&self) -> Retention {
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

/// A text to show in a label; a secret as `***`.
fn shown(text: &Text) -> String {
    clipped(&text.to_string())
}
