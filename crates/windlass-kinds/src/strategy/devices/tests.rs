//! What of claims, classes and slices is refused, in upstream's words.

use serde_json::json;

use super::super::testing::{create_errors, created, update_errors};
use super::*;

fn claim(devices: &Value) -> Value {
    json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": devices}})
}

fn slice(change: &Value) -> Value {
    let mut object = json!({"metadata": {"name": "s"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "a", "attributes": {"model": {"string": "x"}, "example.com/version": {"version": "1.2.3-rc.1+b"}},
            "capacity": {"memory": {"value": "8Gi"}}}]}});
    for (field, value) in change.as_object().expect("fields") {
        object["spec"][field] = value.clone();
    }
    object
}

fn check(strategy: &dyn Strategy, object: &Value, expected: &[&str]) {
    let errors = create_errors(strategy, object);
    assert_eq!(errors == "[]", expected.is_empty(), "{errors}");
    for part in expected {
        assert!(errors.contains(part), "{part} is not in {errors}");
    }
}

#[test]
fn claims_with_a_request_are_accepted_and_completed() {
    let object = claim(&json!({
        "requests": [
            {"name": "one", "exactly": {"deviceClassName": "gpu", "selectors": [
                {"cel": {"expression": "device.attributes['example.com'].model == 'x' && device.driver.startsWith('gpu')"}}],
                "tolerations": [{"key": "k", "operator": "Exists"}]}},
            {"name": "any", "firstAvailable": [
                {"name": "big", "deviceClassName": "gpu", "allocationMode": "All"},
                {"name": "small", "deviceClassName": "gpu", "count": 2}]},
        ],
        "constraints": [{"requests": ["one", "any/big"], "matchAttribute": "example.com/model"}],
        "config": [{"requests": ["any"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
    }));
    check(&ResourceClaim, &object, &[]);
    assert_eq!(created(&ResourceClaim, &object)["spec"]["devices"]["requests"][0]["exactly"]["count"], 1);
}

#[test]
fn claims_are_refused_in_upstreams_words() {
    let exactly = |request: Value| claim(&json!({"requests": [{"name": "a", "exactly": request}]}));
    let request = json!({"deviceClassName": "gpu"});
    for (object, expected) in [
        (
            claim(&json!({"requests": [{"name": "a"}]})),
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or",
        ),
        (
            claim(&json!({"requests": [{"name": "a", "exactly": request, "firstAvailable": [{"name": "b"}]}]})),
            "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple",
        ),
        (exactly(json!({})), "spec.devices.requests[0].exactly.deviceClassName: Required value"),
        (
            exactly(json!({"deviceClassName": "gpu", "count": -3})),
            "spec.devices.requests[0].exactly.count: Invalid value: -3: must be greater than zero",
        ),
        (
            exactly(json!({"deviceClassName": "gpu", "allocationMode": "All", "count": 2})),
            "exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
        ),
        (
            exactly(json!({"deviceClassName": "gpu", "allocationMode": "Some"})),
            "exactly.allocationMode: Unsupported value: \"Some\": supported values: \"All\", \"ExactCount\"",
        ),
        (exactly(json!({"deviceClassName": "gpu", "selectors": [{}]})), "exactly.selectors[0].cel: Required value"),
        (
            exactly(json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "this is not cel ("}}]})),
            "exactly.selectors[0].cel.expression: Invalid value: \"this is not cel (\": compilation failed: ERROR",
        ),
        (
            exactly(json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "'a'"}}]})),
            "must evaluate to bool or the unknown type, not string",
        ),
        (
            exactly(json!({"deviceClassName": "gpu", "tolerations": [{"operator": "Exists", "value": "v"}]})),
            "tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`",
        ),
        (
            claim(&json!({"requests": [{"name": "a", "exactly": request}, {"name": "a", "exactly": request}]})),
            "spec.devices.requests[1]: Duplicate value: \"a\"",
        ),
        (
            claim(&json!({"requests": [{"name": "a", "exactly": request}],
                "constraints": [{"requests": ["b"], "matchAttribute": "example.com/m"}]})),
            "spec.devices.constraints[0].requests[0]: Invalid value: \"b\": must be the name of a request in the claim",
        ),
        (
            claim(&json!({"constraints": [{"matchAttribute": "model"}]})),
            "constraints[0].matchAttribute: Invalid value: \"model\": a fully qualified name must be a domain and a name",
        ),
        (
            claim(&json!({"constraints": [{}]})),
            "spec.devices.constraints[0]: Required value: exactly one of \"matchAttribute\"",
        ),
        (
            claim(&json!({"config": [{"opaque": {"driver": "d", "parameters": [1]}}]})),
            "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
        ),
        (claim(&json!({"config": [{}]})), "spec.devices.config[0].opaque: Required value"),
        (
            claim(&json!({"requests": vec![json!({"name": "a", "exactly": request}); 33]})),
            "spec.devices.requests: Too many: 33: must have at most 32 items",
        ),
    ] {
        check(&ResourceClaim, &object, &[expected]);
        let template = json!({"metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": object["spec"]}});
        check(&ResourceClaimTemplate, &template, &[&expected.replace("spec.devices", "spec.spec.devices")]);
    }
}

#[test]
fn the_status_of_a_claim_fits_its_requests() {
    let old = claim(&json!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}));
    let result = json!({"request": "a", "driver": "gpu.example.com", "pool": "p", "device": "d"});
    let user = json!({"resource": "pods", "name": "p", "uid": "1"});
    let with = |status: Value| {
        let mut object = old.clone();
        object["status"] = status;
        let mut errors = FieldErrors::default();
        ResourceClaim.validate_status_update(&object, &old, &mut errors);
        format!("{errors:?}")
    };
    let nothing = format!("{:?}", FieldErrors::default());
    let allocation = json!({"devices": {"results": [result]}});
    assert_eq!(with(json!({"allocation": allocation, "reservedFor": [user]})), nothing);
    for (status, expected) in [
        (json!({"reservedFor": [user]}), "may not be specified when `allocated` is not set"),
        (json!({"allocation": allocation, "reservedFor": [user, user]}), "reservedFor[1]"),
        (json!({"allocation": {"devices": {"results": [{"request": "b"}]}}}), "results[0].request"),
        (json!({"devices": [result]}), "must be an allocated device in the claim"),
    ] {
        let errors = with(status);
        assert!(errors.contains(expected), "{expected} is not in {errors}");
    }
}

#[test]
fn classes_have_selectors_that_compile() {
    let class = |spec: Value| json!({"metadata": {"name": "c"}, "spec": spec});
    check(&DeviceClass, &class(json!({"selectors": [{"cel": {"expression": "device.driver == 'a'"}}]})), &[]);
    let broken = class(json!({"selectors": [{"cel": {"expression": "this is not cel ("}}]}));
    check(&DeviceClass, &broken, &["spec.selectors[0].cel.expression: Invalid value", "compilation failed"]);
    check(&DeviceClass, &class(json!({"extendedResourceName": "cpu"})), &["must be a valid extended resource name"]);
    // What was stored by another version stays.
    assert_eq!(update_errors(&DeviceClass, &broken, &broken), "[]");
}

#[test]
fn slices_offer_devices_of_named_nodes() {
    check(&ResourceSlice, &slice(&json!({})), &[]);
    for (change, expected) in [
        (json!({"allNodes": true}), "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`,"),
        (json!({"nodeName": null}), "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`,"),
        (json!({"allNodes": false}), "spec.allNodes: Invalid value: false: must be either unset or set to true"),
        (json!({"pool": {"name": "p"}}), "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
        (
            json!({"pool": {"name": "p", "resourceSliceCount": 1, "generation": -1}}),
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ),
        (json!({"devices": [{"name": "a"}, {"name": "a"}]}), "spec.devices[1]: Duplicate value: \"a\""),
        (
            json!({"devices": vec![json!({"name": "a"}); 129]}),
            "spec.devices: Too many: 129: must have at most 128 items",
        ),
        (
            json!({"devices": [{"name": "a", "attributes": {"x": {}}}]}),
            "spec.devices[0].attributes[x]: Invalid value: \"\": exactly one value must be specified",
        ),
        (
            json!({"devices": [{"name": "a", "attributes": {"x": {"version": "01.2.3"}}}]}),
            "spec.devices[0].attributes[x].version: Invalid value: \"01.2.3\": must be a string compatible with semver.org",
        ),
        (
            json!({"devices": [{"name": "a", "taints": [{"key": "k", "effect": "Other"}]}]}),
            "taints[0].effect: Unsupported value: \"Other\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
        ),
        (
            json!({"devices": [{"name": "a", "allNodes": true}]}),
            "can only be set if `perDeviceNodeSelection` is set to true",
        ),
        (
            json!({"devices": [{"name": "a", "bindingConditions": ["c"]}]}),
            "bindingFailureConditions are required to use bindingConditions",
        ),
        (
            json!({"devices": [{"name": "a", "capacity": {"m": {"value": "1", "requestPolicy": {}}}}]}),
            "spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
        ),
        (
            json!({"devices": [{"name": "a", "allowMultipleAllocations": true, "capacity": {"m": {"value": "10",
                "requestPolicy": {"default": "4", "validRange": {"min": "2", "max": "20", "step": "3"}}}}}]}),
            "validRange.max: Invalid value: \"20\": max is larger than capacity value: 10",
        ),
        (json!({"sharedCounters": []}), "only one of `sharedCounters` or `devices` is allowed"),
        (
            json!({"devices": null, "sharedCounters": [{"name": "s"}]}),
            "spec.sharedCounters[0].counters: Required value",
        ),
    ] {
        check(&ResourceSlice, &slice(&change), &[expected]);
    }
    let errors = update_errors(&ResourceSlice, &slice(&json!({})), &slice(&json!({"driver": "other.example.com"})));
    assert!(errors.contains("spec.driver: Invalid value") && errors.contains("field is immutable"), "{errors}");
}
