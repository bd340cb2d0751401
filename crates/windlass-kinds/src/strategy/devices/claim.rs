//! Checks of claims, and of what drivers and the scheduler write into their status.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    MOST_CONFIGURATIONS, binding, configuration, each, each_of_set, effect, label, pool_name, qualified_name, selectors,
};
use crate::field::{FieldError, FieldErrors, Path};
use crate::strategy::pod::{scheduling, volumes};
use crate::validation::access::Access;
use crate::validation::{names, values};

/// How many requests a claim may have, and how many results an allocation.
const MOST_REQUESTS: usize = 32;
const MOST_CONSTRAINTS: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
const MOST_CONSUMERS: usize = 256;
const ONE_OF: &str = "exactly one of `exactly` or `firstAvailable` is required";
const REFERENCE: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// The names of requests, each with those of its alternatives.
struct Requests<'a>(HashMap<&'a str, HashSet<&'a str>>);

impl<'a> Requests<'a> {
    fn of(spec: &'a Value) -> Self {
        let requests = spec.at("devices").list("requests").iter();
        let names = |list: &'a [Value]| list.iter().map(|one| one.text("name")).collect();
        Self(requests.map(|request| (request.text("name"), names(request.list("firstAvailable")))).collect())
    }

    /// A reference to a request, or to a request and one of its alternatives.
    fn check(&self, reference: &str, path: &Path<'_>, errors: &mut FieldErrors) {
        let segments: Vec<&str> = reference.split('/').collect();
        if segments.len() > 2 {
            errors.push(FieldError::invalid(path, reference, REFERENCE));
            return;
        }
        for segment in &segments {
            values::invalid_for_each(path, segment, names::label(segment), errors);
        }
        let alternatives = self.0.get(segments[0]);
        let is_known = alternatives.is_some_and(|known| segments.get(1).is_none_or(|name| known.contains(name)));
        if !is_known {
            errors.push(FieldError::invalid(path, reference, REFERENCE));
        }
    }

    fn check_all(&self, owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
        let path = path.child("requests");
        each_of_set(owner.list("requests"), MOST_REQUESTS, &path, Value::clone, errors, |name, path, errors| {
            self.check(name.as_str().unwrap_or_default(), path, errors);
        });
    }
}

/// Checks the `spec` of a claim.
pub(super) fn spec(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let (devices, path) = (spec.at("devices"), path.child("devices"));
    let requests = Requests::of(spec);
    each_of_set(devices.list("requests"), MOST_REQUESTS, &path.child("requests"), name, errors, request);
    let constraints = path.child("constraints");
    each(devices.list("constraints"), MOST_CONSTRAINTS, &constraints, errors, |constraint, path, errors| {
        requests.check_all(constraint, path, errors);
        attribute(constraint, path, errors);
    });
    each(devices.list("config"), MOST_CONFIGURATIONS, &path.child("config"), errors, |config, path, errors| {
        requests.check_all(config, path, errors);
        configuration(config, path, false, errors);
    });
}

fn name(item: &Value) -> Value {
    item.at("name").clone()
}

fn request(request: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    label(request, "name", path, errors);
    let alternatives = request.list("firstAvailable");
    match (request.has("exactly"), !alternatives.is_empty()) {
        (false, false) => errors.push(FieldError::required(path, ONE_OF)),
        (true, true) => {
            let why = format!("{ONE_OF}, but multiple fields are set");
            errors.push(FieldError::invalid(path, Value::Null, why));
        }
        (true, false) => asked(request.at("exactly"), &path.child("exactly"), errors),
        (false, true) => {
            let path = path.child("firstAvailable");
            each_of_set(alternatives, MOST_ALTERNATIVES, &path, name, errors, |alternative, path, errors| {
                label(alternative, "name", path, errors);
                asked(alternative, path, errors);
            });
        }
    }
}

/// What a request or one of its alternatives asks for.
fn asked(request: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required_text(request, "deviceClassName", names::subdomain, path, errors);
    selectors(request, path, errors);
    let count = request.int("count");
    match request.text("allocationMode") {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(&path.child("count"), count, why));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(&path.child("count"), count, "must be greater than zero"));
        }
        _ => values::one_of(request, "allocationMode", &["All", "ExactCount"], path, errors),
    }
    for (i, one) in request.list("tolerations").iter().enumerate() {
        toleration(one, &path.child("tolerations").index(i), errors);
    }
}

fn toleration(toleration: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::optional_text(toleration, "key", names::qualified_name, path, errors);
    let (value, value_path) = (toleration.text("value"), path.child("value"));
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            errors.push(FieldError::invalid(&value_path, value, "must be empty for operator `Exists`"));
        }
        "Equal" => values::invalid_for_each(&value_path, value, names::label_value(value), errors),
        _ => values::required_one_of(toleration, "operator", &["Equal", "Exists"], path, errors),
    }
    effect(toleration, path, errors);
}

/// The attribute that devices of a constraint share, or that none of them shares.
fn attribute(constraint: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let fields = ["matchAttribute", "distinctAttribute"];
    let Some(field) = fields.into_iter().find(|field| constraint.has(field)) else {
        let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        errors.push(FieldError::required(path, why));
        return;
    };
    let (name, path) = (constraint.text(field), path.child(field));
    qualified_name(name, &path, errors);
    if !name.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(FieldError::invalid(&path, name, why));
    }
}

/// Checks a change of the `status` of a claim.
pub(super) fn status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("status");
    let (status, old_status) = (object.at("status"), old.at("status"));
    let (consumers, consumers_path) = (status.list("reservedFor"), path.child("reservedFor"));
    let uid = |consumer: &Value| consumer.at("uid").clone();
    each_of_set(consumers, MOST_CONSUMERS, &consumers_path, uid, errors, |consumer, path, errors| {
        for field in ["resource", "name", "uid"] {
            values::required(consumer, field, path, errors);
        }
    });
    let allocation = status.at("allocation");
    let results = allocation.at("devices").list("results");
    let allocated: HashSet<_> = results.iter().map(device).collect();
    let key = |status: &Value| device(status).join("/").into();
    each_of_set(status.list("devices"), usize::MAX, &path.child("devices"), key, errors, |one, path, errors| {
        volumes::driver_name(one, "driver", path, errors);
        pool_name(one, "pool", path, errors);
        label(one, "device", path, errors);
        if !allocated.contains(&device(one)) {
            let why = "must be an allocated device in the claim";
            errors.push(FieldError::invalid(path, device(one).join("/").trim_end_matches('/'), why));
        }
    });
    if !consumers.is_empty() {
        let known = old_status.list("reservedFor");
        let is_deleted = object.at("metadata").has("deletionTimestamp");
        if allocation.is_null() {
            let why = "may not be specified when `allocated` is not set";
            errors.push(FieldError::forbidden(&consumers_path, why));
        } else if is_deleted && consumers.iter().any(|consumer| !known.contains(consumer)) {
            let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(FieldError::forbidden(&consumers_path, why));
        }
    }
    if !old_status.at("allocation").is_null() && !allocation.is_null() {
        values::immutable(status, old_status, "allocation", &path, errors);
    } else if !allocation.is_null() {
        allocate(allocation, &Requests::of(object.at("spec")), &path.child("allocation"), errors);
    }
}

/// What identifies a device, or a share of it.
fn device(of: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| of.text(field))
}

fn allocate(allocation: &Value, requests: &Requests<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    let (devices, devices_path) = (allocation.at("devices"), path.child("devices"));
    let results = devices_path.child("results");
    each(devices.list("results"), MOST_REQUESTS, &results, errors, |result, path, errors| {
        requests.check(result.text("request"), &path.child("request"), errors);
        volumes::driver_name(result, "driver", path, errors);
        pool_name(result, "pool", path, errors);
        label(result, "device", path, errors);
        binding(result, path, errors);
    });
    let config = devices_path.child("config");
    each(devices.list("config"), 2 * MOST_CONFIGURATIONS, &config, errors, |config, path, errors| {
        values::required_one_of(config, "source", &["FromClaim", "FromClass"], path, errors);
        requests.check_all(config, path, errors);
        configuration(config, path, false, errors);
    });
    if allocation.has("nodeSelector") {
        scheduling::node_selector(allocation.at("nodeSelector"), &path.child("nodeSelector"), errors);
    }
}
