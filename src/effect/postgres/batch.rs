//! What a transaction carries out: the steps of its tasks, their records, and the statements that these call.

use super::inbox::{Round, rounds};
use super::settings::Shared;
use super::statement::Prepared;
use crate::effect::{Effect, Step};
use crate::words::counted;

/// What a transaction is about.
pub(super) struct Batch<'a> {
    pub steps: &'a [Step<'a>],
    /// The steps in the order of their keys.
    pub order: Vec<usize>,
    /// The records in their order: the step's number, the effect's number.
    pub records: Vec<(usize, usize)>,
    pub statements: &'a [Prepared],
    pub rounds: Vec<Round<'a>>,
    /// Whether the sink answers for each record.
    pub answers: bool,
    /// Whether one of the statements has `expect_rows`.
    pub expects_rows: bool,
}

impl<'a> Batch<'a> {
    pub fn new(steps: &'a [Step<'a>], statements: &'a [Prepared], shared: &Shared) -> Self {
        let mut order: Vec<usize> = (0..steps.len()).collect();
        order.sort_by_key(|&step| steps[step].key);
        let of_step = |(number, step): (usize, &Step<'_>)| (0..step.effects.len()).map(move |effect| (number, effect));
        let records: Vec<_> = steps.iter().enumerate().flat_map(of_step).collect();
        let rounds = match shared.settings.inbox {
            Some(_) => rounds(steps.iter().flat_map(|step| step.effects.iter())),
            None => Vec::new(),
        };
        let expects_rows = statements.iter().any(|statement| statement.expect_rows.is_some());
        Self { steps, order, records, statements, rounds, answers: shared.answers(), expects_rows }
    }

    pub fn record(&self, number: usize) -> Effect<'a> {
        let (step, effect) = self.records[number];
        self.steps[step].effects.get(effect)
    }

    /// Why a record cannot be sent at all.
    pub fn unsendable(&self, number: usize) -> Option<String> {
        self.record(number).calls().find_map(|call| {
            let number = call.statement() as usize;
            let given = call.parameters().len();
            match self.statements.get(number) {
                None => Some(format!("there is no statement {}", number + 1)),
                Some(statement) if statement.parameters != given => {
                    let has = statement.parameters;
                    Some(format!("statement {} has {}, but is given {given}", number + 1, counted(has, "parameter")))
                }
                Some(_) => None,
            }
        })
    }
}
