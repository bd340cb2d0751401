//! Tests for conversions: an object that is converted to another version and back must not change.
//!
//! One sample stands for many: every value in it is changed, emptied and left out in turn, with labels and annotations
//! and without.

use serde_json::Value;

use super::{Convert, ConvertError};
use crate::object::Object;

/// What a conversion there and back loses.
///
/// ```
/// use windlass::webhook::RoundTripError;
///
/// fn lost(error: &RoundTripError) -> String {
///     match error {
///         RoundTripError::Changed { changes, .. } => changes.to_string(),
///         other => other.to_string(),
///     }
/// }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RoundTripError {
    /// The sample itself cannot be converted.
    #[error("cannot be converted: {error}; sample: {sample}")]
    Refused {
        /// What was converted.
        sample: Value,
        /// Why not.
        #[source]
        error: ConvertError,
    },
    /// Something is different afterwards.
    #[error("changed on the way: {changes}; sample: {sample}; after: {after}")]
    Changed {
        /// What was converted.
        sample: Value,
        /// What came back.
        after: Value,
        /// The difference, as a JSON patch.
        changes: Value,
    },
    /// The sample cannot be written as JSON or read again.
    #[error("cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
}

crate::report::debug_as_message!(RoundTripError);

/// Checks that a spoke does not change when it is converted to the hub and back. Returns how many objects were checked:
///
/// - the sample with one more label and one more annotation, both `round: trip`, which the conversion must carry over;
/// - the sample without any labels and annotations, as a conversion that keeps fields in an annotation must also work
///   for an object that has none;
/// - both with one value outside of the metadata changed, emptied or left out, for every value, if the result still
///   fits the type.
///
/// Empty labels or annotations are the same as none. A sample that the conversion refuses is an error. Any other object
/// that it refuses is left out, because nothing is lost then. Use samples that fill every field, or generate them with
/// `proptest`; see [`Convert`] for an example.
pub fn round_trip<S, H>(sample: &S) -> Result<usize, RoundTripError>
where
    S: Object + Convert<H>,
{
    check_variations(sample, |spoke: S| S::from_hub(spoke.into_hub()?))
}

/// Checks that the hub does not change when it is converted to a spoke and back, with the objects that [`round_trip`]
/// tries for the other direction. Both must hold: objects are stored in one version and read in the other.
///
/// ```
/// # use windlass::webhook::{Convert, ConvertError};
/// # mod v1 {
/// #   use {kube::CustomResource, schemars::JsonSchema, serde::{Deserialize, Serialize}};
/// #   #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #   #[kube(group = "example.com", version = "v1", kind = "Host", namespaced)]
/// #   pub struct HostSpec { pub host: String }
/// # }
/// # mod v2 {
/// #   use {kube::CustomResource, schemars::JsonSchema, serde::{Deserialize, Serialize}};
/// #   #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #   #[kube(group = "example.com", version = "v2", kind = "Host", namespaced)]
/// #   pub struct HostSpec { pub host: String, pub port: u16 }
/// # }
/// # impl Convert<v2::Host> for v1::Host {
/// #     fn into_hub(self) -> Result<v2::Host, ConvertError> {
/// #         Ok(v2::Host { metadata: self.metadata, spec: v2::HostSpec { host: self.spec.host, port: 80 } })
/// #     }
/// #     fn from_hub(hub: v2::Host) -> Result<Self, ConvertError> {
/// #         Ok(v1::Host { metadata: hub.metadata, spec: v1::HostSpec { host: hub.spec.host } })
/// #     }
/// # }
/// use windlass::webhook::hub_round_trip;
///
/// // Version 1 has no port, and its conversion does not keep it anywhere.
/// let host = v2::Host::new("a", v2::HostSpec { host: "a".into(), port: 443 });
/// let error = hub_round_trip::<v1::Host, v2::Host>(&host).unwrap_err();
/// assert!(error.to_string().contains("/spec/port"));
/// ```
pub fn hub_round_trip<S, H>(sample: &H) -> Result<usize, RoundTripError>
where
    S: Convert<H>,
    H: Object,
{
    check_variations(sample, |hub: H| S::from_hub(hub)?.into_hub())
}

fn check_variations<K: Object>(
    sample: &K,
    travel: impl Fn(K) -> Result<K, ConvertError>,
) -> Result<usize, RoundTripError> {
    let mut marked = sample.clone();
    // What every conversion must carry over, whether the sample has some or not.
    marked.meta_mut().labels.get_or_insert_default().insert("round".to_owned(), "trip".to_owned());
    marked.meta_mut().annotations.get_or_insert_default().insert("round".to_owned(), "trip".to_owned());
    let mut bare = sample.clone();
    bare.meta_mut().labels = None;
    bare.meta_mut().annotations = None;
    let bare = serde_json::to_value(bare)?;
    let mut others = variations(&serde_json::to_value(&marked)?);
    let variations_of_bare = variations(&bare);
    others.push(bare);
    others.extend(variations_of_bare);

    check_one(marked, &travel)?;
    let mut checked = 1;
    for other in others {
        let Ok(object) = K::deserialize(&other) else { continue };
        match check_one(object, &travel) {
            Ok(()) => checked += 1,
            Err(RoundTripError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(checked)
}

fn check_one<K: Object>(object: K, travel: impl Fn(K) -> Result<K, ConvertError>) -> Result<(), RoundTripError> {
    let sample = without_empty_maps(serde_json::to_value(&object)?);
    let after = match travel(object) {
        Ok(after) => without_empty_maps(serde_json::to_value(after)?),
        Err(error) => return Err(RoundTripError::Refused { sample, error }),
    };
    let changes = json_patch::diff(&sample, &after);
    if changes.0.is_empty() {
        return Ok(());
    }
    Err(RoundTripError::Changed { changes: serde_json::to_value(changes)?, sample, after })
}

/// Takes empty labels and annotations away: a conversion that removes its annotation may leave an empty map, which API
/// servers do not store.
fn without_empty_maps(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["labels", "annotations"] {
            if metadata.get(field).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
                metadata.remove(field);
            }
        }
    }
    object
}

/// The object with one value changed, emptied or left out, for every value outside its metadata.
fn variations(object: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    let Some(fields) = object.as_object() else { return all };
    for (field, value) in fields {
        if matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        for varied in vary(value) {
            let mut object = object.clone();
            match varied {
                Some(value) => object[field.as_str()] = value,
                None => drop(object.as_object_mut().map(|fields| fields.remove(field))),
            }
            all.push(object);
        }
    }
    all
}

/// Other values in place of one; `None` leaves it out.
fn vary(value: &Value) -> Vec<Option<Value>> {
    let mut all = vec![None];
    match value {
        Value::Null => {}
        Value::Bool(value) => all.push(Some((!value).into())),
        Value::Number(number) => {
            all.push(Some(0.into()));
            all.extend(number.as_i64().and_then(|number| number.checked_add(1)).map(|number| Some(number.into())));
            all.extend(number.as_f64().filter(|_| number.is_f64()).map(|number| Some((number / 2.0).into())));
        }
        Value::String(text) => {
            all.push(Some("".into()));
            all.push(Some(format!("{text}~").into()));
        }
        Value::Array(items) => {
            all.push(Some(Value::Array(Vec::new())));
            if let Some(first) = items.first() {
                let doubled = items.iter().chain([first]).cloned().collect();
                all.push(Some(Value::Array(doubled)));
            }
            for (index, item) in items.iter().enumerate() {
                for varied in vary(item) {
                    let mut items = items.clone();
                    match varied {
                        Some(value) => items[index] = value,
                        None => drop(items.remove(index)),
                    }
                    all.push(Some(Value::Array(items)));
                }
            }
        }
        Value::Object(fields) => {
            all.push(Some(Value::Object(serde_json::Map::new())));
            for (field, value) in fields {
                for varied in vary(value) {
                    let mut fields = fields.clone();
                    match varied {
                        Some(value) => drop(fields.insert(field.clone(), value)),
                        None => drop(fields.remove(field)),
                    }
                    all.push(Some(Value::Object(fields)));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    mod v1 {
        #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[kube(group = "example.com", version = "v1", kind = "Host", namespaced, schema = "disabled")]
        pub(super) struct HostSpec {
            pub(super) host: String,
        }
    }

    mod v2 {
        #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[kube(group = "example.com", version = "v2", kind = "Host", namespaced, schema = "disabled")]
        pub(super) struct HostSpec {
            pub(super) host: String,
            pub(super) port: u16,
        }
    }

    const PORT: &str = "example.com/port";

    fn into_hub(spoke: v1::Host) -> Result<v2::Host, ConvertError> {
        let mut metadata = spoke.metadata;
        let port = metadata.annotations.as_mut().and_then(|annotations| annotations.remove(PORT));
        let port = port.map_or(Ok(80), |port| port.parse())?;
        Ok(v2::Host { metadata, spec: v2::HostSpec { host: spoke.spec.host, port } })
    }

    fn keep_port(hub: v2::Host, keep: fn(&mut Option<BTreeMap<String, String>>, String)) -> v1::Host {
        let mut metadata = hub.metadata;
        if hub.spec.port != 80 {
            keep(&mut metadata.annotations, hub.spec.port.to_string());
        }
        v1::Host { metadata, spec: v1::HostSpec { host: hub.spec.host } }
    }

    impl Convert<v2::Host> for v1::Host {
        fn into_hub(self) -> Result<v2::Host, ConvertError> {
            into_hub(self)
        }

        fn from_hub(hub: v2::Host) -> Result<Self, ConvertError> {
            Ok(keep_port(hub, |annotations, port| {
                annotations.get_or_insert_default().insert(PORT.to_owned(), port);
            }))
        }
    }

    /// Keeps the port only beside other annotations.
    struct Forgetful(v1::Host);

    impl Convert<v2::Host> for Forgetful {
        fn into_hub(self) -> Result<v2::Host, ConvertError> {
            into_hub(self.0)
        }

        fn from_hub(hub: v2::Host) -> Result<Self, ConvertError> {
            Ok(Self(keep_port(hub, |annotations, port| {
                if let Some(annotations) = annotations {
                    annotations.insert(PORT.to_owned(), port);
                }
            })))
        }
    }

    #[test]
    fn samples_are_also_tried_without_annotations() {
        let host = v2::Host::new("a", v2::HostSpec { host: "a".to_owned(), port: 443 });
        let error = hub_round_trip::<Forgetful, v2::Host>(&host).expect_err("the port is lost");
        assert!(error.to_string().contains("/spec/port"), "{error}");
        hub_round_trip::<v1::Host, v2::Host>(&host).expect("nothing is lost");
    }
}
