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

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use windlass_api::resource::compare_versions;
use windlass_cel::growth::{self, Growth};

use crate::rules::Rules;
use crate::schema::structural::Reader;
use crate::schema::{Schema, default, prune, validate};
use crate::strategy::Strategy;
use crate::validation::access::Access;

pub mod definition;
mod outline;
pub mod validation;

pub mod lifecycle;
pub mod scale;
mod strategy;

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
    /// Its schema.
    pub schema: Arc<Schema>,
    /// Whether the schema has CEL rules anywhere.
    pub has_rules: bool,
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
    /// The CEL rules, compiled when they are first needed.
    rules: OnceLock<Option<Rules>>,
    /// How long checking an object against the schema may take, rules apart; found out with the first one.
    growth: OnceLock<Growth>,
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
    /// What a stored CRD says. `None` if it has no storage version, which validation rules
    /// out.
    pub fn new(crd: &Value) -> Option<Self> {
        let spec = crd.at("spec");
        let group = spec.text("group");
        let kind = spec.at("names").text("kind");
        let written = spec.list("versions");
        let mut reader = Reader::new();
        let versions =
            written.iter().map(|version| CustomVersion::new(group, kind, version, written, &mut reader)).collect();
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

    /// What reading does to an object as it was stored: at the version it was written in, what its
    /// schema no longer knows is dropped and new defaults are filled in. Converting it to the version
    /// asked for is the next step.
    pub fn from_storage(&self, object: &mut Value) {
        let version = self.version(stored_version(object)).unwrap_or_else(|| self.storage_version());
        self.coerce(object, version);
        default::apply(object, &version.schema);
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
        if self.preserve_unknown { Vec::new() } else { prune::coerce(object, &version.schema) }
    }
}

impl CustomVersion {
    fn new(group: &str, kind: &str, version: &Value, all: &[Value], reader: &mut Reader) -> Self {
        let name = version.text("name");
        let schema = reader.root(version.at("schema").at("openAPIV3Schema"));
        let subresources = version.at("subresources");
        let selectable = version.list("selectableFields").iter().map(|field| field.text("jsonPath"));
        Self {
            name: name.into(),
            api_version: format!("{group}/{name}").into(),
            kind: kind.into(),
            served: version.flag("served"),
            has_rules: has_rules(&schema),
            shows_status: subresources.has("status")
                && schema.properties.get("status").is_some_and(|status| status.default_value().is_some()),
            schema: Arc::new(schema),
            status: subresources.has("status"),
            scale: subresources.has("scale").then(|| ScalePaths::new(subresources.at("scale"))),
            selectable_fields: selectable.map(|path| path.strip_prefix('.').unwrap_or(path).into()).collect(),
            deprecation: version.flag("deprecated").then(|| deprecation(group, kind, version, all)),
            rules: OnceLock::new(),
            growth: OnceLock::new(),
        }
    }
}

impl CustomVersion {
    /// Whether checking an object may take long. Nobody knows before the first one has been checked.
    fn is_long(&self, object: &Value, old: Option<&Value>) -> bool {
        let Some(growth) = self.growth.get() else { return true };
        let schema = growth.nanoseconds(growth::size(object) + old.map_or(0, growth::size));
        growth::is_long(schema + self.rules().map_or(0.0, |rules| rules.nanoseconds(object, old)))
    }

    /// Finds out how long checking an object may take.
    fn find_growth(&self) {
        // Who knows the one has the other, too.
        self.rules();
        self.growth.get_or_init(|| validate::growth(&self.schema));
    }

    /// The compiled CEL rules, if the schema has any.
    fn rules(&self) -> Option<&Rules> {
        self.rules.get_or_init(|| if self.has_rules { Rules::new(&self.schema) } else { None }).as_ref()
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
