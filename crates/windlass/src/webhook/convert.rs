//! Versions of a custom resource: every one converts to and from one of them, the hub.
//!
//! With *n* versions there are *n - 1* pairs of conversions to write and to test, instead of one
//! for every two versions. Any version becomes any other by way of the hub.

mod round_trip;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde_json::Value;

use crate::decode;
use crate::object::{Object, TypedObject};

pub use round_trip::{RoundTripError, hub_round_trip, round_trip};

/// Why an object cannot be another version of itself. Any error or text converts into it.
///
/// ```
/// use windlass::webhook::ConvertError;
///
/// fn parse(text: &str) -> Result<u8, ConvertError> {
///     if text == "many" {
///         return Err("how many?".into());
///     }
///     Ok(text.parse()?)
/// }
/// assert_eq!(parse("many").unwrap_err().to_string(), "how many?");
/// ```
pub type ConvertError = Box<dyn std::error::Error + Send + Sync>;

/// A version that converts to and from the hub `H`: a spoke.
///
/// Nothing may be lost on the way there and back: what the other version has no field for goes
/// into an annotation. [`round_trip`] finds what is forgotten. `metadata` must be carried over;
/// of it, only labels and annotations may change, and the library sees to the rest.
///
/// ```
/// use windlass::webhook::{Convert, ConvertError, round_trip};
///
/// mod v1 {
/// #   use {kube::CustomResource, schemars::JsonSchema, serde::{Deserialize, Serialize}};
///     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
///     #[kube(group = "example.com", version = "v1", kind = "Host", namespaced)]
///     pub struct HostSpec { pub host: String }
/// }
/// mod v2 {
/// #   use {kube::CustomResource, schemars::JsonSchema, serde::{Deserialize, Serialize}};
///     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
///     #[kube(group = "example.com", version = "v2", kind = "Host", namespaced)]
///     pub struct HostSpec { pub hostname: String }
/// }
///
/// impl Convert<v2::Host> for v1::Host {
///     fn into_hub(self) -> Result<v2::Host, ConvertError> {
///         Ok(v2::Host { metadata: self.metadata, spec: v2::HostSpec { hostname: self.spec.host } })
///     }
///
///     fn from_hub(hub: v2::Host) -> Result<Self, ConvertError> {
///         Ok(v1::Host { metadata: hub.metadata, spec: v1::HostSpec { host: hub.spec.hostname } })
///     }
/// }
///
/// round_trip::<v1::Host, v2::Host>(&v1::Host::new("a", v1::HostSpec { host: "a.example.com".into() })).unwrap();
/// ```
pub trait Convert<H>: Sized {
    /// This version as the hub.
    fn into_hub(self) -> Result<H, ConvertError>;

    /// The hub as this version.
    fn from_hub(hub: H) -> Result<Self, ConvertError>;
}

/// The versions of one kind, to be [served](super::Webhooks::conversion) at `/convert`.
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
/// #   pub struct HostSpec { pub host: String }
/// # }
/// # impl Convert<v2::Host> for v1::Host {
/// #     fn into_hub(self) -> Result<v2::Host, ConvertError> {
/// #         Ok(v2::Host { metadata: self.metadata, spec: v2::HostSpec { host: self.spec.host } })
/// #     }
/// #     fn from_hub(hub: v2::Host) -> Result<Self, ConvertError> {
/// #         Ok(v1::Host { metadata: hub.metadata, spec: v1::HostSpec { host: hub.spec.host } })
/// #     }
/// # }
/// use windlass::webhook::{Conversion, Webhooks};
///
/// let webhooks = Webhooks::new().conversion(Conversion::<v2::Host>::new().spoke::<v1::Host>());
/// ```
#[must_use = "a conversion does nothing before it is added to `Webhooks`"]
pub struct Conversion<H> {
    subject: Subject,
    versions: BTreeMap<String, Version<H>>,
    hub: PhantomData<fn(H) -> H>,
}

/// What is converted, in the words that definitions and objects use.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) plural: String,
}

impl Subject {
    /// The name of the definition.
    pub(super) fn definition(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

struct Version<H> {
    decode: fn(&Value) -> Result<H, ConvertError>,
    encode: fn(H) -> Result<Value, ConvertError>,
}

impl<H> std::fmt::Debug for Conversion<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversion").field("subject", &self.subject).field("versions", &self.versions.keys()).finish()
    }
}

impl<H: TypedObject> Default for Conversion<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: TypedObject> Conversion<H> {
    /// The hub alone.
    pub fn new() -> Self {
        let dynamic = H::DynamicType::default();
        let subject = Subject {
            group: H::group(&dynamic).into_owned(),
            kind: H::kind(&dynamic).into_owned(),
            plural: H::plural(&dynamic).into_owned(),
        };
        let hub = Version {
            decode: |value| Ok(decode::from_ref::<H>(value)?),
            encode: |hub: H| Ok(serde_json::to_value(hub)?),
        };
        let versions = [(H::api_version(&dynamic).into_owned(), hub)].into();
        Self { subject, versions, hub: PhantomData }
    }

    /// And another version.
    pub fn spoke<S: TypedObject + Convert<H>>(mut self) -> Self {
        let spoke = Version {
            decode: |value| decode::from_ref::<S>(value)?.into_hub(),
            encode: |hub: H| Ok(serde_json::to_value(S::from_hub(hub)?)?),
        };
        self.versions.insert(S::api_version(&S::DynamicType::default()).into_owned(), spoke);
        self
    }
}

/// A conversion of whatever kind.
pub(super) trait Converter: Send + Sync {
    fn subject(&self) -> &Subject;

    /// The object at the version `desired`, a group and version.
    fn convert(&self, object: &Value, desired: &str) -> Result<Value, ConvertError>;
}

impl<H: Object> Converter for Conversion<H> {
    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn convert(&self, object: &Value, desired: &str) -> Result<Value, ConvertError> {
        let version = |name: &str| {
            let found = self.versions.get(name);
            found.ok_or_else(|| format!("there is no version {name:?} of {}", self.subject.kind))
        };
        let current = object["apiVersion"].as_str().unwrap_or_default();
        let (from, to) = (version(current)?, version(desired)?);
        if current == desired {
            return Ok(object.clone());
        }
        let mut converted = (to.encode)((from.decode)(object)?)?;
        let metadata = carry_metadata(&object["metadata"], &converted["metadata"]);
        let fields = converted.as_object_mut().ok_or("the converted object is not an object")?;
        fields.insert("apiVersion".to_owned(), desired.into());
        fields.insert("kind".to_owned(), self.subject.kind.clone().into());
        fields.insert("metadata".to_owned(), metadata);
        Ok(converted)
    }
}

/// The API server refuses conversions that touch anything in the metadata but labels and
/// annotations. Types may round times or leave out fields that they do not know.
fn carry_metadata(sent: &Value, converted: &Value) -> Value {
    let mut metadata = sent.clone();
    if let Some(fields) = metadata.as_object_mut() {
        for field in ["labels", "annotations"] {
            fields.remove(field);
            if let Some(value) = converted.get(field).filter(|value| !value.is_null()) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
    }
    metadata
}

/// The answer to a review's `request`: all of its objects, or why one of them cannot be converted.
pub(super) fn convert_all<'a>(
    request: &Value,
    find: impl Fn(&str, &str) -> Option<&'a dyn Converter>,
) -> Result<Vec<Value>, ConvertError> {
    let desired = request["desiredAPIVersion"].as_str().ok_or("the request has no desiredAPIVersion")?;
    let objects = request["objects"].as_array().ok_or("the request has no objects")?;
    let mut converted = Vec::with_capacity(objects.len());
    for object in objects {
        let group =
            object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let kind = object["kind"].as_str().unwrap_or_default();
        let converter =
            find(group, kind).ok_or_else(|| format!("no conversion is registered for {kind:?} of {group:?}"))?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let result = converter.convert(object, desired);
        converted.push(result.map_err(|error| format!("{kind} {name:?} to {desired}: {error}"))?);
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    mod v1 {
        #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[kube(group = "example.com", version = "v1", kind = "Host", namespaced, schema = "disabled")]
        pub(super) struct HostSpec {
            pub(super) names: Vec<String>,
        }
    }

    mod v2 {
        #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[kube(group = "example.com", version = "v2", kind = "Host", namespaced, schema = "disabled")]
        pub(super) struct HostSpec {
            pub(super) names: Vec<String>,
            pub(super) port: u16,
        }
    }

    impl Convert<v2::Host> for v1::Host {
        fn into_hub(self) -> Result<v2::Host, ConvertError> {
            Ok(v2::Host { metadata: self.metadata, spec: v2::HostSpec { names: self.spec.names, port: 80 } })
        }

        fn from_hub(hub: v2::Host) -> Result<Self, ConvertError> {
            Ok(v1::Host { metadata: hub.metadata, spec: v1::HostSpec { names: hub.spec.names } })
        }
    }

    #[test]
    fn nulls_and_missing_fields_are_converted_as_zero_values() {
        let conversion = Conversion::<v2::Host>::new().spoke::<v1::Host>();
        let host = |version: &str, spec: Value| {
            json!({"apiVersion": format!("example.com/{version}"), "kind": "Host",
                "metadata": {"name": "a", "creationTimestamp": null}, "spec": spec})
        };
        let old = conversion.convert(&host("v1", json!({"names": null})), "example.com/v2").unwrap();
        assert_eq!(old["spec"], json!({"names": [], "port": 80}));
        let new = conversion.convert(&host("v2", json!({"names": [null]})), "example.com/v1").unwrap();
        assert_eq!(new["spec"], json!({"names": [""]}));
        let error = conversion.convert(&host("v2", json!({"port": "hunter2"})), "example.com/v1").unwrap_err();
        assert_eq!(error.to_string(), "spec.port: invalid type: string, expected u16");
    }
}
