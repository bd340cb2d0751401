//! Classes of pods: how important they are, and what runs them.

use http::Method;
use serde_json::{Value, json};

use crate::client::{create, get, post, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const PRIORITIES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const RUNTIMES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn pod(name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_priority_comes_from_its_class() {
    let server = start().await;
    let computed = |given: &str, computed: &str| {
        let rest = format!("priority admission controller computed {computed} from the given PriorityClass name");
        format!("pods \"p\" is forbidden: the {given} must not be provided in pod spec; {rest}")
    };
    let refused = post(&server, PODS, &pod("p", json!({"priority": 5}))).await;
    assert_eq!((refused.code, refused.message()), (403, computed("integer value of priority (5)", "0").as_str()));
    let refused = post(&server, PODS, &pod("p", json!({"preemptionPolicy": "Never"}))).await;
    let words = computed("string value of PreemptionPolicy (Never)", "PreemptLowerPriority");
    assert_eq!((refused.code, refused.message()), (403, words.as_str()));
    let unnamed = json!({"metadata": {"generateName": "p-"}, "spec": pod("", json!({"priority": 5}))["spec"]});
    assert!(post(&server, PODS, &unnamed).await.message().starts_with("pods \"p-\" is forbidden: "));

    let class = json!({"metadata": {"name": "high"}, "value": 5, "preemptionPolicy": "Never"});
    create(&server, PRIORITIES, &class).await;
    let made = create(&server, PODS, &pod("p", json!({"priority": 5, "priorityClassName": "high"}))).await;
    assert_eq!(made["spec"]["preemptionPolicy"], "Never");

    // A change may leave out what was computed.
    let path = format!("{PODS}/p");
    let mut changed = get(&server, &path).await.body;
    for field in ["priority", "preemptionPolicy"] {
        changed["spec"].as_object_mut().unwrap().remove(field);
    }
    let answer = send(&server, Method::PUT, &path, &changed).await;
    assert_eq!((answer.code, &answer.body["spec"]["priority"]), (200, &json!(5)), "{}", answer.body);
}

#[tokio::test]
async fn one_priority_is_the_default() {
    let server = start().await;
    let class = |name: &str, default: bool| json!({"metadata": {"name": name}, "value": 1, "globalDefault": default});
    create(&server, PRIORITIES, &class("a", true)).await;
    create(&server, PRIORITIES, &class("c", false)).await;
    let words = |name: &str| {
        let why = "PriorityClass a is already marked as default. Only one default can exist";
        format!("priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: {why}")
    };
    let second = post(&server, PRIORITIES, &class("b", true)).await;
    assert_eq!((second.code, second.message()), (403, words("b").as_str()));
    let default = json!({"globalDefault": true, "description": "x"});
    let second = send(&server, Method::PATCH, &format!("{PRIORITIES}/c"), &default).await;
    assert_eq!((second.code, second.message()), (403, words("c").as_str()));
    assert_eq!(send(&server, Method::PATCH, &format!("{PRIORITIES}/a"), &default).await.code, 200);
}

#[tokio::test]
async fn a_pod_costs_and_runs_as_its_class_says() {
    let server = start().await;
    let refusal = async |spec: Value| {
        let answer = post(&server, PODS, &pod("p", spec)).await;
        (answer.code, answer.message().trim_start_matches("pods \"p\" is forbidden: ").to_owned())
    };
    let without = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    assert_eq!(refusal(json!({"overhead": {"cpu": "1"}})).await, (403, without.into()));
    let missing = "pod rejected: RuntimeClass \"x\" not found";
    assert_eq!(refusal(json!({"runtimeClassName": "x"})).await, (403, missing.into()));

    create(&server, RUNTIMES, &json!({"metadata": {"name": "plain"}, "handler": "h"})).await;
    let both = json!({"runtimeClassName": "plain", "overhead": {"cpu": "1"}});
    assert_eq!(refusal(both).await, (403, without.into()));
    let placement = json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]});
    let class = json!({
        "metadata": {"name": "sandbox"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": placement,
    });
    create(&server, RUNTIMES, &class).await;
    let other = json!({"runtimeClassName": "sandbox", "overhead": {"cpu": "2"}});
    let mismatch = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
    assert_eq!(refusal(other).await, (403, mismatch.into()));
    let elsewhere = json!({"runtimeClassName": "sandbox", "nodeSelector": {"a": "c"}});
    let conflict = "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c";
    assert_eq!(refusal(elsewhere).await, (403, conflict.into()));

    let same = json!({"runtimeClassName": "sandbox", "overhead": {"cpu": "1000m"}, "nodeSelector": {"z": "y"}});
    let made = create(&server, PODS, &pod("p", same)).await;
    assert_eq!(made["spec"]["nodeSelector"], json!({"a": "b", "z": "y"}));
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "1"}));
    let keys: Vec<&Value> = made["spec"]["tolerations"].as_array().unwrap().iter().map(|t| &t["key"]).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "k"]);
}
