//! Which requests a policy or a binding is for (`apiserver/pkg/admission/plugin/policy/matching`).

use std::sync::Arc;

use serde_json::Value;

use crate::admission::matching::{equivalents, matches, selects_namespace, selects_objects};
use crate::admission::request::Request;
use crate::admission::webhook::Rule;
use crate::catalog::Served;
use crate::status::Status;
use crate::validation::access::Access;
use crate::validation::selector::Selector;

/// `matchConstraints` of a policy, `matchResources` of a binding.
pub(super) struct Constraints {
    rules: Vec<Named>,
    excluded: Vec<Named>,
    namespaces: Selector,
    objects: Selector,
    /// Whether rules match a resource in whatever version it is written.
    equivalent: bool,
}

/// A rule, and the names of the objects it is about; all, if there are none.
struct Named {
    rule: Rule,
    names: Vec<String>,
}

impl Named {
    fn new(rule: &Value) -> Self {
        Self { rule: Rule::new(rule), names: rule.texts("resourceNames").into_iter().map(str::to_owned).collect() }
    }

    fn matches(&self, request: &Request, served: &Served) -> bool {
        matches(&self.rule, request, served) && (self.names.is_empty() || self.names.contains(&request.name))
    }
}

impl Constraints {
    pub(super) fn new(constraints: &Value) -> Self {
        let selector = |field: &str| match constraints.at(field) {
            Value::Null => Selector::All(Vec::new()),
            // Validation has seen to it that selectors are well-formed; one that is not selects nothing.
            selector => Selector::from_object(selector).unwrap_or(Selector::Nothing),
        };
        Self {
            rules: constraints.list("resourceRules").iter().map(Named::new).collect(),
            excluded: constraints.list("excludeResourceRules").iter().map(Named::new).collect(),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            equivalent: constraints.text("matchPolicy") == "Equivalent",
        }
    }

    /// The version of the resource that the constraints are about, if they are about this request.
    pub(super) async fn matched(
        &self,
        request: &Request,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<Served>>, Status> {
        if !selects_objects(&self.objects, object, old)
            || !selects_namespace(request, &self.namespaces, object).await?
            || self.ruled(&self.excluded, request).is_some()
        {
            return Ok(None);
        }
        if self.rules.is_empty() {
            return Ok(Some(Arc::clone(&request.served)));
        }
        Ok(self.ruled(&self.rules, request))
    }

    fn ruled(&self, rules: &[Named], request: &Request) -> Option<Arc<Served>> {
        if rules.iter().any(|rule| rule.matches(request, &request.served)) {
            return Some(Arc::clone(&request.served));
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        let equivalents = equivalents(request);
        rules.iter().find_map(|rule| equivalents.iter().find(|served| rule.matches(request, served)).cloned())
    }
}
