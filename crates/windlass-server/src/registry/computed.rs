//! Kinds whose objects are computed when they are read, such as the usage of pods: nothing of them is stored.
//!
//! Such a kind has the names, the schema and the columns of a CustomResourceDefinition, and is read as a custom
//! resource is, by name or as a list, with selectors. There is nothing to write and nothing to watch.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use windlass_store::Entry;

use crate::answer::ListMeta;
use crate::catalog::{Behaviour, Computed};
use crate::codec::write;
use crate::context::{Answer, Context};
use crate::options::ListOptions;
use crate::registry::Matcher;
use crate::request::Verb;
use crate::resource::Resource;
use crate::status::Status;
use crate::validation::access::{Access as _, AccessMut as _};
use windlass_kinds::crd::lifecycle;

/// The resources of a definition that can only be read. Empty if it defines none.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let mut definition = definition.clone();
    let names = definition.at("spec").at("names").clone();
    definition.put(
        "status",
        json!({
            "acceptedNames": names,
            "conditions": [{"type": "Established", "status": "True"}],
        }),
    );
    let mut resources = lifecycle::resources(&definition);
    for resource in &mut resources {
        resource.verbs = vec!["get".into(), "list".into()];
        resource.subresources.clear();
    }
    resources
}

/// Answers a request for a kind that is computed; `None` for all others.
pub(crate) async fn serve(context: &mut Context) -> Option<Result<Answer, Status>> {
    let Behaviour::Computed(objects) = &context.served.behaviour else { return None };
    let objects = Arc::clone(objects);
    Some(match context.verb {
        Verb::Get => get(context, &*objects).await,
        Verb::List => list(context, &*objects).await,
        _ => Err(Status::method_not_allowed()),
    })
}

async fn get(context: &mut Context, objects: &dyn Computed) -> Result<Answer, Status> {
    let object = objects.get(context.namespace(), context.name()).ok_or_else(|| context.not_found())?;
    let stored = context.unsaved(&object).await?;
    Ok(context.answer(StatusCode::OK, stored))
}

async fn list(context: &Context, objects: &dyn Computed) -> Result<Answer, Status> {
    let options = ListOptions::parse(&context.query, false)?;
    let matcher = Matcher::new(&context.served, options.labels, options.fields)?;
    let entries: Vec<Entry> = objects.list(context.path.namespace.as_deref()).iter().map(entry).collect();
    let matches = matcher.select(&context.api, &entries).await?;
    let entries = entries.into_iter().zip(matches).filter(|(_, matches)| *matches).map(|(entry, _)| entry).collect();
    Ok(Answer::List { entries, meta: ListMeta::default(), warnings: context.warnings.clone() })
}

/// An object in the form that lists are made of.
fn entry(object: &Value) -> Entry {
    Entry { key: Bytes::new(), value: write::to_vec(object).into(), created: 0, modified: 1 }
}
