//! What handlers do: one to four steps, told by the record alone, some of which are refused, and what undoes the others.

use std::sync::{Arc, Mutex, PoisonError};

use ratchet::provider::handler::{Function, StepOutcome};
use ratchet::{Record, Reply, StepError, Steps};

use crate::judge::coverage::faults;
use crate::random::Random;

use super::outside::{Asked, Known, Outside};

/// The names of steps, in their order.
const NAMES: [&str; 4] = ["charge", "book", "ship", "mail"];
/// What undoes a step gives nothing: as JSON.
const NOTHING: &str = "null";

/// What a record's work consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Planned>,
    /// Whether the function refuses the record once all its steps are done.
    pub is_refused_at_end: bool,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub name: &'static str,
    /// Whether it is a transaction of the database.
    pub is_transaction: bool,
    /// Whether it will be refused.
    pub is_declined: bool,
    /// Whether the function then goes on another way.
    pub goes_on: bool,
    /// What undoes it, if something does: whether that is a transaction.
    pub undo: Option<bool>,
}

impl Plan {
    /// The work of a record with this amount.
    pub fn of(amount: u64) -> Self {
        let mut random = Random::new(amount.wrapping_mul(0x9e37_79b9));
        let count = random.between(1, 4) as usize;
        let declined = random.permille(220).then(|| random.below(count as u64) as usize);
        let goes_on = random.permille(300);
        let steps = NAMES[..count].iter().enumerate().map(|(at, name)| Planned {
            name,
            is_transaction: random.permille(400),
            is_declined: declined == Some(at),
            goes_on,
            undo: random.permille(600).then(|| random.permille(400)),
        });
        Self { steps: steps.collect(), is_refused_at_end: random.permille(60) }
    }

    /// The work of a record with this value.
    pub fn of_value(value: &[u8]) -> Self {
        let value: serde_json::Value = serde_json::from_slice(value).unwrap_or_default();
        Self::of(value["amount"].as_u64().unwrap_or_default())
    }

    /// The number of the step at which it is refused, or that of all of them; `None` if it ends well.
    pub fn refused_at(&self) -> Option<usize> {
        let at = self.steps.iter().position(|step| step.is_declined && !step.goes_on);
        at.or(self.is_refused_at_end.then_some(self.steps.len()))
    }
}

/// The name of what undoes a step.
pub fn undoes(name: &str) -> String {
    format!("undo {name}")
}

/// The function that works by these means.
pub fn function(outside: Arc<Outside>) -> Function {
    Function::new(async move |record: &Record, steps: &mut Steps| work(&outside, record, steps).await)
}

async fn work(outside: &Arc<Outside>, record: &Record, steps: &mut Steps) -> Result<Reply, StepError> {
    let value: serde_json::Value = record.json()?;
    let plan = Plan::of(value["amount"].as_u64().unwrap_or_default());
    let known: Arc<Mutex<Vec<(String, Known)>>> = Arc::default();
    let partition = record.partition();
    for Planned { name, is_transaction, is_declined, goes_on, undo } in &plan.steps {
        let body = body(&value, name, *is_declined);
        let asked = Asked { partition, body: &body, is_declined: *is_declined, known: &known };
        outside.dawdle().await;
        let step = async {
            match is_transaction {
                true => steps.transaction_by(name, async |key| outside.transact(asked, &key).await).await,
                false => steps.call(name, async |key| outside.call(asked, &key).await).await,
            }
        };
        let came: Result<u64, StepError> = match outside.patiently(step).await {
            Some(came) => came,
            None => match outside.without_step() {
                Some(error) => return Err(error),
                // Whatever it does and says now does not count.
                None => continue,
            },
        };
        if came.as_ref().is_err_and(StepError::is_rejected) {
            outside.reach(faults::STEP_REFUSED);
        }
        match came {
            Ok(serial) => learn(&known, name, Known::Done(serial.to_string())),
            Err(error) if error.is_rejected() && *goes_on => {
                learn(&known, name, Known::Refused(error.to_string()));
                continue;
            }
            Err(error) => {
                learn(&known, name, Known::Refused(error.to_string()));
                return Err(error);
            }
        }
        if let Some(by_transaction) = undo {
            compensate(
                outside,
                steps,
                (name, *by_transaction),
                (partition, self::body(&value, &undoes(name), false), &known),
            );
        }
    }
    if plan.is_refused_at_end {
        outside.reach(faults::HANDLER_REFUSED);
        return Err(StepError::rejected("the whole is refused"));
    }
    let known = known.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let given: serde_json::Map<String, serde_json::Value> = known
        .into_iter()
        .filter_map(|(name, known)| match known {
            Known::Done(result) => Some((name, serde_json::from_str(&result).ok()?)),
            Known::Refused(_) => None,
        })
        .collect();
    Reply::json(&serde_json::json!({ "given": given }))
}

fn learn(known: &Mutex<Vec<(String, Known)>>, name: &str, what: Known) {
    known.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), what));
}

type Told<'a> = (i32, String, &'a Arc<Mutex<Vec<(String, Known)>>>);

fn compensate(outside: &Arc<Outside>, steps: &mut Steps, (name, by_transaction): (&str, bool), told: Told<'_>) {
    let (partition, body, known) = told;
    let (outside, known, undo) = (Arc::clone(outside), Arc::clone(known), undoes(name));
    let undone = undo.clone();
    if by_transaction {
        return steps.compensate_by(&undo, async move |key| {
            let asked = Asked { partition, body: &body, is_declined: false, known: &known };
            let came = outside.transact(asked, &key).await?;
            learn(&known, &undone, Known::Done(NOTHING.to_owned()));
            // Nobody wants to know its number.
            Ok(if matches!(came, StepOutcome::Done(_)) { StepOutcome::Done(NOTHING.into()) } else { came })
        });
    }
    steps.compensate(&undo, async move |key| {
        let asked = Asked { partition, body: &body, is_declined: false, known: &known };
        outside.call(asked, &key).await?;
        learn(&known, &undone, Known::Done(NOTHING.to_owned()));
        Ok(())
    });
}

/// What a step asks for.
fn body(value: &serde_json::Value, step: &str, is_declined: bool) -> String {
    let field = |name: &str| value.get(name).map(|value| format!(r#""{name}":{value},"#)).unwrap_or_default();
    let [id, epoch, version] = ["id", "epoch", "version"].map(field);
    let of = value["amount"].as_u64().unwrap_or_default();
    format!(r#"{{{id}{epoch}{version}"of":{of},"step":"{step}","declined":{is_declined}}}"#)
}
