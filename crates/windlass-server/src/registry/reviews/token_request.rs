//! `serviceaccounts/token`: a token for a service account.

use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::{self, Act};
use crate::codec::Expected;
use crate::context::{Answer, Context};
use crate::field::{FieldError, FieldErrors, Path, quote};
use crate::object;
use crate::options::WriteOptions;
use crate::status::{Qualified, Status};
use crate::tokens::{Bound, Grant, ISSUER};
use crate::validation::access::{Access as _, AccessMut as _};
use crate::{registry, stored};

const GROUP: &str = "authentication.k8s.io";
const KIND: Qualified<'_> = Qualified { group: GROUP, name: "TokenRequest" };
/// Tokens are good for at least ten minutes, and an hour if the request does not say.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
const USUAL: i64 = 3600;

/// Makes a token.
pub(crate) async fn request_token(context: &mut Context) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", false)?;
    let expected = Expected { group: GROUP, version: "v1", kind: KIND.name, custom: false };
    let mut request = registry::decode_view(context, expected, options.field_validation)?;
    let spec = request.struct_mut("spec");
    if !spec.has("expirationSeconds") {
        spec.put("expirationSeconds", USUAL);
    }
    if !spec.has("boundObjectRef") {
        spec.put("boundObjectRef", Value::Null);
    }
    admission::mutate_view(context, Act::Create(&options), &mut request, None).await?;
    for (field, wanted, what) in [("name", context.name(), "name"), ("namespace", context.namespace(), "namespace")] {
        let given = object::text(&request, field);
        if !given.is_empty() && given != wanted {
            let detail = format!("must match the service account {what} if specified");
            let metadata = Path::new("metadata");
            let errors = FieldErrors(vec![FieldError::invalid(&metadata.child(field), given, detail)]);
            return Err(Status::invalid(KIND, context.name(), &errors));
        }
    }
    let account = read(context, "serviceaccounts", &context.key(), context.name()).await?;
    let uid = object::text(&account, "uid").to_owned();
    let given = object::text(&request, "uid");
    if !given.is_empty() && given != uid {
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(Status::conflict(KIND, context.name(), why));
    }
    let spec = request.struct_mut("spec");
    if spec.list("audiences").is_empty() {
        spec.put("audiences", json!([ISSUER]));
    }
    let seconds = spec.int("expirationSeconds");
    let metadata = object::metadata_mut(&mut request);
    metadata.insert("name".into(), context.name().into());
    metadata.insert("namespace".into(), context.namespace().into());
    metadata.insert("uid".into(), uid.as_str().into());
    metadata.insert("creationTimestamp".into(), object::time(context.now).into());
    request["status"] = json!({"token": "", "expirationTimestamp": null});
    validate(seconds)?;
    admission::validate(context, Act::Create(&options), Some(&request), None).await?;
    let bound = bound(context, request.at("spec").at("boundObjectRef")).await?;
    let audiences: Vec<String> = request.at("spec").texts("audiences").into_iter().map(str::to_owned).collect();
    let id = object::new_uid();
    let grant = Grant {
        namespace: context.namespace(),
        name: context.name(),
        uid: &uid,
        audiences: &audiences,
        now: context.now,
        seconds,
        bound,
        id: &id,
    };
    let token = grant.sign(&context.api.token_key)?;
    context.annotations.add("authentication.kubernetes.io/issued-credential-id", || format!("JTI={id}"));
    let expires = context.now + jiff::SignedDuration::from_secs(seconds);
    request["status"] = json!({"token": token, "expirationTimestamp": object::time(expires)});
    let stored = context.unsaved(&request).await?;
    Ok(context.answer(StatusCode::CREATED, stored))
}

fn validate(seconds: i64) -> Result<(), Status> {
    let detail = match seconds {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        SHORTEST..=LONGEST => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let spec = Path::new("spec");
    let error = FieldError::invalid(&spec.child("expirationSeconds"), seconds, detail);
    Err(Status::invalid(KIND, "", &FieldErrors(vec![error])))
}

/// What the token is bound to: nothing, or an object that is there.
async fn bound(context: &Context, reference: &Value) -> Result<Vec<Bound>, Status> {
    if reference.is_null() {
        return Ok(Vec::new());
    }
    let (name, kind, api_version) = (reference.text("name"), reference.text("kind"), reference.text("apiVersion"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (claim, plural, prefix) = match (group, kind) {
        ("", "Pod") => ("pod", "pods", format!("/registry/pods/{}/", context.namespace())),
        ("", "Secret") => ("secret", "secrets", format!("/registry/secrets/{}/", context.namespace())),
        ("", "Node") => ("node", "nodes", "/registry/minions/".to_owned()),
        _ => {
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let object = read(context, plural, format!("{prefix}{name}").as_bytes(), name).await?;
    if kind == "Pod" && object.at("spec").text("serviceAccountName") != context.name() {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            quote(context.name())
        )));
    }
    let uid = object::text(&object, "uid").to_owned();
    let wanted = reference.text("uid");
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(Qualified { group, name: kind }, name, why));
    }
    let mut all = vec![Bound { claim, name: name.to_owned(), uid }];
    let node = object.at("spec").text("nodeName");
    if kind == "Pod" && !node.is_empty() {
        let entry = context.api.store.get(format!("/registry/minions/{node}").as_bytes()).await;
        let entry = entry.map_err(Status::internal)?.map(|entry| stored::decode(&entry.value)).transpose()?;
        let uid = entry.map(|node| object::text(&node, "uid").to_owned()).unwrap_or_default();
        all.push(Bound { claim: "node", name: node.to_owned(), uid });
    }
    Ok(all)
}

async fn read(context: &Context, plural: &str, key: &[u8], name: &str) -> Result<Value, Status> {
    match context.api.store.get(key).await.map_err(Status::internal)? {
        Some(entry) => stored::decode(&entry.value),
        None => Err(Status::not_found(Qualified { group: "", name: plural }, name)),
    }
}
