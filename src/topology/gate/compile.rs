//! Checks a gate: where it is, what it is called, and what it cannot be put in front of.

use crate::dedup::Action;
use crate::redis;
use crate::topology::compile::compiler::{Compiler, shown};
use crate::topology::gate::spec::GateSpec;
use crate::topology::gate::{Gate, OnUnavailable, RETENTION_MS, RETENTION_MS_MAX};
use crate::topology::names;
use crate::yaml::{Placed, Text, units};

impl Compiler<'_> {
    /// Reports what is wrong with a gate.
    pub fn check_gate(&mut self) {
        let Some(gate) = &self.spec.gate else { return };
        if let Some(url) = &gate.url {
            self.check_gate_url(url);
        }
        if let Some(name) = gate.name.as_ref().filter(|name| !names::is_name(name.value.reveal())) {
            let message = format!("a gate's name is 1 to {} lower-case letters, digits and `-`", names::NAME_CHARS_MAX);
            let label = format!("`{}` is not such a name", shown(&name.value));
            self.mistake(name.place, message, label, "write e.g. `name: orders`");
        }
        if let Some(retention) = gate.retention_ms.as_ref().filter(|retention| retention.value > RETENTION_MS_MAX) {
            let message = format!("`gate.redis.retention` is at most {}", units::show_duration_ms(RETENTION_MS_MAX));
            let help = "what a gate remembers takes the server's memory: write e.g. `retention: 7d`";
            self.mistake(retention.place, message, "longer than that", help);
        }
        self.check_gated(gate);
    }

    fn check_gate_url(&mut self, url: &Placed<Text>) {
        let example = "write e.g. `url: ${env:REDIS_URL}`, which holds `redis://user:password@host:6379/0`";
        if let Err(problem) = redis::check_url(url.value.reveal()) {
            let message = format!("`gate.redis.url` is not the address of a server of Redis: {problem}");
            self.mistake(url.place, message, "not a valid address", example);
        } else if self.is_password_written(url) {
            let message = "the password in `gate.redis.url` is a secret and must not be written out".to_owned();
            let help = "write `url: ${env:REDIS_URL}` or `url: ${file:PATH}`, or one of these in the password's place";
            self.mistake(url.place, message, "not shown", help);
        }
    }

    /// What a gate cannot be put in front of, and what it would contradict.
    fn check_gated(&mut self, gate: &GateSpec) {
        if let Some(terms) = self.spec.sink.as_ref().and_then(|sink| sink.terms()) {
            let message = format!("a `gate` cannot be put in front of a `{}`", terms.named);
            let help = "remove one of them; a topology with a gate and an `output` can come before one that calls";
            self.mistake(gate.place, message, "calls have no gate", help);
        }
        let equal = self.spec.actions.equal.as_ref();
        if equal.is_some_and(|equal| equal.value == Action::Forward) {
            let message =
                "`on_equal: forward` holds within a partition: the gate drops an equal version of another one"
                    .to_owned();
            let help = "remove the gate, or `on_equal`";
            self.warning(gate.place, message, "equal versions are dropped here", help);
        }
    }

    /// The gate; `Some(None)` if there is none.
    pub fn gate(&self, name: Option<&str>) -> Option<Option<Gate>> {
        let Some(gate) = &self.spec.gate else { return Some(None) };
        let named = gate.name.as_ref().map(|name| name.value.reveal());
        Some(Some(Gate {
            url: gate.url.as_ref()?.value.clone().into_secret(),
            name: named.or(name)?.to_owned(),
            retention_ms: gate.retention_ms.as_ref().map_or(RETENTION_MS, |retention| retention.value),
            on_unavailable: gate.on_unavailable.as_ref().map_or(OnUnavailable::Hold, |word| word.value),
        }))
    }
}
