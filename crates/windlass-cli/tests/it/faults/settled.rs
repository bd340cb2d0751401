//! The state that a cluster has to reach after a round, whether it was killed or not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};

use super::history::text;
use super::{NODES, Round, Server};

/// Why the cluster has not settled.
pub(crate) type Unsettled = String;

/// Everything that is looked at.
struct State {
    by_path: HashMap<&'static str, Vec<Value>>,
}

const PATHS: [&str; 14] = [
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/services",
    "/api/v1/serviceaccounts",
    "/api/v1/configmaps",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/controllerrevisions",
    "/apis/batch/v1/jobs",
    "/apis/discovery.k8s.io/v1/endpointslices",
];

impl State {
    async fn read(server: &Server) -> Self {
        let mut by_path = HashMap::new();
        for path in PATHS {
            by_path.insert(path, server.list(path).await);
        }
        Self { by_path }
    }

    fn all(&self, kind: &str) -> &[Value] {
        let path = PATHS.iter().find(|path| path.rsplit('/').next() == Some(kind)).expect("a path that is read");
        &self.by_path[path]
    }

    fn one(&self, kind: &str, namespace: &str, name: &str) -> Result<&Value, Unsettled> {
        let is_it = |one: &&Value| text(one, "/metadata/name") == name && text(one, "/metadata/namespace") == namespace;
        self.all(kind).iter().find(is_it).ok_or_else(|| format!("{kind} {namespace}/{name} is missing"))
    }

    /// The objects of a kind that belong to an owner.
    fn owned(&self, kind: &str, owner: &Value) -> Vec<&Value> {
        let uid = text(owner, "/metadata/uid");
        self.all(kind).iter().filter(|one| text(one, "/metadata/ownerReferences/0/uid") == uid).collect()
    }
}

fn name(object: &Value) -> String {
    let namespace = text(object, "/metadata/namespace");
    format!("{namespace}/{}", text(object, "/metadata/name"))
}

fn number(object: &Value, pointer: &str) -> u64 {
    object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Result<(), Unsettled> {
    if holds { Ok(()) } else { Err(reason()) }
}

fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Whether the cluster is as a round wants it.
pub(crate) async fn check(server: &Server, round: &Round) -> Result<(), Unsettled> {
    let state = State::read(server).await;
    let nodes = state.all("nodes");
    ensure(nodes.len() == NODES as usize && nodes.iter().all(is_ready), || "not all nodes are ready".to_owned())?;
    nothing_is_left_over(&state, round)?;
    deployment(&state, round)?;
    for (name, replicas) in [("db", round.db), ("cache", round.cache)] {
        stateful_set(&state, "default", name, replicas, &round.image())?;
    }
    stateful_set(&state, &round.scratch(), "scratch", 2, "app")?;
    job(&state, round)?;
    volumes(&state)?;
    identities(&state)
}

/// No object waits for its end, belongs to something that is gone, or is of a namespace that is gone.
fn nothing_is_left_over(state: &State, round: &Round) -> Result<(), Unsettled> {
    let everything = || PATHS.iter().flat_map(|path| &state.by_path[path]);
    let uids: HashSet<&str> = everything().map(|one| text(one, "/metadata/uid")).collect();
    let namespaces: HashSet<&str> = state.all("namespaces").iter().map(|one| text(one, "/metadata/name")).collect();
    for one in everything() {
        ensure(one.pointer("/metadata/deletionTimestamp").is_none(), || format!("{} is being deleted", name(one)))?;
        for owner in one.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten() {
            ensure(uids.contains(text(owner, "/uid")), || format!("{} is an orphan: {owner}", name(one)))?;
        }
        let namespace = text(one, "/metadata/namespace");
        ensure(namespace.is_empty() || namespaces.contains(namespace), || format!("{} has no namespace", name(one)))?;
    }
    let scratch: Vec<&&str> = namespaces.iter().filter(|name| name.starts_with("scratch-")).collect();
    ensure(scratch == [&round.scratch()], || format!("namespaces are left: {scratch:?}"))?;
    let jobs = state.all("jobs").len();
    ensure(jobs == 2, || format!("{jobs} jobs: that of the round and the marker are wanted"))
}

fn deployment(state: &State, round: &Round) -> Result<(), Unsettled> {
    let web = state.one("deployments", "default", "web")?;
    let wanted = u64::from(round.web);
    let status = &web["status"];
    ensure(status["observedGeneration"] == web["metadata"]["generation"], || "web is not observed".to_owned())?;
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        ensure(number(status, &format!("/{field}")) == wanted, || format!("web has not {wanted} {field}: {status}"))?;
    }
    let sets = state.owned("replicasets", web);
    let used: Vec<&&Value> = sets.iter().filter(|set| number(set, "/spec/replicas") > 0).collect();
    ensure(used.len() == 1, || format!("{} replica sets of web have pods", used.len()))?;
    ensure(sets.len() <= 3, || format!("{} replica sets of web are kept", sets.len()))?;
    let revisions: BTreeSet<&str> =
        sets.iter().map(|set| text(set, "/metadata/annotations/deployment.kubernetes.io~1revision")).collect();
    ensure(revisions.len() == sets.len(), || format!("replica sets of web share revisions: {revisions:?}"))?;
    let pods = state.owned("pods", used[0]);
    ensure(pods.len() == round.web as usize, || format!("web has {} pods, not {wanted}", pods.len()))?;
    run(&pods, &round.image())?;
    let labelled = state.all("pods").iter().filter(|pod| text(pod, "/metadata/labels/app") == "web").count();
    ensure(labelled == pods.len(), || format!("{labelled} pods have the label of web"))?;
    let addresses: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/status/podIP")).collect();
    let slices = state.all("endpointslices").iter();
    let slices = slices.filter(|slice| text(slice, "/metadata/labels/kubernetes.io~1service-name") == "web");
    let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let endpoints: Vec<&str> = endpoints.map(|endpoint| text(endpoint, "/addresses/0")).collect();
    let is_same = endpoints.len() == addresses.len() && endpoints.iter().all(|one| addresses.contains(one));
    ensure(is_same, || format!("the endpoints of web are {endpoints:?}, not {addresses:?}"))
}

/// Pods run, are ready and have an image.
fn run(pods: &[&Value], image: &str) -> Result<(), Unsettled> {
    for pod in pods {
        ensure(text(pod, "/spec/containers/0/image") == image, || format!("{} has another image", name(pod)))?;
        ensure(text(pod, "/status/phase") == "Running" && is_ready(pod), || format!("{} is not ready", name(pod)))?;
    }
    Ok(())
}

fn stateful_set(state: &State, namespace: &str, set: &str, replicas: u32, image: &str) -> Result<(), Unsettled> {
    let found = state.one("statefulsets", namespace, set)?;
    let status = &found["status"];
    ensure(status["observedGeneration"] == found["metadata"]["generation"], || format!("{set} is not observed"))?;
    for field in ["replicas", "currentReplicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        let is_so = number(status, &format!("/{field}")) == u64::from(replicas);
        ensure(is_so, || format!("{set} has not {replicas} {field}: {status}"))?;
    }
    ensure(status["currentRevision"] == status["updateRevision"], || format!("{set} is being updated: {status}"))?;
    let pods = state.owned("pods", found);
    let names: BTreeSet<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
    let wanted: BTreeSet<String> = (0..replicas).map(|ordinal| format!("{set}-{ordinal}")).collect();
    ensure(names.iter().eq(wanted.iter()), || format!("the pods of {set} are {names:?}"))?;
    ensure(pods.len() == names.len(), || format!("{set} has {} pods", pods.len()))?;
    run(&pods, image)?;
    for pod in &pods {
        let claim = format!("data-{}", text(pod, "/metadata/name"));
        let claim = state.one("persistentvolumeclaims", namespace, &claim)?;
        ensure(text(claim, "/status/phase") == "Bound", || format!("{} is not bound", name(claim)))?;
    }
    let claims = state.all("persistentvolumeclaims").iter().filter(|claim| {
        let prefix = format!("data-{set}-");
        text(claim, "/metadata/namespace") == namespace && text(claim, "/metadata/name").starts_with(&prefix)
    });
    let claims = claims.count();
    ensure(claims == replicas as usize, || format!("{claims} claims of {set}, not {replicas}"))?;
    let revisions = state.owned("controllerrevisions", found);
    let numbers: BTreeSet<u64> = revisions.iter().map(|revision| number(revision, "/revision")).collect();
    ensure(numbers.len() == revisions.len(), || format!("revisions of {set} share numbers"))?;
    ensure(revisions.len() <= 12, || format!("{set} has {} revisions", revisions.len()))
}

fn job(state: &State, round: &Round) -> Result<(), Unsettled> {
    let job = state.one("jobs", "default", &round.job())?;
    let (status, wanted) = (&job["status"], u64::from(round.completions));
    let conditions = status["conditions"].as_array();
    let is_complete =
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Complete" && one["status"] == "True"));
    ensure(is_complete, || format!("the job is not complete: {status}"))?;
    ensure(number(status, "/succeeded") == wanted, || format!("not {wanted} successes: {status}"))?;
    for field in ["active", "failed", "ready", "terminating"] {
        ensure(number(status, &format!("/{field}")) == 0, || format!("the job has {field} pods: {status}"))?;
    }
    let uncounted = status.get("uncountedTerminatedPods").is_none_or(|one| *one == json!({}));
    ensure(uncounted, || format!("pods are not counted: {status}"))?;
    let pods = state.owned("pods", job);
    ensure(pods.len() as u64 == wanted, || format!("the job has {} pods, not {wanted}", pods.len()))?;
    let mut indexes = BTreeMap::new();
    for pod in &pods {
        ensure(text(pod, "/status/phase") == "Succeeded", || format!("{} has not succeeded", name(pod)))?;
        ensure(pod.pointer("/metadata/finalizers").is_none(), || format!("{} has a finalizer", name(pod)))?;
        let index = text(pod, "/metadata/annotations/batch.kubernetes.io~1job-completion-index");
        *indexes.entry(index).or_insert(0) += 1;
    }
    ensure(!round.indexed || indexes.values().all(|count| *count == 1), || format!("pods by index: {indexes:?}"))
}

/// Each claim has a volume, and each volume a claim.
fn volumes(state: &State) -> Result<(), Unsettled> {
    let claims: HashMap<&str, &Value> =
        state.all("persistentvolumeclaims").iter().map(|claim| (text(claim, "/metadata/uid"), claim)).collect();
    let volumes = state.all("persistentvolumes");
    for volume in volumes {
        let claim = claims.get(text(volume, "/spec/claimRef/uid"));
        let is_of_it = claim.is_some_and(|claim| claim["spec"]["volumeName"] == volume["metadata"]["name"]);
        ensure(is_of_it, || format!("{} belongs to no claim", name(volume)))?;
    }
    ensure(volumes.len() == claims.len(), || format!("{} volumes for {} claims", volumes.len(), claims.len()))
}

/// No two pods that run have the same address.
fn identities(state: &State) -> Result<(), Unsettled> {
    let mut addresses = HashMap::new();
    for pod in state.all("pods").iter().filter(|pod| text(pod, "/status/phase") == "Running") {
        let other = addresses.insert(text(pod, "/status/podIP"), name(pod));
        ensure(other.is_none(), || format!("{other:?} and {} have the same address", name(pod)))?;
    }
    Ok(())
}
