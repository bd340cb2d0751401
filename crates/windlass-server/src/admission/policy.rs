//! Admission policies at work: what the expressions of [bound policies](crate::admission_config::Policies) see of a request, and
//! what follows from their answers.
//!
//! [`validate`] is called before validating webhooks, [`Mutation`] takes its turn before mutating ones. Evaluation itself
//! never waits; what waits is reading parameters and namespaces.

mod matched;
mod mutating;
mod params;
mod validating;

use std::sync::Arc;

use serde_json::Value;

use super::request::{GroupVersionKind, Request};
use super::review;
use crate::admission_config::{Input, Policy, Subject};
use crate::catalog::Served;
use crate::codec::json;
use crate::effort;
use crate::status::{Qualified, Status};
use crate::versions;

pub(super) use mutating::Mutation;
pub(super) use validating::validate;

/// What expressions see of a request, in the version that a policy asks for.
struct View {
    served: Arc<Served>,
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
    subject: Subject,
}

impl View {
    async fn new(
        request: &Request,
        served: &Arc<Served>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Self, Status> {
        let same = (&served.group, &served.version) == (&request.served.group, &request.served.version);
        let convert = async |object: Option<&Value>| match object {
            None => Ok(Value::Null),
            Some(object) if same || request.is_view => Ok(object.clone()),
            Some(object) => versions::between(&request.api, &request.served, served, object.clone()).await,
        };
        let kind = GroupVersionKind::of(served, &request.subresource);
        Ok(Self {
            object: convert(object).await?,
            old: convert(old).await?,
            request: review::request_variable(request, served, &kind),
            namespace: namespace(request).await?,
            subject: Subject { user: request.user.clone(), policy: Arc::clone(&request.api.rbac.policy()) },
            served: Arc::clone(served),
        })
    }

    /// Whether the expressions of a policy may take long.
    fn is_long(&self, policy: &Policy, params: &Value) -> bool {
        let all = [&self.object, &self.old, &self.namespace, params];
        policy.growth.is_long(all.into_iter().map(effort::size).sum())
    }

    fn input<'a>(&'a self, policy: &'a Policy, params: &'a Value) -> Input<'a> {
        Input {
            object: &self.object,
            old_object: &self.old,
            namespace: &self.namespace,
            request: &self.request,
            params,
            subject: &self.subject,
            variables: &policy.variables,
        }
    }
}

/// The namespace of a request, as far as expressions see it; null if there is none.
async fn namespace(request: &Request) -> Result<Value, Status> {
    if request.namespace.is_empty() || request.is_namespaces() {
        return Ok(Value::Null);
    }
    let key = format!("/registry/namespaces/{}", request.namespace);
    let entry = request.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
    let missing = || Status::not_found(Qualified { group: "", name: "namespaces" }, &request.namespace);
    let mut namespace = json::parse(&entry.ok_or_else(missing)?.value).map_err(Status::internal)?.value;
    if let Some(object) = namespace.as_object_mut() {
        object.retain(|field, _| matches!(field.as_str(), "metadata" | "spec" | "status"));
    }
    if let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences" | "selfLink"));
    }
    Ok(namespace)
}

#[cfg(test)]
mod tests;
