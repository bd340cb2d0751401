//! Permissions from code: what an operator needs follows from what its controllers declare.
//!
//! A controller that [watches](crate::Controller::watches) a kind needs to read it; one that
//! [owns](crate::Controller::owns) a kind needs to write it too. A controller reads and updates its own kind, its status
//! and its finalizers. Other requests of a reconciler are declared with [`permits`](crate::Controller::permits). The
//! manager adds events, leases, access reviews, and what webhooks need for
//! [self-managed certificates](crate::webhook::SelfManaged). Where a name is known, such as that of a lease or of the
//! Secret with the certificates, the rule is limited to it, except for `create`, which RBAC cannot limit by name.
//!
//! [`Manager::rules`](crate::Manager::rules) returns all of it, and `windlass manifests` prints it. When the manager
//! starts, it checks with the API server that it has the permissions that it cannot work without, and otherwise fails
//! with the rules to add.
//!
//! ```
//! use windlass::rbac::Rules;
//!
//! let mut rules = Rules::default();
//! rules.allow(None, "apps", ["deployments"], ["get", "list", "watch"]);
//! rules.allow(Some("operators"), "coordination.k8s.io", ["leases"], ["get", "create", "update"]);
//! let yaml = rules.to_yaml("petstore");
//! assert!(yaml.contains("kind: ClusterRole\n") && yaml.contains("kind: Role\n"));
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use futures::StreamExt as _;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::Instant;

/// Questions to the server at the same time.
const REVIEWS: usize = 16;
/// Reading a kind through the cache.
pub(crate) const READ: [&str; 3] = ["get", "list", "watch"];
/// Ways to write children, of which one is enough.
pub(crate) const WRITE: [&str; 3] = ["create", "update", "patch"];
/// Writing children.
pub(crate) const OWN: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// A group, a resource and a name if only that is meant, as `("apps", "deployments/status", None)`.
type Target = (String, String, Option<String>);
/// Verbs by target.
type Grants = BTreeMap<Target, BTreeSet<String>>;

/// Permissions, in all namespaces or in one.
///
/// ```
/// use windlass::rbac::Rules;
///
/// let mut rules = Rules::default();
/// rules.allow(None, "", ["pods"], ["get", "list"]);
/// let role = rules.cluster_role("reader").unwrap();
/// assert_eq!(role.rules.unwrap()[0].verbs, ["get", "list"]);
/// assert!(rules.roles("reader").is_empty());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    by_namespace: BTreeMap<Option<String>, Grants>,
}

impl Rules {
    /// Allows verbs on resources: everywhere, or in one namespace only.
    pub fn allow<R, V>(&mut self, namespace: Option<&str>, group: &str, resources: R, verbs: V)
    where
        R: IntoIterator<Item: Into<String>>,
        V: IntoIterator<Item: Into<String>>,
    {
        let verbs: BTreeSet<String> = verbs.into_iter().map(Into::into).collect();
        for resource in resources {
            self.grant(namespace, (group.to_owned(), resource.into(), None), &verbs);
        }
    }

    /// Allows verbs on the object of one name. Not for `create`, since a server does not know the
    /// name of what it is asked to create; `list` and `watch` are allowed with the field selector
    /// `metadata.name` only.
    ///
    /// ```
    /// use windlass::rbac::Rules;
    ///
    /// let mut rules = Rules::default();
    /// rules.allow_named(Some("operators"), "", "secrets", "webhook-server-cert", ["get", "update"]);
    /// assert!(rules.to_yaml("petstore").contains("  resourceNames:\n  - webhook-server-cert\n"));
    /// ```
    pub fn allow_named<V>(&mut self, namespace: Option<&str>, group: &str, resource: &str, name: &str, verbs: V)
    where
        V: IntoIterator<Item: Into<String>>,
    {
        let verbs = verbs.into_iter().map(Into::into).collect();
        self.grant(namespace, (group.to_owned(), resource.to_owned(), Some(name.to_owned())), &verbs);
    }

    fn grant(&mut self, namespace: Option<&str>, target: Target, verbs: &BTreeSet<String>) {
        let grants = self.by_namespace.entry(namespace.map(str::to_owned)).or_default();
        grants.entry(target).or_default().extend(verbs.iter().cloned());
    }

    /// Adds everything another set allows.
    pub fn extend(&mut self, other: &Self) {
        for (namespace, grants) in &other.by_namespace {
            for (target, verbs) in grants {
                self.grant(namespace.as_deref(), target.clone(), verbs);
            }
        }
    }

    /// The same, in these namespaces instead of everywhere; everywhere when there are none.
    pub(crate) fn spread(&self, namespaces: &[String]) -> Self {
        if namespaces.is_empty() {
            return self.clone();
        }
        let mut spread = Self { by_namespace: self.by_namespace.clone() };
        let everywhere = spread.by_namespace.remove(&None).unwrap_or_default();
        for (target, verbs) in &everywhere {
            for namespace in namespaces {
                spread.grant(Some(namespace), target.clone(), verbs);
            }
        }
        spread
    }

    /// Only the targets of which everything is there that `all` has.
    pub(crate) fn where_all_of(&self, all: &Self) -> Self {
        let mut whole = Self::default();
        for (namespace, grants) in &self.by_namespace {
            let known = all.by_namespace.get(namespace);
            for (target, verbs) in grants {
                if known.and_then(|known| known.get(target)) == Some(verbs) {
                    whole.grant(namespace.as_deref(), target.clone(), verbs);
                }
            }
        }
        whole
    }

    /// Whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.by_namespace.values().all(BTreeMap::is_empty)
    }

    /// The rules that hold everywhere, ready for a `ClusterRole`.
    pub fn cluster_rules(&self) -> Vec<PolicyRule> {
        self.by_namespace.get(&None).map(rules).unwrap_or_default()
    }

    /// The rules of each namespace, ready for `Role`s.
    pub fn namespaced_rules(&self) -> BTreeMap<&str, Vec<PolicyRule>> {
        self.by_namespace
            .iter()
            .filter_map(|(namespace, grants)| Some((namespace.as_deref()?, rules(grants))))
            .collect()
    }

    /// The `ClusterRole`, if there is anything in it.
    pub fn cluster_role(&self, name: &str) -> Option<ClusterRole> {
        let rules = Some(self.cluster_rules()).filter(|rules| !rules.is_empty())?;
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Some(ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() })
    }

    /// The `Role`s, one in each namespace that needs one.
    pub fn roles(&self, name: &str) -> Vec<Role> {
        let role = |(namespace, rules): (&str, Vec<PolicyRule>)| Role {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            rules: Some(rules),
        };
        self.namespaced_rules().into_iter().map(role).collect()
    }

    /// Everything as YAML documents: a `ClusterRole` and `Role`s of this name.
    pub fn to_yaml(&self, name: &str) -> String {
        let mut text = String::new();
        if let Some(role) = self.cluster_role(name) {
            document(&mut text, "ClusterRole", name, None, &role.rules.unwrap_or_default());
        }
        for (namespace, rules) in self.namespaced_rules() {
            document(&mut text, "Role", name, Some(namespace), &rules);
        }
        text
    }

    /// What of these rules the server does not allow whom `client` stands for. What the server does
    /// not answer, or not until `deadline`, counts as allowed: the request itself will tell.
    pub(crate) async fn missing(&self, client: &kube::Client, deadline: Instant) -> Self {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let reviews = &reviews;
        let mut questions = Vec::new();
        for (namespace, grants) in &self.by_namespace {
            for (target, verbs) in grants {
                for verb in verbs {
                    questions.push((namespace, target, verb));
                }
            }
        }
        let asked = questions.into_iter().map(|(namespace, target, verb)| async move {
            let (group, resource, name) = target;
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            let attributes = ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                name: name.clone(),
                verb: Some(verb.clone()),
                namespace: namespace.clone(),
                ..ResourceAttributes::default()
            };
            let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            let answer = reviews.create(&PostParams::default(), &review).await;
            let refused = matches!(answer, Ok(SelfSubjectAccessReview { status: Some(status), .. }) if !status.allowed);
            refused.then_some((namespace, target, verb))
        });
        let asked: Vec<_> = asked.collect();
        let (mut answers, mut missing) = (futures::stream::iter(asked).buffer_unordered(REVIEWS), Self::default());
        while let Ok(Some(answer)) = tokio::time::timeout_at(deadline, answers.next()).await {
            if let Some((namespace, target, verb)) = answer {
                missing.grant(namespace.as_deref(), target.clone(), &BTreeSet::from([verb.clone()]));
            }
        }
        missing
    }
}

impl std::fmt::Display for Rules {
    /// One line per rule, as an error message shows them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (namespace, grants) in &self.by_namespace {
            for rule in rules(grants) {
                let place = namespace.as_ref().map(|name| format!("  # in namespace {name}")).unwrap_or_default();
                let list = |items: Option<Vec<String>>| {
                    items.unwrap_or_default().iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ")
                };
                writeln!(f, "- apiGroups: [{}]{place}", list(rule.api_groups))?;
                writeln!(f, "  resources: [{}]", list(rule.resources))?;
                if rule.resource_names.is_some() {
                    writeln!(f, "  resourceNames: [{}]", list(rule.resource_names))?;
                }
                writeln!(f, "  verbs: [{}]", list(Some(rule.verbs)))?;
            }
        }
        Ok(())
    }
}

/// Names of one resource that need the same verbs share a rule, and so do resources of one group.
fn rules(grants: &Grants) -> Vec<PolicyRule> {
    let mut names: BTreeMap<(&String, &String, BTreeSet<&String>), Vec<String>> = BTreeMap::new();
    for (target, verbs) in grants {
        let (group, resource, name) = target;
        // What is allowed whatever the name need not be said of one.
        let whole = name.as_ref().and_then(|_| grants.get(&(group.clone(), resource.clone(), None)));
        let verbs: BTreeSet<&String> =
            verbs.iter().filter(|verb| !whole.is_some_and(|whole| whole.contains(*verb))).collect();
        if !verbs.is_empty() {
            names.entry((group, resource, verbs)).or_default().extend(name.clone());
        }
    }
    let mut shared: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for ((group, resource, verbs), names) in names {
        shared.entry((group, names, verbs)).or_default().push(resource.clone());
    }
    shared
        .into_iter()
        .map(|((group, names, verbs), resources)| PolicyRule {
            api_groups: Some(vec![group.clone()]),
            resources: Some(resources),
            resource_names: Some(names).filter(|names| !names.is_empty()),
            verbs: verbs.into_iter().cloned().collect(),
            ..PolicyRule::default()
        })
        .collect()
}

fn document(text: &mut String, kind: &str, name: &str, namespace: Option<&str>, rules: &[PolicyRule]) {
    let _ = write!(
        text,
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {}\n",
        quoted(name)
    );
    if let Some(namespace) = namespace {
        let _ = writeln!(text, "  namespace: {}", quoted(namespace));
    }
    text.push_str("rules:\n");
    for rule in rules {
        for (start, field, items) in [
            ("- ", "apiGroups", rule.api_groups.as_deref().unwrap_or_default()),
            ("  ", "resources", rule.resources.as_deref().unwrap_or_default()),
            ("  ", "resourceNames", rule.resource_names.as_deref().unwrap_or_default()),
            ("  ", "verbs", &rule.verbs),
        ] {
            if items.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{start}{field}:");
            for item in items {
                let _ = writeln!(text, "  - {}", quoted(item));
            }
        }
    }
}

/// A YAML scalar: plain where that cannot be misread.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|letter: char| letter.is_ascii_lowercase())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "./-".contains(letter))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text);
    if plain { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use kube::client::Body;

    use super::*;

    /// One question is not answered; the others are, each with a no.
    #[tokio::test(start_paused = true)]
    async fn access_reviews_are_few_at_once_and_report_refusals() {
        let (asked, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (asking, at_most) = (Arc::clone(&asked), Arc::clone(&most));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (asking, at_most) = (Arc::clone(&asking), Arc::clone(&at_most));
            async move {
                at_most.fetch_max(asking.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                let question = request.into_body().collect_bytes().await.expect("a body");
                if String::from_utf8_lossy(&question).contains("unanswered") {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                asking.fetch_sub(1, Ordering::Relaxed);
                let answer = serde_json::json!({"metadata": {}, "spec": {}, "status": {"allowed": false}});
                Ok::<_, Infallible>(http::Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        let mut rules = Rules::default();
        for namespace in 0..100 {
            rules.allow(Some(&format!("namespace-{namespace}")), "", ["pods"], ["get"]);
        }
        let refused = rules.clone();
        rules.allow(None, "", ["unanswered"], ["get"]);
        let start = Instant::now();
        let missing = rules.missing(&kube::Client::new(service, "default"), start + Duration::from_secs(5)).await;
        assert_eq!(missing, refused);
        assert_eq!(start.elapsed().as_secs(), 5);
        assert_eq!(most.load(Ordering::Relaxed), REVIEWS);
    }

    #[test]
    fn resources_with_the_same_verbs_share_a_rule() {
        let mut rules = Rules::default();
        rules.allow(None, "", ["secrets", "configmaps"], READ);
        rules.allow(None, "", ["configmaps"], ["patch"]);
        rules.allow(None, "", ["pods", "secrets"], READ);
        rules.allow(None, "*", ["*"], ["get"]);
        rules.allow(Some("operators"), "coordination.k8s.io", ["leases"], ["get"]);
        assert_eq!(
            rules.to_yaml("petstore"),
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: petstore\nrules:\n\
             - apiGroups:\n  - \"\"\n  resources:\n  - configmaps\n  verbs:\n  - get\n  - list\n  - patch\n  - watch\n\
             - apiGroups:\n  - \"\"\n  resources:\n  - pods\n  - secrets\n  verbs:\n  - get\n  - list\n  - watch\n\
             - apiGroups:\n  - \"*\"\n  resources:\n  - \"*\"\n  verbs:\n  - get\n\
             ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: petstore\n  \
             namespace: operators\nrules:\n\
             - apiGroups:\n  - coordination.k8s.io\n  resources:\n  - leases\n  verbs:\n  - get\n"
        );
        assert_eq!(rules.roles("petstore").len(), 1);
        let mut again = Rules::default();
        again.extend(&rules);
        assert_eq!(again, rules);
    }

    #[test]
    fn names_are_said_where_they_matter() {
        let mut rules = Rules::default();
        for name in ["b", "a"] {
            rules.allow_named(None, "", "secrets", name, ["get", "update"]);
            rules.allow_named(None, "", "configmaps", name, ["get"]);
        }
        rules.allow_named(None, "", "secrets", "c", ["watch"]);
        rules.allow(None, "", ["configmaps"], READ);
        rules.allow(None, "", ["secrets"], ["create", "get"]);
        assert_eq!(
            rules.to_string(),
            "- apiGroups: [\"\"]\n  resources: [secrets]\n  verbs: [create, get]\n\
             - apiGroups: [\"\"]\n  resources: [configmaps]\n  verbs: [get, list, watch]\n\
             - apiGroups: [\"\"]\n  resources: [secrets]\n  resourceNames: [a, b]\n  verbs: [update]\n\
             - apiGroups: [\"\"]\n  resources: [secrets]\n  resourceNames: [c]\n  verbs: [watch]\n"
        );
        assert!(rules.to_yaml("x").contains("  resourceNames:\n  - a\n  - b\n  verbs:\n  - update\n"));
    }
}

/// The examples of the page about permissions compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/rbac.md")]
mod how_to {}
