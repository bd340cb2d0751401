//! FlowSchemas: which requests they match, and what tells the flows of one apart.
//!
//! Mirrors `apf_controller.go` and `rule.go` of `apiserver/pkg/util/flowcontrol`. Matching allocates nothing.

use serde_json::Value;

use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::object;
use crate::user::User;
use crate::validation::access::Access as _;

const ALL: &str = "*";

/// A FlowSchema as it is matched.
#[derive(Debug)]
pub(super) struct FlowSchema {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) level: String,
    precedence: i64,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

/// What requests of one flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinguisher {
    Nothing,
    User,
    Namespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(Names),
    Group(Names),
    ServiceAccount { namespace: String, name: Names },
    Unknown,
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    paths: Vec<PathPattern>,
}

#[derive(Debug)]
enum PathPattern {
    All,
    /// The path itself, and whatever follows its prefix, which ends with a slash.
    Below {
        path: String,
        prefix: String,
    },
}

/// Some names, or all.
#[derive(Debug)]
enum Names {
    All,
    These(Vec<String>),
}

impl Names {
    /// A list of one `*` stands for all.
    fn new(names: &[&str]) -> Self {
        match names {
            [name] if *name == ALL => Self::All,
            names => Self::These(names.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.iter().any(|known| known == name),
        }
    }
}

impl FlowSchema {
    /// Reads an object.
    pub(super) fn new(object: &Value) -> Self {
        let spec = object.at("spec");
        Self {
            name: object::name(object).to_owned(),
            uid: object::text(object, "uid").to_owned(),
            level: spec.at("priorityLevelConfiguration").text("name").to_owned(),
            precedence: spec.int("matchingPrecedence"),
            distinguisher: match spec.at("distinguisherMethod").text("type") {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::Nothing,
            },
            rules: spec.list("rules").iter().map(Rule::new).collect(),
        }
    }

    /// The order in which schemas are tried.
    pub(super) fn order(&self) -> (i64, &str) {
        (self.precedence, &self.name)
    }

    /// Whether a request is one of the schema's.
    pub(super) fn matches(&self, request: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }

    /// What tells the flow of a request apart from the schema's other flows.
    pub(super) fn distinguisher<'a>(&self, request: &Attributes<'a>) -> &'a str {
        match (self.distinguisher, request.target) {
            (Distinguisher::User, _) => &request.user.name,
            (Distinguisher::Namespace, Target::Resource(target)) => target.namespace,
            (Distinguisher::Namespace, Target::Path(_)) | (Distinguisher::Nothing, _) => "",
        }
    }
}

impl Rule {
    fn new(rule: &Value) -> Self {
        let resource = |rule: &Value| ResourceRule {
            verbs: Names::new(&rule.texts("verbs")),
            groups: Names::new(&rule.texts("apiGroups")),
            resources: Names::new(&rule.texts("resources")),
            namespaces: Names::new(&rule.texts("namespaces")),
            cluster_scope: rule.flag("clusterScope"),
        };
        let path = |rule: &Value| PathRule {
            verbs: Names::new(&rule.texts("verbs")),
            paths: rule.texts("nonResourceURLs").into_iter().map(PathPattern::new).collect(),
        };
        Self {
            subjects: rule.list("subjects").iter().map(Subject::new).collect(),
            resources: rule.list("resourceRules").iter().map(resource).collect(),
            paths: rule.list("nonResourceRules").iter().map(path).collect(),
        }
    }

    fn matches(&self, request: &Attributes<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.is(request.user))
            && match &request.target {
                Target::Resource(target) => self.resources.iter().any(|rule| rule.matches(request.verb, target)),
                Target::Path(path) => {
                    let matches =
                        |rule: &PathRule| rule.verbs.has(request.verb) && rule.paths.iter().any(|p| p.is(path));
                    self.paths.iter().any(matches)
                }
            }
    }
}

impl Subject {
    fn new(subject: &Value) -> Self {
        let name = |field: &str| Names::new(&[subject.at(field).text("name")]);
        match subject.text("kind") {
            "User" if subject.has("user") => Self::User(name("user")),
            "Group" if subject.has("group") => Self::Group(name("group")),
            "ServiceAccount" if subject.has("serviceAccount") => Self::ServiceAccount {
                namespace: subject.at("serviceAccount").text("namespace").to_owned(),
                name: name("serviceAccount"),
            },
            _ => Self::Unknown,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name.has(&user.name),
            Self::Group(Names::All) => true,
            Self::Group(name) => user.groups.iter().any(|group| name.has(group)),
            Self::ServiceAccount { namespace, name } => {
                let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                account.is_some_and(|(its_namespace, its_name)| its_namespace == namespace && name.has(its_name))
            }
            Self::Unknown => false,
        }
    }
}

impl ResourceRule {
    fn matches(&self, verb: &str, target: &ResourceTarget<'_>) -> bool {
        self.verbs.has(verb)
            && self.groups.has(target.group)
            && self.has_resource(target)
            && if target.namespace.is_empty() { self.cluster_scope } else { self.namespaces.has(target.namespace) }
    }

    fn has_resource(&self, target: &ResourceTarget<'_>) -> bool {
        let Names::These(names) = &self.resources else { return true };
        let is = |name: &String| match target.subresource {
            "" => name == target.resource,
            subresource => name.split_once('/') == Some((target.resource, subresource)),
        };
        names.iter().any(is)
    }
}

impl PathPattern {
    fn new(path: &str) -> Self {
        if path == ALL {
            return Self::All;
        }
        let prefix = path.strip_suffix('*').unwrap_or(path);
        let slash = if prefix.ends_with('/') { "" } else { "/" };
        Self::Below { path: path.to_owned(), prefix: format!("{prefix}{slash}") }
    }

    fn is(&self, request: &str) -> bool {
        match self {
            Self::All => true,
            Self::Below { path, prefix } => path == request || request.starts_with(prefix.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(subject: &Value, resource: &Value, path: &Value) -> FlowSchema {
        FlowSchema::new(&json!({"metadata": {"name": "s"}, "spec": {
            "priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 7,
            "distinguisherMethod": {"type": "ByNamespace"},
            "rules": [{"subjects": [subject], "resourceRules": [resource], "nonResourceRules": [path]}],
        }}))
    }

    fn everything() -> (Value, Value) {
        let resource =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
        (resource, json!({"verbs": ["*"], "nonResourceURLs": ["*"]}))
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let (resource, path) = everything();
        let jane = User::new("jane", ["devs".to_owned()]);
        let account = User::new("system:serviceaccount:kube-system:job", ["system:serviceaccounts".to_owned()]);
        let check = |subject: Value, expected: [bool; 2]| {
            let schema = schema(&subject, &resource, &path);
            let matches = |user: &User| schema.matches(&Attributes { user, verb: "get", target: Target::Path("/x") });
            assert_eq!([matches(&jane), matches(&account)], expected, "{subject}");
        };
        check(json!({"kind": "User", "user": {"name": "jane"}}), [true, false]);
        check(json!({"kind": "User", "user": {"name": "*"}}), [true, true]);
        check(json!({"kind": "User"}), [false, false]);
        check(json!({"kind": "Group", "group": {"name": "devs"}}), [true, false]);
        check(json!({"kind": "Group", "group": {"name": "*"}}), [true, true]);
        let account = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}});
        check(account("kube-system", "job"), [false, true]);
        check(account("kube-system", "*"), [false, true]);
        check(account("kube-sys", "*"), [false, false]);
        check(account("kube-system", "other"), [false, false]);
        check(json!({"kind": "Robot"}), [false, false]);
    }

    #[test]
    fn resources_match_by_verb_group_name_and_scope() {
        let (_, path) = everything();
        let all = json!({"kind": "Group", "group": {"name": "*"}});
        let rule = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"], "namespaces": ["a", "b"]});
        let schema = schema(&all, &rule, &path);
        let jane = User::new("jane", []);
        let matches = |verb, resource, subresource, namespace| {
            let target = ResourceTarget { resource, subresource, namespace, ..ResourceTarget::default() };
            schema.matches(&Attributes { user: &jane, verb, target: Target::Resource(target) })
        };
        assert!(matches("get", "pods", "", "a") && matches("list", "pods", "log", "b"));
        assert!(!matches("create", "pods", "", "a"));
        assert!(!matches("get", "pods", "status", "a"));
        assert!(!matches("get", "services", "", "a"));
        assert!(!matches("get", "pods", "", "c"));
        assert!(!matches("get", "pods", "", ""), "the rule is not about the cluster");
    }

    #[test]
    fn paths_match_themselves_and_what_is_below() {
        let (resource, _) = everything();
        let all = json!({"kind": "Group", "group": {"name": "*"}});
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]});
        let schema = schema(&all, &resource, &urls);
        let jane = User::new("jane", []);
        let matches = |verb, path| schema.matches(&Attributes { user: &jane, verb, target: Target::Path(path) });
        assert!(matches("get", "/healthz") && matches("get", "/healthz/etcd") && matches("get", "/apis/apps"));
        assert!(!matches("get", "/healthzz") && !matches("get", "/api") && !matches("post", "/healthz"));
    }

    #[test]
    fn flows_differ_by_namespace_or_user() {
        let (resource, path) = everything();
        let mut schema = schema(&json!({"kind": "Group", "group": {"name": "*"}}), &resource, &path);
        let jane = User::new("jane", []);
        let target = ResourceTarget { resource: "pods", namespace: "a", ..ResourceTarget::default() };
        let request = Attributes { user: &jane, verb: "get", target: Target::Resource(target) };
        assert_eq!(schema.distinguisher(&request), "a");
        schema.distinguisher = Distinguisher::User;
        assert_eq!(schema.distinguisher(&request), "jane");
        schema.distinguisher = Distinguisher::Nothing;
        assert_eq!(schema.distinguisher(&request), "");
    }
}
