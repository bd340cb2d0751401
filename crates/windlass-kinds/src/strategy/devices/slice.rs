//! Checks of resource slices: the devices that a driver offers.

use std::cmp::Ordering;

use serde_json::Value;

use super::{binding, each, each_of_set, label, pool_name, qualified_name};
use crate::field::{FieldError, FieldErrors, Path};
use crate::strategy::pod::{resources, scheduling, volumes};
use crate::validation::access::Access;
use crate::validation::quantity::Quantity;
use crate::validation::{names, values};

const MOST_DEVICES: usize = 128;
/// The same where devices have taints, consume counters or have lists as attributes.
const MOST_RICH_DEVICES: usize = 64;
const MOST_COUNTER_SETS: usize = 8;
const MOST_COUNTERS: usize = 32;
const MOST_CONSUMPTIONS: usize = 2;
const MOST_TAINTS: usize = 16;
/// How many attributes and capacities a device may have together.
const MOST_PROPERTIES: usize = 32;
/// How many values its attributes may have together.
const MOST_ATTRIBUTE_VALUES: usize = 48;
const MOST_POLICY_VALUES: usize = 10;
const LONGEST_ATTRIBUTE_VALUE: usize = 64;
const SCALARS: [&str; 4] = ["bool", "int", "string", "version"];
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];
const NODES: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
const NODES_OF_DEVICE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                               `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

/// Checks the `spec` of a slice; `old` is null for a new one.
pub(super) fn spec(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    volumes::driver_name(spec, "driver", path, errors);
    let (pool, pool_path) = (spec.at("pool"), path.child("pool"));
    pool_name(pool, "name", &pool_path, errors);
    let count = pool.int("resourceSliceCount");
    if count <= 0 {
        let path = pool_path.child("resourceSliceCount");
        errors.push(FieldError::invalid(&path, count, "must be greater than zero"));
    }
    let generation = pool.int("generation");
    if generation < 0 {
        let path = pool_path.child("generation");
        errors.push(FieldError::invalid(&path, generation, "must be greater than or equal to zero"));
    }
    if !old.is_null() {
        values::immutable(pool, old.at("pool"), "name", &pool_path, errors);
        values::immutable(spec, old, "driver", path, errors);
        values::immutable(spec, old, "nodeName", path, errors);
    }
    let fields = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    let why = "must be either unset or set to a non-empty string";
    choose_nodes(spec, &fields, why, NODES, &format!("{NODES}, but multiple fields are set"), path, errors);
    let terms = spec.at("nodeSelector").at("nodeSelectorTerms");
    if spec.has("nodeSelector") && terms.as_array().map_or(0, Vec::len) != 1 {
        let selector = path.child("nodeSelector");
        let path = selector.child("nodeSelectorTerms");
        errors.push(FieldError::invalid(&path, terms.clone(), "must have exactly one node selector term"));
    }
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.push(FieldError::invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let devices = spec.list("devices");
    let most = if devices.iter().any(is_rich) { MOST_RICH_DEVICES } else { MOST_DEVICES };
    let name = |item: &Value| item.at("name").clone();
    each_of_set(devices, most, &path.child("devices"), name, errors, |one, path, errors| {
        let known = old.list("devices").iter().find(|known| known.text("name") == one.text("name"));
        device(one, known, spec.flag("perDeviceNodeSelection"), path, errors);
    });
    let counters = path.child("sharedCounters");
    each_of_set(spec.list("sharedCounters"), MOST_COUNTER_SETS, &counters, name, errors, |set, path, errors| {
        values::required_text(set, "name", names::label, path, errors);
        self::counters(set, path, errors);
    });
}

fn is_rich(device: &Value) -> bool {
    let has_list = |attribute: &Value| LISTS.iter().any(|field| attribute.has(field));
    !device.list("taints").is_empty()
        || !device.list("consumesCounters").is_empty()
        || device.entries("attributes").into_iter().any(|(_, attribute)| has_list(attribute))
}

/// Which nodes reach the devices: one field of several.
fn choose_nodes(
    owner: &Value,
    fields: &[&str],
    empty_name: &str,
    none: &str,
    several: &str,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    let mut set = Vec::new();
    for field in fields.iter().copied().filter(|field| owner.has(field)) {
        let path = path.child(field);
        match owner.at(field) {
            Value::String(name) if name.is_empty() => errors.push(FieldError::invalid(&path, "", empty_name)),
            Value::String(name) => {
                values::invalid_for_each(&path, name, names::subdomain(name), errors);
                set.push(field);
            }
            Value::Bool(false) => {
                errors.push(FieldError::invalid(&path, false, "must be either unset or set to true"));
            }
            Value::Object(_) => {
                scheduling::node_selector(owner.at(field), &path, errors);
                set.push(field);
            }
            _ => set.push(field),
        }
    }
    match set[..] {
        [] => errors.push(FieldError::required(path, none)),
        [_] => {}
        _ => {
            let set: Vec<String> = set.into_iter().map(|field| format!("`{field}`")).collect();
            errors.push(FieldError::invalid(path, format!("{{{}}}", set.join(", ")), several));
        }
    }
}

fn device(device: &Value, old: Option<&Value>, chooses_nodes: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    label(device, "name", path, errors);
    let (attributes, capacities) = (device.entries("attributes"), device.entries("capacity"));
    let count = attributes.len() + capacities.len();
    if count > MOST_PROPERTIES {
        let why = format!("the total number of attributes and capacities must not exceed {MOST_PROPERTIES}");
        errors.push(FieldError::invalid(path, count, why));
    }
    let values_of = |attribute: &Value| LISTS.iter().map(|field| attribute.list(field).len()).sum::<usize>().max(1);
    let count: usize = attributes.iter().map(|(_, attribute)| values_of(attribute)).sum();
    if count > MOST_ATTRIBUTE_VALUES {
        let why = format!("the total number of attribute values must not exceed {MOST_ATTRIBUTE_VALUES}");
        errors.push(FieldError::invalid(path, count, why));
    }
    for (name, one) in attributes {
        let path = path.child("attributes");
        qualified_name(name, &path, errors);
        attribute(one, &path.key(name), errors);
    }
    for (name, one) in capacities {
        let path = path.child("capacity");
        qualified_name(name, &path, errors);
        capacity(one, device.flag("allowMultipleAllocations"), &path.key(name), errors);
    }
    if old.is_none_or(|old| old.at("taints") != device.at("taints")) {
        each(device.list("taints"), MOST_TAINTS, &path.child("taints"), errors, taint);
    }
    let consumed = path.child("consumesCounters");
    let set = |consumption: &Value| consumption.at("counterSet").clone();
    each_of_set(device.list("consumesCounters"), MOST_CONSUMPTIONS, &consumed, set, errors, |one, path, errors| {
        values::required_text(one, "counterSet", names::label, path, errors);
        counters(one, path, errors);
    });
    let fields = ["nodeName", "nodeSelector", "allNodes"];
    if chooses_nodes {
        choose_nodes(device, &fields, "must not be empty", NODES_OF_DEVICE, NODES_OF_DEVICE, path, errors);
    } else if fields.iter().any(|field| device.has(field)) {
        let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true \
                   in the ResourceSlice spec";
        errors.push(FieldError::invalid(path, Value::Null, why));
    }
    binding(device, path, errors);
    for (resource, mapping) in device.entries("nodeAllocatableResourceMappings") {
        let mappings = path.child("nodeAllocatableResourceMappings");
        allocatable(resource, mapping, device.at("capacity"), &mappings.key(resource), errors);
    }
}

/// `counters` of a set, or of what a device consumes of one.
fn counters(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let (counters, path) = (owner.entries("counters"), path.child("counters"));
    if counters.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else if counters.len() > MOST_COUNTERS {
        errors.push(FieldError::too_many(&path, counters.len(), MOST_COUNTERS));
    } else {
        for (name, _) in counters {
            values::invalid_for_each(&path, name, names::label(name), errors);
        }
    }
}

fn attribute(attribute: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    text(attribute.at("string"), &path.child("string"), errors);
    version(attribute.at("version"), &path.child("version"), errors);
    for field in LISTS.into_iter().filter(|field| attribute.has(field)) {
        let path = path.child(field);
        if attribute.list(field).is_empty() {
            errors.push(FieldError::invalid(&path, attribute.at(field).clone(), "must not be empty if specified"));
        }
        for (i, item) in attribute.list(field).iter().enumerate() {
            match field {
                "strings" => text(item, &path.index(i), errors),
                "versions" => version(item, &path.index(i), errors),
                _ => {}
            }
        }
    }
    let set = SCALARS.iter().chain(&LISTS).filter(|field| attribute.has(field)).count();
    if set != 1 {
        let shown = if set == 0 { Value::from("") } else { attribute.clone() };
        errors.push(FieldError::invalid(path, shown, "exactly one value must be specified"));
    }
}

fn text(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if value.as_str().is_some_and(|text| text.len() > LONGEST_ATTRIBUTE_VALUE) {
        errors.push(FieldError::too_long(path, LONGEST_ATTRIBUTE_VALUE));
    }
}

fn version(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(version) = value.as_str() else { return };
    if !is_semantic(version) {
        let why = "must be a string compatible with semver.org spec 2.0.0";
        errors.push(FieldError::invalid(path, version, why));
    }
    text(value, path, errors);
}

/// Whether a text is a version of semver.org: three numbers, identifiers after `-`, others after `+`.
fn is_semantic(version: &str) -> bool {
    let (version, build) = version.split_once('+').map_or((version, None), |(rest, build)| (rest, Some(build)));
    let (numbers, pre) = version.split_once('-').map_or((version, None), |(rest, pre)| (rest, Some(pre)));
    let is_number = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
    };
    let is_identifier =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_plain = |text: &str| !text.bytes().all(|byte| byte.is_ascii_digit()) || is_number(text);
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| is_identifier(part) && is_plain(part)))
        && build.is_none_or(|build| build.split('.').all(is_identifier))
}

fn taint(taint: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let (key, value) = (taint.text("key"), taint.text("value"));
    values::invalid_for_each(&path.child("key"), key, names::qualified_name(key), errors);
    if !value.is_empty() {
        values::invalid_for_each(&path.child("value"), value, names::label_value(value), errors);
    }
    if values::required(taint, "effect", path, errors) {
        super::effect(taint, path, errors);
    }
}

fn capacity(capacity: &Value, is_shared: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    if !capacity.has("requestPolicy") {
        return;
    }
    let (policy, path) = (capacity.at("requestPolicy"), path.child("requestPolicy"));
    if !is_shared {
        errors.push(FieldError::forbidden(&path, "allowMultipleAllocations must be true"));
        return;
    }
    let most = Quantity::from_value(capacity.at("value")).unwrap_or(Quantity::ZERO);
    let (options, range) = (policy.list("validValues"), policy.at("validRange"));
    if !options.is_empty() && !range.is_null() {
        let why =
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        errors.push(FieldError::forbidden(&path, why));
        return;
    }
    let fields = [("validValues", !options.is_empty()), ("validRange", !range.is_null())];
    let Some((field, _)) = fields.into_iter().find(|(_, is_set)| *is_set) else { return };
    let Some(default) = Quantity::from_value(policy.at("default")) else {
        let why = format!("required when {field} is defined");
        errors.push(FieldError::required(&path.child("default"), why));
        return;
    };
    if range.is_null() {
        options_of_policy(options, default, most, &path.child(field), errors);
    } else {
        range_of_policy(range, default, most, &path.child(field), errors);
    }
}

fn options_of_policy(options: &[Value], default: Quantity, most: Quantity, path: &Path<'_>, errors: &mut FieldErrors) {
    let amount = |value: &Value| Quantity::from_value(value).unwrap_or(Quantity::ZERO);
    for (i, pair) in options.windows(2).enumerate() {
        if amount(&pair[0]) > amount(&pair[1]) {
            let path = path.index(i + 1);
            errors.push(FieldError::invalid(&path, pair[1].clone(), "values must be sorted in ascending order"));
        }
    }
    let key = |value: &Value| amount(value).value().to_string().into();
    each_of_set(options, MOST_POLICY_VALUES, path, key, errors, |option, path, errors| {
        if amount(option) > most {
            let why = format!("option is larger than capacity value: {most}");
            errors.push(FieldError::invalid(path, option.clone(), why));
        }
    });
    if !options.iter().any(|option| amount(option) == default) {
        let why = "default value is not valid according to the requestPolicy";
        errors.push(FieldError::invalid(path, default.to_string(), why));
    }
}

fn range_of_policy(range: &Value, default: Quantity, most: Quantity, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(least) = Quantity::from_value(range.at("min")) else {
        errors.push(FieldError::required(&path.child("min"), "required when validRange is defined"));
        return;
    };
    let limit = Quantity::from_value(range.at("max"));
    let mut check = |field: &str, (value, order, other): (Quantity, Ordering, Quantity), why: &str| {
        if value.cmp(&other) == order {
            let why = format!("{why}: {other}");
            errors.push(FieldError::invalid(&path.child(field), value.to_string(), why));
        }
    };
    check("min", (least, Ordering::Greater, most), "min is larger than capacity value");
    check("min", (default, Ordering::Less, least), "default is less than min");
    if let Some(limit) = limit {
        check("max", (least, Ordering::Greater, limit), "min is larger than max");
        check("max", (limit, Ordering::Greater, most), "max is larger than capacity value");
        check("max", (default, Ordering::Greater, limit), "default is more than max");
    }
    let Some(step) = Quantity::from_value(range.at("step")) else { return };
    let path = path.child("step");
    if least.value().saturating_add(step.value()) > most.value() {
        let why = format!("one step {step} is larger than capacity value: {most}");
        errors.push(FieldError::invalid(&path, step.to_string(), why));
    }
    for value in [Some(default), limit].into_iter().flatten() {
        let offset = value.value().saturating_sub(least.value());
        if offset.checked_rem(step.value()) != Some(0) {
            let why = format!("value is not a multiple of a given step ({step}) from ({least})");
            errors.push(FieldError::invalid(&path, value.to_string(), why));
        }
    }
}

/// What of a node's own resources a device takes.
fn allocatable(resource: &str, mapping: &Value, capacity: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if !resources::is_native(resource) {
        errors.push(FieldError::invalid(path, resource, "must be a node allocatable resource name"));
    }
    let (multiplier, key) = (mapping.at("allocationMultiplier"), mapping.at("capacityKey"));
    if multiplier.is_null() && key.is_null() {
        let why = "at least one of allocationMultiplier or capacityKey must be set";
        errors.push(FieldError::invalid(path, "", why));
        return;
    }
    if Quantity::from_value(multiplier).is_some_and(|multiplier| multiplier <= Quantity::ZERO) {
        let path = path.child("allocationMultiplier");
        errors.push(FieldError::invalid(&path, multiplier.clone(), "must be positive"));
    }
    if let Some(key) = key.as_str() {
        let path = path.child("capacityKey");
        if key.is_empty() {
            errors.push(FieldError::invalid(&path, "", "capacityKey must not be an empty string"));
        } else if !capacity.has(key) {
            errors.push(FieldError::not_found(&path, key));
        }
    }
}
