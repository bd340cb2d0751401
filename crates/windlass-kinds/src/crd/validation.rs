//! What makes a CustomResourceDefinition valid, in upstream's words and at upstream's paths.
//!
//! Upstream checks its internal version, in which what all versions share has moved to the top: a
//! schema that is the same in every version is reported at `spec.validation`, not at
//! `spec.versions[0].schema`. `Shared` keeps track of that. On update, violations of rules that are
//! younger than the CRD are tolerated as long as the stored one has them too.

use serde_json::Value;

use super::lifecycle;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path, quote};
use crate::validation::access::Access;
use crate::validation::{names, values};

mod conversion;
mod defaults;
mod rules;
mod schema;
mod shown;
mod structural;

const MAX_SELECTABLE_FIELDS: usize = 8;
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Which rules apply. A new CRD keeps them all.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// The review versions of a conversion webhook must include one we know.
    recognized_review: bool,
    /// Scope and kind may not change.
    immutable_names: bool,
    /// Every version has a schema.
    schema: bool,
    /// Types are those OpenAPI v3 knows.
    valid_types: bool,
    /// Schemas are structural.
    structural: bool,
    /// Defaults have no unknown fields.
    pruned_defaults: bool,
    /// Items of sets are atomic.
    atomic_sets: bool,
    /// Keys of map lists are always there.
    map_list_keys: bool,
    /// The CA bundle need not be well-formed.
    invalid_ca_bundle: bool,
    /// CEL expressions may be as expensive as they are, because they were there before.
    tolerate_cost: bool,
}

impl Options {
    const fn new() -> Self {
        Self {
            recognized_review: true,
            immutable_names: false,
            schema: true,
            valid_types: true,
            structural: true,
            pruned_defaults: true,
            atomic_sets: true,
            map_list_keys: true,
            invalid_ca_bundle: true,
            tolerate_cost: false,
        }
    }

    /// All rules, and those for changing `old`.
    fn changing(old: &Value) -> Self {
        let webhook = old.below(&["spec", "conversion", "webhook"]);
        let established = lifecycle::is_true(old, lifecycle::ESTABLISHED);
        Self {
            immutable_names: established,
            invalid_ca_bundle: !established || conversion::has_invalid_ca_bundle(webhook),
            ..Self::new()
        }
    }

    /// The rules for changing `old`: what it already breaks may stay broken.
    fn for_update(old: &Value) -> Self {
        let schemas = || old.at("spec").list("versions").iter().map(|v| v.below(&["schema", "openAPIV3Schema"]));
        let webhook = old.below(&["spec", "conversion", "webhook"]);
        Self {
            recognized_review: conversion::recognizes_or_empty(&webhook.texts("conversionReviewVersions")),
            schema: schemas().all(|schema| !schema.is_null()),
            valid_types: schemas().all(schema::types_are_valid),
            structural: schemas().all(structural::is_structural),
            pruned_defaults: schemas().all(schema::defaults_are_pruned),
            atomic_sets: schemas().all(schema::sets_are_atomic),
            map_list_keys: schemas().all(schema::map_list_keys_are_there),
            ..Self::changing(old)
        }
    }
}

impl Options {
    /// The rules for one version: a schema that stays as it was may be as expensive as it was.
    fn about(self, version: &Value, old: Option<&Value>) -> Self {
        let unchanged = old_version(old, version).is_some_and(|old| old.at("schema") == version.at("schema"));
        Self { tolerate_cost: unchanged, ..self }
    }
}

/// Checks a new CRD. Its metadata, but for the rule about its name, is the registry's business.
pub(crate) fn validate(crd: &Value, errors: &mut FieldErrors) {
    let spec = crd.at("spec");
    let name = crd.at("metadata").text("name");
    if name != format!("{}.{}", spec.at("names").text("plural"), spec.text("group")) {
        let metadata = Path::new("metadata");
        errors.push(FieldError::invalid(&metadata.child("name"), name, r#"must be spec.names.plural+"."+spec.group"#));
    }
    validate_spec(spec, None, Options::new(), errors);
    validate_status(crd, errors);
    stored_versions(crd, errors);
    approval(crd, None, errors);
    preserve_unknown_fields(spec, None, errors);
}

/// Checks a changed CRD.
pub(crate) fn validate_update(crd: &Value, old: &Value, errors: &mut FieldErrors) {
    let (spec, old_spec) = (crd.at("spec"), old.at("spec"));
    // A definition that keeps all rules needs no look at which ones were broken before.
    let mut options = Options::changing(old);
    let mut found = FieldErrors::default();
    validate_spec(spec, Some(old_spec), options, &mut found);
    if !found.is_empty() {
        options = Options::for_update(old);
        found.0.clear();
        validate_spec(spec, Some(old_spec), options, &mut found);
    }
    errors.0.append(&mut found.0);
    let path = Path::new("spec");
    let names = path.child("names");
    if options.immutable_names {
        values::immutable(spec, old_spec, "scope", &path, errors);
        values::immutable(spec.at("names"), old_spec.at("names"), "kind", &names, errors);
    }
    values::immutable(spec, old_spec, "group", &path, errors);
    values::immutable(spec.at("names"), old_spec.at("names"), "plural", &names, errors);
    validate_status(crd, errors);
    stored_versions(crd, errors);
    approval(crd, Some(old), errors);
    preserve_unknown_fields(spec, Some(old_spec), errors);
}

/// Checks the status of a CRD.
pub(crate) fn validate_status(crd: &Value, errors: &mut FieldErrors) {
    let path = Path::new("status");
    accepted_names(crd.below(&["status", "acceptedNames"]), &path.child("acceptedNames"), errors);
}

/// Whether the conversion webhook of a CRD has a CA bundle that holds no certificate.
pub(crate) fn has_invalid_ca_bundle(crd: &Value) -> bool {
    conversion::has_invalid_ca_bundle(crd.below(&["spec", "conversion", "webhook"]))
}

/// Why the schemas of a stored CRD are not structural.
pub(crate) fn structural_violations(crd: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let path = Path::new("spec");
    let spec = crd.at("spec");
    if spec.flag("preserveUnknownFields") {
        errors.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, "must be false"));
    }
    let path = path.child("versions");
    for (index, version) in spec.list("versions").iter().enumerate() {
        if let Value::Object(schema) = version.below(&["schema", "openAPIV3Schema"]) {
            let path = path.index(index);
            let path = path.child("schema");
            structural::validate(schema, &path.child("openAPIV3Schema"), &mut errors);
        }
    }
    errors
}

/// Which fields all versions have in common, and so are reported at the top.
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable_fields: bool,
}

impl Shared {
    fn of(versions: &[Value]) -> Self {
        let same = |field: &str| versions.windows(2).all(|pair| pair[0].at(field) == pair[1].at(field));
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable_fields: same("selectableFields"),
        }
    }
}

fn validate_spec(spec: &Value, old: Option<&Value>, options: Options, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    group(spec.text("group"), &path.child("group"), errors);
    values::required_one_of(spec, "scope", &["Cluster", "Namespaced"], &path, errors);
    let versions = spec.list("versions");
    let versions_path = path.child("versions");
    missing_schemas(spec, options, &versions_path, errors);
    let preserve = spec.flag("preserveUnknownFields");
    let has_defaults = versions.iter().any(|v| defaults::has_any(v.below(&["schema", "openAPIV3Schema"])));
    if has_defaults && preserve {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
    let options = Options { structural: options.structural || !preserve || has_defaults, ..options };
    let shared = Shared::of(versions);
    for (index, version) in versions.iter().enumerate() {
        let at = versions_path.index(index);
        let label = names::dns1035_label(version.text("name"));
        if !label.is_empty() {
            errors.push(FieldError::invalid(&at.child("name"), version.text("name"), label.join(",")));
        }
        deprecation_warning(version, &at, errors);
        if !shared.schema {
            let status = version.at("subresources").has("status");
            let options = options.about(version, old);
            schema::validate(version.at("schema"), status, options, &at.child("schema"), errors);
        }
        if !shared.subresources {
            subresources(version.at("subresources"), &at.child("subresources"), errors);
        }
        if !shared.columns {
            columns(version, &at.child("additionalPrinterColumns"), errors);
        }
        if !shared.selectable_fields {
            let known = old_version(old, version);
            let unless = "may only be set when `version.schema.openAPIV3Schema` is not included";
            selectable_fields(version, known, unless, &at.child("selectableFields"), errors);
        }
    }
    version_list(versions, &shared, &versions_path, errors);
    if let Some(first) = versions.first() {
        let label = names::dns1035_label(first.text("name"));
        if !label.is_empty() {
            errors.push(FieldError::invalid(&path.child("version"), first.text("name"), label.join(",")));
        }
    }
    let names_path = path.child("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if spec.at("names").text(field).is_empty() {
            errors.push(FieldError::required(&names_path.child(field), ""));
        }
    }
    accepted_names(spec.at("names"), &names_path, errors);
    if let Some(first) = versions.first() {
        if shared.schema {
            let status = versions.iter().any(|version| version.at("subresources").has("status"));
            let options = options.about(first, old);
            schema::validate(first.at("schema"), status, options, &path.child("validation"), errors);
        }
        if shared.subresources {
            subresources(first.at("subresources"), &path.child("subresources"), errors);
        }
        if shared.columns {
            columns(first, &path.child("additionalPrinterColumns"), errors);
        }
        if shared.selectable_fields {
            let unless = "may only be set when validations.schema is included";
            let known = old_version(old, first);
            selectable_fields(first, known, unless, &path.child("selectableFields"), errors);
        }
    }
    conversion::validate(spec, options, &path.child("conversion"), errors);
}

fn old_version<'a>(old: Option<&'a Value>, version: &Value) -> Option<&'a Value> {
    old?.list("versions").iter().find(|old| old.text("name") == version.text("name"))
}

fn group(group: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let reasons = names::subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !reasons.is_empty() {
        errors.push(FieldError::invalid(path, group, reasons.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(path, group, "should be a domain with at least one dot"));
    }
}

fn missing_schemas(spec: &Value, options: Options, path: &Path<'_>, errors: &mut FieldErrors) {
    let preserve = spec.flag("preserveUnknownFields");
    for (index, version) in spec.list("versions").iter().enumerate() {
        if !version.below(&["schema", "openAPIV3Schema"]).is_null() {
            continue;
        }
        let at = path.index(index);
        let at = at.child("schema");
        let at = at.child("openAPIV3Schema");
        if options.schema {
            errors.push(FieldError::required(&at, ""));
        } else if !preserve && version.flag("served") {
            errors.push(FieldError::required(&at, "because otherwise all fields are pruned"));
        }
    }
}

fn deprecation_warning(version: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(warning) = version.text_opt("deprecationWarning") else { return };
    let mut problems = Vec::new();
    if version.flag("deprecated") {
        if warning.len() > 256 {
            problems.push("must be <= 256 characters long".to_owned());
        }
        if warning.is_empty() {
            problems.push("must not be an empty string".to_owned());
        }
        if let Some((index, _)) = warning.char_indices().find(|(_, c)| !is_print(*c)) {
            problems.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {index}"
            ));
        }
    } else {
        problems.push("can only be set for deprecated versions".to_owned());
    }
    for problem in problems {
        errors.push(FieldError::invalid(&path.child("deprecationWarning"), warning, problem));
    }
}

/// Whether Go's `unicode.IsPrint` is content: the only space that prints is the plain one, and characters that direct
/// others, are private or are none do not.
fn is_print(c: char) -> bool {
    let directs = matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}');
    let private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}');
    c == ' ' || !(c.is_control() || c.is_whitespace() || directs || private)
}

fn version_list(versions: &[Value], shared: &Shared, path: &Path<'_>, errors: &mut FieldErrors) {
    let repeated = versions
        .iter()
        .enumerate()
        .any(|(index, version)| versions[..index].iter().any(|other| other.text("name") == version.text("name")));
    let mut invalid = |detail: &str| {
        errors.push(FieldError::shown(ErrorKind::Invalid, path, shown::versions(versions, shared), detail));
    };
    if repeated {
        invalid("must contain unique version names");
    }
    if versions.iter().filter(|version| version.flag("storage")).count() != 1 {
        invalid("must have exactly one version marked as storage version");
    }
}

fn accepted_names(names: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut check = |path: &Path<'_>, name: &str, label: &str, prefix: &str| {
        let reasons = names::dns1035_label(label);
        if !reasons.is_empty() {
            errors.push(FieldError::invalid(path, name, format!("{prefix}{}", reasons.join(","))));
        }
    };
    for field in ["plural", "singular"] {
        let name = names.text(field);
        if !name.is_empty() {
            check(&path.child(field), name, name, "");
        }
    }
    for field in ["kind", "listKind"] {
        let name = names.text(field);
        if !name.is_empty() {
            let prefix = "may have mixed case, but should otherwise match: ";
            check(&path.child(field), name, &name.to_lowercase(), prefix);
        }
    }
    let short_names = path.child("shortNames");
    for (index, name) in names.texts("shortNames").into_iter().enumerate() {
        check(&short_names.index(index), name, name, "");
    }
    let categories = path.child("categories");
    for (index, name) in names.texts("categories").into_iter().enumerate() {
        check(&categories.index(index), name, name, "");
    }
    let kind = names.text("kind");
    if !kind.is_empty() && kind == names.text("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(&path.child("listKind"), kind, detail));
    }
}

fn subresources(subresources: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if !subresources.has("scale") {
        return;
    }
    let scale = subresources.at("scale");
    let scale_path = path.child("scale");
    let mut check = |field: &str, roots: &[&str], under: &str, required: bool| {
        let text = scale.text(field);
        let path = scale_path.child(field);
        if text.is_empty() {
            if required {
                errors.push(FieldError::required(&path, ""));
            }
        } else if !simple_json_path(text, &path, errors) && !roots.iter().any(|root| text.starts_with(root)) {
            errors.push(FieldError::invalid(&path, text, format!("should be a json path under {under}")));
        }
    };
    check("specReplicasPath", &[".spec."], ".spec", true);
    check("statusReplicasPath", &[".status."], ".status", true);
    check("labelSelectorPath", &[".spec.", ".status."], "either .spec or .status", false);
}

/// Whether a path is not a simple one; says so.
fn simple_json_path(text: &str, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let bad = !text.starts_with('.');
    if bad {
        errors.push(FieldError::invalid(path, text, "must be a simple json path starting with ."));
    }
    bad
}

fn columns(version: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    const FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in version.list("additionalPrinterColumns").iter().enumerate() {
        let at = path.index(index);
        if column.text("name").is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        let ty = column.text("type");
        let one_of = |values: &[&str]| format!("must be one of {}", values.join(","));
        if ty.is_empty() {
            errors.push(FieldError::required(&at.child("type"), one_of(TYPES)));
        } else if !TYPES.contains(&ty) {
            errors.push(FieldError::invalid(&at.child("type"), ty, one_of(TYPES)));
        }
        let format = column.text("format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.push(FieldError::invalid(&at.child("format"), format, one_of(FORMATS)));
        }
        let json_path = column.text("jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&at.child("JSONPath"), ""));
        } else {
            simple_json_path(json_path, &at.child("JSONPath"), errors);
        }
    }
}

/// Checks the selectable fields of a version; `unless` is what is said if it has no schema.
fn selectable_fields(version: &Value, old: Option<&Value>, unless: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let fields = version.list("selectableFields");
    if fields.is_empty() {
        return;
    }
    let Value::Object(schema) = version.below(&["schema", "openAPIV3Schema"]) else {
        errors.push(FieldError::invalid(path, "", unless));
        return;
    };
    let mut unique: Vec<String> = Vec::new();
    for (index, selectable) in fields.iter().enumerate() {
        let at = path.index(index);
        let at = at.child("jsonPath");
        let json_path = selectable.text("jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let found = match crate::rules::field_path::resolve(json_path, schema, false) {
            Ok(found) => found,
            Err(problem) => {
                errors.push(FieldError::invalid(&at, json_path, format!("is an invalid path: {problem}")));
                continue;
            }
        };
        if found.steps.first().is_some_and(|step| step == "metadata") {
            errors.push(FieldError::invalid(&at, json_path, "must not point to fields in metadata"));
        }
        if !matches!(found.schema.get("type").and_then(Value::as_str), Some("string" | "boolean" | "integer")) {
            let detail = "must point to a field of type string, boolean or integer. \
                          Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(&at, json_path, detail));
        }
        let text = found.steps.join(".");
        if unique.contains(&text) {
            errors.push(FieldError::duplicate(&at, json_path));
        } else {
            unique.push(text);
        }
    }
    let tolerated = old.is_some_and(|old| {
        old.list("selectableFields").len() > MAX_SELECTABLE_FIELDS && old.list("selectableFields") == fields
    });
    if unique.len() > MAX_SELECTABLE_FIELDS && !tolerated {
        errors.push(FieldError::too_many(path, unique.len(), MAX_SELECTABLE_FIELDS));
    }
}

fn stored_versions(crd: &Value, errors: &mut FieldErrors) {
    let path = Path::new("status");
    let path = path.child("storedVersions");
    let value = crd.at("status").at("storedVersions");
    let stored = crd.at("status").texts("storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(&path, value.clone(), "must have at least one stored version"));
        return;
    }
    let versions = crd.at("spec").list("versions");
    for version in versions {
        let name = version.text("name");
        if version.flag("storage") && !stored.contains(&name) {
            errors.push(FieldError::invalid(&path, value.clone(), format!("must have the storage version {name}")));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if versions.iter().any(|version| version.text("name") == *name) {
            continue;
        }
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
             a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(FieldError::invalid(&path.index(index), *name, detail));
    }
}

/// Whether Kubernetes' own groups are used with its community's consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    /// No annotation.
    Missing,
    /// An annotation that is neither a URL nor says why not.
    Invalid,
    /// The annotation is the URL of the approval.
    Approved,
    /// The annotation says that it is not approved.
    Bypassed,
}

/// The approval of a CRD in a group that is Kubernetes' own, and how upstream words it.
pub(crate) fn approval_of(crd: &Value) -> (Approval, String) {
    let annotation = crd.below(&["metadata", "annotations"]).text(APPROVAL);
    let url = annotation.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') && !annotation.contains(char::is_whitespace)
    });
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let must = format!("protected groups must have approval annotation {}", quote(APPROVAL));
    if annotation.is_empty() {
        (Approval::Missing, format!("{must}, {see}"))
    } else if annotation.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {}", quote(annotation)))
    } else if url {
        (Approval::Approved, format!("approved in {annotation}"))
    } else {
        (Approval::Invalid, format!("{must} with either a URL or a reason starting with \"unapproved\", {see}"))
    }
}

/// Whether a group belongs to the Kubernetes community.
pub(crate) fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}")))
}

fn approval(crd: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    if !is_protected_group(crd.at("spec").text("group")) {
        return;
    }
    let (state, reason) = approval_of(crd);
    if old.is_some_and(|old| approval_of(old).0 == state) {
        return;
    }
    let path = Path::new("metadata");
    let path = path.child("annotations");
    let path = path.key(APPROVAL);
    match state {
        Approval::Missing => errors.push(FieldError::required(&path, reason)),
        Approval::Invalid => {
            let annotation = crd.below(&["metadata", "annotations"]).text(APPROVAL);
            errors.push(FieldError::invalid(&path, annotation, reason));
        }
        Approval::Approved | Approval::Bypassed => {}
    }
}

fn preserve_unknown_fields(spec: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    if spec.flag("preserveUnknownFields") && !old.is_some_and(|old| old.flag("preserveUnknownFields")) {
        let path = Path::new("spec");
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
}

#[cfg(test)]
mod tests;
