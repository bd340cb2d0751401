//! What a job's policies say about failed pods and succeeded indexes.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::Pod;

use super::has_failed;
use super::indexes::Indexes;

const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// What a failure means.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Judgement {
    /// Whether it counts towards the limits.
    pub(super) counts: bool,
    /// Whether its index is lost.
    pub(super) fails_index: bool,
    /// Why the whole job fails, if it does.
    pub(super) fails_job: Option<String>,
}

/// What the failure of a pod means; the first rule that matches says.
pub(super) fn judge_failure(spec: &JobSpec, pod: &Pod) -> Judgement {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    for (at, rule) in rules.enumerate() {
        let Some(cause) = matches(rule, pod) else { continue };
        let action = rule.action.as_str();
        let fails_job = (action == "FailJob").then(|| format!("{cause} matching {action} rule at index {at}"));
        return Judgement { counts: action != "Ignore", fails_index: action == "FailIndex", fails_job };
    }
    Judgement { counts: true, ..Judgement::default() }
}

/// Why a rule matches a pod, in upstream's words.
fn matches(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let (namespace, name) = (pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
    let status = pod.status.as_ref()?;
    if let Some(codes) = &rule.on_exit_codes {
        let containers =
            status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
        let mut failed = containers.filter_map(|status| {
            let code = status.state.as_ref()?.terminated.as_ref()?.exit_code;
            Some((&status.name, code)).filter(|(name, code)| *code != 0 && code_matches(codes, name, *code))
        });
        let (container, code) = failed.next()?;
        return Some(format!("Container {container} for pod {namespace}/{name} failed with exit code {code}"));
    }
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    let condition = status.conditions.iter().flatten().find(|condition| {
        let status = |pattern: &str| condition.status == if pattern.is_empty() { "True" } else { pattern };
        patterns
            .iter()
            .any(|pattern| pattern.type_ == condition.type_ && status(pattern.status.as_deref().unwrap_or_default()))
    })?;
    Some(format!("Pod {namespace}/{name} has condition {}", condition.type_))
}

fn code_matches(codes: &PodFailurePolicyOnExitCodesRequirement, container: &str, code: i32) -> bool {
    let listed = codes.values.contains(&code);
    codes.container_name.as_deref().is_none_or(|name| name == container)
        && match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
}

/// Why the failure of a pod fails the whole job, if one does.
pub(super) fn job_failure(spec: &JobSpec, pods: &[Arc<Pod>]) -> Option<String> {
    spec.pod_failure_policy.as_ref()?;
    let mut failed = pods.iter().filter(|pod| has_failed(pod, spec));
    failed.find_map(|pod| judge_failure(spec, pod).fails_job)
}

fn annotation(pod: &Pod, name: &str) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(name)).and_then(|text| text.parse().ok()).filter(|n| *n >= 0).unwrap_or(0)
}

/// How often a pod's index had failed before it, whether that counted or not.
pub(super) fn failures_of_index(pod: &Pod) -> i32 {
    annotation(pod, FAILURES) + annotation(pod, IGNORED)
}

/// Whether a pod's failure is the one too many for its index.
pub(super) fn index_failed(spec: &JobSpec, pod: &Pod) -> bool {
    let Some(limit) = spec.backoff_limit_per_index else { return false };
    if !has_failed(pod, spec) {
        return false;
    }
    let judgement = judge_failure(spec, pod);
    judgement.fails_index || (judgement.counts && annotation(pod, FAILURES) >= limit)
}

/// The annotations that tell a pod how often its index has failed.
pub(super) fn failure_annotations(spec: &JobSpec, replaced: Option<&Pod>) -> Vec<(String, String)> {
    let (mut failures, mut ignored) = (0, 0);
    if let Some(pod) = replaced {
        (failures, ignored) = (annotation(pod, FAILURES), annotation(pod, IGNORED));
        if judge_failure(spec, pod).counts {
            failures += 1;
        } else {
            ignored += 1;
        }
    }
    let mut annotations = vec![(FAILURES.to_owned(), failures.to_string())];
    if ignored > 0 {
        annotations.push((IGNORED.to_owned(), ignored.to_string()));
    }
    annotations
}

/// Why the indexes that have succeeded are enough, if they are.
pub(super) fn success(spec: &JobSpec, succeeded: &Indexes) -> Option<String> {
    if succeeded.len() == 0 {
        return None;
    }
    let rules = spec.success_policy.iter().flat_map(|policy| &policy.rules);
    for (at, rule) in rules.enumerate() {
        let count = rule.succeeded_count.map(|count| usize::try_from(count).unwrap_or(0));
        let met = match &rule.succeeded_indexes {
            Some(indexes) => {
                let required = Indexes::parse(indexes, spec.completions.unwrap_or(0));
                let common = required.common(succeeded);
                required.len() > 0 && (common == required.len() || count.is_some_and(|count| common >= count))
            }
            None => count.is_some_and(|count| succeeded.len() >= count),
        };
        if met {
            return Some(format!("Matched rules at index {at}"));
        }
    }
    None
}
