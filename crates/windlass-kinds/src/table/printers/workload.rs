//! Workloads: what runs pods, and what scales and protects them.

use serde_json::Value;

use super::super::access::{View, get, scalar, text};
use super::super::duration;
use super::{labels, quantity, selector, selector_or_none};

pub(super) fn pod_template(view: &View<'_>) -> Vec<Value> {
    let (names, images) = containers(view, "/template");
    vec![view.name(), names, images, labels(view.get("/template/metadata/labels")).into()]
}

pub(super) fn replication_controller(view: &View<'_>) -> Vec<Value> {
    let mut cells = replicas(view);
    cells.push(labels(view.get("/spec/selector")).into());
    cells
}

pub(super) fn replica_set(view: &View<'_>) -> Vec<Value> {
    let mut cells = replicas(view);
    cells.push(selector_or_none(view.get("/spec/selector")).into());
    cells
}

fn replicas(view: &View<'_>) -> Vec<Value> {
    let (names, images) = containers(view, "/spec/template");
    vec![
        view.name(),
        view.int("/spec/replicas").into(),
        view.int("/status/replicas").into(),
        view.int("/status/readyReplicas").into(),
        view.age(),
        names,
        images,
    ]
}

pub(super) fn deployment(view: &View<'_>) -> Vec<Value> {
    let (names, images) = containers(view, "/spec/template");
    vec![
        view.name(),
        ready(view),
        view.int("/status/updatedReplicas").into(),
        view.int("/status/availableReplicas").into(),
        view.age(),
        names,
        images,
        selector(view.get("/spec/selector")).unwrap_or_else(|| "<invalid>".to_owned()).into(),
    ]
}

pub(super) fn stateful_set(view: &View<'_>) -> Vec<Value> {
    let (names, images) = containers(view, "/spec/template");
    vec![view.name(), ready(view), view.age(), names, images]
}

pub(super) fn daemon_set(view: &View<'_>) -> Vec<Value> {
    let (names, images) = containers(view, "/spec/template");
    vec![
        view.name(),
        view.int("/status/desiredNumberScheduled").into(),
        view.int("/status/currentNumberScheduled").into(),
        view.int("/status/numberReady").into(),
        view.int("/status/updatedNumberScheduled").into(),
        view.int("/status/numberAvailable").into(),
        labels(view.get("/spec/template/spec/nodeSelector")).into(),
        view.age(),
        names,
        images,
        selector_or_none(view.get("/spec/selector")).into(),
    ]
}

pub(super) fn controller_revision(view: &View<'_>) -> Vec<Value> {
    let is_controller = |owner: &&Value| get(owner, "/controller") == Some(&Value::Bool(true));
    let controller = view.list("/metadata/ownerReferences").iter().find(is_controller);
    let controller = controller.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let kind = text(owner, "/kind").to_lowercase();
            match text(owner, "/apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), text(owner, "/name")),
                None => format!("{kind}/{}", text(owner, "/name")),
            }
        },
    );
    vec![view.name(), controller.into(), view.int("/revision").into(), view.age()]
}

pub(super) fn job(view: &View<'_>) -> Vec<Value> {
    let succeeded = view.int("/status/succeeded");
    let completions = match (view.get("/spec/completions"), view.int("/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let took = match (view.time("/status/startTime"), view.time("/status/completionTime")) {
        (None, _) => String::new(),
        (started, None) => view.elapsed(started),
        (Some(started), Some(completed)) => duration::since(started, completed),
    };
    let (names, images) = containers(view, "/spec/template");
    vec![
        view.name(),
        job_status(view).into(),
        completions.into(),
        took.into(),
        view.age(),
        names,
        images,
        selector_or_none(view.get("/spec/selector")).into(),
    ]
}

fn job_status(view: &View<'_>) -> &'static str {
    let holds = |ty| {
        let condition = view.condition("/status/conditions", ty);
        condition.is_some_and(|condition| text(condition, "/status") == "True")
    };
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if view.is_deleting() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

pub(super) fn cron_job(view: &View<'_>) -> Vec<Value> {
    let last = match view.get("/status/lastScheduleTime") {
        Some(_) => view.since("/status/lastScheduleTime"),
        None => "<none>".to_owned(),
    };
    let suspend = match view.get("/spec/suspend") {
        Some(Value::Bool(true)) => "True",
        Some(_) => "False",
        None => "<unset>",
    };
    let (names, images) = containers(view, "/spec/jobTemplate/spec/template");
    vec![
        view.name(),
        view.text("/spec/schedule").into(),
        view.get("/spec/timeZone").map_or_else(|| "<none>".into(), Value::clone),
        suspend.into(),
        view.count("/status/active").into(),
        last.into(),
        view.age(),
        names,
        images,
        selector_or_none(view.get("/spec/jobTemplate/spec/selector")).into(),
    ]
}

pub(super) fn pod_disruption_budget(view: &View<'_>) -> Vec<Value> {
    let limit = |pointer| view.get(pointer).map_or_else(|| "N/A".to_owned(), scalar);
    vec![
        view.name(),
        limit("/spec/minAvailable").into(),
        limit("/spec/maxUnavailable").into(),
        view.int("/status/disruptionsAllowed").into(),
        view.age(),
    ]
}

pub(super) fn horizontal_pod_autoscaler(view: &View<'_>) -> Vec<Value> {
    let target = format!("{}/{}", view.text("/spec/scaleTargetRef/kind"), view.text("/spec/scaleTargetRef/name"));
    vec![
        view.name(),
        target.into(),
        metrics(view).into(),
        view.get("/spec/minReplicas").map_or_else(|| "<unset>".to_owned(), scalar).into(),
        view.int("/spec/maxReplicas").into(),
        view.int("/status/currentReplicas").into(),
        view.age(),
    ]
}

/// `current/target` of the first two metrics.
fn metrics(view: &View<'_>) -> String {
    const SHOWN: usize = 2;
    let statuses = view.list("/status/currentMetrics");
    let shown: Vec<String> = view
        .list("/spec/metrics")
        .iter()
        .enumerate()
        .map(|(i, spec)| metric(spec, statuses.get(i)))
        .chain(cpu_percentage(view))
        .collect();
    match shown.len() {
        0 => "<none>".to_owned(),
        n if n > SHOWN => format!("{} + {} more...", shown[..SHOWN].join(", "), n - SHOWN),
        _ => shown.join(", "),
    }
}

/// What `autoscaling/v1` has instead of metrics.
fn cpu_percentage(view: &View<'_>) -> Option<String> {
    let target = view.get("/spec/targetCPUUtilizationPercentage")?;
    let current = view.get("/status/currentCPUUtilizationPercentage");
    Some(format!("cpu: {}/{target}%", current.map_or_else(|| "<unknown>".to_owned(), |now| format!("{now}%"))))
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (field, named) = match text(spec, "/type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let current = |value: &str| status.and_then(|status| get(status, &format!("/{field}/current/{value}")));
    let target = |value: &str| get(spec, &format!("/{field}/target/{value}"));
    let unknown = || "<unknown>".to_owned();
    let has_status = status.is_some_and(|status| get(status, &format!("/{field}")).is_some());
    let name = if named { format!("{}: ", text(spec, &format!("/{field}/name"))) } else { String::new() };
    if field == "pods" || target("averageValue").is_some() {
        let now = match current("averageValue") {
            // A status without a value reads as zero, except where upstream looks.
            None if has_status && (named || field == "pods") => "0".to_owned(),
            now => now.map_or_else(unknown, scalar),
        };
        let suffix = if matches!(field, "external" | "object") { " (avg)" } else { "" };
        return format!("{name}{now}/{}{suffix}", quantity(target("averageValue")));
    }
    if named {
        let percent = |value: &Value| format!("{value}%");
        let now = current("averageUtilization").map_or_else(unknown, percent);
        let wanted = target("averageUtilization").map_or_else(|| "<auto>".to_owned(), percent);
        return format!("{name}{now}/{wanted}");
    }
    let now = if has_status { quantity(current("value")) } else { unknown() };
    format!("{now}/{}", quantity(target("value")))
}

fn ready(view: &View<'_>) -> Value {
    format!("{}/{}", view.int("/status/readyReplicas"), view.int("/spec/replicas")).into()
}

/// The names and images of a template's containers.
fn containers(view: &View<'_>, template: &str) -> (Value, Value) {
    let containers = view.list(&format!("{template}/spec/containers"));
    let join = |pointer| containers.iter().map(|c| text(c, pointer)).collect::<Vec<_>>().join(",");
    (join("/name").into(), join("/image").into())
}
