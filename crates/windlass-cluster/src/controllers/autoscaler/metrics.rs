//! Reads metrics from the APIs that serve them. An API that is not there is reported in upstream's words.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::Selector;
use serde_json::Value;
use windlass::quantity::Amount;

use super::calculate::{Sample, Samples};

/// The window of a metric that says none.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// Why there is no metric.
pub(super) type Missing = String;

/// What pods use of a resource, or one of their containers.
pub(super) async fn resource(
    client: &kube::Client,
    namespace: &str,
    selector: &str,
    resource: &str,
    container: Option<&str>,
) -> Result<Samples, Missing> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}", escape(selector));
    let list = get(client, &path, "pods.metrics.k8s.io")
        .await
        .map_err(|why| format!("unable to fetch metrics from resource metrics API: {why}"))?;
    let items = items(&list).ok_or("no metrics returned from resource metrics API")?;
    Ok(items.iter().filter_map(|pod| usage(pod, resource, container)).collect())
}

/// What a pod uses, if that is known of all its containers.
pub(super) fn usage(pod: &Value, resource: &str, container: Option<&str>) -> Option<(String, Sample)> {
    let containers = pod["containers"].as_array()?;
    let counted = containers.iter().filter(|each| container.is_none_or(|name| each["name"] == name));
    let values: Option<Vec<i64>> = counted.map(|each| milli(&each["usage"][resource])).collect();
    let values = values.filter(|values| !values.is_empty())?;
    Some((pod["metadata"]["name"].as_str()?.to_owned(), sample(pod, values.iter().sum(), window(&pod["window"]))))
}

/// A metric of pods.
pub(super) async fn of_pods(
    client: &kube::Client,
    namespace: &str,
    selector: &str,
    name: &str,
    labels: Option<&LabelSelector>,
) -> Result<Samples, Missing> {
    let mut path = format!(
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/*/{name}?labelSelector={}",
        escape(selector)
    );
    if let Some(labels) = labels {
        let _ = write!(path, "&metricLabelSelector={}", escape(&text(labels)));
    }
    let list = custom(client, &path).await?;
    let items = items(&list).ok_or("no metrics returned from custom metrics API")?;
    let read = |item: &Value| {
        let seconds = item["windowSeconds"].as_i64().map_or(WINDOW, SignedDuration::from_secs);
        Some((item["describedObject"]["name"].as_str()?.to_owned(), sample(item, milli(&item["value"])?, seconds)))
    };
    Ok(items.iter().filter_map(read).collect())
}

/// A metric of one object, which is named by its resource.
pub(super) async fn of_object(
    client: &kube::Client,
    place: &str,
    name: &str,
    labels: Option<&LabelSelector>,
) -> Result<i64, Missing> {
    let mut path = format!("/apis/custom.metrics.k8s.io/v1beta2/{place}/{name}");
    if let Some(labels) = labels {
        let _ = write!(path, "?metricLabelSelector={}", escape(&text(labels)));
    }
    let found = custom(client, &path).await?;
    let first = items(&found).and_then(|items| milli(&items.first()?["value"]));
    first.ok_or_else(|| "unable to fetch metrics from custom metrics API: no value".to_owned())
}

/// A metric from outside the cluster: the sum of all series.
pub(super) async fn external(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    labels: Option<&LabelSelector>,
) -> Result<i64, Missing> {
    let selector = labels.map(text).unwrap_or_default();
    let path = format!(
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}?labelSelector={}",
        escape(&selector)
    );
    let list = get(client, &path, &format!("{name}.external.metrics.k8s.io"))
        .await
        .map_err(|why| format!("unable to fetch metrics from external metrics API: {why}"))?;
    let items = items(&list).ok_or("no metrics returned from external metrics API")?;
    Ok(items.iter().filter_map(|item| milli(&item["value"])).fold(0, i64::saturating_add))
}

async fn custom(client: &kube::Client, path: &str) -> Result<Value, Missing> {
    let why = match request(client, path).await {
        Ok(value) => return Ok(value),
        Err(error) if is_unserved(&error) => "no custom metrics API (custom.metrics.k8s.io) registered".to_owned(),
        Err(error) => message(&error),
    };
    Err(format!("unable to fetch metrics from custom metrics API: {why}"))
}

async fn get(client: &kube::Client, path: &str, resource: &str) -> Result<Value, Missing> {
    request(client, path).await.map_err(|error| {
        if is_unserved(&error) {
            format!("the server could not find the requested resource (get {resource})")
        } else {
            message(&error)
        }
    })
}

/// Whether an API is not served: then the answer is a page, not a Status about an object.
fn is_unserved(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && status.details.is_none())
}

async fn request(client: &kube::Client, path: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// The items of a list that is not empty.
fn items(list: &Value) -> Option<&Vec<Value>> {
    list["items"].as_array().filter(|items| !items.is_empty())
}

fn milli(quantity: &Value) -> Option<i64> {
    Some(quantity.as_str()?.parse::<Amount>().ok()?.milli_value())
}

fn sample(item: &Value, value: i64, window: SignedDuration) -> Sample {
    let at = item["timestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH);
    Sample { value, at, window }
}

/// A duration as Go prints one.
fn window(text: &Value) -> SignedDuration {
    text.as_str().and_then(|text| text.parse().ok()).unwrap_or(WINDOW)
}

fn text(labels: &LabelSelector) -> String {
    Selector::try_from(labels.clone()).map(|selector| selector.to_string()).unwrap_or_default()
}

/// Text as part of a query.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}
