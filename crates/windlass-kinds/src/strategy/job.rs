//! Job and CronJob.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{Strategy, pod, workload};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::selector::{self, Selector};
use crate::validation::{cron, names, values};

mod policies;
mod status;

const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const SELECTOR_LABEL: &str = "batch.kubernetes.io/controller-uid";
const MANY: i64 = 100_000;
const SOME: i64 = 10_000;

/// The strategy of Jobs.
pub(crate) struct Job;

/// The strategy of CronJobs.
pub(crate) struct CronJob;

impl Strategy for Job {
    fn orphaning_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
             them or set propagationPolicy=Orphan to suppress this warning",
        )
    }

    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        default_policies(spec);
        if !spec.has("completions") && !spec.has("parallelism") {
            spec.put("completions", 1);
        }
        spec.fill("parallelism", 1);
        let limit = if spec.has("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
        spec.fill("backoffLimit", limit);
        spec.fill("completionMode", "NonIndexed");
        spec.fill("suspend", false);
        let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        spec.fill("podReplacementPolicy", replacement);
        spec.fill("manualSelector", false);
        pod::defaults::template(spec.struct_mut("template"));
        template_labels(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["spec", "template"]);
        if !object.at("spec").flag("manualSelector") {
            generate_selector(object);
        }
        template_labels(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["spec", "template"]);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        generated_selector(object, errors);
        selected_job(object, &Value::Null, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        selected_job(object, old, errors);
        let path = Path::new("spec");
        let (spec, old_spec) = (object.at("spec"), old.at("spec"));
        completions_change(spec, old_spec, &path, errors);
        super::deployment::immutable_selector(object, old, errors);
        template_change(object, old, &path, errors);
        values::immutable(spec, old_spec, "completionMode", &path, errors);
        policies::immutable(spec, old_spec, "podFailurePolicy", &path, errors);
        values::immutable(spec, old_spec, "backoffLimitPerIndex", &path, errors);
        values::immutable(spec, old_spec, "managedBy", &path, errors);
        policies::immutable(spec, old_spec, "successPolicy", &path, errors);
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        status::validate(object, old, errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, true)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.successful"]
    }

    fn field_value(&self, object: &Value, _field: &str) -> String {
        object.at("status").int("succeeded").to_string()
    }
}

impl Strategy for CronJob {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        spec.fill_text("concurrencyPolicy", "Allow");
        spec.fill("suspend", false);
        spec.fill("successfulJobsHistoryLimit", 3);
        spec.fill("failedJobsHistoryLimit", 1);
        let job_spec = spec.struct_mut("jobTemplate").struct_mut("spec");
        default_policies(job_spec);
        pod::defaults::template(job_spec.struct_mut("template"));
    }

    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["spec", "jobTemplate", "spec", "template"]);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["spec", "jobTemplate", "spec", "template"]);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        cron_spec(object, None, errors);
        let name = object.at("metadata").text("name");
        if name.len() > 52 {
            let path = Path::new("metadata");
            errors.push(FieldError::invalid(&path.child("name"), name, "must be no more than 52 characters"));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        cron_spec(object, Some(old), errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some_and(|old| old.at("spec") == object.at("spec")) {
            return Vec::new();
        }
        let mut out = Vec::new();
        if old.is_none() {
            out.extend(workload::name_warning(object));
        }
        let spec = Path::new("spec");
        let job = spec.child("jobTemplate");
        let job_spec = job.child("spec");
        let template = object.below(&["spec", "jobTemplate", "spec", "template"]);
        out.extend(pod::warnings::warnings(template, &job_spec.child("template")));
        if !object.at("spec").text("schedule").is_empty() && object.at("spec").text("schedule").contains("TZ") {
            out.push(format!("cannot use TZ or CRON_TZ in {}, use timeZone instead", spec.child("schedule")));
        }
        out
    }
}

fn default_policies(job_spec: &mut Value) {
    if let Some(policy) = job_spec.child_mut("podFailurePolicy") {
        for rule in policy.items_mut("rules") {
            for pattern in rule.items_mut("onPodConditions") {
                pattern.fill_text("status", "True");
            }
        }
    }
}

/// A job without labels takes those of its template.
fn template_labels(object: &mut Value) {
    let labels = object.below(&["spec", "template", "metadata", "labels"]).clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) && object.at("metadata").entries("labels").is_empty()
    {
        object.struct_mut("metadata").put("labels", labels);
    }
}

/// Labels that only this job's pods have, and a selector for them.
fn generate_selector(object: &mut Value) {
    let name = object.at("metadata").text("name").to_owned();
    let uid = object.at("metadata").text("uid").to_owned();
    let spec = object.struct_mut("spec");
    let labels = spec.struct_mut("template").struct_mut("metadata").struct_mut("labels");
    for label in NAME_LABELS {
        labels.fill(label, name.as_str());
    }
    for label in UID_LABELS {
        labels.fill(label, uid.as_str());
    }
    spec.struct_mut("selector").struct_mut("matchLabels").fill(SELECTOR_LABEL, uid);
}

fn generated_selector(object: &Value, errors: &mut FieldErrors) {
    let spec = object.at("spec");
    if spec.flag("manualSelector") || !spec.has("selector") {
        return;
    }
    let metadata = object.at("metadata");
    let (name, uid) = (metadata.text("name"), metadata.text("uid"));
    if uid.is_empty() {
        let path = Path::new("metadata");
        errors.push(FieldError::required(&path.child("uid"), ""));
    }
    let path = Path::new("spec");
    let template = path.child("template");
    let template_meta = template.child("metadata");
    let labels_path = template_meta.child("labels");
    let labels = spec.below(&["template", "metadata", "labels"]);
    let expected = [(UID_LABELS[0], uid), (NAME_LABELS[0], name), (UID_LABELS[1], uid), (NAME_LABELS[1], name)];
    for (label, value) in expected {
        match labels.text_opt(label) {
            None => errors.push(FieldError::required(&labels_path.key(label), format!("must be '{value}'"))),
            Some(found) if found != value => {
                let shown = labels.clone();
                errors.push(FieldError::invalid(&labels_path.key(label), shown, format!("must be '{value}'")));
            }
            Some(_) => {}
        }
    }
    let generated: Value = expected
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value.into()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    if Selector::from_object(spec.at("selector")).is_some_and(|selector| !selector.matches(&generated)) {
        let detail = "`selector` not auto-generated";
        errors.push(selector::invalid(spec.at("selector"), &path.child("selector"), detail));
    }
}

fn selected_job(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    job_spec(spec, old.at("spec"), &path, errors);
    let selector_path = path.child("selector");
    let label_selector = spec.at("selector");
    if label_selector.is_null() {
        errors.push(FieldError::required(&selector_path, ""));
    } else {
        selector::validate(label_selector, &selector_path, errors);
    }
    let matches = Selector::from_object(label_selector)
        .is_none_or(|parsed| parsed.matches(spec.below(&["template", "metadata", "labels"])));
    if !matches {
        errors.push(workload::unmatched_labels(spec.at("template"), &path.child("template")));
    }
    let name = object.at("metadata").text("name");
    let completions = spec.int("completions");
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let longest = format!("{name}-{}", completions - 1);
        if !names::label(&longest).is_empty() {
            let path = Path::new("metadata");
            let detail = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
    }
}

fn job_spec(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        values::not_negative_field(spec, field, path, errors);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(&path.child("backoffLimitPerIndex"), detail));
    }
    if let Some(manager) = spec.text_opt("managedBy") {
        managed_by(manager, &path.child("managedBy"), errors);
    }
    completion_mode(spec, path, errors);
    policies::validate(spec, path, errors);
    let template_path = path.child("template");
    pod::template::validate(spec.at("template"), old.at("template"), &template_path, errors);
    let spec_path = template_path.child("spec");
    let restart_path = spec_path.child("restartPolicy");
    match spec.below(&["template", "spec"]).text("restartPolicy") {
        "" | "Always" => {
            errors.push(FieldError::required(&restart_path, r#"valid values: "OnFailure", "Never""#));
        }
        "Never" => {}
        "OnFailure" => {
            if spec.has("podFailurePolicy") {
                let detail = r#"only "Never" is supported when podFailurePolicy is specified"#;
                errors.push(FieldError::invalid(&restart_path, "OnFailure", detail));
            }
        }
        other => errors.push(FieldError::not_supported(&restart_path, other, &["OnFailure", "Never"])),
    }
}

fn managed_by(manager: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    values::domain_prefixed_path(manager, path, errors);
    if manager.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
}

fn completion_mode(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if spec.has("completionMode") {
        values::one_of(spec, "completionMode", &["NonIndexed", "Indexed"], path, errors);
    }
    let mut invalid = |field: &str, detail: String| {
        errors.push(FieldError::invalid(&path.child(field), spec.int(field), detail));
    };
    if spec.text("completionMode") != "Indexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.has(field) {
                invalid(field, "requires indexed completion mode".to_owned());
            }
        }
        return;
    }
    let (parallelism, failed, completions) =
        (spec.int("parallelism"), spec.int("maxFailedIndexes"), spec.int("completions"));
    if parallelism > MANY {
        invalid("parallelism", format!("must be less than or equal to {MANY} when completion mode is Indexed"));
    }
    if spec.has("completions") && failed > completions {
        invalid("maxFailedIndexes", "must be less than or equal to completions".to_owned());
    }
    if failed > MANY {
        invalid("maxFailedIndexes", format!("must be less than or equal to {MANY}"));
    }
    let high = completions > MANY && spec.has("backoffLimitPerIndex");
    let with_high = |limit: i64| {
        format!(
            "must be less than or equal to {limit} when completions are above {MANY} and used with backoff limit per \
             index"
        )
    };
    if high && parallelism > SOME {
        invalid("parallelism", with_high(SOME));
    }
    if high && failed > SOME {
        invalid("maxFailedIndexes", with_high(SOME));
    }
    if high && !spec.has("maxFailedIndexes") {
        let detail = format!("must be specified when completions is above {MANY}");
        errors.push(FieldError::required(&path.child("maxFailedIndexes"), detail));
    }
    if !spec.has("completions") {
        errors.push(FieldError::required(&path.child("completions"), "when completion mode is Indexed"));
    }
}

/// Only an indexed job's completions may change, together with its parallelism.
fn completions_change(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if spec.text("completionMode") != "Indexed" {
        values::immutable(spec, old, "completions", path, errors);
    } else if spec.has("completions")
        && spec.at("completions") != old.at("completions")
        && spec.at("completions") != spec.at("parallelism")
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(&path.child("completions"), spec.int("completions"), detail));
    }
}

/// A job's template stays, but while a job waits to start its pods may still be directed elsewhere or
/// resized.
fn template_change(object: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let template = object.below(&["spec", "template"]);
    let mut before = old.below(&["spec", "template"]).clone();
    let status = old.at("status");
    let suspended = old.at("spec").flag("suspend");
    let condition = status
        .list("conditions")
        .iter()
        .any(|condition| condition.text("type") == "Suspended" && condition.text("status") == "True");
    let idle = suspended && (!status.has("startTime") || condition) && status.int("active") == 0;
    if idle {
        let spec = template.at("spec");
        let affinity = spec.at("affinity").clone();
        let before_spec = before.struct_mut("spec");
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            before_spec.copy_field(field, spec);
        }
        let mut kept = before_spec.at("affinity").clone();
        if affinity.has("nodeAffinity") || kept.has("nodeAffinity") {
            if !kept.is_object() {
                kept = json!({});
            }
            kept.copy_field("nodeAffinity", &affinity);
            before_spec.put("affinity", kept);
        }
        for list in ["containers", "initContainers"] {
            for (container, after) in before_spec.items_mut(list).iter_mut().zip(spec.list(list)) {
                if container.text("name") == after.text("name") {
                    container.copy_field("resources", after);
                }
            }
        }
        let meta = before.struct_mut("metadata");
        meta.copy_field("annotations", template.at("metadata"));
        meta.copy_field("labels", template.at("metadata"));
    }
    if !semantically_equal(template, &before) {
        errors.push(FieldError::invalid(&path.child("template"), template.clone(), values::IMMUTABLE));
    }
}

fn cron_spec(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    let old_spec = old.map(|old| old.at("spec"));
    schedule(spec, old_spec, &path, errors);
    values::not_negative_field(spec, "startingDeadlineSeconds", &path, errors);
    if old_spec.is_none_or(|old| old.at("timeZone") != spec.at("timeZone"))
        && let Some(zone) = spec.text_opt("timeZone")
    {
        time_zone(zone, &path.child("timeZone"), errors);
    }
    values::required_one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
    let template_path = path.child("jobTemplate");
    let job_path = template_path.child("spec");
    let template_spec = spec.below(&["jobTemplate", "spec"]);
    let old_template = old_spec.map_or(&Value::Null, |old| old.below(&["jobTemplate", "spec"]));
    job_spec(template_spec, old_template, &job_path, errors);
    if template_spec.has("selector") {
        let label_selector = template_spec.at("selector");
        errors.push(selector::invalid(
            label_selector,
            &job_path.child("selector"),
            "`selector` will be auto-generated",
        ));
    }
    if template_spec.flag("manualSelector") {
        errors.push(FieldError::not_supported(&job_path.child("manualSelector"), true, &["nil", "false"]));
    }
    values::not_negative_field(spec, "successfulJobsHistoryLimit", &path, errors);
    values::not_negative_field(spec, "failedJobsHistoryLimit", &path, errors);
}

fn schedule(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("schedule");
    let text = spec.text("schedule");
    if text.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    if let Err(why) = cron::parse(text) {
        errors.push(FieldError::invalid(&path, text, why));
    }
    let had_zone = old.is_some_and(|old| old.text("schedule").contains("TZ"));
    if text.contains("TZ") {
        let detail = match (had_zone, spec.has("timeZone")) {
            (true, true) => "cannot use both timeZone field and TZ or CRON_TZ in schedule",
            (true, false) => return,
            (false, _) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        };
        errors.push(FieldError::invalid(&path, text, detail));
    }
}

/// Whether a time zone is known by this very name. The database is part of the program.
fn time_zone(zone: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if zone.is_empty() {
        errors.push(FieldError::invalid(path, zone, "timeZone must be nil or non-empty string"));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(FieldError::invalid(path, zone, detail));
    }
    let known =
        matches!(zone, "UTC" | "Local") || TimeZone::get(zone).is_ok_and(|found| found.iana_name() == Some(zone));
    if !known {
        errors.push(FieldError::invalid(path, zone, format!("unknown time zone {zone}")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    fn job() -> Value {
        json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u-1"}, "spec": {"suspend": true, "template": {
            "spec": {"containers": [{"name": "c", "image": "img:1"}], "restartPolicy": "Never"}}}})
    }

    #[test]
    fn a_job_gets_a_selector_of_its_own() {
        let made = created(&Job, &job());
        let labels = json!({"batch.kubernetes.io/controller-uid": "u-1", "batch.kubernetes.io/job-name": "j",
            "controller-uid": "u-1", "job-name": "j"});
        assert_eq!(made["metadata"]["labels"], labels);
        assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(made["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}));
        let mut spec = made["spec"].clone();
        spec.drop_field("template");
        spec.drop_field("selector");
        assert_eq!(
            spec,
            json!({"parallelism": 1, "completions": 1, "backoffLimit": 6, "manualSelector": false,
                "completionMode": "NonIndexed", "suspend": true, "podReplacementPolicy": "TerminatingOrFailed"})
        );
        assert_eq!(create_errors(&Job, &job()), "[]");
    }

    #[test]
    fn a_jobs_pods_end() {
        let mut always = job();
        always["spec"]["template"]["spec"].drop_field("restartPolicy");
        assert_eq!(
            create_errors(&Job, &always),
            r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#
        );
    }

    #[test]
    fn changed_jobs() {
        let old = created(&Job, &job());
        let mut new = old.clone();
        new["spec"]["completions"] = 5.into();
        assert_eq!(update_errors(&Job, &old, &new), "spec.completions: Invalid value: 5: field is immutable");
        let mut new = old.clone();
        new["spec"]["parallelism"] = 5.into();
        assert_eq!(update_errors(&Job, &old, &new), "[]");
        let mut new = old.clone();
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
        assert_eq!(update_errors(&Job, &old, &new), "[]");
        new["spec"]["template"]["spec"]["containers"][0]["image"] = "other".into();
        assert!(update_errors(&Job, &old, &new).starts_with("spec.template: Invalid value:"));
    }

    #[test]
    fn the_policies_of_a_job_stay() {
        let old = created(&Job, &job());
        let mut new = old.clone();
        new["spec"]["podReplacementPolicy"] = "Failed".into();
        new["spec"]["podFailurePolicy"] = json!({"rules": []});
        let immutable = |shown: &str| format!("spec.podFailurePolicy: Invalid value: {shown}: field is immutable");
        assert_eq!(update_errors(&Job, &old, &new), immutable(r#"{"Rules":[]}"#));
        assert_eq!(update_errors(&Job, &new, &new), "[]");
        assert_eq!(update_errors(&Job, &new, &old), immutable("null"));
        new["spec"]["podFailurePolicy"] = json!({"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}}]});
        assert_eq!(
            update_errors(&Job, &old, &new),
            immutable(
                r#"{"Rules":[{"Action":"Ignore","OnExitCodes":null,"OnPodConditions":[{"Type":"DisruptionTarget","Status":"True"}]},{"Action":"FailJob","OnExitCodes":{"ContainerName":null,"Operator":"In","Values":[1,2]},"OnPodConditions":null}]}"#
            )
        );
        // Which policy it is does not depend on what its rules say.
        let mut new = old.clone();
        new["spec"]["successPolicy"] = json!({"rules": [{}]});
        let shown = r#"{"Rules":[{"SucceededIndexes":null,"SucceededCount":null}]}"#;
        let errors = update_errors(&Job, &old, &new);
        assert!(
            errors.contains(&format!("spec.successPolicy: Invalid value: {shown}: field is immutable")),
            "{errors}"
        );
    }

    #[test]
    fn cron_jobs() {
        let cron_job = |schedule: &str| {
            json!({"metadata": {"name": "cj"}, "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": {
                "spec": {"containers": [{"name": "c", "image": "img:1"}], "restartPolicy": "OnFailure"}}}}}})
        };
        assert_eq!(create_errors(&CronJob, &cron_job("0 0 1 1 *")), "[]");
        assert_eq!(
            create_errors(&CronJob, &cron_job("nonsense")),
            "spec.schedule: Invalid value: \"nonsense\": expected exactly 5 fields, found 1: [nonsense]"
        );
        let made = created(&CronJob, &cron_job("0 0 1 1 *"));
        assert_eq!(made["spec"]["concurrencyPolicy"], "Allow");
        assert_eq!(made["spec"]["failedJobsHistoryLimit"], 1);
        assert!(made["spec"]["jobTemplate"]["spec"].get("parallelism").is_none());
    }
}
