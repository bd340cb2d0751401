//! Which stage is next, when, and what it does.

use super::*;
use crate::cel::go_duration;

/// The functions that the templates of these tests ask for.
struct Known;

impl Functions for Known {
    fn has(&self, name: &str) -> bool {
        name == "PodIPWith"
    }

    fn call(&self, _: &str, _: &[Value]) -> Result<Value, String> {
        Ok("10.0.0.7".into())
    }
}

fn stage(spec: &str) -> Stage {
    let spec: StageSpec = serde_saphyr::from_str(spec).expect("a spec");
    Stage::compile("s", &spec, &Known).expect("a stage").expect("a selector")
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "labels": {"app": "web"}, "finalizers": ["a", "b"],
            "annotations": {"delay": "1m30s", "weight": "3", "until": "2026-01-01T00:00:10Z"},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
        "status": {"phase": "Pending"},
    })
}

#[test]
fn all_conditions_of_a_selector_hold() {
    let check = |selector: &str, expected: bool| {
        assert_eq!(
            stage(&format!("{{selector: {selector}, next: {{delete: true}}}}")).matches(&pod()),
            expected,
            "{selector}"
        );
    };
    check("{}", true);
    check("{matchLabels: {app: web}}", true);
    check("{matchLabels: {app: other}}", false);
    check("{matchAnnotations: {weight: '3'}}", true);
    check("{matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]}", true);
    check("{matchExpressions: [{jq: {key: .status.phase, operator: NotIn, values: [Pending]}}]}", false);
    check("{matchExpressions: [{key: .metadata.deletionTimestamp, operator: DoesNotExist}]}", true);
    check("{matchExpressions: [{key: '.status.conditions.[].type', operator: Exists}]}", false);
    check("{matchExpressions: [{key: '.status.conditions.[].type', operator: NotIn, values: [Ready]}]}", true);
    check("{matchLabels: {app: web}, matchExpressions: [{key: .status.podIP, operator: Exists}]}", false);
    check("{matchExpressions: [{cel: {expression: \"self.status.phase == 'Pending'\"}}]}", true);
    check("{matchExpressions: [{cel: {expression: 'has(self.metadata.deletionTimestamp)'}}]}", false);
    check("{matchExpressions: [{cel: {expression: \"'x' in self.metadata.nothing\"}}]}", false);
    check("{matchExpressions: [{cel: {expression: self.metadata.name}}]}", false);
}

#[test]
fn a_delay_is_fixed_random_or_the_objects() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let check = |delay: &str, expected_ms: u64| {
        let stage = stage(&format!("{{selector: {{}}, delay: {delay}, next: {{delete: true}}}}"));
        let delay_is = stage.delay(&pod(), now, &mut |below| below / 2);
        assert_eq!(delay_is.as_millis() as u64, expected_ms, "{delay}");
    };
    check("{durationMilliseconds: 1000}", 1_000);
    check("{durationMilliseconds: 1000, jitterDurationMilliseconds: 5000}", 3_000);
    check("{durationMilliseconds: 1000, jitterDurationMilliseconds: 500}", 500);
    check("{durationMilliseconds: 1, durationFrom: {expressionFrom: '.metadata.annotations[\"delay\"]'}}", 90_000);
    check("{durationMilliseconds: 7, durationFrom: {expressionFrom: '.metadata.annotations[\"none\"]'}}", 7);
    check("{durationFrom: {jq: {expression: .metadata.annotations.until}}}", 10_000);
    check("{durationFrom: {cel: {expression: self.metadata.annotations.delay}}}", 90_000);
    check("{durationFrom: {cel: {expression: timestamp(self.metadata.annotations.until) - Now()}}}", 10_000);
    check("{durationMilliseconds: 9000, jitterDurationFrom: {expressionFrom: .metadata.deletionTimestamp}}", 9_000);
}

#[test]
fn weights_decide_among_stages_that_match() {
    let named = |name: &str, rest: &str| {
        let spec: StageSpec =
            serde_saphyr::from_str(&format!("{{selector: {{}}, next: {{delete: true}}, {rest}}}")).expect("a spec");
        Stage::compile(name, &spec, &Known).expect("a stage").expect("a selector")
    };
    let check = |stages: &[Stage], random: u64, expected: &str| {
        let chosen = choose(stages, &pod(), &mut |below| random.min(below - 1)).map(Stage::name);
        assert_eq!(chosen, Some(expected), "{random}");
    };
    let weighed = [
        named("a", "weight: 1"),
        named("b", "weightFrom: {expressionFrom: .metadata.annotations.weight}"),
        named("c", "weight: 0"),
    ];
    check(&weighed, 0, "a");
    check(&weighed, 1, "b");
    check(&weighed, 3, "b");
    let expressed = [named("a", "weight: 0"), named("b", "weightFrom: {cel: {expression: size(self.metadata.name)}}")];
    check(&expressed, 0, "b");
    let equal = [named("a", "weight: 0"), named("b", "weight: 0")];
    check(&equal, 0, "a");
    check(&equal, 1, "b");
    assert!(choose::<Stage>(&[], &pod(), &mut |_| 0).is_none());
}

#[test]
fn a_status_template_becomes_a_patch() {
    let stage = stage(
        "
selector: {}
next:
  event: {type: Normal, reason: R, message: M}
  finalizers: {add: [{value: c}], remove: [{value: a}]}
  statusPatchAs: {username: jane}
  statusTemplate: |
    {{ $now := \"x\" }}
    containerStatuses:
    {{ range .spec.containers }}
    - image: {{ .image | Quote }}
      ready: true
    {{ end }}
    podIP: {{ PodIPWith .spec.nodeName false | Quote }}
    phase: Running
",
    );
    let actions = stage.actions(&pod(), &Known).expect("actions");
    let [Action::Event(event), Action::Patch(finalizers), Action::Patch(status)] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!(event.reason, "R");
    let expected = json!([
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "c"},
    ]);
    assert_eq!((finalizers.content_type, &finalizers.body), (JSON_PATCH, &expected));
    assert_eq!((status.subresource.as_str(), status.content_type), ("status", STRATEGIC_PATCH));
    assert_eq!(status.as_user.as_deref(), Some("jane"));
    let containers = json!([{"image": "i", "ready": true}]);
    assert_eq!(
        status.body,
        json!({"status": {"containerStatuses": containers, "podIP": "10.0.0.7", "phase": "Running"}})
    );
}

#[test]
fn patches_have_a_type_and_a_root() {
    let stage = stage(
        "
selector: {}
next:
  patches:
  - {type: merge, template: 'spec: {x: 1}'}
  - {type: json, root: status, subresource: status, template: '[{op: add, path: /x, value: 1}]'}
  delete: true
",
    );
    let actions = stage.actions(&pod(), &Known).expect("actions");
    let [Action::Patch(merge), Action::Patch(json), Action::Delete] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((merge.content_type, &merge.body), (MERGE_PATCH, &json!({"spec": {"x": 1}})));
    assert_eq!(json.body, json!([{"op": "add", "path": "/status/x", "value": 1}]));
}

#[test]
fn what_cannot_be_used_says_why() {
    let check = |spec: &str, expected: &str| {
        let spec: StageSpec = serde_saphyr::from_str(spec).expect("a spec");
        let error = Stage::compile("s", &spec, &Known).expect_err("an error").to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("{selector: {matchExpressions: [{key: '.a |', operator: Exists}]}}", "cannot read the query");
    check("{selector: {matchExpressions: [{key: .a, operator: Gt}]}}", "operator \"Gt\" is not supported");
    check("{selector: {matchExpressions: [{cel: {expression: '1 +'}}]}}", "cannot read the expression");
    check("{selector: {}, steps: [{apply: {type: json}}]}", "unknown patch type json");
    check("{selector: {}, next: {statusTemplate: '{{ nosuch }}'}}", "function \"nosuch\" not defined");
    check("{selector: {}, next: {patches: [{type: odd}]}}", "unknown patch type odd");
    let spec: StageSpec = serde_saphyr::from_str("{next: {delete: true}}").expect("a spec");
    assert!(Stage::compile("s", &spec, &Known).expect("no error").is_none());
}

#[test]
fn durations_are_gos() {
    let check =
        |text, expected: Option<u64>| assert_eq!(go_duration(text), expected.map(Duration::from_millis), "{text}");
    check("1h2m3.5s", Some(3_723_500));
    check("10ms", Some(10));
    check("0", Some(0));
    check(".5s", Some(500));
    for bad in ["", "1", "s", "-1s", "1d"] {
        check(bad, None);
    }
}

/// As kwok's stages for volumes do.
#[test]
fn steps_can_apply_other_objects() {
    let stage = stage(
        "
selector:
  matchExpressions:
  - cel: {expression: \"self.spec.storageClassName == 'kwok-volume' && !has(self.spec.volumeName)\"}
steps:
- apply:
    template: |
      apiVersion: v1
      kind: PersistentVolume
      metadata: {name: \"pvc-{{ .metadata.uid }}\"}
      spec:
        accessModes:
        {{ YAML .spec.accessModes 2 }}
- apply:
    type: merge
    subresource: status
    template: '{apiVersion: v1, kind: PersistentVolume, metadata: {name: x}, status: {phase: Released}}'
- patch: {root: spec, template: 'volumeName: pvc-{{ .metadata.uid }}'}
",
    );
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"uid": "u"},
        "spec": {"storageClassName": "kwok-volume", "accessModes": ["ReadWriteOnce"]},
    });
    assert!(stage.matches(&claim));
    let actions = stage.actions(&claim, &Known).expect("actions");
    let [Action::Apply(volume), Action::Apply(released), Action::Patch(bound)] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!((volume.content_type, &volume.body["metadata"]["name"]), (APPLY_PATCH, &json!("pvc-u")));
    assert_eq!(volume.body["spec"], json!({"accessModes": ["ReadWriteOnce"]}));
    assert_eq!((released.content_type, released.subresource.as_str()), (MERGE_PATCH, "status"));
    // Of kinds that kwok does not know the types of, patches are merged as JSON.
    assert_eq!((bound.content_type, &bound.body), (MERGE_PATCH, &json!({"spec": {"volumeName": "pvc-u"}})));
    claim["spec"]["volumeName"] = "pvc-u".into();
    assert!(!stage.matches(&claim));
}

#[test]
fn an_applied_object_has_a_name() {
    let stage = stage("{selector: {}, steps: [{apply: {template: 'kind: ConfigMap'}}]}");
    assert_eq!(stage.actions(&pod(), &Known), Err(StageError::Unnamed));
}
