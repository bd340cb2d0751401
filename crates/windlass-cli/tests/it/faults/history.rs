//! What happened to pods and Jobs since the last look, kills included: a watch from a revision of before them has it all.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::{Method, Request};
use serde_json::{Value, json};

use super::Server;

const PODS: &str = "/api/v1/pods";
const JOBS: &str = "/apis/batch/v1/jobs";
/// Objects whose change ends a look: a pod that is never scheduled, and a Job that never starts.
const MARKERS: [&str; 2] = ["/api/v1/namespaces/default/pods/marker", "/apis/batch/v1/namespaces/default/jobs/marker"];
const ROUND: &str = "round";

/// Makes the markers, or changes them.
pub(crate) async fn mark(server: &Server, round: u32) {
    let annotations = json!({"metadata": {"annotations": {ROUND: round.to_string()}}});
    if round > 0 {
        for path in MARKERS {
            server.patch(path, annotations.clone()).await;
        }
        return;
    }
    let pod = json!({"schedulingGates": [{"name": "example.com/never"}], "containers": [{"name": "c", "image": "c"}]});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c"}]}});
    for (path, spec) in MARKERS.iter().zip([pod, json!({"suspend": true, "template": template})]) {
        let collection = path.trim_end_matches("/marker");
        server.post(collection, json!({"metadata": {"name": "marker"}, "spec": spec})).await;
    }
}

/// See the module's introduction.
pub(crate) struct History {
    /// Where the watches of pods and of Jobs go on.
    pods: String,
    jobs: String,
    /// The uid of each pod that there is, by namespace and name.
    there: HashMap<String, String>,
    /// The uids of pods that nodes were asked to stop. What runs on a node is deleted in two steps, so that nothing else
    /// takes its identity before it has stopped.
    stopping: HashSet<String>,
    /// The pods that succeeded, by the Job that made them.
    succeeded: BTreeMap<String, BTreeSet<String>>,
    /// How many successes each Job has reported.
    reported: HashMap<String, u64>,
    events: usize,
    /// How often the history of a round was no longer kept.
    gaps: usize,
}

impl History {
    pub(crate) async fn new(server: &Server) -> Self {
        let mut new = Self {
            pods: String::new(),
            jobs: String::new(),
            there: HashMap::new(),
            stopping: HashSet::new(),
            succeeded: BTreeMap::new(),
            reported: HashMap::new(),
            events: 0,
            gaps: 0,
        };
        new.begin(server).await;
        new
    }

    /// Begins with what there is.
    async fn begin(&mut self, server: &Server) {
        let pods = server.send(Method::GET, PODS, &Value::Null).await.unwrap();
        text(&pods, "/metadata/resourceVersion").clone_into(&mut self.pods);
        self.there = pods["items"].as_array().unwrap().iter().map(|pod| (key(pod), uid(pod).to_owned())).collect();
        let jobs = server.send(Method::GET, JOBS, &Value::Null).await.unwrap();
        text(&jobs, "/metadata/resourceVersion").clone_into(&mut self.jobs);
    }

    pub(crate) fn summary(&self) -> String {
        let succeeded: usize = self.succeeded.values().map(BTreeSet::len).sum();
        format!("{} events, {} gaps, {succeeded} pods of Jobs succeeded", self.events, self.gaps)
    }

    /// Looks at everything that happened up to now.
    pub(crate) async fn read(&mut self, server: &Server, round: u32) {
        // The markers of the first round are made before the first look.
        let round = round + 1;
        mark(server, round).await;
        let pods = events(server, PODS, &self.pods, round).await;
        let jobs = events(server, JOBS, &self.jobs, round).await;
        let (Some(pods), Some(jobs)) = (pods, jobs) else {
            // A server that has compacted its log and is started again has no older history.
            self.gaps += 1;
            return self.begin(server).await;
        };
        self.events += pods.len();
        for event in &pods {
            self.pod(event);
        }
        for event in &jobs {
            self.job(event);
        }
        text(&pods[pods.len() - 1], "/object/metadata/resourceVersion").clone_into(&mut self.pods);
        text(&jobs[jobs.len() - 1], "/object/metadata/resourceVersion").clone_into(&mut self.jobs);
    }

    fn pod(&mut self, event: &Value) {
        let (kind, pod) = (text(event, "/type"), &event["object"]);
        let (key, uid) = (key(pod), uid(pod));
        let owner = text(pod, "/metadata/ownerReferences/0/kind");
        if kind == "DELETED" {
            assert_eq!(self.there.remove(&key).as_deref().unwrap_or(uid), uid, "{key} was another pod");
            let phase = text(pod, "/status/phase");
            let is_over = matches!(phase, "Succeeded" | "Failed") || pod.pointer("/spec/nodeName").is_none();
            let was_stopped = self.stopping.remove(uid);
            assert!(owner != "StatefulSet" || is_over || was_stopped, "{key} went while it ran: {pod:#}");
        } else {
            let known = self.there.insert(key.clone(), uid.to_owned());
            assert!(known.is_none_or(|known| known == uid), "two pods {key}");
            let grace = pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
            if grace.is_some_and(|grace| grace > 0) {
                self.stopping.insert(uid.to_owned());
            }
        }
        if owner == "Job" && text(pod, "/status/phase") == "Succeeded" {
            let job = text(pod, "/metadata/ownerReferences/0/uid").to_owned();
            self.succeeded.entry(job).or_default().insert(uid.to_owned());
        }
    }

    fn job(&mut self, event: &Value) {
        let job = &event["object"];
        let (name, uid) = (text(job, "/metadata/name"), uid(job));
        let completions = job.pointer("/spec/completions").and_then(Value::as_u64).unwrap_or(1);
        let reported = job.pointer("/status/succeeded").and_then(Value::as_u64).unwrap_or(0);
        assert!(reported <= completions, "{name} has {reported} successes of {completions}");
        let last = self.reported.insert(uid.to_owned(), reported).unwrap_or(0);
        assert!(reported >= last, "{name} had {last} successes and has {reported}");
        let pods = self.succeeded.get(uid).map_or(0, BTreeSet::len) as u64;
        assert!(pods <= completions, "{name} has {pods} pods that succeeded, of {completions}");
    }
}

fn key(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The events after a revision, up to the marker's; `None` if they are no longer kept.
async fn events(server: &Server, path: &str, version: &str, round: u32) -> Option<Vec<Value>> {
    let uri = format!("{path}?watch=true&resourceVersion={version}");
    let request = Request::get(uri).body(Vec::new()).unwrap();
    let mut lines = server.client.request_stream(request).await.unwrap().lines();
    let mut events = Vec::new();
    while let Some(line) = lines.try_next().await.unwrap() {
        let event: Value = serde_json::from_str(&line).unwrap();
        if text(&event, "/object/reason") == "Expired" {
            return None;
        }
        assert_ne!(text(&event, "/type"), "ERROR", "{event}");
        let is_marker = text(&event, "/object/metadata/name") == "marker"
            && text(&event, "/object/metadata/annotations/round") == round.to_string();
        events.push(event);
        if is_marker {
            return Some(events);
        }
    }
    panic!("the watch of {path} ended");
}

/// A text in an object; empty if it is not there.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
