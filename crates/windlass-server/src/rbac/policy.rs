//! Roles and bindings as they are at one moment, and what they allow.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::rules::Rule;
use crate::attributes::{Attributes, Target};
use crate::field::aggregate;
use crate::field::quote;
use crate::object;
use crate::user::User;
use crate::validation::access::Access as _;

/// A Role or ClusterRole.
#[derive(Clone)]
pub(crate) struct Role {
    /// What it allows.
    pub rules: Arc<[Rule]>,
}

/// A RoleBinding or ClusterRoleBinding.
pub(crate) struct Binding {
    name: String,
    namespace: String,
    cluster_role: bool,
    role: String,
    subjects: Vec<Subject>,
}

enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

/// Names of objects: `name`, or `namespace/name`.
type ByName<T> = BTreeMap<Arc<str>, T>;

/// Every role and binding. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Policy {
    cluster_roles: ByName<Role>,
    roles: ByName<Role>,
    cluster_bindings: ByName<Arc<Binding>>,
    bindings: ByName<Arc<Binding>>,
}

/// The kinds that a policy is made of, in the order of [`Kind::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ClusterRole,
    Role,
    ClusterRoleBinding,
    RoleBinding,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::ClusterRole, Self::Role, Self::ClusterRoleBinding, Self::RoleBinding];

    /// The kind as objects name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ClusterRole => "ClusterRole",
            Self::Role => "Role",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::RoleBinding => "RoleBinding",
        }
    }

    /// Where objects of the kind are stored.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::ClusterRole => "/registry/clusterroles/",
            Self::Role => "/registry/roles/",
            Self::ClusterRoleBinding => "/registry/clusterrolebindings/",
            Self::RoleBinding => "/registry/rolebindings/",
        }
    }
}

/// What a policy says to a request.
pub(crate) enum Decision {
    /// Go ahead, because of this.
    Allowed(String),
    /// Nothing allows it; says what could not be resolved, if anything.
    NoOpinion(String),
}

impl Policy {
    /// Takes in an object.
    pub(crate) fn learn(&mut self, kind: Kind, name: &str, object: &Value) {
        match kind {
            Kind::ClusterRole => drop(self.cluster_roles.insert(name.into(), Role::from_value(object))),
            Kind::Role => drop(self.roles.insert(name.into(), Role::from_value(object))),
            Kind::ClusterRoleBinding => {
                self.cluster_bindings.insert(name.into(), Arc::new(Binding::from_value(object)));
            }
            Kind::RoleBinding => drop(self.bindings.insert(name.into(), Arc::new(Binding::from_value(object)))),
        }
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::ClusterRole => drop(self.cluster_roles.remove(name)),
            Kind::Role => drop(self.roles.remove(name)),
            Kind::ClusterRoleBinding => drop(self.cluster_bindings.remove(name)),
            Kind::RoleBinding => drop(self.bindings.remove(name)),
        }
    }

    /// All objects of a kind are gone.
    pub(crate) fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::ClusterRole => self.cluster_roles.clear(),
            Kind::Role => self.roles.clear(),
            Kind::ClusterRoleBinding => self.cluster_bindings.clear(),
            Kind::RoleBinding => self.bindings.clear(),
        }
    }

    /// The rules of the role a binding refers to; the kind of role that is missing otherwise.
    pub(crate) fn rules_of(
        &self,
        cluster_role: bool,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<[Rule]>, &'static str> {
        let (role, kind) = if cluster_role {
            (self.cluster_roles.get(name), "clusterrole")
        } else {
            (self.roles.get(format!("{namespace}/{name}").as_str()), "role")
        };
        role.map(|role| Arc::clone(&role.rules)).ok_or(kind)
    }

    /// Whether anything allows a request. `system:masters` is the caller's business.
    pub(crate) fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let namespace = match &attributes.target {
            Target::Resource(target) => target.namespace,
            Target::Path(_) => "",
        };
        let mut allowed = None;
        let unresolved = self.visit(attributes.user, namespace, |binding, subject, rules| {
            let allows = rules.iter().any(|rule| rule.allows(attributes.verb, &attributes.target));
            if allows {
                allowed = Some(format!("RBAC: allowed by {}", binding.describe(subject)));
            }
            !allows
        });
        match allowed {
            Some(reason) => Decision::Allowed(reason),
            None if unresolved.is_empty() => Decision::NoOpinion(String::new()),
            None => Decision::NoOpinion(format!("RBAC: {}", aggregate(&unresolved))),
        }
    }

    /// Every rule that applies to a user in a namespace, and what could not be resolved.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, String) {
        let mut all = Vec::new();
        let unresolved = self.visit(user, namespace, |_, _, rules| {
            all.extend_from_slice(rules);
            true
        });
        (all, aggregate(&unresolved))
    }

    /// Shows `visitor` the rules of every binding that applies to a user until it has seen enough.
    fn visit<F>(&self, user: &User, namespace: &str, mut visitor: F) -> Vec<String>
    where
        F: FnMut(&Binding, &Subject, &[Rule]) -> bool,
    {
        let local_prefix = format!("{namespace}/");
        let local = self
            .bindings
            .range::<str, _>((std::ops::Bound::Included(local_prefix.as_str()), std::ops::Bound::Unbounded));
        let local = local.take_while(|(name, _)| !namespace.is_empty() && name.starts_with(&local_prefix));
        let mut unresolved = Vec::new();
        for (_, binding) in self.cluster_bindings.iter().chain(local) {
            let Some(subject) = binding.subjects.iter().find(|subject| subject.is(user, &binding.namespace)) else {
                continue;
            };
            match self.rules_of(binding.cluster_role, &binding.namespace, &binding.role) {
                Ok(rules) => {
                    if !visitor(binding, subject, &rules) {
                        break;
                    }
                }
                Err(kind) => {
                    unresolved.push(format!("{kind}.{} {} not found", super::GROUP, quote(&binding.role)));
                }
            }
        }
        unresolved
    }
}

impl Role {
    fn from_value(role: &Value) -> Self {
        Self { rules: Rule::of_role(role).into() }
    }
}

impl Binding {
    fn from_value(binding: &Value) -> Self {
        let role = binding.at("roleRef");
        let subjects = binding.list("subjects").iter().filter_map(|subject| {
            let name = subject.text("name").to_owned();
            Some(match subject.text("kind") {
                "User" => Subject::User(name),
                "Group" => Subject::Group(name),
                "ServiceAccount" => Subject::ServiceAccount { namespace: subject.text("namespace").to_owned(), name },
                _ => return None,
            })
        });
        Self {
            name: object::name(binding).to_owned(),
            namespace: object::text(binding, "namespace").to_owned(),
            cluster_role: role.text("kind") == "ClusterRole",
            role: role.text("name").to_owned(),
            subjects: subjects.collect(),
        }
    }

    /// `RoleBinding "b/ns" of Role "r" to User "jane"`.
    fn describe(&self, subject: &Subject) -> String {
        let kind = if self.cluster_role { "ClusterRole" } else { "Role" };
        let (binding, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let subject = match subject {
            Subject::User(name) => format!("User {}", quote(name)),
            Subject::Group(name) => format!("Group {}", quote(name)),
            Subject::ServiceAccount { namespace, name } => {
                let namespace = if namespace.is_empty() { &self.namespace } else { namespace };
                format!("ServiceAccount {}", quote(&format!("{name}/{namespace}")))
            }
        };
        format!("{binding} {} of {kind} {} to {subject}", quote(&name), quote(&self.role))
    }
}

impl Subject {
    fn is(&self, user: &User, binding_namespace: &str) -> bool {
        match self {
            Self::User(name) => *name == user.name,
            Self::Group(name) => user.groups.contains(name),
            Self::ServiceAccount { namespace, name } => {
                let namespace = if namespace.is_empty() { binding_namespace } else { namespace };
                let rest = user.name.strip_prefix("system:serviceaccount:");
                !namespace.is_empty() && rest.and_then(|rest| rest.split_once(':')) == Some((namespace, name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::attributes::ResourceTarget;

    fn role(labels: &Value, resources: &[&str]) -> Value {
        json!({"metadata": {"labels": labels}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": resources}]})
    }

    #[test]
    fn decisions_say_why() {
        let mut policy = Policy::default();
        policy.learn(Kind::Role, "n/r", &role(&json!({}), &["pods"]));
        let binding = |role: &str| {
            json!({
                "metadata": {"name": "b", "namespace": "n"}, "roleRef": {"kind": "Role", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
            })
        };
        policy.learn(Kind::RoleBinding, "n/b", &binding("r"));
        let user = User::new("system:serviceaccount:n:robot", []);
        let decide = |policy: &Policy, namespace: &str| {
            let target = ResourceTarget { resource: "pods", namespace, ..ResourceTarget::default() };
            match policy.decide(&Attributes { user: &user, verb: "get", target: Target::Resource(target) }) {
                Decision::Allowed(why) => format!("yes: {why}"),
                Decision::NoOpinion(why) => format!("no: {why}"),
            }
        };
        let why = r#"yes: RBAC: allowed by RoleBinding "b/n" of Role "r" to ServiceAccount "robot/n""#;
        assert_eq!(decide(&policy, "n"), why);
        assert_eq!(decide(&policy, "other"), "no: ");
        policy.learn(Kind::RoleBinding, "n/b", &binding("gone"));
        assert_eq!(decide(&policy, "n"), r#"no: RBAC: role.rbac.authorization.k8s.io "gone" not found"#);
    }
}
