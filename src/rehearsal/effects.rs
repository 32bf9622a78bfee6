//! What a record would cause in its topology's sink, rendered by the same code as in a run.

use crate::dedup::{Carried, Decision, Model, Reason, Rejection};
use crate::effect::Effects;
use crate::record::Record;
use crate::rendering::{Renderer, described};
use crate::topology::Topology;
use crate::topology::cases::GivenAttempt;
use crate::topology::sink::{Command, Statement};

use super::calls::{Caller, Made};

/// What a sink would answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It carries out everything.
    Done,
    /// It refuses the record, with these words.
    Rejected(&'a str),
    /// Its inbox has the record already.
    InInbox,
}

/// A statement that was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The statement's number, from 1.
    pub statement: usize,
    /// What it does: `sql`, `upsert`, `delete` or `truncate`.
    pub does: &'static str,
    /// The same for people: its SQL, or what stands for it.
    pub described: String,
    /// The parameters as text, `None` for null.
    pub with: Vec<Option<String>>,
}

/// Judges records, and renders what those that are forwarded cause.
#[derive(Debug)]
pub struct Rehearser {
    /// The renderer, and the statements; `None` if the topology does not end in a database.
    sink: Option<(Renderer, Vec<Statement>)>,
    /// `None` if the topology does not end in a provider.
    caller: Option<Caller>,
    effects: Effects,
}

impl Rehearser {
    /// For records of this topology. A provider answers all calls, each with 200.
    pub fn new(topology: &Topology) -> Self {
        Self::answered(topology, &[])
    }

    /// The same with a provider whose attempts come to this, and then to 200.
    pub fn answered(topology: &Topology, attempts: &[GivenAttempt]) -> Self {
        let statements = topology.sink().map(|sink| sink.statements().to_vec());
        Self {
            sink: Renderer::new(topology).zip(statements),
            caller: Caller::new(topology, attempts),
            effects: Effects::default(),
        }
    }

    /// Whether there is a sink.
    pub fn has_sink(&self) -> bool {
        self.sink.is_some() || self.caller.is_some()
    }

    /// What the record that was judged last made the provider do; `None` if there is none.
    pub fn made(&self) -> Option<&Made> {
        self.caller.as_ref().map(Caller::made)
    }

    /// Judges the next record by its partition's model; if it is to be forwarded, the sink answers this.
    pub fn judge(&mut self, model: &mut Model, record: &Record<'_>, wall_ms: i64, answer: Answer<'_>) -> Decision {
        let Self { sink, caller, effects } = self;
        effects.clear();
        if let Some(caller) = caller {
            return caller.judge(model, record, wall_ms);
        }
        let Some((renderer, _)) = sink else { return model.judge(record, wall_ms) };
        let rejected = |message: String| Carried::Refused(Rejection { reason: Reason::Rejected, message });
        model.judge_and_carry(record, wall_ms, |rows, arena| {
            if let Err(message) = renderer.render(record, rows, arena, effects) {
                return rejected(message);
            }
            let carried = match answer {
                Answer::Done => return Carried::Out,
                Answer::Rejected(words) => rejected(format!("the sink refuses what the record causes: {words}")),
                Answer::InInbox => Carried::InInbox,
            };
            effects.clear();
            carried
        })
    }

    /// What the record that was judged last causes.
    pub fn called(&self) -> Vec<Called> {
        let Some((_, statements)) = &self.sink else { return Vec::new() };
        let calls = self.effects.iter().flat_map(|effect| effect.calls());
        let called = calls.map(|call| {
            let statement = call.statement() as usize;
            let command = &statements[statement].command;
            let with = call.parameters().map(|text| text.map(str::to_owned)).collect();
            Called { statement: statement + 1, does: word(command), described: described(command), with }
        });
        called.collect()
    }
}

/// The word for what a statement does.
const fn word(command: &Command) -> &'static str {
    match command {
        Command::Sql { .. } => "sql",
        Command::Upsert { .. } => "upsert",
        Command::DeleteRow { .. } => "delete",
        Command::Truncate { .. } => "truncate",
    }
}

/// What was called, as JSON: a list of objects with `statement` and `with`.
pub fn as_json(called: &[Called]) -> String {
    let one = |called: &Called| serde_json::json!({"statement": called.described, "with": called.with});
    serde_json::Value::from(called.iter().map(one).collect::<Vec<_>>()).to_string()
}
