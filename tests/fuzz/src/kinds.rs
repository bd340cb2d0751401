//! What there is to send: valid objects of all kinds, and what is known about their kinds.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;
use windlass_api::codec::yaml;
use windlass_api::schema::{Schema, builtin};
use windlass_kinds::resource::builtins;

/// The namespace of everything that has one.
pub(crate) const NAMESPACE: &str = "fuzz";

/// A kind, and valid objects of it.
#[allow(clippy::struct_field_names)]
pub(crate) struct Kind {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    pub(crate) prefix: String,
    pub(crate) api_version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    pub(crate) verbs: BTreeSet<String>,
    /// Names of subresources, with their verbs.
    pub(crate) subresources: Vec<(String, Vec<String>)>,
    pub(crate) schema: Option<&'static Schema>,
    pub(crate) objects: Vec<Value>,
}

impl Kind {
    /// The path of all objects of the namespace, or of the cluster.
    pub(crate) fn collection(&self) -> String {
        if self.namespaced {
            format!("{}/namespaces/{NAMESPACE}/{}", self.prefix, self.plural)
        } else {
            format!("{}/{}", self.prefix, self.plural)
        }
    }

    pub(crate) fn serves(&self, verb: &str) -> bool {
        self.verbs.contains(verb)
    }
}

/// Everything that requests are made of.
pub(crate) struct Material {
    pub(crate) kinds: Vec<Kind>,
    /// CustomResourceDefinitions that are there from the start.
    pub(crate) definitions: Vec<Value>,
    /// What valid objects have in fields of a name.
    pub(crate) values: BTreeMap<String, Vec<Value>>,
}

impl Material {
    pub(crate) fn read() -> Result<Self> {
        let definitions = documents(include_str!("../definitions.yaml"))?;
        let mut kinds: Vec<Kind> = builtins().iter().map(built_in).collect();
        for definition in &definitions {
            kinds.extend(custom(definition)?);
        }
        let mut values = BTreeMap::new();
        for object in documents(include_str!("../objects.yaml"))? {
            let (api_version, name) = (text(&object, "apiVersion")?, text(&object, "kind")?);
            let kind = kinds.iter_mut().find(|kind| kind.api_version == api_version && kind.kind == name);
            let kind = kind.with_context(|| format!("objects.yaml has an unknown kind: {api_version} {name}"))?;
            collect(&object, &mut values);
            kind.objects.push(object);
        }
        // ComponentStatuses are computed: there is nothing to send.
        let missing: Vec<&str> = kinds
            .iter()
            .filter(|kind| kind.serves("create") && kind.objects.is_empty())
            .map(|kind| kind.kind.as_str())
            .collect();
        anyhow::ensure!(missing.is_empty(), "objects.yaml has no object of {}", missing.join(", "));
        Ok(Self { kinds, definitions, values })
    }
}

fn documents(text: &str) -> Result<Vec<Value>> {
    let parse =
        |text: &str| yaml::parse(text.as_bytes()).map(|parsed| parsed.value).map_err(|why| anyhow!("{why}: {text}"));
    text.split("\n---\n").map(parse).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("no {field}: {value}"))
}

fn built_in(resource: &windlass_kinds::resource::Resource) -> Kind {
    let subresources = resource.subresources.iter();
    Kind {
        prefix: prefix(&resource.group, &resource.version),
        api_version: resource.api_version(),
        plural: resource.plural.to_string(),
        kind: resource.kind.to_string(),
        namespaced: resource.namespaced,
        verbs: resource.verbs.iter().map(ToString::to_string).collect(),
        subresources: subresources
            .map(|s| (s.name.to_string(), s.verbs.iter().map(ToString::to_string).collect()))
            .collect(),
        schema: builtin::by_kind(&resource.group, &resource.version, &resource.kind).map(builtin::definition),
        objects: Vec::new(),
    }
}

fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

fn custom(definition: &Value) -> Result<Vec<Kind>> {
    let spec = &definition["spec"];
    let (group, names) = (text(spec, "group")?, &spec["names"]);
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let mut kinds = Vec::new();
    for version in spec["versions"].as_array().into_iter().flatten() {
        let name = text(version, "name")?;
        let subresources = version["subresources"].as_object().into_iter().flatten();
        kinds.push(Kind {
            prefix: prefix(group, name),
            api_version: format!("{group}/{name}"),
            plural: text(names, "plural")?.to_owned(),
            kind: text(names, "kind")?.to_owned(),
            namespaced: spec["scope"] == "Namespaced",
            verbs: verbs.iter().map(ToString::to_string).collect(),
            subresources: subresources
                .map(|(name, _)| (name.clone(), ["get", "patch", "update"].map(Into::into).to_vec()))
                .collect(),
            schema: None,
            objects: Vec::new(),
        });
    }
    Ok(kinds)
}

/// Keeps what fields have, by their name.
fn collect(value: &Value, values: &mut BTreeMap<String, Vec<Value>>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                collect(value, values);
                let known = values.entry(name.clone()).or_default();
                if !known.contains(value) {
                    known.push(value.clone());
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, values)),
        _ => {}
    }
}
