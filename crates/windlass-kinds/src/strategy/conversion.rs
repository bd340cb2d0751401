//! The built-in kinds that are served in a shape they are not stored in, and how one becomes the
//! other.
//!
//! Only two kinds are: Event (stored as core/v1, also served as events.k8s.io/v1) and
//! HorizontalPodAutoscaler (stored as autoscaling/v2, also served as autoscaling/v1). A request's
//! object is converted right after decoding, an answer's right before encoding; everything between
//! sees the stored form.

use serde_json::Value;

use super::autoscaler;
use crate::validation::access::AccessMut;

/// The `apiVersion` a kind is stored in, where that is not the one it is served in.
pub fn stored_as(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    match (group, version, kind) {
        ("events.k8s.io", _, "Event") => Some("v1"),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => Some("autoscaling/v2"),
        _ => None,
    }
}

/// Brings a decoded object of the given version into the stored form, `apiVersion` included.
pub fn to_storage(group: &str, version: &str, kind: &str, object: &mut Value) {
    let Some(stored) = stored_as(group, version, kind) else { return };
    object.put("apiVersion", stored);
    if kind == "Event" {
        rename(object, EVENT_FIELDS.iter().map(|(core, events)| (*events, *core)));
    } else {
        autoscaler::from_v1(object);
    }
}

/// Brings a stored object into the given version, `apiVersion` included.
pub fn from_storage(group: &str, version: &str, kind: &str, object: &mut Value) {
    if stored_as(group, version, kind).is_none() {
        return;
    }
    object.put("apiVersion", format!("{group}/{version}"));
    if kind == "Event" {
        rename(object, EVENT_FIELDS.iter().copied());
    } else {
        autoscaler::to_v1(object);
    }
}

/// The fields of an Event that core/v1 and events.k8s.io/v1 name differently.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("message", "note"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename<'a>(object: &mut Value, fields: impl Iterator<Item = (&'a str, &'a str)>) {
    let Value::Object(map) = object else { return };
    for (from, to) in fields {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_go_there_and_back() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Pod"}, "message": "m",
            "source": {"component": "c"}, "count": 1, "reason": "r"});
        let mut event = core.clone();
        from_storage("events.k8s.io", "v1", "Event", &mut event);
        assert_eq!(
            event,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"kind": "Pod"}, "note": "m",
                "deprecatedSource": {"component": "c"}, "deprecatedCount": 1, "reason": "r"})
        );
        to_storage("events.k8s.io", "v1", "Event", &mut event);
        assert_eq!(event, core);
    }
}
