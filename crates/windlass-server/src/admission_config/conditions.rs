//! `matchConditions`: CEL expressions that must all hold for a webhook to be called.

use serde_json::Value;

use super::expression::{Condition, Failure, Variables};
use crate::effort::Growth;
use crate::validation::access::Access;

/// What the conditions of one webhook may cost together.
const BUDGET: u64 = 10_000_000 / 4;

/// The conditions of one webhook, compiled.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    conditions: Vec<Condition>,
}

impl Conditions {
    /// Reads `matchConditions` of a webhook.
    pub(crate) fn new(webhook: &Value) -> Self {
        let conditions = webhook.list("matchConditions").iter();
        Self { conditions: conditions.map(|condition| Condition::new(condition.text("expression"))).collect() }
    }

    /// How long it may take to say whether they hold.
    pub(crate) fn growth(&self) -> Growth {
        let mut growth = Growth::default();
        self.conditions.iter().filter_map(Condition::growth).for_each(|one| growth.join(one));
        growth
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether all hold. One that is false decides, whatever errors others have.
    pub(crate) fn hold(&self, variables: Variables<'_>) -> Result<bool, String> {
        let mut budget = BUDGET;
        let mut outcomes = Vec::with_capacity(self.conditions.len());
        for condition in &self.conditions {
            match condition.holds(variables, &mut budget) {
                Err(Failure::Exhausted(why)) => return Err(why),
                Err(Failure::Failed(why)) => outcomes.push(Err(why)),
                Ok(holds) => outcomes.push(Ok(holds)),
            }
        }
        if outcomes.contains(&Ok(false)) {
            return Ok(false);
        }
        let mut errors: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
        errors.dedup();
        match &errors[..] {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }
}
