//! Why the pods of a Deployment do not run: conditions, containers, events and the last lines that they logged.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::request;

/// How many pods, events and lines are shown.
const PODS: usize = 3;
const EVENTS: usize = 8;
const LINES: usize = 10;

/// All that is known, as indented lines. What cannot be read is left out: it is not what failed.
pub(super) async fn find(client: &kube::Client, namespace: &str, deployment: &Value, has_nodes: bool) -> String {
    let mut text = String::new();
    if !has_nodes {
        text.push_str("  the cluster has no nodes that run pods\n");
    }
    let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
    for line in conditions(&deployment["status"], &["ReplicaFailure"]) {
        let _ = writeln!(text, "  {line}");
    }
    let pods = list(client, &format!("/api/v1/namespaces/{namespace}/pods?{}", selector(deployment))).await;
    if pods.is_empty() {
        text.push_str("  there are no pods\n");
    }
    for pod in pods.iter().filter(|pod| !is_ready(pod)).take(PODS) {
        for line in of_pod(pod) {
            let _ = writeln!(text, "  {line}");
        }
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
        for container in names(pod) {
            let lines = log(client, namespace, pod_name, &container).await;
            if !lines.is_empty() {
                let _ = writeln!(text, "  last lines of {pod_name}, container {container}:");
                for line in lines {
                    let _ = writeln!(text, "    {line}");
                }
            }
        }
    }
    let events = list(client, &format!("/api/v1/namespaces/{namespace}/events")).await;
    let events = of_interest(&events, name);
    if !events.is_empty() {
        text.push_str("  events:\n");
        for event in events {
            let _ = writeln!(text, "    {event}");
        }
    }
    text.trim_end().to_owned()
}

/// What keeps a container of the Deployment's pods from running, if one says so.
pub(super) async fn trouble(client: &kube::Client, namespace: &str, deployment: &Value) -> Option<String> {
    let pods = list(client, &format!("/api/v1/namespaces/{namespace}/pods?{}", selector(deployment))).await;
    pods.iter().find_map(trouble_of)
}

fn trouble_of(pod: &Value) -> Option<String> {
    let containers = ["initContainerStatuses", "containerStatuses"].map(|field| pod["status"][field].as_array());
    let waiting = containers.into_iter().flatten().flatten().map(|container| &container["state"]["waiting"]);
    let reason = waiting.filter_map(|waiting| waiting["reason"].as_str()).find(|reason| {
        // The others are steps on the way.
        !["ContainerCreating", "PodInitializing"].contains(reason)
    })?;
    Some(format!("pod {} has {reason}", pod["metadata"]["name"].as_str().unwrap_or_default()))
}

async fn list(client: &kube::Client, path: &str) -> Vec<Value> {
    let Ok(request) = request("GET", path, None) else { return Vec::new() };
    match client.request::<Value>(request).await {
        Ok(mut list) => list["items"].as_array_mut().map(std::mem::take).unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

async fn log(client: &kube::Client, namespace: &str, pod: &str, container: &str) -> Vec<String> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&tailLines={LINES}");
    let Ok(request) = request("GET", &path, None) else { return Vec::new() };
    let text = client.request_text(request).await.unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The selector of a Deployment, in the form of a query.
fn selector(deployment: &Value) -> String {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten().filter_map(|(name, value)| Some(format!("{name}%3D{}", value.as_str()?)));
    format!("labelSelector={}", labels.collect::<Vec<_>>().join("%2C"))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn names(pod: &Value) -> Vec<String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
}

/// What conditions that are as these say.
fn conditions(status: &Value, kinds: &[&str]) -> Vec<String> {
    let all = status["conditions"].as_array().into_iter().flatten();
    let chosen = all.filter(|condition| kinds.iter().any(|kind| condition["type"] == *kind));
    chosen.filter_map(|condition| condition["message"].as_str()).map(str::to_owned).collect()
}

/// What a pod and its containers say about themselves.
fn of_pod(pod: &Value) -> Vec<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let mut lines = vec![format!("pod {name} is {}", pod["status"]["phase"].as_str().unwrap_or("Pending"))];
    for condition in pod["status"]["conditions"].as_array().into_iter().flatten() {
        let message = condition["message"].as_str().filter(|message| !message.is_empty());
        if let Some(message) = message.filter(|_| condition["status"] == "False") {
            lines.push(format!("pod {name}: {}: {message}", condition["type"].as_str().unwrap_or_default()));
        }
    }
    for container in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
        let of = container["name"].as_str().unwrap_or_default();
        for (state, what) in [(&container["state"], "is"), (&container["lastState"], "was")] {
            for kind in ["waiting", "terminated"] {
                let state = &state[kind];
                if state.is_null() {
                    continue;
                }
                let mut line = format!("container {of} {what} {kind}");
                let said = [&state["reason"], &state["message"]].into_iter().filter_map(|said| said.as_str());
                said.filter(|said| !said.is_empty()).for_each(|said| {
                    let _ = write!(line, ": {said}");
                });
                if let Some(code) = state["exitCode"].as_i64() {
                    let _ = write!(line, " (exit code {code})");
                }
                lines.push(line);
            }
        }
    }
    lines
}

/// The newest events about the Deployment, its ReplicaSets and pods, whose names begin with its own.
fn of_interest(events: &[Value], name: &str) -> Vec<String> {
    let about = |event: &&Value| {
        let object = event["involvedObject"]["name"].as_str().unwrap_or_default();
        object == name || object.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    let mut chosen: Vec<&Value> = events.iter().filter(about).collect();
    let time = |event: &Value| {
        let times = ["lastTimestamp", "eventTime"].iter().find_map(|field| event[field].as_str());
        times.or_else(|| event["metadata"]["creationTimestamp"].as_str()).unwrap_or_default().to_owned()
    };
    chosen.sort_by_key(|event| time(event));
    let start = chosen.len().saturating_sub(EVENTS);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |event: &&Value| {
        let object = &event["involvedObject"];
        format!(
            "{} {}/{}: {}: {}",
            text(&event["type"]),
            text(&object["kind"]).to_lowercase(),
            text(&object["name"]),
            text(&event["reason"]),
            text(&event["message"])
        )
    };
    chosen[start..].iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_keeps_a_pod_from_running_is_named() {
        let pod = |reason: &str| {
            json!({"metadata": {"name": "a"}, "status": {"containerStatuses": [
                {"name": "manager", "state": {"waiting": {"reason": reason}}},
            ]}})
        };
        assert_eq!(trouble_of(&pod("ImagePullBackOff")).as_deref(), Some("pod a has ImagePullBackOff"));
        assert_eq!(trouble_of(&pod("ContainerCreating")), None);
        assert_eq!(trouble_of(&json!({})), None);
    }

    #[test]
    fn containers_say_why_they_wait() {
        let pod = json!({"metadata": {"name": "web-1"}, "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "no nodes"}],
            "containerStatuses": [{
                "name": "manager",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"reason": "Error", "exitCode": 1}},
            }],
        }});
        let expected = [
            "pod web-1 is Pending",
            "pod web-1: PodScheduled: no nodes",
            "container manager is waiting: CrashLoopBackOff: back-off",
            "container manager was terminated: Error (exit code 1)",
        ];
        assert_eq!(of_pod(&pod), expected);
    }

    #[test]
    fn events_of_the_deployment_and_its_pods_are_shown() {
        let event = |object: &str, time: &str| {
            json!({
                "involvedObject": {"kind": "Pod", "name": object}, "type": "Warning", "reason": "Failed",
                "message": time, "lastTimestamp": time,
            })
        };
        let events = [event("web-1", "2"), event("webhook", "1"), event("web", "1")];
        assert_eq!(of_interest(&events, "web"), ["Warning pod/web: Failed: 1", "Warning pod/web-1: Failed: 2"]);
    }
}
