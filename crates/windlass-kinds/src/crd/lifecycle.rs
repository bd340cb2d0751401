//! From a stored CRD to a served resource: names, conditions, and what the catalog installs.
//!
//! Upstream spreads this over several controllers; the result after all of them have run is computed
//! here in one step, so a CRD is established by the very write that creates it. Time is passed in.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use windlass_api::codec::write;

use super::validation::{self, Approval};
use super::{CustomKind, CustomVersion, Schemas};
use crate::resource::{Column, MakeSchema, Resource, ResourceSchema, Subresource};
use crate::schema::Schema;
use crate::validation::access::{Access, AccessMut};

/// The condition that says whether all names are this CRD's.
pub(crate) const NAMES_ACCEPTED: &str = "NamesAccepted";
/// The condition that says whether the resource is served.
pub(crate) const ESTABLISHED: &str = "Established";
/// The condition of a CRD that is being deleted.
pub(crate) const TERMINATING: &str = "Terminating";
/// The condition of a CRD whose schema is not structural.
pub const NON_STRUCTURAL_SCHEMA: &str = "NonStructuralSchema";
/// The condition of a CRD in one of Kubernetes' own groups.
pub(crate) const APPROVED: &str = "KubernetesAPIApprovalPolicyConformant";
/// What keeps a CRD until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The names that CRDs of one group have.
#[derive(Clone, Debug, Default)]
pub struct AcceptedNames {
    resources: HashSet<Box<str>>,
    kinds: HashSet<Box<str>>,
}

impl AcceptedNames {
    /// The names that these CRDs have, all of one group.
    pub fn of<'a>(crds: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut taken = Self::default();
        for crd in crds {
            taken.add(crd.below(&["status", "acceptedNames"]));
        }
        taken
    }

    /// Adds names in the shape of `status.acceptedNames`.
    pub(crate) fn add(&mut self, names: &Value) {
        let single = ["plural", "singular"].map(|field| names.text(field));
        self.resources.extend(single.into_iter().chain(names.texts("shortNames")).map(Into::into));
        self.kinds.extend(["kind", "listKind"].map(|field| names.text(field).into()));
    }
}

/// One condition to be set.
struct Condition<'a> {
    kind: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

/// Brings the status of a CRD up to date: which names it has, whether it is established. Returns
/// whether anything changed. `taken` are the names of the group's CRDs; `now` is the RFC 3339 time;
/// `new_schemas` says that it is not known yet whether its schemas are structural.
pub fn update_status(crd: &mut Value, taken: &AcceptedNames, now: &str, new_schemas: bool) -> bool {
    let before = crd.at("status").clone();
    accept_names(crd, taken, now);
    establish(crd, now);
    note_approval(crd, now);
    if new_schemas {
        note_structure(crd, now);
    }
    crd.at("status") != &before
}

/// Once its names are accepted, a CRD is established for good, unless its objects could not be converted.
fn establish(crd: &mut Value, now: &str) {
    if !is_true(crd, NAMES_ACCEPTED) || is_true(crd, ESTABLISHED) {
        return;
    }
    let condition = if validation::has_invalid_ca_bundle(crd) {
        Condition {
            kind: ESTABLISHED,
            status: "False",
            reason: "InvalidCABundle",
            message: "The conversion webhook CABundle is invalid",
        }
    } else {
        Condition {
            kind: ESTABLISHED,
            status: "True",
            reason: "InitialNamesAccepted",
            message: "the initial names have been accepted",
        }
    };
    set_condition(crd, &condition, now);
}

/// Says whether a CRD in one of Kubernetes' own groups is approved.
fn note_approval(crd: &mut Value, now: &str) {
    if !validation::is_protected_group(crd.at("spec").text("group")) {
        return;
    }
    let (approval, message) = validation::approval_of(crd);
    let (status, reason) = match approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
    };
    set_condition(crd, &Condition { kind: APPROVED, status, reason, message: &message }, now);
}

/// Whether a CRD has the names it asks for. It keeps them then, until it asks for others.
pub fn has_its_names(crd: &Value) -> bool {
    is_true(crd, NAMES_ACCEPTED)
}

/// Whether a CRD has the spec it was created with. None could be created that is not structural since that is a
/// rule, and its status says so if it is older.
pub fn is_as_created(crd: &Value) -> bool {
    crd.at("metadata").int("generation") == 1
}

/// Says why a schema is not structural. Only CRDs from before that was a rule can have one.
fn note_structure(crd: &mut Value, now: &str) {
    let violations = validation::structural_violations(crd);
    if !violations.is_empty() {
        let message = violations.to_string();
        let condition =
            Condition { kind: NON_STRUCTURAL_SCHEMA, status: "True", reason: "Violations", message: &message };
        set_condition(crd, &condition, now);
    } else if condition(crd, NON_STRUCTURAL_SCHEMA).is_some()
        && let Some(Value::Array(conditions)) = crd.struct_mut("status").get_mut("conditions")
    {
        conditions.retain(|condition| condition.text("type") != NON_STRUCTURAL_SCHEMA);
    }
}

fn accept_names(crd: &mut Value, taken: &AcceptedNames, now: &str) {
    let wanted = crd.below(&["spec", "names"]).clone();
    let had = crd.below(&["status", "acceptedNames"]).clone();
    if same_names(&wanted, &had) {
        return;
    }
    let mut has = tidy(&had);
    let mut conflict: Option<(&str, String)> = None;
    for (field, names, reason) in [
        ("plural", &taken.resources, "PluralConflict"),
        ("singular", &taken.resources, "SingularConflict"),
        ("shortNames", &taken.resources, "ShortNamesConflict"),
        ("kind", &taken.kinds, "KindConflict"),
        ("listKind", &taken.kinds, "ListKindConflict"),
    ] {
        // Short names are many; the others are one.
        let known = names_in(&had, field);
        let clashes: Vec<String> = names_in(&wanted, field)
            .into_iter()
            .filter(|name| !known.contains(name) && names.contains(*name))
            .map(|name| format!("{} is already in use", crate::field::quote(name)))
            .collect();
        match clashes.as_slice() {
            [] => has.copy_field(field, &wanted),
            [only] => conflict = Some((reason, only.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    has.copy_field("categories", &wanted);
    let names = tidy(&has);
    crd.struct_mut("status").put("acceptedNames", names);
    set_name_conditions(crd, conflict.as_ref().map(|(reason, message)| (*reason, message.as_str())), now);
}

fn names_in<'a>(names: &'a Value, field: &str) -> Vec<&'a str> {
    match names.text_opt(field) {
        Some(name) => vec![name],
        None => names.texts(field),
    }
}

fn set_name_conditions(crd: &mut Value, conflict: Option<(&str, &str)>, now: &str) {
    let accepted = match conflict {
        Some((reason, message)) => Condition { kind: NAMES_ACCEPTED, status: "False", reason, message },
        None => {
            Condition { kind: NAMES_ACCEPTED, status: "True", reason: "NoConflicts", message: "no conflicts found" }
        }
    };
    set_condition(crd, &accepted, now);
    if conflict.is_some() && condition(crd, ESTABLISHED).is_none() {
        let not_yet = Condition {
            kind: ESTABLISHED,
            status: "False",
            reason: "NotAccepted",
            message: "not all names are accepted",
        };
        set_condition(crd, &not_yet, now);
    }
}

/// Names as they are stored: plural and kind are always there, the others only if they say something.
fn tidy(names: &Value) -> Value {
    let mut out = json!({"plural": names.text("plural"), "kind": names.text("kind")});
    for field in ["singular", "listKind"] {
        if !names.text(field).is_empty() {
            out.put(field, names.text(field));
        }
    }
    for field in ["shortNames", "categories"] {
        if !names.list(field).is_empty() {
            out.copy_field(field, names);
        }
    }
    out
}

fn same_names(a: &Value, b: &Value) -> bool {
    tidy(a) == tidy(b)
}

fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    crd.at("status").list("conditions").iter().find(|condition| condition.text("type") == kind)
}

/// Whether a condition is there and true.
pub(crate) fn is_true(crd: &Value, kind: &str) -> bool {
    condition(crd, kind).is_some_and(|condition| condition.text("status") == "True")
}

/// Sets a condition; its time moves only when its status does.
fn set_condition(crd: &mut Value, new: &Condition<'_>, now: &str) {
    let status = crd.struct_mut("status");
    if !status.at("conditions").is_array() {
        status.put("conditions", json!([]));
    }
    let existing = status.items_mut("conditions").iter_mut().find(|condition| condition.text("type") == new.kind);
    if let Some(existing) = existing {
        if existing.text("status") != new.status || !existing.has("lastTransitionTime") {
            existing.put("lastTransitionTime", now);
        }
        existing.put("status", new.status);
        existing.put("reason", new.reason);
        existing.put("message", new.message);
    } else if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        conditions.push(json!({"type": new.kind, "status": new.status, "lastTransitionTime": now,
            "reason": new.reason, "message": new.message}));
    }
}

/// What deleting a CRD does first: it stays until its objects are gone. The caller sets
/// `metadata.deletionTimestamp`.
pub(crate) fn begin_deletion(crd: &mut Value, now: &str) {
    let metadata = crd.struct_mut("metadata");
    if !metadata.texts("finalizers").contains(&CLEANUP_FINALIZER) {
        match metadata.get_mut("finalizers") {
            Some(Value::Array(finalizers)) => finalizers.push(CLEANUP_FINALIZER.into()),
            _ => metadata.put("finalizers", json!([CLEANUP_FINALIZER])),
        }
    }
    let pending = Condition {
        kind: TERMINATING,
        status: "True",
        reason: "InstanceDeletionPending",
        message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    };
    set_condition(crd, &pending, now);
}

/// Whether a CRD waits for its objects to be deleted.
pub fn awaits_cleanup(crd: &Value) -> bool {
    let metadata = crd.at("metadata");
    metadata.has("deletionTimestamp") && metadata.texts("finalizers").contains(&CLEANUP_FINALIZER)
}

/// Says that the objects of a CRD are being deleted.
pub fn deletion_in_progress(crd: &mut Value, now: &str) {
    let progress = Condition {
        kind: TERMINATING,
        status: "True",
        reason: "InstanceDeletionInProgress",
        message: "CustomResource deletion is in progress",
    };
    set_condition(crd, &progress, now);
}

/// Says that the objects are gone, and lets go of the CRD.
pub fn finish_deletion(crd: &mut Value, now: &str) {
    let (reason, message) = if is_true(crd, ESTABLISHED) {
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    set_condition(crd, &Condition { kind: TERMINATING, status: "False", reason, message }, now);
    if let Some(Value::Array(finalizers)) = crd.struct_mut("metadata").get_mut("finalizers") {
        finalizers.retain(|finalizer| finalizer.as_str() != Some(CLEANUP_FINALIZER));
    }
    if crd.at("metadata").list("finalizers").is_empty() {
        crd.struct_mut("metadata").drop_field("finalizers");
    }
}

/// Everything a CRD makes the server serve: a resource per served version, all of the same kind.
/// Empty until the CRD is established.
pub fn serve(crd: &Value) -> Vec<(Resource, Arc<CustomKind>)> {
    serve_stored(crd, write::to_vec(crd).into(), &Arc::default())
}

/// The same for a CRD that is stored in this way, of which `crd` may be an [`outline`].
pub fn serve_stored(crd: &Value, stored: Bytes, schemas: &Arc<Schemas>) -> Vec<(Resource, Arc<CustomKind>)> {
    if !is_true(crd, ESTABLISHED) {
        return Vec::new();
    }
    let names = crd.below(&["status", "acceptedNames"]);
    if ["plural", "singular", "kind", "listKind"].iter().any(|field| names.text(field).is_empty()) {
        return Vec::new();
    }
    let Some(kind) = CustomKind::of_stored(crd, stored, schemas) else { return Vec::new() };
    let kind = Arc::new(kind);
    let written = crd.at("spec").list("versions");
    kind.versions
        .iter()
        .zip(written)
        .enumerate()
        .filter(|(_, (version, _))| version.served)
        .map(|(index, (_, written))| (resource(&kind, index, names, written), Arc::clone(&kind)))
        .collect()
}

/// A CRD without what takes most of the room: its schemas, who owns which field, and what was applied. Of schemas, what
/// [`serve_stored`] goes by is left.
pub fn outline(crd: &Value) -> Value {
    let Value::Object(crd) = crd else { return crd.clone() };
    let part = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "metadata" => without(value, &["managedFields"]),
            "spec" => without(value, &["versions"]),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    let mut outline: Value = crd.iter().map(part).collect::<Map<_, _>>().into();
    if let Some(annotations) = outline.child_mut("metadata").and_then(|metadata| metadata.child_mut("annotations")) {
        annotations.drop_field("kubectl.kubernetes.io/last-applied-configuration");
    }
    let versions = crd.get("spec").map(|spec| spec.list("versions")).unwrap_or_default();
    let versions: Vec<Value> = versions.iter().map(version_outline).collect();
    if !versions.is_empty() {
        outline.struct_mut("spec").put("versions", versions);
    }
    outline
}

fn version_outline(version: &Value) -> Value {
    let mut outline = without(version, &["schema"]);
    let default = version.below(&["schema", "openAPIV3Schema", "properties", "status", "default"]);
    if !default.is_null() {
        outline.put("schema", json!({"openAPIV3Schema": {"properties": {"status": {"default": default}}}}));
    }
    outline
}

fn without(value: &Value, fields: &[&str]) -> Value {
    let Value::Object(map) = value else { return value.clone() };
    let left = map.iter().filter(|(key, _)| !fields.contains(&key.as_str()));
    left.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>().into()
}

/// Whether two states of a CRD with the same spec define the same resources.
pub fn serves_alike(one: &Value, other: &Value) -> bool {
    [ESTABLISHED, TERMINATING].iter().all(|condition| is_true(one, condition) == is_true(other, condition))
        && one.below(&["status", "acceptedNames"]) == other.below(&["status", "acceptedNames"])
}

/// The resources of a CRD, without how they behave.
pub fn resources(crd: &Value) -> Vec<Resource> {
    serve(crd).into_iter().map(|(resource, _)| resource).collect()
}

const ALL_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const VERBS_WHILE_TERMINATING: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];

fn resource(kind: &Arc<CustomKind>, index: usize, names: &Value, written: &Value) -> Resource {
    let version = &kind.versions[index];
    let verbs: &[&str] = if kind.terminating { &VERBS_WHILE_TERMINATING } else { &ALL_VERBS };
    let plural = names.text("plural");
    let mut subresources = Vec::new();
    if version.status {
        subresources.push(subresource("status", &kind.group, &version.name, names.text("kind")));
    }
    if version.scale.is_some() {
        subresources.push(subresource("scale", "autoscaling", "v1", "Scale"));
    }
    Resource {
        group: kind.group.clone(),
        version: version.name.clone(),
        plural: plural.into(),
        singular: names.text("singular").into(),
        kind: names.text("kind").into(),
        list_kind: names.text("listKind").into(),
        namespaced: kind.namespaced,
        short_names: boxed(&names.texts("shortNames")),
        categories: boxed(&names.texts("categories")),
        verbs: boxed(verbs),
        subresources,
        schema: ResourceSchema::Made(Arc::new(VersionSchema { kind: Arc::clone(kind), index })),
        columns: written.list("additionalPrinterColumns").iter().map(column).collect(),
        custom: true,
        prefix: format!("/registry/{}/{plural}/", kind.group).into(),
    }
}

/// The schema of one version of a kind.
#[derive(Debug)]
struct VersionSchema {
    kind: Arc<CustomKind>,
    index: usize,
}

impl VersionSchema {
    fn version(&self) -> &CustomVersion {
        &self.kind.versions[self.index]
    }
}

impl MakeSchema for VersionSchema {
    fn schema(&self) -> Arc<Schema> {
        self.version().schema()
    }

    fn schema_once(&self) -> Arc<Schema> {
        self.version().schema_once()
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.kind.source.stored()).into()
    }
}

fn subresource(name: &str, group: &str, version: &str, kind: &str) -> Subresource {
    Subresource {
        name: name.into(),
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        verbs: boxed(&["get", "patch", "update"]),
    }
}

fn column(written: &Value) -> Column {
    Column {
        name: written.text("name").into(),
        ty: written.text("type").into(),
        format: written.text("format").into(),
        description: written.text("description").into(),
        priority: written.int("priority") as i32,
        json_path: Some(written.text("jsonPath").into()),
    }
}

fn boxed(texts: &[&str]) -> Vec<Box<str>> {
    texts.iter().map(|text| (*text).into()).collect()
}
