//! Scopes: which objects a quota is about.

use serde_json::Value;

use crate::validation::access::Access as _;

/// One condition on the objects that a quota is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `BestEffort`, `PriorityClass` and so on.
    pub name: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

impl Scope {
    /// The scopes of a ResourceQuota, however they are written.
    pub fn of(quota: &Value) -> Vec<Self> {
        let spec = quota.at("spec");
        let plain = spec.texts("scopes").into_iter().map(|name| Self {
            name: name.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selected = spec.at("scopeSelector").list("matchExpressions").iter().map(|expression| Self {
            name: expression.text("scopeName").to_owned(),
            operator: expression.text("operator").to_owned(),
            values: expression.texts("values").into_iter().map(str::to_owned).collect(),
        });
        plain.chain(selected).collect()
    }

    /// Whether one of the classes that an object refers to is the kind that is asked for.
    pub(super) fn accepts(&self, classes: &[&str]) -> bool {
        let listed = |class: &&&str| self.values.iter().any(|value| value == **class);
        match self.operator.as_str() {
            "In" => classes.iter().any(|class| listed(&class)),
            "NotIn" => classes.is_empty() || classes.iter().any(|class| !listed(&class)),
            "Exists" => !classes.is_empty(),
            "DoesNotExist" => classes.is_empty(),
            _ => false,
        }
    }
}
