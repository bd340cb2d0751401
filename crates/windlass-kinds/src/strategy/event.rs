//! Event, in both its groups. Stored, and seen here, as core/v1.
//!
//! Events written through core/v1 are checked leniently, for old clients; `events.k8s.io` is strict.

use serde_json::Value;

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::{names, values};

const NAME_LIMIT: usize = 128;
const NOTE_LIMIT: usize = 1024;

/// The strategy of core/v1 Events.
pub(crate) struct Event;

/// The strategy of events.k8s.io/v1 Events.
pub(crate) struct StrictEvent;

impl Strategy for Event {
    fn prepare_create(&self, _object: &mut Value) {}

    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        lenient(object, "reportingComponent", errors);
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }

    fn field_value(&self, object: &Value, field: &str) -> String {
        match field {
            "source" => match object.at("source").text("component") {
                "" => object.text("reportingComponent").to_owned(),
                component => component.to_owned(),
            },
            _ => super::field_text(object, field),
        }
    }
}

impl Strategy for StrictEvent {
    fn prepare_create(&self, _object: &mut Value) {}

    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        lenient(object, "reportingController", errors);
        series(object, errors);
        if !object.has("eventTime") {
            errors.push(FieldError::required(&Path::new("eventTime"), ""));
        }
        let kind = object.text("type");
        if kind != "Normal" && kind != "Warning" {
            errors.push(FieldError::invalid(&Path::new("type"), "", format!("has invalid value: {kind}")));
        }
        let source = object.at("source");
        let forbidden = [
            ("firstTimestamp", object.has("firstTimestamp")),
            ("lastTimestamp", object.has("lastTimestamp")),
            ("count", object.int("count") != 0),
            ("source", !source.text("component").is_empty() || !source.text("host").is_empty()),
        ];
        for (field, _) in forbidden.into_iter().filter(|(_, set)| *set) {
            errors.push(FieldError::invalid(&Path::new(field), "", "needs to be unset"));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        lenient(object, "reportingController", errors);
        if object.at("series") != old.at("series") {
            series(object, errors);
        }
        for field in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
            "eventTime",
            "action",
            "related",
        ] {
            values::immutable(object, old, field, &Path::root(), errors);
        }
        if object.text("reportingComponent") != old.text("reportingComponent") {
            let path = Path::new("reportingController");
            errors.push(FieldError::invalid(&path, object.text("reportingComponent"), values::IMMUTABLE));
        }
        values::immutable(object, old, "reportingInstance", &Path::root(), errors);
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ]
    }

    fn field_value(&self, object: &Value, field: &str) -> String {
        match field.strip_prefix("regarding") {
            Some(below) => super::field_text(object, &format!("involvedObject{below}")),
            None if field == "reportingController" => super::field_text(object, "reportingComponent"),
            None => super::field_text(object, field),
        }
    }
}

fn lenient(object: &Value, controller_field: &str, errors: &mut FieldErrors) {
    let involved = Path::new("involvedObject");
    let namespace = object.at("metadata").text("namespace");
    let about = object.at("involvedObject").text("namespace");
    let mismatch = || FieldError::invalid(&involved.child("namespace"), about, "does not match event.namespace");
    if !object.has("eventTime") {
        let matches = if about.is_empty() { ["", "default"].contains(&namespace) } else { namespace == about };
        if !matches {
            errors.push(mismatch());
        }
        return;
    }
    if about.is_empty() && namespace != "default" && namespace != "kube-system" {
        errors.push(mismatch());
    }
    let controller = object.text("reportingComponent");
    let path = Path::new(controller_field);
    if controller.is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    values::invalid_for_each(&path, controller, names::qualified_name(controller), errors);
    for field in ["reportingInstance", "action", "reason"] {
        values::required(object, field, &Path::root(), errors);
        limit(object, field, NAME_LIMIT, errors);
    }
    limit(object, "message", NOTE_LIMIT, errors);
}

fn limit(object: &Value, field: &str, most: usize, errors: &mut FieldErrors) {
    if object.text(field).len() > most {
        let detail = format!("can have at most {most} characters");
        errors.push(FieldError::invalid(&Path::new(field), "", detail));
    }
}

fn series(object: &Value, errors: &mut FieldErrors) {
    let series = object.at("series");
    if series.is_null() {
        return;
    }
    if series.int("count") < 2 {
        errors.push(FieldError::invalid(&Path::new("series.count"), "", "should be at least 2"));
    }
    if !series.has("lastObservedTime") {
        errors.push(FieldError::required(&Path::new("series.lastObservedTime"), ""));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::create_errors;
    use super::*;

    #[test]
    fn core_events_are_about_objects_of_their_namespace() {
        let check = |object: Value, expected: &str| assert_eq!(create_errors(&Event, &object), expected);
        check(json!({"metadata": {"namespace": "ns"}, "involvedObject": {"namespace": "ns", "name": "p"}}), "[]");
        check(
            json!({"metadata": {"namespace": "ns"}, "involvedObject": {"namespace": "default", "name": "p"}}),
            "involvedObject.namespace: Invalid value: \"default\": does not match event.namespace",
        );
    }

    #[test]
    fn new_style_events_are_strict() {
        let event = json!({"metadata": {"namespace": "ns"}, "involvedObject": {"namespace": "ns"}, "count": 1,
            "eventTime": "2020-01-02T03:04:05.678901Z", "reportingComponent": "e.com/c", "action": "a",
            "reportingInstance": "i", "reason": "r", "type": "Odd", "series": {"count": 1}});
        assert_eq!(
            create_errors(&StrictEvent, &event),
            "[series.count: Invalid value: \"\": should be at least 2, series.lastObservedTime: Required value, type: \
             Invalid value: \"\": has invalid value: Odd, count: Invalid value: \"\": needs to be unset]"
        );
    }

    #[test]
    fn selectable_fields_read_the_stored_form() {
        let event = json!({"involvedObject": {"kind": "Pod"}, "reportingComponent": "c"});
        assert_eq!(Event.field_value(&event, "source"), "c");
        assert_eq!(StrictEvent.field_value(&event, "regarding.kind"), "Pod");
        assert_eq!(StrictEvent.field_value(&event, "reportingController"), "c");
    }
}
