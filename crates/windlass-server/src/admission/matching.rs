//! Which webhooks a request is for: rules, selectors, equivalent versions, conditions.

use std::sync::Arc;

use serde_json::Value;

use super::request::{GroupVersionKind, Request};
use crate::admission_config::{Hook, Rule, Scope};
use crate::catalog::Served;
use crate::object;
use crate::status::Status;
use crate::validation::selector::Selector;

/// How a webhook is to be asked: about which resource, with objects of which kind.
#[derive(Clone)]
pub(super) struct Invocation {
    pub(super) hook: Arc<Hook>,
    pub(super) served: Arc<Served>,
    pub(super) kind: GroupVersionKind,
}

/// Whether `hook` is to be asked; conditions are not looked at. `object` and `old` are the objects as far as
/// they are known.
pub(super) async fn invocation(
    request: &Request,
    hook: &Arc<Hook>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<Invocation>, Status> {
    let Some(served) = matched(request, hook) else { return Ok(None) };
    if !selects_objects(&hook.object_selector, object, old)
        || !selects_namespace(request, &hook.namespace_selector, object).await?
    {
        return Ok(None);
    }
    let kind = GroupVersionKind::of(&served, &request.subresource);
    Ok(Some(Invocation { hook: Arc::clone(hook), served, kind }))
}

/// The resource that a rule of the webhook is about: the one of the request, or the same in another version.
fn matched(request: &Request, hook: &Hook) -> Option<Arc<Served>> {
    if hook.rules.iter().any(|rule| matches(rule, request, &request.served)) {
        return Some(Arc::clone(&request.served));
    }
    // Rules that ask for another operation need no look at the other versions.
    if !hook.matches_equivalent || !hook.rules.iter().any(|rule| has(&rule.operations, request.operation)) {
        return None;
    }
    let equivalents = equivalents(request);
    hook.rules.iter().find_map(|rule| {
        let equivalent = equivalents.iter().find(|served| matches(rule, request, served))?;
        Some(Arc::clone(equivalent))
    })
}

/// The resource of a request in its other versions.
pub(super) fn equivalents(request: &Request) -> Vec<Arc<Served>> {
    let snapshot = request.api.catalog.snapshot();
    let equivalents = snapshot
        .served()
        .iter()
        .filter(|served| served.prefix == request.served.prefix)
        .filter(|served| (&served.group, &served.version) != (&request.served.group, &request.served.version))
        .filter(|served| request.subresource.is_empty() || served.subresource(&request.subresource).is_some());
    equivalents.cloned().collect()
}

/// Whether a rule is about a request for `served`.
pub(super) fn matches(rule: &Rule, request: &Request, served: &Served) -> bool {
    let in_scope = match rule.scope {
        Scope::All => true,
        Scope::Namespaced => !request.is_namespaces() && !request.namespace.is_empty(),
        Scope::Cluster => request.is_namespaces() || request.namespace.is_empty(),
    };
    let any_or = |pattern: &str, actual: &str| pattern == "*" || pattern == actual;
    in_scope
        && has(&rule.operations, request.operation)
        && has(&rule.groups, &served.group)
        && has(&rule.versions, &served.version)
        && rule.resources.iter().any(|(resource, subresource)| {
            any_or(resource, &served.plural) && any_or(subresource, &request.subresource)
        })
}

pub(super) fn has(patterns: &[String], actual: &str) -> bool {
    patterns.iter().any(|pattern| pattern == "*" || pattern == actual)
}

/// Whether either object has the labels.
pub(super) fn selects_objects(selector: &Selector, object: Option<&Value>, old: Option<&Value>) -> bool {
    selector.is_everything() || [object, old].into_iter().flatten().any(|object| selector.matches(labels(object)))
}

/// Whether the namespace of a request has the labels.
pub(super) async fn selects_namespace(
    request: &Request,
    selector: &Selector,
    object: Option<&Value>,
) -> Result<bool, Status> {
    if request.namespace.is_empty() && !request.is_namespaces() {
        return Ok(true);
    }
    if selector.is_everything() {
        return Ok(true);
    }
    // A namespace that is being written is judged by the labels it will have.
    let written = matches!(request.operation, "CREATE" | "UPDATE") && request.subresource.is_empty();
    let labels = match object {
        Some(object) if request.is_namespaces() && written => labels(object),
        _ => request.namespace_labels().await?,
    };
    Ok(selector.matches(labels))
}

fn labels(object: &Value) -> &Value {
    object::metadata(object).get("labels").unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_look_at_both_objects() {
        let selector = Selector::from_object(&json!({"matchLabels": {"a": "b"}})).expect("a selector");
        let with = json!({"metadata": {"labels": {"a": "b"}}});
        let without = json!({"metadata": {}});
        assert!(selects_objects(&selector, Some(&with), None));
        assert!(selects_objects(&selector, Some(&without), Some(&with)));
        assert!(!selects_objects(&selector, Some(&without), Some(&without)));
        assert!(!selects_objects(&selector, None, None));
        assert!(selects_objects(&Selector::All(Vec::new()), None, None));
    }
}
