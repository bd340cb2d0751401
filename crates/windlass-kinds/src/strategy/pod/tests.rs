//! Tables for pods, from transcripts of a real server.
#![allow(clippy::needless_pass_by_value)]

use serde_json::{Value, json};

use super::super::Strategy;
use super::super::testing::{create_errors, created, update_errors};
use super::Pod;
use crate::field::FieldErrors;

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
}

fn one(container: Value) -> Value {
    let mut base = json!({"name": "c", "image": "i"});
    for (key, value) in container.as_object().expect("an object") {
        base[key] = value.clone();
    }
    pod(json!({"containers": [base]}))
}

#[test]
fn a_minimal_pod_gets_its_defaults() {
    let made = created(&Pod, &pod(json!({"containers": [{"name": "c", "image": "img:1"}]})));
    assert_eq!(
        made["spec"],
        json!({"containers": [{"name": "c", "image": "img:1", "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler", "enableServiceLinks": true})
    );
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[test]
fn a_gated_pod_says_since_when() {
    let mut gated = pod(json!({"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "g"}]}));
    gated["metadata"]["creationTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert_eq!(
        created(&Pod, &gated)["status"]["conditions"],
        json!([{"type": "PodScheduled", "status": "False", "lastProbeTime": null,
            "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates"}])
    );
}

#[test]
fn ports_variables_and_probes_get_their_defaults() {
    let made = created(
        &Pod,
        &one(json!({"ports": [{"containerPort": 80}],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 1}}})),
    );
    let container = &made["spec"]["containers"][0];
    assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(
        container["livenessProbe"],
        json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(container["readinessProbe"]["grpc"], json!({"port": 1, "service": ""}));
}

#[test]
fn volumes_get_their_defaults() {
    let made = created(
        &Pod,
        &pod(json!({"containers": [{"name": "c", "image": "img:1"}], "volumes": [
            {"name": "a", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x"}},
            {"name": "h", "hostPath": {"path": "/x"}},
            {"name": "d", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "x"}}]}}, {"name": "none"}]})),
    );
    assert_eq!(
        made["spec"]["volumes"],
        json!([{"name": "a", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
            {"name": "h", "hostPath": {"path": "/x", "type": ""}},
            {"name": "d", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"apiVersion": "v1",
                "fieldPath": "metadata.name"}}], "defaultMode": 420}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "x"}}], "defaultMode": 420}},
            {"name": "none", "emptyDir": {}}])
    );
}

#[test]
fn host_network_accounts_and_quality_of_service() {
    let made = created(
        &Pod,
        &pod(json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 8080}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}], "hostNetwork": true, "serviceAccountName": "abc"})),
    );
    assert_eq!(made["spec"]["containers"][0]["ports"][0]["hostPort"], 8080);
    assert_eq!(made["spec"]["serviceAccount"], "abc");
    assert_eq!(made["status"]["qosClass"], "Guaranteed");
}

#[test]
fn new_pods() {
    let check = |object: Value, expected: &str| assert_eq!(create_errors(&Pod, &object), expected);
    check(one(json!({})), "[]");
    check(json!({"metadata": {"name": "p"}}), "spec.containers: Required value");
    check(
        pod(json!({"containers": [{}]})),
        "[spec.containers[0].name: Required value, spec.containers[0].image: Required value]",
    );
    check(
        pod(json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]})),
        r#"spec.containers[1].name: Duplicate value: "c""#,
    );
    check(
        pod(json!({"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Maybe",
            "terminationMessagePolicy": "x"}], "restartPolicy": "Sometimes", "dnsPolicy": "Weird"})),
        r#"[spec.containers[0].terminationMessagePolicy: Unsupported value: "x": supported values: "File", "FallbackToLogsOnError", spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never", spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never", spec.dnsPolicy: Unsupported value: "Weird": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]"#,
    );
    check(
        one(json!({"ports": [{"containerPort": 0},
            {"containerPort": 99999, "protocol": "ICMP", "name": "toolongportnamehere"}]})),
        r#"[spec.containers[0].ports[0].containerPort: Required value, spec.containers[0].ports[1].name: Invalid value: "toolongportnamehere": must be no more than 15 characters, spec.containers[0].ports[1].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive, spec.containers[0].ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"]"#,
    );
    check(
        one(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
        r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
    );
    check(
        one(json!({"volumeMounts": [{"name": "x", "mountPath": "/a"}]})),
        r#"spec.containers[0].volumeMounts[0].name: Not found: "x""#,
    );
    check(
        one(json!({"env": [{"name": ""},
            {"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.bogus"}}}]})),
        r#"[spec.containers[0].env[0].name: Required value, spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.bogus": error converting fieldPath: field label not supported: metadata.bogus, spec.containers[0].env[1].valueFrom: Invalid value: "": may not be specified when `value` is not empty]"#,
    );
    check(
        one(json!({"livenessProbe": {"httpGet": {"port": "x"}, "exec": {"command": ["a"]}, "periodSeconds": -1}})),
        "[spec.containers[0].livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type, \
         spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0]",
    );
}

#[test]
fn scheduling_and_security() {
    let check = |extra: Value, expected: &str| {
        let mut object = one(json!({}));
        for (key, value) in extra.as_object().expect("an object") {
            object["spec"][key] = value.clone();
        }
        assert_eq!(create_errors(&Pod, &object), expected);
    };
    check(
        json!({"tolerations": [{"operator": "Equal"}]}),
        "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which \
         means \"match all values and all keys\"",
    );
    check(
        json!({"nodeName": "n", "schedulingGates": [{"name": "a"}]}),
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    );
    check(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: \
         must have at least one node selector term",
    );
    check(
        json!({"securityContext": {"runAsUser": -1, "sysctls": [{"name": "net.ipv4.X"}]}}),
        "[spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive, \
         spec.securityContext.sysctls[0].name: Invalid value: \"net.ipv4.X\": must have at most 253 characters and \
         match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$]",
    );
    check(
        json!({"ephemeralContainers": [{"name": "e", "image": "i"}]}),
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    );
    check(
        json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "x"}]}),
        r#"[spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero, spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty, spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "x": supported values: "DoNotSchedule", "ScheduleAnyway"]"#,
    );
}

#[test]
fn changed_pods() {
    let old = one(json!({}));
    let check = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut new = created(&Pod, &old);
        change(&mut new);
        assert_eq!(update_errors(&Pod, &old, &new), expected);
    };
    check(&|pod| pod["spec"]["containers"][0]["image"] = "img:2".into(), "[]");
    check(&|pod| pod["spec"]["tolerations"] = json!([{"key": "new", "operator": "Exists"}]), "[]");
    check(&|pod| pod["spec"]["activeDeadlineSeconds"] = 30.into(), "[]");
    check(
        &|pod| pod["spec"]["containers"] = json!([]),
        "[spec.containers: Required value, spec.containers: Forbidden: pod updates may not add or remove containers]",
    );
    let mut new = created(&Pod, &old);
    new["spec"]["containers"][0]["command"] = json!(["x"]);
    let text = update_errors(&Pod, &old, &new);
    assert!(text.starts_with("spec: Forbidden: pod updates may not change fields other than"), "{text}");
    let mut old = one(json!({}));
    old["spec"]["activeDeadlineSeconds"] = 30.into();
    let mut new = old.clone();
    new["spec"]["activeDeadlineSeconds"] = 60.into();
    assert_eq!(
        update_errors(&Pod, &old, &new),
        "spec.activeDeadlineSeconds: Invalid value: 60: must be less than or equal to previous value"
    );
}

#[test]
fn deletion_waits_only_for_pods_that_run() {
    let mut object = created(&Pod, &one(json!({})));
    assert_eq!(Pod.grace_period(&object, None), None);
    object["spec"]["nodeName"] = "n".into();
    assert_eq!(Pod.grace_seconds(&object), Some(30));
    assert_eq!(Pod.grace_period(&object, Some(5)), Some(5));
    assert_eq!(Pod.grace_period(&object, Some(0)), None);
    assert_eq!(Pod.grace_period(&object, Some(-1)), Some(1));
    object["status"]["phase"] = "Succeeded".into();
    assert_eq!(Pod.grace_period(&object, None), None);
}

#[test]
fn label_keys_join_the_selectors_once() {
    let mut object = one(json!({}));
    object["metadata"]["labels"] = json!({"rev": "7"});
    object["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, "matchLabelKeys": ["rev"]}]);
    let mut made = created(&Pod, &object);
    Pod.prepare_create(&mut made);
    assert_eq!(
        made["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
        json!([{"key": "rev", "operator": "In", "values": ["7"]}])
    );
}

#[test]
fn selectable_fields_have_text() {
    let object = json!({"spec": {}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
    assert_eq!(Pod.field_value(&object, "spec.hostNetwork"), "false");
    assert_eq!(Pod.field_value(&object, "status.podIP"), "10.0.0.1");
    assert_eq!(Pod.field_value(&object, "spec.nodeName"), "");
}

#[test]
fn a_status_update_keeps_the_class_and_ended_containers() {
    let mut old = created(&Pod, &one(json!({})));
    old["spec"]["restartPolicy"] = "Never".into();
    old["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 1}}}]);
    let mut new = old.clone();
    new["status"] = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
    Pod.prepare_status_update(&mut new, &old);
    assert_eq!(new["status"]["qosClass"], "BestEffort");
    let mut errors = FieldErrors::default();
    Pod.validate_status_update(&new, &old, &mut errors);
    assert_eq!(
        errors.to_string(),
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    );
}

#[test]
fn warnings_are_for_new_pods() {
    let object = created(&Pod, &one(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})));
    assert_eq!(
        Pod.warnings(&object, None),
        ["spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply"]
    );
    assert!(Pod.warnings(&object, Some(&object)).is_empty());
}

#[test]
fn volumes_of_drivers_are_checked_in_pods_and_templates() {
    let portal = "p".repeat(63);
    let spec = json!({"containers": [{"name": "c", "image": "img:1"}], "volumes": [
        {"name": "f", "fc": {}},
        {"name": "i", "nfs": {"server": "s", "path": "/"}, "iscsi": {"targetPortal": portal, "initiatorName": "x"}}]});
    let expected = |at: &str| {
        format!(
            "[{at}.volumes[0].fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both, \
             {at}.volumes[1].iscsi: Forbidden: may not specify more than 1 volume type, {at}.volumes[1].name: Invalid \
             value: \"i\": Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
             iscsi.initiatorName is specified.]"
        )
    };
    assert_eq!(create_errors(&Pod, &pod(spec.clone())), expected("spec"));
    let labels = json!({"a": "b"});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec}}});
    let strategy = crate::strategy_of("apps", "Deployment");
    assert_eq!(create_errors(strategy, &deployment), expected("spec.template.spec"));
}

#[test]
fn a_policy_for_selinux_stays_open_once_there_is_one() {
    let with = |policy: Option<&str>| {
        let mut pod = one(json!({}));
        if let Some(policy) = policy {
            pod["spec"]["securityContext"] = json!({"seLinuxChangePolicy": policy});
        }
        pod
    };
    let unsupported = |path: &str, supported: &str| {
        format!(
            "{path}.securityContext.seLinuxChangePolicy: Unsupported value: \"MountOption\": supported values: {supported}"
        )
    };
    assert_eq!(create_errors(&Pod, &with(Some("Recursive"))), "[]");
    assert_eq!(create_errors(&Pod, &with(Some("MountOption"))), unsupported("spec", "\"Recursive\""));
    let deployment = |policy: Option<&str>| {
        let mut template = with(policy);
        template["metadata"] = json!({"labels": {"a": "b"}});
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
    };
    let check = |old: Option<&str>, new: &str| {
        update_errors(&super::super::deployment::Deployment, &deployment(old), &deployment(Some(new)))
    };
    assert_eq!(check(None, "Recursive"), "[]");
    assert_eq!(check(None, "MountOption"), unsupported("spec.template.spec", "\"Recursive\""));
    assert_eq!(check(Some("Recursive"), "MountOption"), "[]");
    assert_eq!(
        check(Some("Recursive"), "Never"),
        unsupported("spec.template.spec", "\"MountOption\", \"Recursive\"").replace("\"MountOption\":", "\"Never\":")
    );
}

#[test]
fn ports_that_meet_are_warned_about() {
    let ports = json!([
        {"containerPort": 1, "hostPort": 5, "hostIP": "1.1.1.1", "name": "a"},
        {"containerPort": 1, "hostPort": 5, "hostIP": "2.2.2.2"},
        {"containerPort": 1, "hostPort": 5},
        {"containerPort": 1, "hostPort": 6},
        {"containerPort": 1},
        {"containerPort": 1},
        {"containerPort": 1, "protocol": "UDP"},
    ]);
    let warnings = Pod.warnings(&created(&Pod, &one(json!({"ports": ports}))), None);
    let expected: Vec<String> = [
        (2, "dangerously ambiguous", 0),
        (2, "dangerously ambiguous", 1),
        (4, "overlapping", 0),
        (4, "overlapping", 1),
        (4, "overlapping", 2),
        (4, "overlapping", 3),
        (5, "overlapping", 0),
        (5, "overlapping", 1),
        (5, "overlapping", 2),
        (5, "overlapping", 3),
        (5, "duplicate", 4),
    ]
    .into_iter()
    .map(|(port, what, other)| {
        format!("spec.containers[0].ports[{port}]: {what} port definition with spec.containers[0].ports[{other}]")
    })
    .collect();
    assert_eq!(warnings, expected);
}
