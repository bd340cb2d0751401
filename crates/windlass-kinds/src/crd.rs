//! Custom resources: what a CustomResourceDefinition says about a kind, and how its objects behave.
//!
//! ```text
//! CRD written ▸ defaults ▸ validation ▸ stored ▸ lifecycle::status ▸ lifecycle::serve ▸ catalog
//! object written ▸ CustomVersion::decode ▸ default ▸ prepare ▸ validate (its Strategy) ▸ CustomKind::to_storage
//! object read ▸ CustomKind::from_storage
//! ```
//!
//! Everything here is pure: objects are JSON values, time is passed in, and what needs other objects
//! (the names other CRDs have) or the network (conversion webhooks) is the caller's business.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use windlass_api::codec::write;
use windlass_api::resource::compare_versions;
use windlass_cel::growth;

use crate::schema::{Schema, default, prune};
use crate::strategy::Strategy;
use crate::validation::access::Access;

mod compiled;
pub mod definition;
mod outline;
pub mod validation;

pub mod lifecycle;
pub mod scale;
mod strategy;

pub use compiled::Schemas;
use compiled::{Compiled, Slot, Source};
use scale::ScalePaths;

/// A kind that a CRD defines, in all its versions.
#[derive(Debug)]
pub struct CustomKind {
    /// The CRD's name, `<plural>.<group>`.
    pub name: Box<str>,
    /// The CRD's uid.
    pub uid: Box<str>,
    /// The API group.
    pub group: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Every version, served or not.
    pub versions: Vec<CustomVersion>,
    /// How objects get from one version to another.
    pub conversion: Conversion,
    /// Whether unknown fields of all objects stay (`spec.preserveUnknownFields`, from v1beta1 days).
    pub preserve_unknown: bool,
    /// Whether the CRD is being deleted; nothing may be created then.
    pub terminating: bool,
    storage: usize,
    source: Arc<Source>,
}

/// One version of a custom kind. This is also the [`Strategy`] of its objects.
#[derive(Debug)]
pub struct CustomVersion {
    /// The version's name.
    pub name: Box<str>,
    /// `<group>/<version>`.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// Whether clients may use it.
    pub served: bool,
    /// Whether `/status` is a subresource of its own.
    pub status: bool,
    /// Whether a new object, which has no status, shows one: that is filled in with each reading, and follows the
    /// default of the moment.
    pub shows_status: bool,
    /// Where `/scale` finds its numbers, if it is served.
    pub scale: Option<ScalePaths>,
    /// Fields that field selectors may name, e.g. `spec.color`.
    pub selectable_fields: Vec<Box<str>>,
    /// What users of a deprecated version are told.
    pub deprecation: Option<Box<str>>,
    /// Its schema and rules, while they are in use.
    slot: Arc<Slot>,
}

/// How objects get from one version to another.
#[derive(Clone, Debug)]
pub enum Conversion {
    /// Only `apiVersion` changes; what the other version does not know is pruned.
    None,
    /// A webhook converts.
    Webhook(Arc<ConversionWebhook>),
}

/// `spec.conversion.webhook`.
#[derive(Clone, Debug)]
pub struct ConversionWebhook {
    /// `clientConfig`: a URL or a service, and the CA bundle.
    pub client_config: Value,
    /// The ConversionReview versions it understands, in order of preference.
    pub review_versions: Vec<Box<str>>,
}

impl CustomKind {
    /// What a CRD says. `None` if it has no storage version, which validation rules out.
    pub fn new(crd: &Value) -> Option<Self> {
        Self::of_stored(crd, write::to_vec(crd).into(), &Arc::default())
    }

    /// What a stored CRD says. Its schemas are read from `stored` when they are needed, so that `crd` need not have them,
    /// see [`lifecycle::outline`].
    pub fn of_stored(crd: &Value, stored: Bytes, schemas: &Arc<Schemas>) -> Option<Self> {
        let spec = crd.at("spec");
        let group = spec.text("group");
        let kind = spec.at("names").text("kind");
        let written = spec.list("versions");
        let source = Arc::new(Source::new(stored, written.len()));
        let slot = |index| Slot::new(Arc::clone(&source), index, Arc::clone(schemas));
        let versions = written.iter().enumerate();
        let versions =
            versions.map(|(index, version)| CustomVersion::new(group, kind, version, written, slot(index))).collect();
        let storage = written.iter().position(|version| version.flag("storage"))?;
        let metadata = crd.at("metadata");
        Some(Self {
            name: metadata.text("name").into(),
            uid: metadata.text("uid").into(),
            group: group.into(),
            kind: kind.into(),
            namespaced: spec.text("scope") == "Namespaced",
            versions,
            conversion: conversion(spec.at("conversion")),
            preserve_unknown: spec.flag("preserveUnknownFields"),
            terminating: lifecycle::is_true(crd, lifecycle::TERMINATING),
            storage,
            source,
        })
    }

    /// The version called `name`.
    pub fn version(&self, name: &str) -> Option<&CustomVersion> {
        self.versions.iter().find(|version| &*version.name == name)
    }

    /// The version objects are stored in.
    pub fn storage_version(&self) -> &CustomVersion {
        &self.versions[self.storage]
    }

    /// How objects behave when they are written at `version`; at an unknown one, as in storage.
    pub fn strategy(&self, version: &str) -> &dyn Strategy {
        self.version(version).unwrap_or_else(|| self.storage_version())
    }

    /// Goes by another state of the CRD, which has the same spec: the one before need not be kept.
    pub fn replace_stored(&self, stored: Bytes) {
        self.source.replace(stored);
    }

    /// What reading does to an object as it was stored: at the version it was written in, what its
    /// schema no longer knows is dropped and new defaults are filled in. Converting it to the version
    /// asked for is the next step.
    pub fn from_storage(&self, object: &mut Value) {
        let version = self.version(stored_version(object)).unwrap_or_else(|| self.storage_version());
        self.coerce(object, version);
        default::apply(object, &version.schema());
    }

    /// Converts without a webhook: the version's name changes, and what the other version does not
    /// know goes. Defaults are not filled in, as upstream does not either.
    pub fn convert(&self, object: &mut Value, version: &CustomVersion) {
        if object.text("apiVersion") == &*version.api_version {
            return;
        }
        object["apiVersion"] = (*version.api_version).into();
        self.coerce(object, version);
    }

    /// Decodes what a client sent: unknown fields go. Returns their paths.
    pub fn decode(&self, object: &mut Value, version: &CustomVersion) -> Vec<String> {
        let replicas = version.scale.as_ref().map(|scale| scale.floats(object)).unwrap_or_default();
        let unknown = self.coerce(object, version);
        // Numbers of replicas must be written as integers: a float stays one, to be refused.
        for (path, float) in replicas {
            scale::replace(object, &path, float);
        }
        unknown
    }

    fn coerce(&self, object: &mut Value, version: &CustomVersion) -> Vec<String> {
        if self.preserve_unknown { Vec::new() } else { prune::coerce(object, &version.schema()) }
    }
}

impl CustomVersion {
    fn new(group: &str, kind: &str, version: &Value, all: &[Value], slot: Arc<Slot>) -> Self {
        let name = version.text("name");
        let properties = version.at("schema").at("openAPIV3Schema").at("properties");
        let subresources = version.at("subresources");
        let selectable = version.list("selectableFields").iter().map(|field| field.text("jsonPath"));
        Self {
            name: name.into(),
            api_version: format!("{group}/{name}").into(),
            kind: kind.into(),
            served: version.flag("served"),
            shows_status: subresources.has("status") && !properties.at("status").at("default").is_null(),
            status: subresources.has("status"),
            scale: subresources.has("scale").then(|| ScalePaths::new(subresources.at("scale"))),
            selectable_fields: selectable.map(|path| path.strip_prefix('.').unwrap_or(path).into()).collect(),
            deprecation: version.flag("deprecated").then(|| deprecation(group, kind, version, all)),
            slot,
        }
    }
}

impl CustomVersion {
    /// Its schema.
    pub fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.slot.get().schema)
    }

    /// Its schema for one use, such as a document: it is not kept.
    pub fn schema_once(&self) -> Arc<Schema> {
        self.slot.once()
    }

    /// How many bytes its schema is made of if it has yet to be made.
    pub fn unmade(&self) -> Option<usize> {
        self.slot.peek().is_none().then(|| self.slot.weight())
    }

    fn compiled(&self) -> Arc<Compiled> {
        self.slot.get()
    }

    /// Whether checking an object may take long. That is not known before the first one has been checked.
    fn is_long(&self, object: &Value, old: Option<&Value>) -> bool {
        let Some(compiled) = self.slot.peek() else { return true };
        let Some(growth) = compiled.known_growth() else { return true };
        let schema = growth.nanoseconds(growth::size(object) + old.map_or(0, growth::size));
        growth::is_long(schema + compiled.rules().map_or(0.0, |rules| rules.nanoseconds(object, old)))
    }
}

fn conversion(conversion: &Value) -> Conversion {
    if conversion.text("strategy") != "Webhook" {
        return Conversion::None;
    }
    let webhook = conversion.at("webhook");
    let versions = webhook.list("conversionReviewVersions").iter().filter_map(Value::as_str);
    Conversion::Webhook(Arc::new(ConversionWebhook {
        client_config: webhook.at("clientConfig").clone(),
        review_versions: versions.map(Into::into).collect(),
    }))
}

fn stored_version(object: &Value) -> &str {
    let api_version = object.text("apiVersion");
    api_version.rsplit_once('/').map_or(api_version, |(_, version)| version)
}

/// The warning of a deprecated version: the author's, or one that names the best newer version.
fn deprecation(group: &str, kind: &str, version: &Value, all: &[Value]) -> Box<str> {
    if let Some(text) = version.get("deprecationWarning").and_then(Value::as_str) {
        return text.into();
    }
    let name = version.text("name");
    let newer = all
        .iter()
        .filter(|other| other.flag("served") && !other.flag("deprecated"))
        .map(|other| other.text("name"))
        .filter(|other| compare_versions(name, other).is_lt())
        .max_by(|a, b| compare_versions(a, b));
    let warning = format!("{group}/{name} {kind} is deprecated");
    match newer {
        Some(newer) => format!("{warning}; use {group}/{newer} {kind}").into(),
        None => warning.into(),
    }
}

/// Whether there is a CEL rule anywhere in a schema.
fn has_rules(schema: &Schema) -> bool {
    let own = |reference: &crate::schema::SchemaRef| {
        !matches!(reference, crate::schema::SchemaRef::Definition { .. }) && has_rules(reference)
    };
    let rules = schema.rules.as_deref();
    rules.is_some_and(|rules| {
        !rules.validations.is_empty()
            || rules.all_of.iter().any(has_rules)
            || rules.any_of.iter().any(has_rules)
            || rules.one_of.iter().any(has_rules)
            || rules.metadata.as_deref().is_some_and(has_rules)
    }) || schema.properties.values().any(own)
        || schema.additional.as_ref().is_some_and(own)
        || schema.items.as_ref().is_some_and(own)
}

#[cfg(test)]
mod tests;
