//! Tests for conversions: whatever goes to another version must come back as it was.
//!
//! One sample stands for many: every value in it is changed, emptied and left out in turn.

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

/// Checks that a spoke survives the way to the hub and back: for the sample, and for every
/// variation of it with one value changed, emptied or left out that still fits the type. Returns
/// how many were checked.
///
/// A variation that the conversion refuses is not an error: refused is not lost. Use it with
/// samples that fill every field, or with `proptest` on generated ones; see [`Convert`] for an
/// example.
pub fn round_trip<S, H>(sample: &S) -> Result<usize, RoundTripError>
where
    S: Object + Convert<H>,
{
    check_variations(sample, |spoke: S| S::from_hub(spoke.into_hub()?))
}

/// Checks that the hub survives the way to a spoke and back, as [`round_trip`] does for the other
/// way. Both must hold: objects are stored in one version and read in the other.
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
    let mut sample = sample.clone();
    // What every conversion must carry over, whether the sample has some or not.
    sample.meta_mut().labels.get_or_insert_default().insert("round".to_owned(), "trip".to_owned());
    sample.meta_mut().annotations.get_or_insert_default().insert("round".to_owned(), "trip".to_owned());
    let original = serde_json::to_value(&sample)?;
    check_one(sample, &travel)?;
    let mut checked = 1;
    for variation in variations(&original) {
        let Ok(object) = K::deserialize(&variation) else { continue };
        match check_one(object, &travel) {
            Ok(()) => checked += 1,
            Err(RoundTripError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(checked)
}

fn check_one<K: Object>(object: K, travel: impl Fn(K) -> Result<K, ConvertError>) -> Result<(), RoundTripError> {
    let sample = serde_json::to_value(&object)?;
    let after = match travel(object) {
        Ok(after) => serde_json::to_value(after)?,
        Err(error) => return Err(RoundTripError::Refused { sample, error }),
    };
    let changes = json_patch::diff(&sample, &after);
    if changes.0.is_empty() {
        return Ok(());
    }
    Err(RoundTripError::Changed { changes: serde_json::to_value(changes)?, sample, after })
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
