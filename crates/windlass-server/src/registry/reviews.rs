//! Resources that are asked rather than stored: reviews, token requests, bindings, component statuses.

mod access;
mod components;
mod identity;
mod token_request;

pub(crate) use token_request::request_token;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::admission::{self, Act};
use crate::authn::User;
use crate::context::{Answer, Context};
use crate::options::WriteOptions;
use crate::registry;
use crate::status::Status;

/// Whether a request is for a resource that is not stored.
pub(crate) fn serves(context: &Context) -> bool {
    let served = &context.served;
    !served.custom && (!served.serves("get") || (served.group.is_empty() && &*served.plural == "componentstatuses"))
}

/// Answers a request for a resource that is not stored.
pub(crate) async fn serve(context: &mut Context) -> Result<Answer, Status> {
    match &*context.served.plural {
        "componentstatuses" => return components::serve(context).await,
        "bindings" => return registry::bind_named(context).await,
        _ => {}
    }
    let options = WriteOptions::parse(&context.query, "CreateOptions", false)?;
    let mut object = registry::decode_object(context, options.field_validation)?;
    registry::place(context, &mut object)?;
    admission::mutate_view(context, Act::Create(&options), &mut object, None).await?;
    let kind = context.served.plural.clone();
    match &*kind {
        "selfsubjectreviews" => {}
        "tokenreviews" => identity::check_token(&object)?,
        "selfsubjectrulesreviews" => access::check_rules(&object)?,
        _ => access::check(context, &object)?,
    }
    admission::validate(context, Act::Create(&options), Some(&object), None).await?;
    let reviewed = match &*kind {
        "selfsubjectreviews" => identity::myself(context),
        "tokenreviews" => identity::token(context, object).await,
        "selfsubjectrulesreviews" => access::my_rules(context, &object),
        _ => access::review(context, object).await,
    };
    let stored = context.unsaved(&reviewed).await?;
    Ok(context.answer(StatusCode::CREATED, stored))
}

/// An object of the kind asked for, with this in it.
fn answer(context: &Context, metadata: Value, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let head = [
        ("kind", Value::from(&*context.served.kind)),
        ("apiVersion", context.served.api_version().into()),
        ("metadata", metadata),
    ];
    Value::Object(head.into_iter().chain(fields).map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A user as reviews show one.
fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), user.groups.as_slice().into());
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}
