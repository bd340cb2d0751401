//! `authorizer` in expressions: asks whether the user of the request may do something else
//! (`apiserver/pkg/cel/library/authz.go`).

use std::rc::Rc;

use serde_json::Value as Json;

use crate::authn::User;
use crate::authz;
use crate::cel::value::{Foreign, Outcome, Text, Value};
use crate::request::{ResourcePath, Verb};
use crate::validation::access::Access;

/// Decides about one user.
#[derive(Clone, Debug)]
pub(super) struct Authorizer {
    pub(super) user: User,
}

#[derive(Clone, Debug)]
struct PathCheck {
    user: User,
    path: String,
}

#[derive(Clone, Debug)]
struct GroupCheck {
    user: User,
    group: String,
}

/// Decides about one resource.
#[derive(Clone, Debug)]
pub(super) struct ResourceCheck {
    user: User,
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
    pub(super) fn of_request(user: &User, request: &Json) -> Self {
        let resource = request.at("resource");
        Self {
            user: user.clone(),
            group: resource.text("group").to_owned(),
            resource: resource.text("resource").to_owned(),
            subresource: request.text("subResource").to_owned(),
            namespace: request.text("namespace").to_owned(),
            name: request.text("name").to_owned(),
        }
    }

    fn check(&self, verb: &str) -> Decision {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let path = ResourcePath {
            group: self.group.clone(),
            version: "*".to_owned(),
            namespace: some(&self.namespace),
            resource: self.resource.clone(),
            name: some(&self.name),
            subresource: some(&self.subresource),
            rest: None,
            watch_prefix: false,
        };
        // Verbs that are no verbs of requests are up to the administrator.
        let verb = Verb::named(verb).filter(|_| !self.user.is_master());
        Decision::new(verb.map_or(self.user.is_master(), |verb| authz::resource(&self.user, verb, &path).is_ok()))
    }
}

impl Decision {
    fn new(allowed: bool) -> Self {
        Self { allowed, reason: String::new() }
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
        let user = self.user.clone();
        match (function, args) {
            ("path", [Value::String(path)]) => Some(Ok(foreign(PathCheck { user, path: path.to_string() }))),
            ("group", [Value::String(group)]) => Some(Ok(foreign(GroupCheck { user, group: group.to_string() }))),
            ("serviceAccount", [Value::String(namespace), Value::String(name)]) => {
                let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", &**namespace)];
                let name = format!("system:serviceaccount:{}:{}", &**namespace, &**name);
                Some(Ok(foreign(Self { user: User::new(name, groups) })))
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
            ("check", [Value::String(verb)]) => {
                Some(Ok(foreign(Decision::new(authz::path(&self.user, verb, &self.path).is_ok()))))
            }
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
                user: self.user.clone(),
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
            // Selectors only ever narrow what is asked about; whoever may do all of it may do part of it.
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
