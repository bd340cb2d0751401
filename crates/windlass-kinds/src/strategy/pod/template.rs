//! Pod templates, as workloads embed them.

use serde_json::Value;

use super::{annotations, spec};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::metadata;

/// Checks a pod template. `old` is the one it replaces, or null.
pub(crate) fn validate(template: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let meta = template.at("metadata");
    let pod_spec = template.at("spec");
    // Not below `metadata`: upstream's paths.
    metadata::labels(meta, "labels", path, errors);
    metadata::annotations(meta, path, errors);
    annotations::validate(meta, pod_spec, &path.child("annotations"), errors);
    let spec_path = path.child("spec");
    spec::validate(pod_spec, old.at("spec"), None, &spec_path, errors);
    annotations::profiles_match(meta, pod_spec, &spec_path, errors);
    if !pod_spec.list("ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(&spec_path.child("ephemeralContainers"), detail));
    }
}
