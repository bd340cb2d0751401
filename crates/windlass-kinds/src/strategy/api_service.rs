//! APIService: which server serves an API group.

use serde_json::{Value, json};

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path, quote};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

/// The strategy of APIServices.
pub(crate) struct ApiService;

impl Strategy for ApiService {
    fn default(&self, object: &mut Value) {
        if let Some(service) = object.child_mut("spec").and_then(|spec| spec.child_mut("service")) {
            service.fill("port", 443);
        }
    }

    /// What is served here is available from the start.
    fn prepare_create(&self, object: &mut Value) {
        object.drop_field("status");
        if !object.at("spec").has("service") {
            let now = object.at("metadata").text("creationTimestamp").to_owned();
            set_local(object, &now);
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        let (group, version) = (spec.text("group"), spec.text("version"));
        let required = format!("{version}.{group}");
        let name = object.at("metadata").text("name");
        if name != required && names::path_segment(name, false).is_empty() && !name.is_empty() {
            let metadata = Path::new("metadata");
            let detail = format!("must be `spec.version+\".\"+spec.group`: {}", quote(&required));
            errors.push(FieldError::invalid(&metadata.child("name"), name, detail));
        }
        if group.is_empty() && version != "v1" {
            let detail = "only v1 may have an empty group and it better be legacy kube";
            errors.push(FieldError::required(&path.child("group"), detail));
        }
        values::optional_text(spec, "group", names::subdomain, &path, errors);
        values::invalid_for_each(&path.child("version"), version, names::dns1035_label(version), errors);
        for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let priority = spec.int(field);
            if priority <= 0 || priority > most {
                let detail = format!("must be positive and less than {most}");
                errors.push(FieldError::invalid(&path.child(field), priority, detail));
            }
        }
        target(spec, &path, errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let status = Path::new("status");
        let path = status.child("conditions");
        for (i, condition) in object.at("status").list("conditions").iter().enumerate() {
            values::one_of(condition, "status", &["True", "False", "Unknown"], &path.index(i), errors);
        }
    }
}

/// Notes in the status that a group version is served by this server. Whether it had to be noted.
pub fn set_local(object: &mut Value, now: &str) -> bool {
    const LOCAL: [(&str, &str); 3] =
        [("status", "True"), ("reason", "Local"), ("message", "Local APIServices are always available")];
    let status = object.struct_mut("status");
    let Some(i) = status.list("conditions").iter().position(|condition| condition.text("type") == "Available") else {
        let mut conditions = status.list("conditions").to_vec();
        let mut condition = json!({"type": "Available", "lastTransitionTime": now});
        put_all(&mut condition, &LOCAL);
        conditions.push(condition);
        status.put("conditions", conditions);
        return true;
    };
    let condition = &mut status.items_mut("conditions")[i];
    if LOCAL.iter().all(|(field, value)| condition.text(field) == *value) {
        return false;
    }
    if condition.text("status") != "True" {
        condition.put("lastTransitionTime", now);
    }
    put_all(condition, &LOCAL);
    true
}

fn put_all(object: &mut Value, fields: &[(&str, &str)]) {
    for (field, value) in fields {
        object.put(field, *value);
    }
}

fn target(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let insecure_path = path.child("insecureSkipTLSVerify");
    let bundle = spec.text("caBundle");
    let insecure = spec.flag("insecureSkipTLSVerify");
    if !spec.has("service") {
        if !bundle.is_empty() {
            let shown = format!("{} bytes", super::config_map::decoded_length(bundle));
            let detail = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(&path.child("caBundle"), shown, detail));
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(&insecure_path, true, detail));
        }
        return;
    }
    let service_path = path.child("service");
    let service = spec.at("service");
    values::required(service, "namespace", &service_path, errors);
    values::required(service, "name", &service_path, errors);
    let port = service.int("port");
    let reasons = names::port_number(port);
    if !reasons.is_empty() {
        let detail = format!("port is not valid: {}", reasons.join(", "));
        errors.push(FieldError::invalid(&service_path.child("port"), port, detail));
    }
    if insecure && !bundle.is_empty() {
        errors.push(FieldError::invalid(&insecure_path, true, "may not be true if caBundle is present"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::create_errors;
    use super::*;

    #[test]
    fn what_is_served_here_is_available() {
        let mut service = json!({"metadata": {"creationTimestamp": "then"}, "spec": {}, "status": {"conditions": []}});
        ApiService.prepare_create(&mut service);
        let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": "then", "reason": "Local",
            "message": "Local APIServices are always available"});
        assert_eq!(service["status"], json!({"conditions": [condition]}));
        assert!(!set_local(&mut service, "now"));
        service["status"]["conditions"][0]["reason"] = "Other".into();
        assert!(set_local(&mut service, "now"));
        assert_eq!(service["status"]["conditions"][0]["lastTransitionTime"], "then");
        service["status"]["conditions"][0]["status"] = "False".into();
        assert!(set_local(&mut service, "now"));
        assert_eq!(service["status"]["conditions"][0]["lastTransitionTime"], "now");
        let mut remote = json!({"metadata": {}, "spec": {"service": {}}, "status": {"conditions": [condition]}});
        ApiService.prepare_create(&mut remote);
        assert!(!remote.has("status"));
    }

    #[test]
    fn the_name_is_made_of_version_and_group() {
        let service = |name: &str| {
            json!({"metadata": {"name": name}, "spec": {"group": "a.example.com", "version": "v1",
                "groupPriorityMinimum": 1000, "versionPriority": 15}})
        };
        assert_eq!(create_errors(&ApiService, &service("v1.a.example.com")), "[]");
        assert_eq!(
            create_errors(&ApiService, &service("x")),
            "metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.a.example.com\""
        );
    }
}
