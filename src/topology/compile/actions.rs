//! Compiles actions, and reports those without an effect.

use crate::dedup::{Action, Actions, Contents, Identity, OnNull, Source};
use crate::effect::call::{OnInDoubt, OnUnavailable};
use crate::topology::sink::Dedup;
use crate::topology::spec::{KindsSpec, Spec, VersionSpec};
use crate::yaml::{Place, Placed};

use super::compiler::Compiler;

/// The way out for a word under `on_null_value` that does not fit the rest.
const OTHER_ON_NULL: &str = "write `on_null_value: forward` or another action";

/// The written actions, with defaults for the others.
pub fn actions(spec: &Spec) -> Actions {
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

impl Compiler<'_> {
    /// Actions have an effect, and can be carried out.
    pub fn check_actions(&mut self) {
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
}
