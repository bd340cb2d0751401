//! kwok's kinds as Rust types: what this crate reads of them. Unknown fields are kept by the API server, and not read here.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What becomes of objects that it selects.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[kube(group = "kwok.x-k8s.io", version = "v1alpha1", kind = "Stage", plural = "stages", schema = "disabled")]
#[serde(rename_all = "camelCase", default)]
pub struct StageSpec {
    /// The kind that it is about.
    pub resource_ref: ResourceRef,
    /// Which objects, in which state.
    pub selector: Option<StageSelector>,
    /// How likely it is compared with others that match.
    pub weight: i64,
    /// The same, from the object.
    pub weight_from: Option<ExpressionFrom>,
    /// How long it waits.
    pub delay: Option<StageDelay>,
    /// What it does, in the older form.
    pub next: Option<StageNext>,
    /// Whether the next stage follows without waiting for the API server.
    pub immediate_next_stage: Option<bool>,
    /// What it does.
    pub steps: Vec<StageStep>,
}

/// A kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRef {
    /// The group and version; `v1` if it is not set.
    pub api_group: String,
    /// The kind.
    pub kind: String,
}

/// Which objects a stage is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageSelector {
    /// Labels that an object has.
    pub match_labels: BTreeMap<String, String>,
    /// Annotations that an object has.
    pub match_annotations: BTreeMap<String, String>,
    /// What else holds for it.
    pub match_expressions: Vec<MatchExpression>,
}

/// A condition of a selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchExpression {
    /// In CEL: a boolean about `self`.
    pub cel: Option<ExpressionCel>,
    /// In jq.
    pub jq: Option<SelectorJq>,
    /// The query, in the older form.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`, in the older form.
    pub operator: String,
    /// What its results are compared with, in the older form.
    pub values: Vec<String>,
}

/// A condition in jq.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorJq {
    /// The query.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// What its results are compared with.
    pub values: Vec<String>,
}

/// A value that an object has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExpressionFrom {
    /// In CEL, about `self`.
    pub cel: Option<ExpressionCel>,
    /// In jq.
    pub jq: Option<ExpressionJq>,
    /// In jq, in the older form.
    pub expression_from: String,
}

/// An expression in jq.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ExpressionJq {
    /// The query.
    pub expression: String,
}

/// An expression in CEL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ExpressionCel {
    /// The expression.
    pub expression: String,
}

/// How long a stage waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageDelay {
    /// In milliseconds.
    pub duration_milliseconds: Option<i64>,
    /// From the object: a duration, or the time until which it waits.
    pub duration_from: Option<ExpressionFrom>,
    /// The most that it waits: a random time between both is chosen.
    pub jitter_duration_milliseconds: Option<i64>,
    /// The same from the object.
    pub jitter_duration_from: Option<ExpressionFrom>,
}

/// What a stage does, in the older form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageNext {
    /// Reports an event.
    pub event: Option<StageEvent>,
    /// Changes finalizers.
    pub finalizers: Option<StageFinalizers>,
    /// Deletes the object.
    pub delete: bool,
    /// Patches it.
    pub patches: Vec<StagePatch>,
    /// A template for its status.
    pub status_template: String,
    /// The subresource that the status is patched through.
    pub status_subresource: Option<String>,
    /// As whom it is patched.
    pub status_patch_as: Option<Impersonation>,
}

/// One thing that a stage does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageStep {
    /// Reports an event.
    pub event: Option<StageEvent>,
    /// Changes finalizers.
    pub finalizers: Option<StageFinalizers>,
    /// Deletes the object.
    pub delete: bool,
    /// Patches it.
    pub patch: Option<StagePatch>,
    /// Creates or patches another object.
    pub apply: Option<StageApply>,
}

/// An event about an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageEvent {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// A change of finalizers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageFinalizers {
    /// To be added.
    pub add: Vec<FinalizerItem>,
    /// To be removed.
    pub remove: Vec<FinalizerItem>,
    /// Whether all are removed.
    pub empty: bool,
}

/// A finalizer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct FinalizerItem {
    /// Its name.
    pub value: String,
}

/// A patch that is made of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StagePatch {
    /// What is patched; the object itself if it is empty.
    pub subresource: String,
    /// The field that the template is below.
    pub root: String,
    /// The template.
    pub template: String,
    /// `json`, `merge` or `strategic`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// As whom.
    pub impersonation: Option<Impersonation>,
}

/// Another object that is made of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StageApply {
    /// What of it is patched; the object itself if it is empty.
    pub subresource: String,
    /// The template.
    pub template: String,
    /// `apply`, `merge` or `strategic`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// As whom.
    pub impersonation: Option<Impersonation>,
}

/// As whom something is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Impersonation {
    /// The user.
    pub username: String,
}

/// Which pods a kind for the whole cluster is for; all if nothing is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectSelector {
    /// Their namespaces.
    pub match_namespaces: Vec<String>,
    /// Their names.
    pub match_names: Vec<String>,
}

impl ObjectSelector {
    /// Whether a pod is among them.
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        let has = |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
        has(&self.match_namespaces, namespace) && has(&self.match_names, name)
    }
}

macro_rules! kinds {
    ($($doc:literal $spec:ident $kind:literal $plural:literal, $cluster_spec:ident $cluster_kind:literal $cluster_plural:literal, $field:ident: $item:ident;)*) => {$(
        #[doc = $doc]
        #[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
        #[kube(group = "kwok.x-k8s.io", version = "v1alpha1", kind = $kind, plural = $plural, namespaced, schema = "disabled")]
        #[serde(default)]
        pub struct $spec {
            /// For each container or port.
            pub $field: Vec<$item>,
        }

        #[doc = $doc]
        #[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
        #[kube(group = "kwok.x-k8s.io", version = "v1alpha1", kind = $cluster_kind, plural = $cluster_plural, schema = "disabled")]
        #[serde(default)]
        pub struct $cluster_spec {
            /// For which pods.
            pub selector: Option<ObjectSelector>,
            /// For each container or port.
            pub $field: Vec<$item>,
        }
    )*};
}

kinds! {
    "What containers write." LogsSpec "Logs" "logs", ClusterLogsSpec "ClusterLogs" "clusterlogs", logs: Log;
    "How commands are run." ExecSpec "Exec" "execs", ClusterExecSpec "ClusterExec" "clusterexecs", execs: ExecTarget;
    "What attaching shows." AttachSpec "Attach" "attaches", ClusterAttachSpec "ClusterAttach" "clusterattaches", attaches: AttachConfig;
    "Where ports lead to." PortForwardSpec "PortForward" "portforwards", ClusterPortForwardSpec "ClusterPortForward" "clusterportforwards", forwards: Forward;
    "What containers use." ResourceUsageSpec "ResourceUsage" "resourceusages", ClusterResourceUsageSpec "ClusterResourceUsage" "clusterresourceusages", usages: ResourceUsageContainer;
}

/// What a simulated node measures.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[kube(group = "kwok.x-k8s.io", version = "v1alpha1", kind = "Metric", plural = "metrics", schema = "disabled")]
#[serde(default)]
pub struct MetricSpec {
    /// Where the node serves it: a path below `/metrics`, with `{nodeName}` for the node.
    pub path: String,
    /// What is measured.
    pub metrics: Vec<MetricConfig>,
}

/// One metric.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct MetricConfig {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Labels of its samples.
    pub labels: Vec<MetricLabel>,
    /// The value of a counter or a gauge, in CEL.
    pub value: String,
    /// The buckets of a histogram.
    pub buckets: Vec<MetricBucket>,
    /// What there is a sample for: the `node`, each `pod` or each `container`.
    pub dimension: String,
}

/// A label of a metric.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct MetricLabel {
    /// Its name.
    pub name: String,
    /// Its value, in CEL.
    pub value: String,
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct MetricBucket {
    /// Its upper bound.
    pub le: f64,
    /// How many are in it, in CEL.
    pub value: String,
    /// Whether it is not shown, and only counts in the next one.
    pub hidden: bool,
}

/// What some containers use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ResourceUsageContainer {
    /// Which; all others if there are none.
    pub containers: Vec<String>,
    /// How much, by the names of resources.
    pub usage: BTreeMap<String, ResourceUsageValue>,
}

/// How much is used of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ResourceUsageValue {
    /// A quantity.
    pub value: Option<serde_json::Value>,
    /// In CEL, about `node`, `pod` and `container`.
    pub expression: Option<String>,
}

/// What some containers write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Log {
    /// Which; all others if there are none.
    pub containers: Vec<String>,
    /// The file with it, in CRI format or plain lines.
    pub logs_file: Option<String>,
    /// The file for `--previous`.
    pub previous_logs_file: Option<String>,
    /// Whether what is added to the file follows.
    pub follow: Option<bool>,
}

/// How commands are run in some containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ExecTarget {
    /// Which; all others if there are none.
    pub containers: Vec<String>,
    /// On the host.
    pub local: Option<ExecLocal>,
}

/// How a command is run on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecLocal {
    /// In which directory.
    pub work_dir: String,
    /// With which variables.
    pub envs: Vec<EnvVar>,
    /// As whom.
    pub security_context: Option<SecurityContext>,
}

/// A variable of the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// As whom a command is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContext {
    /// The user's number.
    pub run_as_user: Option<u32>,
    /// The group's number.
    pub run_as_group: Option<u32>,
}

/// What attaching to some containers shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachConfig {
    /// Which; all others if there are none.
    pub containers: Vec<String>,
    /// The file with it.
    pub logs_file: Option<String>,
}

/// Where some ports lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Forward {
    /// Which; all others if there are none.
    pub ports: Vec<u16>,
    /// To an address.
    pub target: Option<ForwardTarget>,
    /// To a program's standard input and output.
    pub command: Vec<String>,
}

/// An address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ForwardTarget {
    /// The port.
    pub port: u16,
    /// The host.
    pub address: String,
}
