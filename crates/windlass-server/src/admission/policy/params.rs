//! The parameters of a policy: objects that its bindings name, read when a request is judged.

use serde_json::Value;
use windlass_store::Range;

use crate::admission::request::Request;
use crate::catalog::Served;
use crate::status::Status;
use crate::validation::access::Access;
use crate::validation::selector::Selector;
use crate::versions;

/// Why there are no parameters.
pub(super) enum Failure {
    /// The policy and its binding do not go together.
    Configuration(String),
    /// They cannot be read.
    Reading(Box<Status>),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Reading(Box::new(status))
    }
}

/// The parameters to judge a request with. One that is null is none at all.
pub(super) async fn collect(
    request: &Request,
    kind: Option<&(String, String)>,
    reference: &Value,
) -> Result<Vec<Value>, Failure> {
    let (Some((api_version, kind)), false) = (kind, reference.is_null()) else { return Ok(vec![Value::Null]) };
    let refuse = |why: &str| Err(Failure::Configuration(why.to_owned()));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let snapshot = request.api.catalog.snapshot();
    let served = snapshot
        .served()
        .iter()
        .find(|served| &*served.group == group && &*served.version == version && *served.kind == *kind);
    let Some(served) = served else {
        return refuse(&format!("paramKind kind `{api_version}, Kind={kind}` not known"));
    };
    let named = reference.text("namespace");
    let namespace = match (served.namespaced, named) {
        (true, "") if request.namespace.is_empty() => {
            return refuse("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources");
        }
        (true, "") => request.namespace.as_str(),
        (true, named) => named,
        (false, "") => "",
        (false, _) => return refuse("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
    };
    let found = match (reference.text("name"), reference.at("selector")) {
        ("", Value::Null) => return refuse("one of name or selector must be provided"),
        ("", selector) => select(request, served, namespace, selector).await?,
        (name, Value::Null) => get(request, served, namespace, name).await?,
        _ => return refuse("paramRef.name and paramRef.selector are mutually exclusive"),
    };
    if found.is_empty() && reference.text("parameterNotFoundAction") == "Deny" {
        return refuse("no params found for policy binding with `Deny` parameterNotFoundAction");
    }
    Ok(found)
}

async fn get(request: &Request, served: &Served, namespace: &str, name: &str) -> Result<Vec<Value>, Status> {
    let key = served.key(namespace, name);
    match request.api.store.get(key.as_bytes()).await.map_err(Status::internal)? {
        Some(entry) => Ok(vec![versions::to_served(&request.api, served, &entry.value).await?]),
        None => Ok(Vec::new()),
    }
}

async fn select(request: &Request, served: &Served, namespace: &str, selector: &Value) -> Result<Vec<Value>, Failure> {
    let selector = Selector::from_object(selector)
        .ok_or_else(|| Failure::Configuration("the selector of the paramRef is malformed".to_owned()))?;
    let prefix = served.key(namespace, "");
    let range = request.api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    let objects =
        versions::all_to_served(&request.api, served, range.entries.iter().map(|entry| &*entry.value)).await?;
    Ok(objects.into_iter().filter(|object| selector.matches(object.at("metadata").at("labels"))).collect())
}
