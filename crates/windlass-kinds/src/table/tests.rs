//! Tables compared with what a v1.36 server answers.

use serde_json::{Value, json};

use super::*;
use crate::resource::builtins;
use crate::schema::Schema;

const NOW: &str = "2024-05-01T12:00:00Z";

fn options() -> Options {
    Options::new(NOW.parse().expect("a time"))
}

fn builtin(group: &str, kind: &str) -> &'static Resource {
    let mut found = builtins().iter().filter(|r| &*r.group == group && &*r.kind == kind);
    found.next_back().unwrap_or_else(|| panic!("no {kind}"))
}

/// The cells of one object, created an hour before now.
fn cells(group: &str, kind: &str, mut object: Value) -> Value {
    let metadata = &mut object["metadata"];
    if metadata["creationTimestamp"].is_null() {
        metadata["creationTimestamp"] = "2024-05-01T11:00:00Z".into();
    }
    if metadata["name"].is_null() {
        metadata["name"] = "x".into();
    }
    let resource = builtin(group, kind);
    let mut table = table(resource, [&object], &ListMeta::of_object(&object), &options()).expect("a table");
    let cells = table["rows"][0]["cells"].take();
    let columns = table["columnDefinitions"].as_array().expect("columns").len();
    // IPAddress has one cell too many upstream, too.
    assert!(cells.as_array().map(Vec::len) == Some(columns) || kind == "IPAddress", "{kind}: {cells}");
    cells
}

fn check(group: &str, kind: &str, object: Value, expected: &Value) {
    assert_eq!(cells(group, kind, object), *expected, "{kind}");
}

fn custom(columns: Vec<Column>) -> Resource {
    Resource {
        group: "example.com".into(),
        version: "v1".into(),
        plural: "tubes".into(),
        singular: "tube".into(),
        kind: "Tube".into(),
        list_kind: "TubeList".into(),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: vec!["get".into(), "list".into()],
        subresources: Vec::new(),
        schema: Schema::default().into(),
        columns,
        custom: true,
        prefix: "/registry/example.com/tubes/".into(),
    }
}

fn column(name: &str, ty: &str, path: &str) -> Column {
    Column {
        name: name.into(),
        ty: ty.into(),
        format: "".into(),
        description: "".into(),
        priority: 0,
        json_path: Some(path.into()),
    }
}

#[test]
fn a_config_map_with_everything_around_it() {
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "data": {"x": "1", "y": "2"},
        "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7", "labels": {"t": "1"},
                     "creationTimestamp": "2024-05-01T11:59:55Z"},
    });
    let resource = builtin("", "ConfigMap");
    let meta =
        ListMeta { resource_version: "9".into(), continue_token: Some("more".into()), remaining_item_count: Some(4) };
    let full = table(resource, [&object], &meta, &options()).expect("a table");
    assert_eq!(full["kind"], "Table");
    assert_eq!(full["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(full["metadata"], json!({"resourceVersion": "9", "continue": "more", "remainingItemCount": 4}));
    assert_eq!(
        full["rows"],
        json!([{
            "cells": ["a", 2, "5s"],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]},
        }])
    );
    let name = &full["columnDefinitions"][0];
    assert_eq!((&name["name"], &name["format"], &name["priority"]), (&json!("Name"), &json!("name"), &json!(0)));
    assert!(name["description"].as_str().is_some_and(|text| text.ends_with("working-with-objects/names#names")));
    let data = full["columnDefinitions"][1]["description"].as_str().unwrap_or_default();
    assert!(data.ends_with("this is enforced during validation process."));

    let with = |include| {
        let options = Options { include, headers: false, version: MetaVersion::V1Beta1, ..options() };
        table(resource, [&object], &meta, &options).expect("a table")
    };
    let none = with(IncludeObject::None);
    assert_eq!(none["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(none["columnDefinitions"], Value::Null);
    assert_eq!(none["rows"], json!([{"cells": ["a", 2, "5s"], "object": null}]));
    assert_eq!(with(IncludeObject::Object)["rows"][0]["object"], object);
}

#[test]
fn include_object_is_checked() {
    assert_eq!(IncludeObject::parse("").ok(), Some(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("None").ok(), Some(IncludeObject::None));
    assert_eq!(
        IncludeObject::parse("Some").expect_err("not a value").message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Some\": \
         must be 'Metadata', 'Object', 'None', or empty"
    );
}

#[test]
fn empty_tables_of_default_columns_have_no_rows_at_all() {
    let rows = |group, kind| {
        let meta = ListMeta::default();
        table(builtin(group, kind), [], &meta, &options()).expect("a table")["rows"].take()
    };
    assert_eq!(rows("rbac.authorization.k8s.io", "Role"), Value::Null);
    assert_eq!(rows("", "LimitRange"), Value::Null);
    assert_eq!(rows("", "Pod"), json!([]));
    let none = table(&custom(Vec::new()), [], &ListMeta::default(), &options()).expect("a table");
    assert_eq!(none["rows"], json!([]));
    assert_eq!(none["metadata"], json!({}));
}

#[test]
fn reviews_have_no_tables() {
    let resource = builtin("authorization.k8s.io", "SelfSubjectAccessReview");
    let status = table(resource, [], &ListMeta::default(), &options()).expect_err("not acceptable");
    assert_eq!(status.code.as_u16(), 406);
    assert_eq!(status.reason, "NotAcceptable");
}

#[test]
fn empty_objects_fill_all_columns() {
    for resource in builtins().iter().filter(|resource| supports(resource)) {
        let got = cells(&resource.group, &resource.kind, json!({"metadata": {"name": "x"}}));
        let shows_name = got.as_array().is_some_and(|cells| cells.iter().any(|cell| cell == "x"));
        assert!(shows_name, "{}: {got}", resource.kind);
        let has_default = got == json!(["x", "2024-05-01T11:00:00Z"]);
        assert_eq!(has_default, has_default_columns(resource), "{}: {got}", resource.kind);
    }
}

#[test]
fn custom_columns() {
    let resource = custom(vec![
        column("Size", "integer", ".spec.size"),
        Column { priority: 1, description: "the color".into(), ..column("Color", "string", ".spec.color") },
        column("On", "boolean", ".spec.on"),
        column("When", "date", ".spec.when"),
        column("First", "string", ".spec.list[0]"),
        column("All", "string", ".spec.list"),
        Column { format: "double".into(), ..column("F", "number", ".spec.f") },
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    let metadata = json!({"name": "a", "creationTimestamp": "2024-05-01T11:59:00Z"});
    let full = json!({"metadata": metadata, "spec": {
        "size": 3, "color": "red", "on": true, "when": "2000-01-01T00:00:00Z", "list": ["x", "y"], "f": 1.5,
    }});
    let empty = json!({"metadata": metadata, "spec": {}});
    let wrong = json!({"metadata": metadata, "spec": {
        "size": 3.9, "color": 5, "on": "yes", "when": "soon", "list": [], "f": 2.0,
    }});
    let table = table(&resource, [&full, &empty, &wrong], &ListMeta::default(), &options()).expect("a table");
    let rows: Vec<&Value> = table["rows"].as_array().expect("rows").iter().map(|row| &row["cells"]).collect();
    assert_eq!(*rows[0], json!(["a", 3, "red", true, "24y", "x", "[\"x\",\"y\"]", 1.5, "60s"]));
    assert_eq!(*rows[1], json!(["a", null, null, null, null, null, null, null, "60s"]));
    assert_eq!(*rows[2], json!(["a", 3, "5", null, "<invalid>", null, "[]", 2, "60s"]));
    assert_eq!(
        table["columnDefinitions"][1],
        json!({
            "name": "Size", "type": "integer", "format": "", "priority": 0,
            "description": "Custom resource definition column (in JSONPath format): .spec.size",
        })
    );
    assert_eq!(
        table["columnDefinitions"][2],
        json!({"name": "Color", "type": "string", "format": "", "description": "the color", "priority": 1})
    );
}

#[test]
fn custom_resources_without_columns_show_their_age() {
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2024-05-01T09:00:00Z"}});
    let table = table(&custom(Vec::new()), [&object], &ListMeta::default(), &options()).expect("a table");
    assert_eq!(table["rows"][0]["cells"], json!(["a", "3h"]));
    let age = &table["columnDefinitions"][1];
    assert_eq!((&age["name"], &age["type"]), (&json!("Age"), &json!("date")));
    assert_eq!(age["description"], descriptions::AGE);
}

#[test]
fn metadata_alone() {
    let object = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
    let expected = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
    assert_eq!(partial(&object, MetaVersion::V1), expected);
    let meta = ListMeta { resource_version: "3".into(), ..ListMeta::default() };
    assert_eq!(
        partial_list([&object], &meta, MetaVersion::V1),
        json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "3"}, "items": [expected],
        })
    );
}

#[test]
fn the_bookmark_that_ends_initial_events_keeps_its_metadata() {
    let bookmark = json!({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}});
    let options = Options { include: IncludeObject::None, ..options() };
    let table = table(builtin("", "Pod"), [&bookmark], &ListMeta::default(), &options).expect("a table");
    assert_eq!(table["rows"][0]["object"]["metadata"], bookmark["metadata"]);
}

mod pods {
    use super::*;

    fn pod(spec: &Value, status: &Value) -> Value {
        json!({"metadata": {}, "spec": spec, "status": status})
    }

    fn summary(object: Value) -> Value {
        let all = cells("", "Pod", object);
        json!([all[1], all[2], all[3]])
    }

    #[test]
    fn a_fresh_pod() {
        check(
            "",
            "Pod",
            pod(&json!({"containers": [{"name": "c"}]}), &json!({"phase": "Pending"})),
            &json!(["x", "0/1", "Pending", "0", "60m", "<none>", "<none>", "<none>", "<none>"]),
        );
    }

    #[test]
    fn a_running_pod_with_restarts_and_gates() {
        let object = pod(
            &json!({"containers": [{}, {}], "nodeName": "n", "readinessGates": [{"conditionType": "g"}]}),
            &json!({
                "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "g", "status": "True"}],
                "containerStatuses": [
                    {"ready": true, "restartCount": 1, "state": {"running": {}},
                     "lastState": {"terminated": {"finishedAt": "2024-05-01T11:57:00Z"}}},
                    {"ready": true, "restartCount": 2, "state": {"running": {}},
                     "lastState": {"terminated": {"finishedAt": "2024-05-01T11:55:00Z"}}},
                ],
            }),
        );
        check(
            "",
            "Pod",
            object,
            &json!(["x", "2/2", "Running", "3 (3m ago)", "60m", "10.0.0.1", "n", "<none>", "1/1"]),
        );
    }

    #[test]
    fn reasons() {
        let two = json!({"containers": [{}, {}]});
        let statuses = |list: Value| json!({"phase": "Running", "containerStatuses": list});
        let running = json!({"ready": true, "state": {"running": {}}});
        let done = json!({"state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
        let failed = json!({"state": {"terminated": {"exitCode": 3}}});
        let killed = json!({"state": {"terminated": {"exitCode": 137, "signal": 9}}});
        let waiting = json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        for (status, expected) in [
            (statuses(json!([waiting, running])), "CrashLoopBackOff"),
            (statuses(json!([done, running])), "NotReady"),
            (statuses(json!([done, failed])), "ExitCode:3"),
            (statuses(json!([done, killed])), "Signal:9"),
            (statuses(json!([done, done])), "Completed"),
            (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
                "SchedulingGated",
            ),
        ] {
            assert_eq!(summary(pod(&two, &status))[1], expected, "{status}");
        }
        let mut ready = statuses(json!([done, running]));
        ready["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(summary(pod(&two, &ready)), json!(["1/2", "Running", "0"]));
    }

    #[test]
    fn init_containers_and_sidecars() {
        let spec = json!({
            "containers": [{}],
            "initContainers": [{"name": "a"}, {"name": "s", "restartPolicy": "Always"}, {"name": "b"}],
        });
        let done = json!({"name": "a", "restartCount": 4, "state": {"terminated": {"exitCode": 0}}});
        let sidecar = json!({"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}});
        let status = |list: Value| json!({"phase": "Pending", "initContainerStatuses": list});
        let last = |state: Value| json!([done, sidecar, {"name": "b", "state": state}]);
        for (status, expected) in [
            (status(last(json!({"running": {}}))), json!(["1/2", "Init:2/3", "5"])),
            (status(last(json!({"waiting": {"reason": "PodInitializing"}}))), json!(["1/2", "Init:2/3", "5"])),
            (
                status(last(json!({"waiting": {"reason": "ImagePullBackOff"}}))),
                json!(["1/2", "Init:ImagePullBackOff", "5"]),
            ),
            (status(last(json!({"terminated": {"exitCode": 2}}))), json!(["1/2", "Init:ExitCode:2", "5"])),
            (
                status(last(json!({"terminated": {"exitCode": 2, "reason": "Error"}}))),
                json!(["1/2", "Init:Error", "5"]),
            ),
            // Only the sidecar's restarts count once initialization is over.
            (status(json!([done, sidecar])), json!(["1/2", "Pending", "1"])),
        ] {
            assert_eq!(summary(pod(&spec, &status)), expected, "{status}");
        }
    }

    #[test]
    fn deletion_shows_unless_the_pod_is_done() {
        let mut object = pod(&json!({"containers": [{}]}), &json!({"phase": "Running"}));
        object["metadata"]["deletionTimestamp"] = NOW.into();
        assert_eq!(summary(object.clone())[1], "Terminating");
        object["status"]["phase"] = "Succeeded".into();
        assert_eq!(summary(object.clone())[1], "Succeeded");
        object["status"]["reason"] = "NodeLost".into();
        assert_eq!(summary(object)[1], "Unknown");
    }

    #[test]
    fn finished_pods_carry_a_row_condition() {
        let object = json!({"metadata": {"name": "x"}, "status": {"phase": "Succeeded"}});
        let table = table(builtin("", "Pod"), [&object], &ListMeta::default(), &options()).expect("a table");
        assert_eq!(
            table["rows"][0]["conditions"],
            json!([{
                "type": "Completed", "status": "True", "reason": "Succeeded",
                "message": "The pod has completed successfully.",
            }])
        );
    }
}

#[test]
fn workloads() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}]}});
    let selector = json!({
        "matchLabels": {"b": "2"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "Exists"}],
    });
    let spec = json!({"replicas": 3, "template": template, "selector": selector});
    let status = json!({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2});
    let object = json!({"metadata": {}, "spec": spec, "status": status});
    let shown = "a in (x,y),b=2,c";
    check("apps", "Deployment", object.clone(), &json!(["x", "2/3", 1, 2, "60m", "c,d", "i:1,j", shown]));
    check("apps", "ReplicaSet", object.clone(), &json!(["x", 3, 3, 2, "60m", "c,d", "i:1,j", shown]));
    check("apps", "StatefulSet", object, &json!(["x", "2/3", "60m", "c,d", "i:1,j"]));
    check(
        "apps",
        "DaemonSet",
        json!({"metadata": {}, "spec": {"selector": {}}, "status": {"desiredNumberScheduled": 2, "numberReady": 1}}),
        &json!(["x", 2, 0, 1, 0, 0, "<none>", "60m", "", "", "<none>"]),
    );
    check(
        "batch",
        "Job",
        json!({
            "metadata": {}, "spec": {"completions": 2, "template": template},
            "status": {"succeeded": 1, "startTime": "2024-05-01T11:30:00Z"},
        }),
        &json!(["x", "Running", "1/2", "30m", "60m", "c,d", "i:1,j", "<none>"]),
    );
    check(
        "batch",
        "Job",
        json!({
            "metadata": {}, "spec": {"parallelism": 3},
            "status": {
                "startTime": "2024-05-01T11:30:00Z", "completionTime": "2024-05-01T11:30:05Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
        }),
        &json!(["x", "Complete", "0/1 of 3", "5s", "60m", "", "", "<none>"]),
    );
    check(
        "batch",
        "CronJob",
        json!({
            "metadata": {}, "spec": {"schedule": "* * * * *", "suspend": false},
            "status": {"active": [{}], "lastScheduleTime": "2024-05-01T11:59:00Z"},
        }),
        &json!(["x", "* * * * *", "<none>", "False", 1, "60s", "60m", "", "", "<none>"]),
    );
    check(
        "policy",
        "PodDisruptionBudget",
        json!({"metadata": {}, "spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
        &json!(["x", "50%", "N/A", 1, "60m"]),
    );
    check(
        "apps",
        "ControllerRevision",
        json!({
            "metadata": {"ownerReferences": [
                {"controller": true, "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d"},
            ]},
            "revision": 4,
        }),
        &json!(["x", "daemonset.apps/d", 4, "60m"]),
    );
    check(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({
            "metadata": {},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 5,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                    {"type": "Pods", "pods": {"target": {"averageValue": "10"}}},
                    {"type": "External", "external": {"target": {"value": "3"}}},
                ],
            },
            "status": {
                "currentReplicas": 2,
                "currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 40}}}],
            },
        }),
        &json!(["x", "Deployment/d", "cpu: 40%/80%, <unknown>/10 + 1 more...", "1", 5, 2, "60m"]),
    );
}

#[test]
fn networking() {
    check(
        "",
        "Service",
        json!({
            "metadata": {},
            "spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"],
                     "ports": [{"port": 80, "protocol": "TCP"}]},
        }),
        &json!(["x", "ClusterIP", "None", "<none>", "80/TCP", "60m", "<none>"]),
    );
    let mut balanced = json!({
        "metadata": {},
        "spec": {
            "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "selector": {"a": "b"},
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
        },
    });
    let ports = "80:30080/TCP,53/UDP";
    check("", "Service", balanced.clone(), &json!(["x", "LoadBalancer", "10.0.0.1", "<pending>", ports, "60m", "a=b"]));
    balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "1.example"}]}});
    assert_eq!(cells("", "Service", balanced)[3], "1.example,2.2.2.2");
    check(
        "",
        "Endpoints",
        json!({"metadata": {}, "subsets": [{
            "addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "ports": [{"port": 80}, {"port": 81}],
        }]}),
        &json!(["x", "10.0.0.1:80,[::1]:80,10.0.0.1:81 + 1 more...", "60m"]),
    );
    check(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"metadata": {}, "addressType": "IPv4", "ports": [{"port": 80}, {"name": "n"}, {}],
               "endpoints": [{"addresses": ["10.0.0.1"]}]}),
        &json!(["x", "IPv4", "80,n,*", "10.0.0.1", "60m"]),
    );
    check(
        "networking.k8s.io",
        "Ingress",
        json!({"metadata": {}, "spec": {
            "ingressClassName": "c", "tls": [{}],
            "rules": [{"host": "a"}, {"host": "b"}, {}, {"host": "c"}, {"host": "d"}],
        }}),
        &json!(["x", "c", "a,b,c + 2 more...", "", "80, 443", "60m"]),
    );
    check(
        "networking.k8s.io",
        "IngressClass",
        json!({
            "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "c", "parameters": {"apiGroup": "g", "kind": "K", "name": "n"}},
        }),
        &json!(["x (default)", "c", "K.g/n", "60m"]),
    );
}

#[test]
fn storage() {
    check(
        "",
        "PersistentVolume",
        json!({
            "metadata": {},
            "spec": {
                "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
                "storageClassName": "s", "volumeMode": "Filesystem",
            },
            "status": {"phase": "Bound"},
        }),
        &json!(["x", "5Gi", "RWO,RWX", "Retain", "Bound", "n/c", "s", "<unset>", "", "60m", "Filesystem"]),
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"metadata": {}, "spec": {"storageClassName": "s"}, "status": {"phase": "Pending"}}),
        &json!(["x", "Pending", "", "", "", "s", "<unset>", "60m", "<unset>"]),
    );
    check(
        "storage.k8s.io",
        "StorageClass",
        json!({
            "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "p", "allowVolumeExpansion": true,
        }),
        &json!(["x (default)", "p", "Delete", "Immediate", true, "60m"]),
    );
}

#[test]
fn the_rest() {
    check(
        "",
        "Node",
        json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "kernelVersion": "6.1", "architecture": "amd64"},
            },
        }),
        &json!([
            "x",
            "Ready,SchedulingDisabled",
            "edge,worker",
            "60m",
            "v1.36.0",
            "10.0.0.9",
            "<none>",
            "<unknown>",
            "6.1 (amd64)",
            "<unknown>"
        ]),
    );
    check(
        "",
        "Event",
        json!({
            "metadata": {}, "type": "Normal", "reason": "R", "message": " m\n",
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"},
            "source": {"component": "kubelet", "host": "n"}, "count": 3,
            "firstTimestamp": "2024-05-01T11:50:00Z", "lastTimestamp": "2024-05-01T11:58:00Z",
        }),
        &json!(["2m", "Normal", "R", "pod/p", "f", "kubelet, n", "m", "10m", 3, "x"]),
    );
    check(
        "events.k8s.io",
        "Event",
        json!({
            "metadata": {}, "type": "Normal", "reason": "R", "note": "m", "regarding": {"kind": "Node"},
            "reportingController": "c", "reportingInstance": "i", "eventTime": "2024-05-01T11:50:00.000000Z",
        }),
        &json!(["10m", "Normal", "R", "node", "", "c, i", "m", "10m", 1, "x"]),
    );
    check(
        "",
        "ResourceQuota",
        json!({"metadata": {}, "status": {
            "hard": {"pods": "4", "limits.cpu": "2", "cpu": "1"}, "used": {"pods": "1", "limits.cpu": "500m"},
        }}),
        &json!(["x", "cpu: 0/1, pods: 1/4", "limits.cpu: 500m/2", "60m"]),
    );
    check(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({
            "metadata": {}, "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
            ],
        }),
        &json!(["x", "Role/r", "60m", "u, v", "", "n/s"]),
    );
    check(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        json!({
            "metadata": {}, "spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
            "status": {"conditions": [{"type": "Approved"}], "certificate": "YQ=="},
        }),
        &json!(["x", "60m", "s", "u", "60m", "Approved,Issued"]),
    );
    check(
        "apiregistration.k8s.io",
        "APIService",
        json!({"metadata": {}, "spec": {"service": {"namespace": "n", "name": "s"}}, "status": {"conditions": [
            {"type": "Available", "status": "False", "reason": "Missing"},
        ]}}),
        &json!(["x", "n/s", "False (Missing)", "60m"]),
    );
    check(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        json!({"metadata": {}, "spec": {"policyName": "p", "paramRef": {"selector": {
            "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "w"]}],
        }}}}),
        &json!([
            "x",
            "p",
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement\
             {LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},}",
            "60m"
        ]),
    );
}

#[test]
fn flow_schemas_are_listed_by_precedence() {
    let schema =
        |name: &str, precedence: i64| json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence}});
    let (a, b, c) = (schema("a", 9), schema("c", 1), schema("b", 1));
    let resource = builtin("flowcontrol.apiserver.k8s.io", "FlowSchema");
    let table = table(resource, [&a, &b, &c], &ListMeta::default(), &options()).expect("a table");
    let names: Vec<&Value> = table["rows"].as_array().expect("rows").iter().map(|row| &row["cells"][0]).collect();
    assert_eq!(names, ["b", "c", "a"]);
}
