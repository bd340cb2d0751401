//! Pure parts: ports, and how endpoints are arranged in slices.
#![allow(clippy::unwrap_used)]

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use super::slices::Plan;
use super::*;

fn service() -> Service {
    serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {
        "selector": {"a": "b"}, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"],
        "ports": [{"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"}, {"name": "raw", "port": 81}],
    }}))
    .unwrap()
}

#[test]
fn named_ports_are_looked_up_in_the_pod() {
    let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "ports": [
        {"name": "http", "containerPort": 8080, "protocol": "TCP"},
    ]}]}}))
    .unwrap();
    let numbers = |pod: &Pod| ports(&service(), pod).iter().map(|port| port.port.unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers(&pod), [8080, 81]);
    assert_eq!(numbers(&Pod::default()), [81]);
}

#[test]
fn the_earliest_change_since_the_last_time_is_the_trigger() {
    let time = |second: u32| format!("2020-01-01T00:00:{second:02}Z");
    let pod = |name: &str, second: u32| {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time(second)});
        let pod = json!({"metadata": {"name": name}, "status": {"conditions": [ready]}});
        Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
    };
    let mut service = service();
    service.metadata.creation_timestamp = Some(serde_json::from_value(json!(time(30))).unwrap());
    let mut triggers = super::legacy::Triggers::default();
    let mut check = |pods: &[Arc<Pod>], expected: Option<u32>| {
        assert_eq!(triggers.next(&service, pods).map(|time| time.to_string()), expected.map(time));
    };
    check(&[], Some(30));
    check(&[pod("a", 20), pod("b", 10)], Some(10));
    check(&[pod("a", 20), pod("b", 10)], None);
    check(&[pod("a", 25), pod("b", 10), pod("c", 40)], Some(25));
    check(&[pod("b", 10)], None);
}

fn plan(count: usize) -> Plan {
    let endpoint =
        |n: usize| Endpoint { addresses: vec![format!("10.1.{}.{}", n / 250, n % 250)], ..Endpoint::default() };
    let groups = (count > 0).then(|| (("IPv4", Vec::new()), (0..count).map(endpoint).collect())).into_iter().collect();
    Plan {
        controller: "c",
        template: EndpointSlice::default(),
        service: ObjectKey::new("n", "s"),
        groups,
        placeholder: vec!["IPv4"],
    }
}

fn named(mut slices: Vec<EndpointSlice>) -> Vec<EndpointSlice> {
    for (n, slice) in slices.iter_mut().enumerate() {
        slice.metadata.name = Some(format!("s-{n}"));
    }
    slices
}

#[test]
fn slices_are_filled_and_stay_as_they_are() {
    let (created, changed, deleted) = plan(150).arrange(Vec::new());
    assert_eq!(created.iter().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect::<Vec<_>>(), [100, 50]);
    assert!(changed.is_empty() && deleted.is_empty());
    let slices = named(created);
    let (created, changed, deleted) = plan(150).arrange(slices.clone());
    assert!(created.is_empty() && changed.is_empty() && deleted.is_empty());
    let (created, changed, deleted) = plan(160).arrange(slices.clone());
    assert!(created.is_empty() && deleted.is_empty());
    assert_eq!(changed.iter().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect::<Vec<_>>(), [60]);
    let (created, changed, deleted) = plan(70).arrange(slices);
    assert!(created.is_empty());
    assert_eq!((changed.len(), deleted.len()), (1, 1));
}

#[test]
fn without_endpoints_one_slice_says_so() {
    let (created, ..) = plan(0).arrange(Vec::new());
    assert_eq!(created.len(), 1);
    let (created, changed, deleted) = plan(0).arrange(named(created));
    assert!(created.is_empty() && changed.is_empty() && deleted.is_empty());
}
