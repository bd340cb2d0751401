//! Custom resource definitions on a server: until their kinds are served, and what is lost with them.

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::apply::get;
use super::{POLL, request};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

/// Where a definition is.
pub(crate) fn path(name: &str) -> String {
    format!("{PATH}/{name}")
}

/// Waits until a definition is established.
pub(crate) async fn wait_until_served(client: &kube::Client, name: &str, until: Instant) -> Result<()> {
    loop {
        let definition = get(client, &path(name)).await?.unwrap_or_default();
        match progress(&definition) {
            Progress::Served => return Ok(()),
            Progress::Refused(why) => bail!("its names are not accepted: {why}"),
            Progress::Waiting if Instant::now() >= until => bail!("the kind is not served: not established in time"),
            Progress::Waiting => tokio::time::sleep(POLL).await,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Served,
    Waiting,
    Refused(String),
}

fn progress(definition: &Value) -> Progress {
    let condition = |kind: &str| {
        let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|condition| condition["type"] == kind).find_map(|condition| {
            Some((
                condition["status"].as_str()?.to_owned(),
                condition["message"].as_str().unwrap_or_default().to_owned(),
            ))
        })
    };
    if let Some((status, message)) = condition("NamesAccepted")
        && status == "False"
    {
        return Progress::Refused(message);
    }
    match condition("Established") {
        Some((status, _)) if status == "True" => Progress::Served,
        _ => Progress::Waiting,
    }
}

/// An object of a kind, and what keeps it from going.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub path: String,
    /// `namespace/name`, or the name alone.
    pub name: String,
    pub finalizers: Vec<String>,
    pub deleting: bool,
}

/// How many objects are read at once.
const PAGE: usize = 500;

/// The objects of a definition's kind, of which at most `limit` are read.
pub(crate) async fn instances(client: &kube::Client, definition: &Value, limit: usize) -> Result<Vec<Instance>> {
    let spec = &definition["spec"];
    let served = spec["versions"].as_array().into_iter().flatten();
    let Some(version) = served.filter(|version| version["served"] == true).find_map(|version| version["name"].as_str())
    else {
        return Ok(Vec::new());
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let base = format!("/apis/{group}/{version}");
    let mut found = Vec::new();
    let mut next = String::new();
    loop {
        let mut request = request("GET", &format!("{base}/{plural}?limit={PAGE}{next}"), None)?;
        // Their metadata is all that is asked for, and needs no conversion by an operator that may not run.
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        request.headers_mut().insert("accept", http::HeaderValue::from_static(metadata));
        let list = match client.request::<Value>(request).await {
            Ok(list) => list,
            Err(error) if super::is_missing(&error) => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        found.extend(list["items"].as_array().into_iter().flatten().map(|item| instance(&base, &plural, item)));
        let token = list["metadata"]["continue"].as_str().unwrap_or_default();
        if token.is_empty() || found.len() >= limit {
            return Ok(found);
        }
        next = format!("&continue={token}");
    }
}

fn instance(base: &str, plural: &str, item: &Value) -> Instance {
    let metadata = &item["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let (path, title) = match metadata["namespace"].as_str() {
        Some(namespace) => (format!("{base}/namespaces/{namespace}/{plural}/{name}"), format!("{namespace}/{name}")),
        None => (format!("{base}/{plural}/{name}"), name.to_owned()),
    };
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    Instance {
        path,
        name: title,
        finalizers: finalizers.filter_map(|finalizer| finalizer.as_str().map(str::to_owned)).collect(),
        deleting: metadata["deletionTimestamp"].is_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_served_once_it_is_established() {
        let with = |conditions: Value| json!({"status": {"conditions": conditions}});
        assert_eq!(progress(&json!({})), Progress::Waiting);
        assert_eq!(progress(&with(json!([{"type": "Established", "status": "False"}]))), Progress::Waiting);
        assert_eq!(progress(&with(json!([{"type": "Established", "status": "True"}]))), Progress::Served);
        let refused = json!([{"type": "NamesAccepted", "status": "False", "message": "\"pets\" is taken"}]);
        assert_eq!(progress(&with(refused)), Progress::Refused("\"pets\" is taken".into()));
    }
}
