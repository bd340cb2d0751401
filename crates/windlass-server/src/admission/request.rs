//! What is asked for, in the terms of admission: upstream's `admission.Attributes`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use crate::api::Api;
use crate::audit::Annotations;
use crate::catalog::Served;
use crate::codec::peek;
use crate::context::Context;
use crate::metrics::Waits;
use crate::object;
use crate::options::{DeleteOptions, Propagation, WriteOptions};
use crate::request::Verb;
use crate::status::{Qualified, Status};
use crate::user::User;

/// A write has this long altogether, whatever it calls: upstream's `requestTimeoutUpperBound`.
const LONGEST: Duration = Duration::from_secs(34);

/// What is to be done.
#[derive(Clone, Copy)]
pub(crate) enum Act<'a> {
    /// A new object.
    Create(&'a WriteOptions),
    /// A changed object.
    Update(&'a WriteOptions),
    /// An object goes.
    Delete(&'a DeleteOptions),
    /// A connection to something in the cluster: exec, proxy and the like.
    Connect,
}

impl Act<'_> {
    /// The operation as webhooks name it.
    pub(crate) const fn operation(self) -> &'static str {
        match self {
            Self::Create(_) => "CREATE",
            Self::Update(_) => "UPDATE",
            Self::Delete(_) => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Whether nothing is to be stored.
    pub(crate) fn dry_run(self) -> bool {
        match self {
            Self::Create(options) | Self::Update(options) => options.dry_run,
            Self::Delete(options) => options.dry_run,
            Self::Connect => false,
        }
    }
}

/// A group, a version and a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupVersionKind {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The API version.
    pub version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
}

impl GroupVersionKind {
    /// The kind of objects that a subresource takes; that of the resource itself for most.
    pub(crate) fn of(served: &Served, subresource: &str) -> Self {
        match served.subresource(subresource) {
            Some(s) => {
                let (group, version) = crate::discovery::subresource_group_version(s);
                Self { group: group.into(), version: version.into(), kind: s.kind.clone() }
            }
            None => Self { group: served.group.clone(), version: served.version.clone(), kind: served.kind.clone() },
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({"group": &*self.group, "version": &*self.version, "kind": &*self.kind})
    }
}

/// One request for admission.
pub(crate) struct Request {
    pub api: Arc<Api>,
    pub served: Arc<Served>,
    pub user: User,
    pub operation: &'static str,
    pub subresource: String,
    pub kind: GroupVersionKind,
    /// Whether the objects are of another kind than the resource: a Scale, a Binding.
    pub is_view: bool,
    pub name: String,
    /// The namespace; for a namespace, its own name.
    pub namespace: String,
    pub options: Value,
    pub dry_run: bool,
    /// When the client has waited long enough.
    pub deadline: Instant,
    /// How long it has waited for webhooks.
    pub waits: Waits,
    /// What is added to the event of the request.
    pub annotations: Annotations,
    namespace_labels: OnceCell<Option<Value>>,
}

impl Request {
    /// What `context` asks for. `object` is the new object where there is one.
    pub(crate) fn new(context: &Context, act: Act<'_>, object: Option<&Value>) -> Self {
        let served = Arc::clone(&context.served);
        let subresource = context.subresource().to_owned();
        let kind = GroupVersionKind::of(&served, &subresource);
        let name = match (context.verb, object) {
            // Members of a collection are deleted without being named.
            (Verb::DeleteCollection, _) => String::new(),
            (_, Some(object)) if context.path.name.is_none() => object::name(object).to_owned(),
            _ => context.name().to_owned(),
        };
        let is_namespace = served.group.is_empty() && &*served.plural == "namespaces";
        let elapsed = context.now.duration_until(context.api.now()).unsigned_abs();
        Self {
            api: Arc::clone(&context.api),
            waits: context.waits.clone(),
            annotations: context.annotations.clone(),
            user: context.user.clone(),
            operation: act.operation(),
            is_view: kind.kind != served.kind,
            namespace: if is_namespace { name.clone() } else { context.namespace().to_owned() },
            options: options(context, act),
            dry_run: act.dry_run(),
            deadline: Instant::now() + LONGEST.saturating_sub(elapsed),
            namespace_labels: OnceCell::new(),
            served,
            subresource,
            kind,
            name,
        }
    }

    /// The resource as messages name it.
    pub(crate) fn qualified(&self) -> Qualified<'_> {
        self.served.qualified()
    }

    /// Whether this is about namespaces themselves.
    pub(crate) fn is_namespaces(&self) -> bool {
        &*self.served.plural == "namespaces"
    }

    /// The labels of the namespace, read once; 404 if it is gone.
    pub(crate) async fn namespace_labels(&self) -> Result<&Value, Status> {
        let read = || async {
            let key = format!("/registry/namespaces/{}", self.namespace);
            let entry = self.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
            Ok::<_, Status>(entry.map(|entry| {
                let labels = peek::metadata(&entry.value).and_then(|metadata| metadata.field("labels")?.to_value());
                labels.unwrap_or_default()
            }))
        };
        let missing = || Status::not_found(Qualified { group: "", name: "namespaces" }, &self.namespace);
        self.namespace_labels.get_or_try_init(read).await?.as_ref().ok_or_else(missing)
    }
}

/// The options of the request as an object: what webhooks see as `options`.
fn options(context: &Context, act: Act<'_>) -> Value {
    let mut map = Map::new();
    let kind = match act {
        Act::Create(_) => "CreateOptions",
        Act::Update(_) => "UpdateOptions",
        Act::Delete(_) => "DeleteOptions",
        Act::Connect => return Value::Null,
    };
    map.insert("kind".into(), kind.into());
    map.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    match act {
        Act::Create(options) | Act::Update(options) => {
            if let Some(manager) = &options.field_manager {
                map.insert("fieldManager".into(), manager.as_str().into());
            }
            if let Some(validation) = context.query.get("fieldValidation") {
                map.insert("fieldValidation".into(), validation.into());
            }
        }
        Act::Delete(options) => delete_options(options, &mut map),
        Act::Connect => {}
    }
    if act.dry_run() {
        map.insert("dryRun".into(), json!(["All"]));
    }
    Value::Object(map)
}

/// What a client wants of a connection, as an object of the kind that the subresource takes.
pub(super) fn connect_options(context: &Context) -> Value {
    let kind = GroupVersionKind::of(&context.served, context.subresource());
    let mut map = Map::new();
    map.insert("kind".into(), (*kind.kind).into());
    map.insert("apiVersion".into(), (*kind.version).into());
    let query = &context.query;
    match &*kind.kind {
        "PodExecOptions" | "PodAttachOptions" => {
            for field in ["stdin", "stdout", "stderr", "tty"] {
                if query.flag(field) == Some(true) {
                    map.insert(field.into(), true.into());
                }
            }
            if let Some(container) = query.get("container").filter(|container| !container.is_empty()) {
                map.insert("container".into(), container.into());
            }
            if &*kind.kind == "PodExecOptions" {
                let command: Vec<&str> = query.all("command").collect();
                map.insert("command".into(), if command.is_empty() { Value::Null } else { command.into() });
            }
        }
        "PodPortForwardOptions" => {
            let ports: Vec<i64> = query.all("ports").filter_map(|port| port.parse().ok()).collect();
            if !ports.is_empty() {
                map.insert("ports".into(), ports.into());
            }
        }
        _ => {
            let path = context.path.rest.as_deref().unwrap_or_default();
            map.insert("path".into(), format!("/{}", path.trim_start_matches('/')).into());
        }
    }
    map.into()
}

/// The options of a connection after they were changed: unknown fields are gone, and what is there is of its type.
/// They have no schema, since clients send them in the query.
pub(super) fn retyped_options(kind: &str, mut options: Value) -> Result<Value, String> {
    let flags = ["stdin", "stdout", "stderr", "tty"];
    let Some(map) = options.as_object_mut() else { return Err("the patch left no object".to_owned()) };
    map.retain(|name, value| {
        let known = match kind {
            "PodExecOptions" => flags.contains(&name.as_str()) || matches!(name.as_str(), "container" | "command"),
            "PodAttachOptions" => flags.contains(&name.as_str()) || name == "container",
            "PodPortForwardOptions" => name == "ports",
            _ => name == "path",
        };
        matches!(name.as_str(), "kind" | "apiVersion") || (known && !value.is_null())
    });
    for (name, value) in &*map {
        let (fits, wanted) = match name.as_str() {
            "command" => (value.as_array().is_some_and(|list| list.iter().all(Value::is_string)), "[]string"),
            "ports" => (value.as_array().is_some_and(|list| list.iter().all(Value::is_i64)), "[]int32"),
            name if flags.contains(&name) => (value.is_boolean(), "bool"),
            _ => (value.is_string(), "string"),
        };
        if !fits {
            return Err(format!("json: cannot unmarshal into Go struct field {kind}.{name} of type {wanted}"));
        }
    }
    Ok(options)
}

fn delete_options(options: &DeleteOptions, map: &mut Map<String, Value>) {
    if let Some(seconds) = options.grace_seconds {
        map.insert("gracePeriodSeconds".into(), seconds.into());
    }
    let preconditions = [("uid", &options.uid), ("resourceVersion", &options.resource_version)];
    let preconditions: Map<String, Value> = preconditions
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), value.as_deref()?.into())))
        .collect();
    if !preconditions.is_empty() {
        map.insert("preconditions".into(), preconditions.into());
    }
    if options.legacy_no_orphans {
        map.insert("orphanDependents".into(), false.into());
    } else if let Some(propagation) = options.propagation {
        let policy = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        map.insert("propagationPolicy".into(), policy.into());
    }
}
