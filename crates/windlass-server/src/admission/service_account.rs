//! Upstream's plugin ServiceAccount: a pod runs as a service account, and its containers get the account's token.
//!
//! Mirrors `plugin/pkg/admission/serviceaccount/admission.go`. The account is read from the store as it is at this
//! moment, and only the four fields that matter here are looked at. A namespace that has just been created gets its
//! account `default` from a controller: a pod waits a moment for it.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_store::Entry;

use super::{Act, refused};
use crate::codec::peek::Raw;
use crate::context::Context;
use crate::status::Status;
use crate::validation::access::{Access as _, AccessMut as _};
use crate::{object, references};

/// The account of pods that name none.
const DEFAULT: &str = "default";
const PREFIX: &str = "/registry/serviceaccounts/";
/// Where containers find the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the names of token volumes begin with.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// How long a kubelet asks for the token to be valid: an hour and a margin, which marks it as one that may be extended.
const TOKEN_SECONDS: i64 = 3607;
/// How long a pod waits for the default account of its namespace. Upstream asks ten times, 100 to 200 ms apart.
const DEFAULT_ACCOUNT_TIMEOUT: Duration = Duration::from_millis(1350);
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// What of an account concerns its pods.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    automount: Option<bool>,
    pull_secrets: Vec<String>,
    /// The secrets that its pods may use, if they may not use all.
    mountable: Option<Vec<String>>,
}

impl Account {
    fn read(stored: &[u8]) -> Self {
        let raw = Raw::new(stored);
        let names = |field: &str| {
            let items = raw.field(field).map(|list| list.items());
            let names = items.into_iter().flatten().filter_map(|item| item.field("name")?.as_str());
            names.map(String::from).collect::<Vec<_>>()
        };
        let enforced = raw.path(&["metadata", "annotations", ENFORCE_SECRETS]).and_then(|value| value.as_str());
        Self {
            automount: raw.field("automountServiceAccountToken").map(|value| value.bytes() == b"true"),
            pull_secrets: names("imagePullSecrets"),
            mountable: enforced.is_some_and(|value| is_true(&value)).then(|| names("secrets")),
        }
    }
}

/// What Go's `strconv.ParseBool` takes for true.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// Gives a new pod its account and token.
pub(super) async fn create(context: &Context, pod: &mut Value) -> Result<(), Status> {
    if is_mirror(pod) {
        return check_mirror(pod).map_err(|why| refused(context, pod, why));
    }
    if pod.at("spec").text("serviceAccountName").is_empty() {
        let spec = pod.struct_mut("spec");
        spec.put("serviceAccountName", DEFAULT);
        spec.put("serviceAccount", DEFAULT);
    }
    let account = account_of(context, pod).await?;
    if pod.at("spec").flag_opt("automountServiceAccountToken").or(account.automount).unwrap_or(true) {
        mount_token(pod);
    }
    if pod.at("spec").list("imagePullSecrets").is_empty() && !account.pull_secrets.is_empty() {
        let secrets: Vec<Value> = account.pull_secrets.iter().map(|name| json!({"name": name})).collect();
        pod.struct_mut("spec").put("imagePullSecrets", secrets);
    }
    check_secrets(&account, pod).map_err(|why| refused(context, pod, why))
}

/// Checks what others made of a new pod, and new ephemeral containers.
pub(super) async fn validate(context: &Context, act: Act<'_>, pod: &Value) -> Result<(), Status> {
    if (&*context.served.group, &*context.served.kind) != ("", "Pod") {
        return Ok(());
    }
    let is_new = match (act, context.subresource()) {
        (Act::Create(_), "") => true,
        (Act::Update(_), "ephemeralcontainers") => false,
        _ => return Ok(()),
    };
    if is_new && is_mirror(pod) {
        return check_mirror(pod).map_err(|why| refused(context, pod, why));
    }
    if pod.at("spec").text("serviceAccountName").is_empty() {
        let why = format!("no service account specified for pod {}/{}", context.namespace(), object::name(pod));
        return Err(refused(context, pod, why));
    }
    let account = account_of(context, pod).await?;
    let checked = if is_new { check_secrets(&account, pod) } else { check_ephemeral(&account, pod) };
    checked.map_err(|why| refused(context, pod, why))
}

fn is_mirror(pod: &Value) -> bool {
    pod.at("metadata").at("annotations").get(MIRROR).is_some()
}

async fn account_of(context: &Context, pod: &Value) -> Result<Account, Status> {
    let (namespace, name) = (context.namespace(), pod.at("spec").text("serviceAccountName"));
    match entry(context, namespace, name).await? {
        Some(entry) => Ok(Account::read(&entry.value)),
        None => Err(refused(
            context,
            pod,
            format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"),
        )),
    }
}

async fn entry(context: &Context, namespace: &str, name: &str) -> Result<Option<Entry>, Status> {
    let key = format!("{PREFIX}{namespace}/{name}");
    let found = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
    if found.is_some() || name != DEFAULT {
        return Ok(found);
    }
    // Boxed: few pods wait, and all would be as large as one that does.
    Box::pin(arrival(context, key.as_bytes())).await
}

/// Waits for an account until it is stored or the time is up.
async fn arrival(context: &Context, key: &[u8]) -> Result<Option<Entry>, Status> {
    let channel = context.api.hub.channel(PREFIX).await.map_err(Status::internal)?;
    let mut newest = channel.subscribe();
    let deadline = tokio::time::Instant::now() + DEFAULT_ACCOUNT_TIMEOUT;
    loop {
        newest.borrow_and_update();
        let found = context.api.store.get(key).await.map_err(Status::internal)?;
        if found.is_some() {
            return Ok(found);
        }
        if !matches!(tokio::time::timeout_at(deadline, newest.changed()).await, Ok(Ok(()))) {
            return Ok(None);
        }
    }
}

/// A mirror pod shows what a kubelet runs on its own: nothing in the API can be part of it.
fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    let spec = pod.at("spec");
    if !spec.text("serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if references::secrets(spec).next().is_some() {
        return Err("a mirror pod may not reference secrets");
    }
    let sources = spec.list("volumes").iter().flat_map(|volume| volume.at("projected").list("sources"));
    if sources.into_iter().any(|source| source.has("serviceAccountToken")) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// Refuses secrets that a strict account does not list.
fn check_secrets(account: &Account, pod: &Value) -> Result<(), String> {
    let Some(mountable) = &account.mountable else { return Ok(()) };
    let (spec, name) = (pod.at("spec"), pod.at("spec").text("serviceAccountName"));
    for volume in spec.list("volumes").iter().filter(|volume| volume.has("secret")) {
        let secret = volume.at("secret").text("secretName");
        if !mountable.iter().any(|known| known == secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not \
                 reference that secret"
            ));
        }
    }
    check_containers("init container", spec.list("initContainers"), mountable, name)?;
    check_containers("container", spec.list("containers"), mountable, name)?;
    for (i, reference) in spec.list("imagePullSecrets").iter().enumerate() {
        let secret = reference.text("name");
        if !account.pull_secrets.iter().any(|known| known == secret) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{secret}\" is not allowed because service account {name} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_ephemeral(account: &Account, pod: &Value) -> Result<(), String> {
    let Some(mountable) = &account.mountable else { return Ok(()) };
    let spec = pod.at("spec");
    let name = spec.text("serviceAccountName");
    check_containers("ephemeral container", spec.list("ephemeralContainers"), mountable, name)
}

fn check_containers(what: &str, containers: &[Value], mountable: &[String], account: &str) -> Result<(), String> {
    let refuse = |container: &Value, place: String, secret: &str| {
        Err(format!(
            "{what} {} with {place} referencing secret.secretName=\"{secret}\" is not allowed because service account \
             {account} does not reference that secret",
            container.text("name")
        ))
    };
    let is_unlisted = |secret: &str| !mountable.iter().any(|known| known == secret);
    for container in containers {
        for env in container.list("env") {
            let reference = env.at("valueFrom").at("secretKeyRef");
            if !reference.is_null() && is_unlisted(reference.text("name")) {
                return refuse(container, format!("envVar {}", env.text("name")), reference.text("name"));
            }
        }
        for from in container.list("envFrom").iter().filter(|from| from.has("secretRef")) {
            let secret = from.at("secretRef").text("name");
            if is_unlisted(secret) {
                return refuse(container, "envFrom".to_owned(), secret);
            }
        }
    }
    Ok(())
}

/// Mounts the account's token in every container that has nothing else in its place.
fn mount_token(pod: &mut Value) {
    let known = pod.at("spec").list("volumes").iter().map(|volume| volume.text("name"));
    let known = known.into_iter().find(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let has_volume = known.is_some();
    let name = known.unwrap_or_else(|| object::generate_name(VOLUME_PREFIX));
    let mut is_mounted = false;
    for field in ["initContainers", "containers"] {
        for container in pod.struct_mut("spec").items_mut(field) {
            if container.list("volumeMounts").iter().any(|mount| mount.text("mountPath") == MOUNT_PATH) {
                continue;
            }
            push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            is_mounted = true;
        }
    }
    if is_mounted && !has_volume {
        push(pod.struct_mut("spec"), "volumes", json!({"name": name, "projected": token_source()}));
    }
}

fn push(object: &mut Value, field: &str, item: Value) {
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.push(item),
        None => object.put(field, vec![item]),
    }
}

fn token_source() -> Value {
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_from_its_bytes() {
        let account = json!({
            "metadata": {"name": "a", "annotations": {ENFORCE_SECRETS: "t"}},
            "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "p"}, {"name": "q"}],
            "automountServiceAccountToken": false,
        });
        let expected = Account {
            automount: Some(false),
            pull_secrets: vec!["p".into(), "q".into()],
            mountable: Some(vec!["s".into()]),
        };
        assert_eq!(Account::read(account.to_string().as_bytes()), expected);
        let plain = json!({"metadata": {"annotations": {ENFORCE_SECRETS: "no"}}, "secrets": [{"name": "s"}]});
        assert_eq!(Account::read(plain.to_string().as_bytes()), Account::default());
    }

    #[test]
    fn the_token_is_mounted_where_nothing_else_is() {
        let mine = json!({"name": "mine", "mountPath": MOUNT_PATH});
        let mut pod = json!({"spec": {
            "initContainers": [{"name": "i"}], "containers": [{"name": "c", "volumeMounts": [mine]}, {"name": "d"}],
        }});
        mount_token(&mut pod);
        let spec = pod.at("spec");
        let name = spec.list("volumes")[0].text("name").to_owned();
        assert!(name.starts_with(VOLUME_PREFIX) && name.len() == VOLUME_PREFIX.len() + 5);
        let mount = json!([{"name": name, "readOnly": true, "mountPath": MOUNT_PATH}]);
        assert_eq!(spec["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([mine]));
        assert_eq!(spec["containers"][1]["volumeMounts"], mount);
        let before = pod.clone();
        mount_token(&mut pod);
        assert_eq!(pod, before, "a second round adds nothing");

        let mut taken = json!({"spec": {"containers": [{"name": "c", "volumeMounts": [mine]}]}});
        mount_token(&mut taken);
        assert!(!taken.at("spec").has("volumes"));
    }

    #[test]
    fn strict_accounts_allow_listed_secrets_only() {
        let account = Account { automount: None, pull_secrets: vec!["p".into()], mountable: Some(vec!["ok".into()]) };
        let check = |spec: Value, expected: &str| {
            let mut pod = json!({ "spec": spec });
            pod["spec"]["serviceAccountName"] = "strict".into();
            assert_eq!(check_secrets(&account, &pod).err().unwrap_or_default(), expected);
        };
        check(json!({"volumes": [{"secret": {"secretName": "ok"}}], "imagePullSecrets": [{"name": "p"}]}), "");
        check(
            json!({"volumes": [{"secret": {"secretName": "other"}}]}),
            "volume with secret.secretName=\"other\" is not allowed because service account strict does not reference \
             that secret",
        );
        let env = json!({"name": "E", "valueFrom": {"secretKeyRef": {"name": "x"}}});
        check(
            json!({"containers": [{"name": "c", "env": [env]}]}),
            "container c with envVar E referencing secret.secretName=\"x\" is not allowed because service account \
             strict does not reference that secret",
        );
        check(
            json!({"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "x"}}]}]}),
            "init container i with envFrom referencing secret.secretName=\"x\" is not allowed because service account \
             strict does not reference that secret",
        );
        check(
            json!({"imagePullSecrets": [{"name": "p"}, {"name": "q"}]}),
            "imagePullSecrets[1].name=\"q\" is not allowed because service account strict does not reference that \
             imagePullSecret",
        );
    }

    #[test]
    fn mirror_pods_use_nothing_of_the_api() {
        let check = |spec: Value, expected: &str| {
            assert_eq!(check_mirror(&json!({ "spec": spec })).err().unwrap_or_default(), expected);
        };
        check(json!({}), "");
        check(json!({"serviceAccountName": "a"}), "a mirror pod may not reference service accounts");
        let secrets = "a mirror pod may not reference secrets";
        check(json!({"volumes": [{"secret": {"secretName": "s"}}]}), secrets);
        check(json!({"imagePullSecrets": [{"name": "s"}]}), secrets);
        check(json!({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}), secrets);
        check(
            json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
            "a mirror pod may not use ServiceAccountToken volume projections",
        );
    }
}
