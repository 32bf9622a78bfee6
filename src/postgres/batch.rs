//! The content of a transaction: the steps of its tasks, their records, and the statements that the records call.

use super::inbox::{Round, rounds};
use super::settings::Shared;
use super::statement::Prepared;
use crate::effect::{Effect, Step};
use crate::words::counted;

/// The content of a transaction.
pub(super) struct Batch<'a> {
    pub steps: &'a [Step<'a>],
    /// The steps' numbers in the order of their keys.
    pub steps_by_key: Vec<usize>,
    /// The records in order, each as the number of its step and the number of its effect within the step.
    pub records: Vec<(usize, usize)>,
    pub statements: &'a [Prepared],
    pub rounds: Vec<Round<'a>>,
    /// Whether the sink returns an answer for each record.
    pub has_answers: bool,
    /// Whether one of the statements has `expect_rows`.
    pub expects_rows: bool,
}

impl<'a> Batch<'a> {
    pub fn new(steps: &'a [Step<'a>], statements: &'a [Prepared], shared: &Shared) -> Self {
        let mut steps_by_key: Vec<usize> = (0..steps.len()).collect();
        steps_by_key.sort_by_key(|&step| steps[step].key);
        let step_records =
            |(number, step): (usize, &Step<'_>)| (0..step.effects.len()).map(move |effect| (number, effect));
        let records: Vec<_> = steps.iter().enumerate().flat_map(step_records).collect();
        let rounds = match shared.settings.inbox {
            Some(_) => rounds(steps.iter().flat_map(|step| step.effects.iter())),
            None => Vec::new(),
        };
        let expects_rows = statements.iter().any(|statement| statement.expect_rows.is_some());
        Self { steps, steps_by_key, records, statements, rounds, has_answers: shared.has_answers(), expects_rows }
    }

    pub fn record(&self, number: usize) -> Effect<'a> {
        let (step, effect) = self.records[number];
        self.steps[step].effects.get(effect)
    }

    /// The reason why a record cannot be sent at all; `None` if it can.
    pub fn unsendable_reason(&self, number: usize) -> Option<String> {
        self.record(number).calls().find_map(|call| {
            let number = call.statement() as usize;
            let given = call.parameters().len();
            match self.statements.get(number) {
                None => Some(format!("there is no statement {}", number + 1)),
                Some(statement) if statement.parameter_count != given => {
                    let has = statement.parameter_count;
                    Some(format!("statement {} has {}, but is given {given}", number + 1, counted(has, "parameter")))
                }
                Some(_) => None,
            }
        })
    }
}
