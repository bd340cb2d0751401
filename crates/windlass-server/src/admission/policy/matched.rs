//! Whether a request is one that a policy or a binding is for (`apiserver/pkg/admission/plugin/policy/matching`).

use std::sync::Arc;

use serde_json::Value;

use crate::admission::matching::{equivalents, matches, selects_namespace, selects_objects};
use crate::admission::request::Request;
use crate::admission_config::{Constraints, NamedRule};
use crate::catalog::Served;
use crate::status::Status;

impl NamedRule {
    fn matches(&self, request: &Request, served: &Served) -> bool {
        matches(&self.rule, request, served) && (self.names.is_empty() || self.names.contains(&request.name))
    }
}

impl Constraints {
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

    fn ruled(&self, rules: &[NamedRule], request: &Request) -> Option<Arc<Served>> {
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
