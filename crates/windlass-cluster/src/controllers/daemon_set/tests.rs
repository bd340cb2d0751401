//! Pure parts: where pods belong, what is planned, back-off, truncation.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn set(spec: &Value) -> DaemonSet {
    let mut set = json!({"metadata": {"name": "d", "namespace": "n", "uid": "s"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    }});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    serde_json::from_value(set).unwrap()
}

fn node(labels: &Value, taints: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}})).unwrap()
}

#[test]
fn names_selectors_and_taints_decide_where_pods_belong() {
    let with = |pod: Value| set(&json!({"template": {"spec": pod}}));
    let affinity = |terms: Value| {
        json!({"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}})
    };
    let expression = |key: &str, operator: &str, values: Value| {
        affinity(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    };
    let taint = |key: &str, effect: &str| json!([{"key": key, "value": "v", "effect": effect}]);
    let labels = json!({"pool": "a", "size": "5"});
    let plain = json!({"containers": []});
    for (pod, taints, expected) in [
        (plain.clone(), json!([]), Placement::Run),
        (json!({"containers": [], "nodeName": "n1"}), json!([]), Placement::Run),
        (json!({"containers": [], "nodeName": "n2"}), json!([]), Placement::Leave),
        (json!({"containers": [], "nodeSelector": {"pool": "a"}}), json!([]), Placement::Run),
        (json!({"containers": [], "nodeSelector": {"pool": "b"}}), json!([]), Placement::Leave),
        (expression("pool", "In", json!(["b", "a"])), json!([]), Placement::Run),
        (expression("pool", "NotIn", json!(["a"])), json!([]), Placement::Leave),
        (expression("gone", "NotIn", json!(["a"])), json!([]), Placement::Run),
        (expression("gone", "Exists", json!([])), json!([]), Placement::Leave),
        (expression("gone", "DoesNotExist", json!([])), json!([]), Placement::Run),
        (expression("size", "Gt", json!(["4"])), json!([]), Placement::Run),
        (expression("size", "Lt", json!(["4"])), json!([]), Placement::Leave),
        (expression("pool", "Gt", json!(["4"])), json!([]), Placement::Leave),
        (affinity(json!([{}])), json!([]), Placement::Leave),
        (
            affinity(json!([{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}])),
            json!([]),
            Placement::Run,
        ),
        (plain.clone(), taint("k", "NoSchedule"), Placement::Stay),
        (plain.clone(), taint("k", "NoExecute"), Placement::Leave),
        (plain.clone(), taint("k", "PreferNoSchedule"), Placement::Run),
        (plain.clone(), taint("node.kubernetes.io/unschedulable", "NoSchedule"), Placement::Run),
        (plain.clone(), taint("node.kubernetes.io/not-ready", "NoExecute"), Placement::Run),
        (plain, taint("node.kubernetes.io/network-unavailable", "NoSchedule"), Placement::Stay),
        (
            json!({"containers": [], "hostNetwork": true}),
            taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
            Placement::Run,
        ),
        (json!({"containers": [], "tolerations": [{"operator": "Exists"}]}), taint("k", "NoExecute"), Placement::Run),
        (
            json!({"containers": [], "tolerations": [{"key": "k", "value": "v"}]}),
            taint("k", "NoExecute"),
            Placement::Run,
        ),
        (
            json!({"containers": [], "tolerations": [{"key": "k", "value": "w"}]}),
            taint("k", "NoExecute"),
            Placement::Leave,
        ),
    ] {
        let found = Placer::of(&with(pod.clone())).place(&node(&labels, &taints));
        assert_eq!(found, expected, "{pod} {taints}");
    }
}

#[test]
fn pods_are_pinned_to_their_node() {
    let mut pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]},
    }}}}))
    .unwrap();
    assert_eq!(nodes::target(&pod), None);
    nodes::pin(pod.spec.as_mut().unwrap(), "n7");
    assert_eq!(nodes::target(&pod), Some("n7"));
    let before = pod.clone();
    nodes::add_tolerations(pod.spec.as_mut().unwrap());
    let tolerations = pod.spec.clone().unwrap().tolerations.unwrap();
    assert_eq!(tolerations.len(), 6);
    nodes::add_tolerations(pod.spec.as_mut().unwrap());
    assert_eq!(pod.spec.unwrap().tolerations.unwrap(), tolerations, "none twice");
    assert_eq!(nodes::target(&before), Some("n7"));
}

/// Pods of a node, one per letter: (n)ew and available, (N)ew and not, (o)ld and available, (O)ld and not, (f)ailed,
/// (s)ucceeded, (d)eleting.
fn pods_of(node: &str, letters: &str) -> Vec<Arc<Pod>> {
    let pod = |(at, like): (usize, char)| {
        let ready = if matches!(like, 'n' | 'o') { "True" } else { "False" };
        let phase = match like {
            'f' => "Failed",
            's' => "Succeeded",
            _ => "Running",
        };
        let mut pod = json!({
            "metadata": {"name": format!("{node}-{like}{at}"), "namespace": "n",
                "creationTimestamp": format!("2026-01-01T00:00:0{at}Z"),
                "labels": {REVISION_LABEL: if matches!(like, 'n' | 'N') { "new" } else { "old" }}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": NOW}]},
        });
        if like == 'd' {
            pod["metadata"]["deletionTimestamp"] = json!(NOW);
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    letters.chars().enumerate().map(pod).collect()
}

/// Nodes as words: where the pod belongs (`+`, `.` to stay, `-`), then its pods.
fn scene(words: &str) -> (BTreeMap<String, Placement>, PodsByNode) {
    let (mut nodes, mut pods) = (BTreeMap::new(), PodsByNode::new());
    for (at, word) in words.split_whitespace().enumerate() {
        let name = format!("n{at}");
        let placement = match &word[..1] {
            "+" => Placement::Run,
            "." => Placement::Stay,
            _ => Placement::Leave,
        };
        nodes.insert(name.clone(), placement);
        if word.len() > 1 {
            pods.insert(name.clone(), pods_of(&name, &word[1..]));
        }
    }
    (nodes, pods)
}

fn with_view<T>(set: &DaemonSet, words: &str, act: impl FnOnce(&View<'_>) -> T) -> T {
    let (nodes, pods) = scene(words);
    let now = NOW.parse().unwrap();
    act(&View { spec: spec(set), hash: "new", generation: None, nodes: &nodes, pods: &pods, now })
}

fn in_words(plan: &Plan) -> String {
    let created = plan.create.iter().map(|node| format!("+{node}"));
    let deleted = plan.delete.iter().map(|pod| format!("-{}", pod.metadata.name.as_deref().unwrap()));
    created.chain(deleted).collect::<Vec<_>>().join(" ")
}

fn surging(count: &Value) -> DaemonSet {
    set(
        &json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": count}}}),
    )
}

#[test]
fn every_node_gets_the_pods_that_belong_there() {
    let now = |_: &str| Duration::ZERO;
    for (words, expected) in [
        ("+ . -", "+n0"),
        ("+n .n -n", "-n2-n0"),
        ("+nn +N", "-n0-n1"),
        // A pod that is being deleted has to be gone before the next is made.
        ("+d", ""),
        ("+f +s", "-n0-f0 -n1-s0"),
        ("-d", ""),
    ] {
        assert_eq!(with_view(&set(&json!({})), words, |view| in_words(&view.manage(now))), expected, "{words}");
    }
    for (words, expected) in
        [("+d", "+n0"), (".d", ""), ("+oN", ""), ("+on", "-n0-o0"), ("+ON", "-n0-O0"), ("+ooN", "-n0-o1")]
    {
        assert_eq!(with_view(&surging(&json!(1)), words, |view| in_words(&view.manage(now))), expected, "{words}");
    }
}

#[test]
fn failed_pods_wait_for_their_back_off() {
    let wait = |node: &str| if node == "n0" { Duration::from_secs(4) } else { Duration::ZERO };
    let plan = with_view(&set(&json!({})), "+f +f", |view| view.manage(wait));
    assert_eq!((in_words(&plan).as_str(), plan.again), ("-n1-f0", Some(Duration::from_secs(4))));
    assert_eq!(plan.ended.len(), 1);

    let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let mut backoff = Backoff::default();
    backoff.begin(1, at(0));
    for (second, expected) in [(0, 0), (0, 1), (1, 0), (2, 1), (3, 0), (4, 3), (7, 0)] {
        assert_eq!(backoff.attempt("n", at(second)), Duration::from_secs(expected), "at {second}");
    }
    backoff.begin(2, at(8));
    assert_eq!(backoff.attempt("n", at(8)), Duration::ZERO, "a new generation starts anew");
    backoff.begin(2, at(8 + 2 * 900 + 1));
    assert!(backoff.is_empty());
}

#[test]
fn updates_keep_within_their_limits() {
    for (most, words, expected) in [
        (1, "+o +o +o", "-n0-o0"),
        (2, "+o +o +o", "-n0-o0 -n1-o0"),
        (1, "+n +o +o", "-n1-o0"),
        (1, "+N +o +o", ""),
        // An old pod that is not available may always go.
        (1, "+N +O +o", "-n1-O0"),
        (1, "+ +o", ""),
        (1, "+d +o", ""),
        (1, "+n +n", ""),
    ] {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}});
        let set = set(&json!({"updateStrategy": rolling}));
        assert_eq!(with_view(&set, words, |view| in_words(&view.roll())), expected, "{most} {words}");
    }
    for (most, words, expected) in [
        (json!(1), "+o +o", "+n0"),
        (json!("100%"), "+o +o", "+n0 +n1"),
        (json!(1), "+oN +o", ""),
        (json!(1), "+on +o", "+n1 -n0-o0"),
        (json!(1), "+O +o +o", "+n0 +n1"),
        (json!(1), "-O +n", "-n0-O0"),
        // Where a pod no longer belongs it goes when there are enough elsewhere.
        (json!(1), "-o +N", ""),
        (json!(1), "-o +n", "-n0-o0"),
    ] {
        let set = surging(&most);
        assert_eq!(with_view(&set, words, |view| in_words(&view.roll())), expected, "{most} {words}");
    }
}

#[test]
fn revisions_in_use_stay_but_count() {
    let revision = |hash: &str| {
        let labels = json!({"labels": {REVISION_LABEL: hash}, "name": hash});
        Arc::new(serde_json::from_value::<ControllerRevision>(json!({"metadata": labels, "revision": 1})).unwrap())
    };
    let old = ["a", "b", "c", "d"].map(revision);
    let gone = |limit| {
        let gone = revision::surplus(&old, Some(limit), |hash| hash == "a");
        gone.iter().map(|revision| revision.metadata.name.clone().unwrap()).collect::<String>()
    };
    assert_eq!((gone(4), gone(2), gone(0)), (String::new(), "bc".to_owned(), "bcd".to_owned()));
}

proptest! {
    #[test]
    fn updates_never_exceed_their_limits(
        nodes in prop::collection::vec("[+.-][nNoO]?", 0..8), most in 0..4usize, surge: bool,
    ) {
        let words = nodes.join(" ");
        let rolling = if surge { json!({"maxUnavailable": 0, "maxSurge": most}) } else { json!({"maxUnavailable": most}) };
        let set = set(&json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}));
        let (plan, unavailable) = with_view(&set, &words, |view| {
            let available = |pod: &Arc<Pod>| view.is_available(pod);
            let plan = view.roll();
            let lost = plan.delete.iter().filter(|pod| available(pod)).count();
            (plan, lost)
        });
        // Available pods that are deleted are within the limit, and only old ones are.
        prop_assert!(plan.delete.iter().all(|pod| pod.metadata.labels.as_ref().unwrap()[REVISION_LABEL] == "old"));
        if surge && most > 0 {
            let on_available = plan.create.iter().filter(|node| {
                let at: usize = node[1..].parse().unwrap();
                nodes[at].ends_with('o')
            });
            prop_assert!(on_available.count() <= most);
        } else {
            prop_assert!(unavailable <= most.max(1));
            prop_assert!(plan.create.is_empty());
        }
    }

    #[test]
    fn the_order_of_a_nodes_pods_is_total(letters in "[nNoOfsd]{0,6}", turn in 0..6usize) {
        let mut pods = pods_of("n0", &letters);
        let mut turned = pods.clone();
        turned.rotate_left(turn.min(pods.len()));
        plan::sort(&mut pods);
        plan::sort(&mut turned);
        prop_assert_eq!(pods, turned);
    }
}
