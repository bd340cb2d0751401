//! `authorizer` in expressions: asks whether the user of the request may do something else
//! (`apiserver/pkg/cel/library/authz.go`).

use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::cel::value::{Foreign, Outcome, Text, Value};
use crate::rbac::{self, Policy};
use crate::user::User;
use crate::validation::access::Access;

/// The user who is asked about, and the policy that answers.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) user: User,
    pub(crate) policy: Arc<Policy>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Subject").field(&self.user.name).finish()
    }
}

impl Subject {
    fn may(&self, verb: &str, target: Target<'_>) -> Decision {
        let attributes = Attributes { user: &self.user, verb, target };
        let allowed = self.user.is_master() || matches!(self.policy.decide(&attributes), rbac::Decision::Allowed(_));
        Decision { allowed, reason: String::new() }
    }
}

/// Decides about one user.
#[derive(Clone, Debug)]
pub(crate) struct Authorizer {
    pub(crate) subject: Subject,
}

#[derive(Clone, Debug)]
struct PathCheck {
    subject: Subject,
    path: String,
}

#[derive(Clone, Debug)]
struct GroupCheck {
    subject: Subject,
    group: String,
}

/// Decides about one resource.
#[derive(Clone, Debug)]
pub(crate) struct ResourceCheck {
    subject: Subject,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

/// What was decided.
#[derive(Clone, Debug)]
struct Decision {
    allowed: bool,
    reason: String,
}

impl ResourceCheck {
    /// Decides about what the request is for.
    pub(crate) fn of_request(subject: &Subject, request: &Json) -> Self {
        let resource = request.at("resource");
        Self {
            subject: subject.clone(),
            group: resource.text("group").to_owned(),
            resource: resource.text("resource").to_owned(),
            subresource: request.text("subResource").to_owned(),
            namespace: request.text("namespace").to_owned(),
            name: request.text("name").to_owned(),
        }
    }

    fn check(&self, verb: &str) -> Decision {
        self.subject.may(
            verb,
            Target::Resource(ResourceTarget {
                group: &self.group,
                resource: &self.resource,
                subresource: &self.subresource,
                namespace: &self.namespace,
                name: &self.name,
                node: "",
            }),
        )
    }
}

fn foreign<'a>(value: impl Foreign + 'static) -> Value<'a> {
    Value::Foreign(Rc::new(value))
}

impl Foreign for Authorizer {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.Authorizer"
    }

    fn call<'a>(&self, function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
        let subject = self.subject.clone();
        match (function, args) {
            ("path", [Value::String(path)]) => Some(Ok(foreign(PathCheck { subject, path: path.to_string() }))),
            ("group", [Value::String(group)]) => Some(Ok(foreign(GroupCheck { subject, group: group.to_string() }))),
            ("serviceAccount", [Value::String(namespace), Value::String(name)]) => {
                let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", &**namespace)];
                let name = format!("system:serviceaccount:{}:{}", &**namespace, &**name);
                Some(Ok(foreign(Self { subject: Subject { user: User::new(name, groups), ..subject } })))
            }
            _ => None,
        }
    }
}

impl Foreign for PathCheck {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.PathCheck"
    }

    fn call<'a>(&self, function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
        match (function, args) {
            ("check", [Value::String(verb)]) => Some(Ok(foreign(self.subject.may(verb, Target::Path(&self.path))))),
            _ => None,
        }
    }
}

impl Foreign for GroupCheck {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.GroupCheck"
    }

    fn call<'a>(&self, function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
        match (function, args) {
            ("resource", [Value::String(resource)]) => Some(Ok(foreign(ResourceCheck {
                subject: self.subject.clone(),
                group: self.group.clone(),
                resource: resource.to_string(),
                subresource: String::new(),
                namespace: String::new(),
                name: String::new(),
            }))),
            _ => None,
        }
    }
}

impl Foreign for ResourceCheck {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.ResourceCheck"
    }

    fn call<'a>(&self, function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
        let [Value::String(text)] = args else { return None };
        let text = text.to_string();
        match function {
            "subresource" => Some(Ok(foreign(Self { subresource: text, ..self.clone() }))),
            "namespace" => Some(Ok(foreign(Self { namespace: text, ..self.clone() }))),
            "name" => Some(Ok(foreign(Self { name: text, ..self.clone() }))),
            // Selectors only ever narrow what is asked about; a user who may do all of it may do part of it.
            "fieldSelector" | "labelSelector" => Some(Ok(foreign(self.clone()))),
            "check" => Some(Ok(foreign(self.check(&text)))),
            _ => None,
        }
    }
}

impl Foreign for Decision {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.Decision"
    }

    fn call<'a>(&self, function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
        if !args.is_empty() {
            return None;
        }
        match function {
            "allowed" => Some(Ok(Value::Bool(self.allowed))),
            "errored" => Some(Ok(Value::Bool(false))),
            "reason" => Some(Ok(Value::String(Text::Shared(self.reason.as_str().into())))),
            "error" => Some(Ok(Value::String(Text::Borrowed("")))),
            _ => None,
        }
    }
}
