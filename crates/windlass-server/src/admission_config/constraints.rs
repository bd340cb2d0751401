//! Which requests a policy or a binding is for (`apiserver/pkg/admission/plugin/policy/matching`).

use serde_json::Value;

use super::webhook::Rule;
use crate::validation::access::Access;
use crate::validation::selector::Selector;

/// `matchConstraints` of a policy, `matchResources` of a binding.
pub(crate) struct Constraints {
    pub(crate) rules: Vec<NamedRule>,
    pub(crate) excluded: Vec<NamedRule>,
    pub(crate) namespaces: Selector,
    pub(crate) objects: Selector,
    /// Whether rules match a resource in whatever version it is written.
    pub(crate) equivalent: bool,
}

/// A rule, and the names of the objects it is about; all, if there are none.
pub(crate) struct NamedRule {
    pub(crate) rule: Rule,
    pub(crate) names: Vec<String>,
}

impl NamedRule {
    fn new(rule: &Value) -> Self {
        Self { rule: Rule::new(rule), names: rule.texts("resourceNames").into_iter().map(str::to_owned).collect() }
    }
}

impl Constraints {
    pub(crate) fn new(constraints: &Value) -> Self {
        let selector = |field: &str| match constraints.at(field) {
            Value::Null => Selector::All(Vec::new()),
            // Validation has seen to it that selectors are well-formed; one that is not selects nothing.
            selector => Selector::from_object(selector).unwrap_or(Selector::Nothing),
        };
        Self {
            rules: constraints.list("resourceRules").iter().map(NamedRule::new).collect(),
            excluded: constraints.list("excludeResourceRules").iter().map(NamedRule::new).collect(),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            equivalent: constraints.text("matchPolicy") == "Equivalent",
        }
    }
}
