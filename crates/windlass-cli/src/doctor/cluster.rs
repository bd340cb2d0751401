//! The cluster: whether it answers, has the project's kinds, allows what is needed, and can call its webhooks.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Finding, versions};
use crate::against::apply::{self, Change};
use crate::against::definitions::{self, is_definition};
use crate::against::target::Target;
use crate::against::{message, remove, request};
use crate::args::Doctor;
use crate::output;

/// What the name of a definition's conversion begins with.
const CONVERSION: &str = "conversion of ";
/// How many endpoints of a Service are looked at.
const ENDPOINTS: usize = 20;
/// How long the cluster may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What other checks have found out.
pub(super) struct Known<'a> {
    pub project: Option<&'a str>,
    pub manifests: &'a [Value],
    /// The version of kubectl.
    pub kubectl: Option<&'a str>,
    /// The minor version of Kubernetes that the operator's types are of.
    pub types: Option<u32>,
}

pub(super) async fn check(args: &Doctor, known: &Known<'_>) -> Vec<Finding> {
    let target = match Target::connect(&args.target).await {
        Ok(target) => target,
        Err(error) => {
            let message = output::with_causes(&error);
            return vec![Finding::broken("cluster", message, "windlass up, or name another cluster with --context")];
        }
    };
    let answer = tokio::time::timeout(TIMEOUT, target.client.apiserver_version()).await;
    let mut findings = match answer {
        Ok(Ok(version)) => {
            let message = format!("{} runs Kubernetes {}", target.context, version.git_version);
            let mut findings = vec![Finding::ok("cluster", message)];
            findings.extend(versions::check(&version.git_version, known.kubectl, known.types));
            findings
        }
        Ok(Err(error)) => return vec![unreachable(&target, &message(&error))],
        Err(_) => return vec![unreachable(&target, &format!("no answer within {} s", TIMEOUT.as_secs()))],
    };
    for checked in [
        definitions(&target, known.manifests).await,
        permissions(&target).await,
        roles(&target, known.project, known.manifests).await,
        webhooks(&target).await,
    ] {
        match checked {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(Finding::skipped("cluster", output::with_causes(&error))),
        }
    }
    findings
}

fn unreachable(target: &Target, why: &str) -> Finding {
    let message = format!("{} at {} cannot be reached: {why}", target.context, target.server);
    Finding::broken("cluster", message, "start it (windlass up), or name another one with --context")
}

/// Compares the definitions of the code with those of the cluster, as the server itself sees them.
async fn definitions(target: &Target, manifests: &[Value]) -> Result<Vec<Finding>> {
    let namespace = target.namespace.clone();
    let options = apply::Options { namespace, dry_run: true, force: true, timeout: TIMEOUT, notes: false };
    let mut findings = Vec::new();
    for definition in manifests.iter().filter(|manifest| is_definition(manifest)) {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let found = apply::get(&target.client, &definitions::path(name)).await?;
        if let Some(leaving) = found.filter(|found| found["metadata"]["deletionTimestamp"].is_string()) {
            let why = remove::explain(&target.client, &leaving).await?;
            findings.push(Finding::broken("crd", format!("{name} is being deleted: {why}"), "windlass install"));
            continue;
        }
        for done in apply::apply(&target.client, vec![definition.clone()], &options, |_| {}).await? {
            let name = done.name;
            findings.push(match done.change {
                Change::Unchanged => Finding::ok("crd", format!("{name} is what the code says")),
                Change::Created => Finding::warning("crd", format!("{name} is not installed"), "windlass install"),
                Change::Failed(why) => Finding::broken("crd", format!("{name} is refused: {why}"), "change the type"),
                _ => Finding::broken("crd", format!("{name} differs from what the code says"), "windlass install"),
            });
        }
    }
    Ok(findings)
}

/// Whether the user may install an operator.
async fn permissions(target: &Target) -> Result<Vec<Finding>> {
    let mut missing = Vec::new();
    for (group, resource) in [
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("apps", "deployments"),
        ("", "namespaces"),
    ] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "create"}},
        });
        let body = Some(("application/json", review.to_string().into_bytes()));
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer: Value = target.client.request(request("POST", path, body)?).await?;
        if answer["status"]["allowed"] != true {
            missing.push(if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") });
        }
    }
    Ok(vec![if missing.is_empty() {
        Finding::ok("permissions", "you may install operators")
    } else {
        let message = format!("you may not create {}", missing.join(", "));
        Finding::warning("permissions", message, "ask the cluster's administrator, or use another --context")
    }])
}

/// Compares the roles that the code needs with the deployed one.
async fn roles(target: &Target, project: Option<&str>, manifests: &[Value]) -> Result<Vec<Finding>> {
    let Some(project) = project else { return Ok(Vec::new()) };
    let needed: Vec<&Value> = manifests.iter().filter(|manifest| manifest["kind"] == "ClusterRole").collect();
    let name = format!("{project}-manager-role");
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}");
    let (name, deployed, remedy) = if let Some(deployed) = apply::get(&target.client, &path).await? {
        (name, deployed, "windlass deploy")
    } else {
        let Some((name, role)) = of_bundle(target, project).await? else {
            let message = format!("{name} is not there: the operator is not deployed");
            return Ok(vec![Finding::skipped("rbac", message)]);
        };
        (name, role, "windlass manifests bundle, then windlass bundle run")
    };
    let missing: Vec<String> = needed.iter().flat_map(|role| lacking(role, &deployed)).collect();
    Ok(vec![if missing.is_empty() {
        Finding::ok("rbac", format!("{name} allows what the operator needs"))
    } else {
        Finding::broken("rbac", format!("{name} does not allow: {}", missing.join("; ")), remedy)
    }])
}

/// The roles of a bundle of this project, as one: a bundle has one for each of its permissions.
async fn of_bundle(target: &Target, project: &str) -> Result<Option<(String, Value)>> {
    let list: Value =
        target.client.request(request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", None)?).await?;
    Ok(merged(list["items"].as_array().map_or(&[], Vec::as_slice), project))
}

fn merged(roles: &[Value], project: &str) -> Option<(String, Value)> {
    let name = |role: &Value| role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let ours = || roles.iter().filter(|role| name(role).starts_with(&format!("{project}.v")));
    let rules: Vec<Value> = ours().filter_map(|role| role["rules"].as_array()).flatten().cloned().collect();
    let names: Vec<String> = ours().map(name).collect();
    (!names.is_empty()).then(|| (names.join(" and "), json!({"rules": rules})))
}

/// What a role needs that another does not allow: `verb resource.group`.
fn lacking(needed: &Value, deployed: &Value) -> Vec<String> {
    let list = |rule: &Value, field: &str| -> Vec<String> {
        let values = rule[field].as_array().into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
    let covers = |values: &[String], wanted: &str| values.iter().any(|value| value == "*" || value == wanted);
    let allowed = rules(deployed);
    let mut missing = Vec::new();
    for rule in rules(needed) {
        let names = list(&rule, "resourceNames");
        for (group, resource, verb) in
            triples(&list(&rule, "apiGroups"), &list(&rule, "resources"), &list(&rule, "verbs"))
        {
            let found = allowed.iter().any(|other| {
                let only = list(other, "resourceNames");
                let named = only.is_empty() || (!names.is_empty() && names.iter().all(|name| only.contains(name)));
                covers(&list(other, "apiGroups"), group)
                    && covers(&list(other, "resources"), resource)
                    && covers(&list(other, "verbs"), verb)
                    && named
            });
            if !found {
                let place = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
                missing.push(format!("{verb} {place}"));
            }
        }
    }
    missing
}

fn triples<'a>(
    groups: &'a [String],
    resources: &'a [String],
    verbs: &'a [String],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    groups.iter().flat_map(move |group| {
        resources.iter().flat_map(move |resource| verbs.iter().map(move |verb| (&**group, &**resource, &**verb)))
    })
}

/// Looks at every webhook of the cluster: one that cannot be called keeps objects from being written.
async fn webhooks(target: &Target) -> Result<Vec<Finding>> {
    let mut clients: Vec<(String, Value)> = Vec::new();
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        let list: Value = target.client.request(request("GET", &path, None)?).await?;
        for item in list["items"].as_array().into_iter().flatten() {
            for webhook in item["webhooks"].as_array().into_iter().flatten() {
                let name = webhook["name"].as_str().unwrap_or_default().to_owned();
                clients.push((name, webhook["clientConfig"].clone()));
            }
        }
    }
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let list: Value = target.client.request(request("GET", path, None)?).await?;
    for item in list["items"].as_array().into_iter().flatten() {
        let conversion = &item["spec"]["conversion"];
        if conversion["strategy"] == "Webhook" {
            let name = format!("{CONVERSION}{}", item["metadata"]["name"].as_str().unwrap_or_default());
            clients.push((name, conversion["webhook"]["clientConfig"].clone()));
        }
    }
    let mut findings = Vec::new();
    for (name, config) in &clients {
        let wrong = match authority(config) {
            Some(wrong) => Some(wrong),
            None => unanswered(target, config).await?,
        };
        findings.push(match wrong {
            None => Finding::ok("webhook", format!("{name} can be called")),
            Some(why) => Finding::broken("webhook", format!("{name}: {why}"), remedy(name)),
        });
    }
    if clients.is_empty() {
        findings.push(Finding::ok("webhook", "the cluster has none"));
    }
    Ok(findings)
}

/// What to do about a webhook that cannot be called.
fn remedy(name: &str) -> String {
    let start = "start the operator (windlass run or deploy), which writes its address and authority";
    match name.strip_prefix(CONVERSION) {
        // The definition cannot be deleted without its objects.
        Some(definition) => format!(
            "{start}; objects of this kind cannot be read until then. If nothing converts it any more: kubectl patch crd \
             {definition} --type=merge -p '{{\"spec\":{{\"conversion\":{{\"strategy\":\"None\",\"webhook\":null}}}}}}'"
        ),
        None => format!("{start}; or delete the configuration"),
    }
}

/// What is wrong with the authority that the API server trusts.
fn authority(config: &Value) -> Option<String> {
    let bundle = config["caBundle"].as_str().unwrap_or_default();
    if bundle.is_empty() {
        // A URL may have a certificate of a public authority.
        return config["service"].is_object().then(|| "it has no caBundle".to_owned());
    }
    // The base64 of `-----BEGIN CERTIFICATE`, as every PEM file of certificates starts.
    let pem = bundle.starts_with("LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR");
    (!pem).then(|| "its caBundle is not a certificate".to_owned())
}

/// Why nothing answers at the address, if nothing does.
async fn unanswered(target: &Target, config: &Value) -> Result<Option<String>> {
    if let Some(url) = config["url"].as_str() {
        let uri: http::Uri = match url.parse() {
            Ok(uri) => uri,
            Err(_) => return Ok(Some(format!("{url} is not a URL"))),
        };
        if !target.is_loopback() {
            return Ok(None); // the address is one of the cluster's network
        }
        let address = format!("{}:{}", uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(443));
        let connected = tokio::task::spawn_blocking(move || {
            let found = address.to_socket_addrs().ok()?.next()?;
            TcpStream::connect_timeout(&found, Duration::from_secs(2)).ok()
        });
        return Ok(connected.await?.is_none().then(|| format!("nothing answers at {url}")));
    }
    let service = &config["service"];
    let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    if apply::get(&target.client, &path).await?.is_none() {
        return Ok(Some(format!("there is no Service {namespace}/{name}")));
    }
    let selector = format!("kubernetes.io%2Fservice-name%3D{name}");
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}");
    let list: Value = target.client.request(request("GET", &path, None)?).await?;
    let slices = list["items"].as_array().into_iter().flatten();
    let endpoints: Vec<&Value> =
        slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten()).take(ENDPOINTS).collect();
    if endpoints.is_empty() {
        return Ok(Some(format!("the Service {namespace}/{name} has no endpoints")));
    }
    for endpoint in endpoints {
        if !is_simulated(target, endpoint).await? {
            return Ok(None);
        }
    }
    Ok(Some(format!("the pods behind the Service {namespace}/{name} are simulated, and nothing answers there")))
}

/// Whether an endpoint is on a node that only simulates pods.
async fn is_simulated(target: &Target, endpoint: &Value) -> Result<bool> {
    let Some(node) = endpoint["nodeName"].as_str() else { return Ok(false) };
    // A user who may not read nodes is given the benefit of the doubt.
    let Ok(node) = apply::get(&target.client, &format!("/api/v1/nodes/{node}")).await else { return Ok(false) };
    let node: Option<k8s_openapi::api::core::v1::Node> = node.map(serde_json::from_value).transpose()?;
    Ok(node.as_ref().is_some_and(windlass_node::is_simulated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_role_lacks_is_named() {
        let role = |rules: Value| json!({"rules": rules});
        let needed = role(json!([
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        ]));
        assert_eq!(lacking(&needed, &needed), Vec::<String>::new());
        let all = role(json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]));
        assert_eq!(lacking(&needed, &all), Vec::<String>::new());
        let less = role(json!([
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"], "verbs": ["patch"]},
        ]));
        assert_eq!(lacking(&needed, &less), ["patch deployments.apps", "create events"]);
    }

    #[test]
    fn the_roles_of_a_bundle_count_together() {
        let role = |name: &str, verb: &str| {
            let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
            json!({"metadata": {"name": name}, "rules": rules})
        };
        let roles = [
            role("pets.v1.0.0-pets-p0", "get"),
            role("pets.v1.0.0-pets-c0", "list"),
            role("pets-other", "watch"),
            role("toys.v1.0.0-toys-c0", "patch"),
        ];
        let (name, both) = merged(&roles, "pets").expect("two of them");
        assert_eq!(name, "pets.v1.0.0-pets-p0 and pets.v1.0.0-pets-c0");
        assert_eq!(lacking(&role("", "list"), &both), Vec::<String>::new());
        assert_eq!(lacking(&role("", "patch"), &both), ["patch pods"]);
        assert_eq!(merged(&roles, "cats"), None);
    }

    #[test]
    fn a_conversion_has_a_remedy_of_its_own() {
        assert!(remedy("vpet.example.com").ends_with("or delete the configuration"));
        let said = remedy("conversion of pets.example.com");
        let patch = r#"patch crd pets.example.com --type=merge -p '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'"#;
        assert!(said.contains("windlass run or deploy") && said.contains(patch), "{said}");
        assert!(!said.contains("delete the configuration"), "{said}");
    }

    #[test]
    fn an_authority_has_to_be_a_certificate() {
        let service = json!({"service": {"name": "a"}});
        assert!(authority(&service).unwrap_or_default().contains("no caBundle"));
        assert_eq!(authority(&json!({"url": "https://example.com"})), None);
        assert_eq!(authority(&json!({"caBundle": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"})), None);
        assert!(authority(&json!({"caBundle": "aGVsbG8="})).unwrap_or_default().contains("not a certificate"));
    }
}
