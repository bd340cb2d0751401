//! Subresources: views of an object, or actions on it.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Context, connect, eviction, get, patch, scale, update};
use crate::admission::{self, Act};
use crate::codec::Expected;
use crate::object::{self, metadata_mut};
use crate::options::WriteOptions;
use crate::request::Verb;
use crate::status::Status;

/// Carries out a request for a subresource.
pub(super) async fn serve(context: &mut Context) -> Result<Answer, Status> {
    match context.subresource() {
        "scale" => scale::serve(context).await,
        "binding" => bind(context).await,
        "eviction" => eviction::evict(context).await,
        "token" => crate::reviews::request_token(context).await,
        "log" => connect::log(context).await,
        "exec" | "attach" | "portforward" | "proxy" => connect::connect(context).await,
        _ => match context.verb {
            Verb::Get | Verb::List => get::get(context).await,
            Verb::Update => update::replace(context).await,
            Verb::Patch => patch::patch(context).await,
            _ => Err(Status::method_not_allowed()),
        },
    }
}

/// Assigns the pod that the body names to a node: `bindings` is `pods/binding` without the name in the path.
pub(crate) async fn bind_named(context: &mut Context) -> Result<Answer, Status> {
    let binding = super::decode::object(context, crate::options::FieldValidation::Ignore)?;
    let pods = context.api.catalog.snapshot().find("", "v1", "pods").cloned();
    context.served = pods.ok_or_else(Status::no_such_resource)?;
    context.path.resource = "pods".into();
    context.path.name = Some(object::name(&binding).to_owned());
    bind(context).await
}

/// Assigns a pod to a node.
async fn bind(context: &mut Context) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", false)?;
    let expected = Expected { group: "", version: "v1", kind: "Binding", custom: false };
    let mut binding = super::decode::view(context, expected, options.field_validation)?;
    admission::mutate_view(context, Act::Create(&options), &mut binding, None).await?;
    if object::name(&binding) != context.name() {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    admission::validate(context, Act::Create(&options), Some(&binding), None).await?;
    let target = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if target.is_empty() {
        let path = crate::field::Path::new("target");
        let error = crate::field::FieldError::required(&path.child("name"), "");
        let errors = crate::field::FieldErrors(vec![error]);
        return Err(Status::invalid(crate::status::Qualified { group: "", name: "Binding" }, context.name(), &errors));
    }
    let annotations = binding.pointer("/metadata/annotations").cloned();
    let now = object::time(context.now);
    context.path.subresource = Some("binding".into());
    let name = context.name().to_owned();
    let qualified_name = context.served.plural.to_string();
    let change = update::Change {
        transform: |_: &Context, live: &Value| {
            let assigned = live.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
            let qualified = crate::status::Qualified { group: "", name: &qualified_name };
            if object::is_deleting(live) {
                let why = format!("pod {name} is being deleted, cannot be assigned to a host");
                return Err(Status::conflict(qualified, &name, why));
            }
            if !assigned.is_empty() {
                let why = format!("pod {name} is already assigned to node {}", crate::field::quote(assigned));
                return Err(Status::conflict(qualified, &name, why));
            }
            let mut pod = live.clone();
            pod["spec"]["nodeName"] = target.as_str().into();
            if let Some(Value::Object(annotations)) = &annotations {
                let all = metadata_mut(&mut pod).entry("annotations").or_insert_with(|| json!({}));
                for (key, value) in annotations {
                    all[key] = value.clone();
                }
            }
            let scheduled =
                json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now, "lastProbeTime": null});
            let conditions = pod["status"].as_object_mut().map(|s| s.entry("conditions").or_insert_with(|| json!([])));
            if let Some(Value::Array(conditions)) = conditions {
                conditions.retain(|condition| condition["type"] != "PodScheduled");
                conditions.push(scheduled);
            }
            Ok(pod)
        },
        manager: None,
        options: &options,
        uid_is_precondition: false,
        admitted: update::Admitted::Already,
    };
    update::update(context, change).await?;
    Ok(created(context))
}

/// What a successful action is answered with.
pub(super) fn created(context: &mut Context) -> Answer {
    let status = Status::new(StatusCode::CREATED, "", "");
    Answer::Status { status: Box::new(status), warnings: std::mem::take(&mut context.warnings) }
}
