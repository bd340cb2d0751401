//! `windlass rbac infer`: roles from what a user was seen doing.
//!
//! Only requests that were allowed count. What every authenticated user may do anyway, such as discovery, is left out.
//! Requests for one namespace become a Role there, all others a ClusterRole; each has its binding. Requests for which the
//! API server asks more than once, such as an apply that creates its object, count for all that it asks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::rbac::Rules;

use crate::args::{Rbac, RbacInfer};
use crate::home::Home;
use crate::output;

const GROUP: &str = "rbac.authorization.k8s.io";
/// Paths that `system:discovery` and `system:public-info-viewer` let every authenticated user read.
const PUBLIC: [&str; 12] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
    "/.well-known/openid-configuration",
];
/// Reviews that `system:basic-user` lets every authenticated user create.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// What roles cannot say about requests that write roles.
const GRANTS: &str =
    "# Roles or bindings were written. RBAC lets nobody grant more than they have: add the rules that are granted,
# or the verbs `escalate` (for roles) and `bind` (for bindings).";

pub(crate) fn run(args: &Rbac) -> Result<ExitCode> {
    match args {
        Rbac::Infer(args) => infer(args),
    }
}

fn infer(args: &RbacInfer) -> Result<ExitCode> {
    let mut seen = Seen::new(&args.user, args.resource_names);
    let mut files = args.audit_logs.clone();
    if files.is_empty() {
        let file = Home::of(&args.name.name)?.audit_log();
        if !file.exists() {
            let name = &args.name.name;
            bail!(
                "cluster {name:?} has no audit log; start it with `windlass up --name {name} --audit-log`, or name a file \
                 with --audit-log"
            );
        }
        files.push(file);
    }
    for path in &files {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in BufReader::new(file).lines() {
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            seen.line(&line);
        }
    }
    if seen.events == 0 {
        bail!("there is no audit event in {}", files[0].display());
    }
    if !seen.is_known {
        let others: Vec<&str> = seen.others.iter().map(String::as_str).collect();
        bail!("no request of {:?} was recorded; there are requests of {}", args.user, others.join(", "));
    }
    if seen.grants {
        output::line(format_args!("{GRANTS}"));
    }
    let name = args.role_name.clone().unwrap_or_else(|| role_name(&args.user));
    for object in seen.objects(&name) {
        output::line(format_args!("---\n{}", serde_saphyr::to_string(&object)?.trim_end()));
    }
    Ok(ExitCode::SUCCESS)
}

/// What of an event matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    #[serde(rename = "requestURI", default)]
    request_uri: String,
    verb: String,
    #[serde(default)]
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Value,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

impl Event {
    /// Who the request was carried out for.
    fn actor(&self) -> &str {
        &self.impersonated_user.as_ref().unwrap_or(&self.user).username
    }

    fn is_allowed(&self) -> bool {
        match self.annotations.get("authorization.k8s.io/decision") {
            Some(decision) => decision == "allow",
            None => !matches!(self.response_status["code"].as_u64(), Some(401 | 403)),
        }
    }

    /// Whether the API server asks about `create` as well: an update or an apply that makes its object, and a WebSocket
    /// to a pod, which begins with a GET.
    fn creates(&self, target: &ObjectRef) -> bool {
        let streams = target.api_group.is_empty()
            && target.resource == "pods"
            && matches!(&*target.subresource, "exec" | "attach" | "portforward");
        match &*self.verb {
            "update" | "patch" => self.response_status["code"] == 201,
            "get" => streams,
            _ => false,
        }
    }
}

/// What was seen of a user.
struct Seen {
    user: String,
    by_name: bool,
    rules: Rules,
    /// Verbs by path.
    paths: BTreeMap<String, BTreeSet<String>>,
    events: usize,
    is_known: bool,
    /// Whether the user wrote what gives others permissions.
    grants: bool,
    others: BTreeSet<String>,
}

impl Seen {
    fn new(user: &str, by_name: bool) -> Self {
        Self {
            user: user.to_owned(),
            by_name,
            rules: Rules::default(),
            paths: BTreeMap::new(),
            events: 0,
            is_known: false,
            grants: false,
            others: BTreeSet::new(),
        }
    }

    /// Takes in a line of a log. Lines that are no events are passed over, as the last one of a log in use may be.
    fn line(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Event>(line) else { return };
        self.events += 1;
        if event.actor() != self.user {
            self.others.insert(event.actor().to_owned());
            return;
        }
        self.is_known = true;
        // Before it is answered it is not known whether a request was allowed.
        if event.stage != "RequestReceived" && event.is_allowed() {
            self.allow(&event);
        }
    }

    fn allow(&mut self, event: &Event) {
        let Some(target) = &event.object_ref else {
            let path = event.request_uri.split('?').next().unwrap_or_default();
            if !(event.verb == "get" && PUBLIC.iter().any(|public| covers(public, path))) {
                self.paths.entry(path.to_owned()).or_default().insert(event.verb.clone());
            }
            return;
        };
        let is_self_review = SELF_REVIEWS.contains(&(&*target.api_group, &*target.resource));
        if event.verb == "create" && is_self_review {
            return;
        }
        let resource = match &*target.subresource {
            "" => target.resource.clone(),
            subresource => format!("{}/{subresource}", target.resource),
        };
        self.grants |= target.api_group == GROUP && matches!(&*event.verb, "create" | "update" | "patch");
        // A namespace is in itself, and no Role can be about it before it exists.
        let is_namespace = target.api_group.is_empty() && target.resource == "namespaces";
        let namespace = Some(&*target.namespace).filter(|namespace| !namespace.is_empty() && !is_namespace);
        let is_named =
            self.by_name && !target.name.is_empty() && !matches!(&*event.verb, "create" | "deletecollection");
        if is_named {
            self.rules.allow_named(namespace, &target.api_group, &resource, &target.name, [&*event.verb]);
        } else {
            self.rules.allow(namespace, &target.api_group, [resource.clone()], [&*event.verb]);
        }
        if event.creates(target) {
            self.rules.allow(namespace, &target.api_group, [resource], ["create"]);
        }
    }

    /// The roles and their bindings.
    fn objects(&self, name: &str) -> Vec<Value> {
        let mut out = Vec::new();
        let mut cluster_role = self.rules.cluster_role(name);
        if !self.paths.is_empty() {
            let role = cluster_role.get_or_insert_with(|| ClusterRole {
                metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
                ..ClusterRole::default()
            });
            role.rules.get_or_insert_default().extend(self.path_rules());
        }
        if let Some(role) = cluster_role {
            out.extend(document("ClusterRole", &role));
            out.push(self.binding("ClusterRoleBinding", "ClusterRole", name, None));
        }
        for role in self.rules.roles(name) {
            let namespace = role.metadata.namespace.clone();
            out.extend(document("Role", &role));
            out.push(self.binding("RoleBinding", "Role", name, namespace.as_deref()));
        }
        out
    }

    /// Paths with the same verbs share a rule.
    fn path_rules(&self) -> Vec<PolicyRule> {
        let mut by_verbs: BTreeMap<&BTreeSet<String>, Vec<String>> = BTreeMap::new();
        for (path, verbs) in &self.paths {
            by_verbs.entry(verbs).or_default().push(path.clone());
        }
        let rule = |(verbs, paths): (&BTreeSet<String>, Vec<String>)| PolicyRule {
            non_resource_urls: Some(paths),
            verbs: verbs.iter().cloned().collect(),
            ..PolicyRule::default()
        };
        by_verbs.into_iter().map(rule).collect()
    }

    fn binding(&self, kind: &str, role_kind: &str, name: &str, namespace: Option<&str>) -> Value {
        let account = self.user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let subject = match account {
            Some((namespace, name)) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
            None => json!({"apiGroup": GROUP, "kind": "User", "name": self.user}),
        };
        let mut metadata = json!({"name": name});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata,
               "roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": name}, "subjects": [subject]})
    }
}

fn document(kind: &str, role: &impl serde::Serialize) -> Option<Value> {
    let Ok(Value::Object(role)) = serde_json::to_value(role) else { return None };
    let mut out = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind});
    let fields = role.into_iter().filter(|(field, _)| !matches!(field.as_str(), "apiVersion" | "kind"));
    out.as_object_mut()?.extend(fields);
    Some(out)
}

fn covers(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

/// A name for roles: the last part of the user's, in letters that names may have.
fn role_name(user: &str) -> String {
    let last = user.rsplit(':').next().unwrap_or(user).to_lowercase();
    let letters = last.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    let name: String = letters.collect();
    match name.trim_matches(['-', '.']) {
        "" => "inferred".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(user: &str, verb: &str, target: &Value, decision: &str) -> String {
        json!({"kind": "Event", "stage": "ResponseComplete", "verb": verb, "requestURI": "/x?y=z",
               "user": {"username": user}, "objectRef": target, "responseStatus": {"code": 200},
               "annotations": {"authorization.k8s.io/decision": decision}})
        .to_string()
    }

    fn infer(lines: &[String], by_name: bool) -> Vec<Value> {
        let mut seen = Seen::new("system:serviceaccount:shop:api", by_name);
        for line in lines {
            seen.line(line);
        }
        seen.objects(&role_name(&seen.user))
    }

    const ME: &str = "system:serviceaccount:shop:api";

    #[test]
    fn roles_allow_what_was_seen_and_no_more() {
        let pod = json!({"resource": "pods", "namespace": "shop", "name": "a", "apiVersion": "v1"});
        let objects = infer(
            &[
                event(ME, "get", &pod, "allow"),
                event(ME, "list", &json!({"resource": "pods", "namespace": "shop"}), "allow"),
                event(ME, "delete", &pod, "forbid"),
                event("somebody", "create", &pod, "allow"),
                event(ME, "list", &json!({"resource": "deployments", "apiGroup": "apps"}), "allow"),
                event(ME, "get", &json!({"resource": "namespaces", "namespace": "shop", "name": "shop"}), "allow"),
                event(ME, "get", &Value::Null, "allow"),
                "half a li".to_owned(),
            ],
            false,
        );
        let kinds: Vec<&str> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
        assert_eq!(
            objects[0]["rules"],
            json!([
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
                {"nonResourceURLs": ["/x"], "verbs": ["get"]},
            ])
        );
        assert_eq!(objects[2]["metadata"], json!({"name": "api", "namespace": "shop"}));
        assert_eq!(objects[2]["rules"], json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]));
        let account = json!([{"kind": "ServiceAccount", "name": "api", "namespace": "shop"}]);
        assert_eq!((&objects[1]["subjects"], &objects[3]["subjects"]), (&account, &account));
    }

    #[test]
    fn rules_are_limited_to_names_where_rbac_can() {
        let map = json!({"resource": "configmaps", "namespace": "shop", "name": "settings"});
        let objects = infer(&[event(ME, "get", &map, "allow"), event(ME, "create", &map, "allow")], true);
        let rules = objects[0]["rules"].as_array().expect("rules");
        let named =
            json!({"apiGroups": [""], "resourceNames": ["settings"], "resources": ["configmaps"], "verbs": ["get"]});
        let any = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]});
        assert!(rules.contains(&named) && rules.contains(&any), "{rules:?}");
    }

    #[test]
    fn requests_that_are_asked_about_twice_count_twice() {
        let map = json!({"resource": "configmaps", "namespace": "shop", "name": "a"});
        let applied = event(ME, "patch", &map, "allow").replace("\"code\":200", "\"code\":201");
        let exec = json!({"resource": "pods", "subresource": "exec", "namespace": "shop", "name": "a"});
        let role = json!({"resource": "roles", "apiGroup": GROUP, "namespace": "shop", "name": "a"});
        let mut seen = Seen::new(ME, false);
        for line in [applied, event(ME, "get", &exec, "allow")] {
            seen.line(&line);
        }
        let expected = json!([
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},
        ]);
        assert_eq!(seen.objects("api")[0]["rules"], expected);
        assert!(!seen.grants);
        seen.line(&event(ME, "create", &role, "allow"));
        assert!(seen.grants);
    }

    #[test]
    fn what_everybody_may_do_is_left_out() {
        let review = json!({"resource": "selfsubjectaccessreviews", "apiGroup": "authorization.k8s.io"});
        let discovery = event(ME, "get", &Value::Null, "allow").replace("/x?y=z", "/apis/apps/v1");
        assert!(infer(&[event(ME, "create", &review, "allow"), discovery], false).is_empty());
    }

    #[test]
    fn requests_count_for_who_is_impersonated() {
        let pod = json!({"resource": "pods", "namespace": "shop"});
        let mut impersonates: Value = serde_json::from_str(&event("admin", "list", &pod, "allow")).expect("JSON");
        impersonates["impersonatedUser"] = json!({"username": ME});
        assert_eq!(infer(&[impersonates.to_string()], false).len(), 2);
    }

    #[test]
    fn roles_are_named_after_the_user() {
        assert_eq!(role_name("system:serviceaccount:shop:api"), "api");
        assert_eq!(role_name("Jane Doe <jane@example.com>"), "jane-doe--jane-example.com");
        assert_eq!(role_name(":"), "inferred");
    }
}
