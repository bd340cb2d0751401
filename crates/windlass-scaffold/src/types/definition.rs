//! `CustomResourceDefinition`s as they are read.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{build, print};

/// Why no types can be made of a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DefinitionError {
    #[error("this is neither YAML nor JSON: {0}")]
    Syntax(String),
    #[error(
        "there is no CustomResourceDefinition in it{}; `kubectl get crd NAME -o yaml` prints one",
        only(.found)
    )]
    None { found: Vec<String> },
    #[error(
        "{name} has apiVersion {version}, which Kubernetes has not served since 1.22, and types are made of \
         apiextensions.k8s.io/v1: apply it to a cluster that has it and use what `kubectl get crd {name} -o yaml` prints, \
         or look for a newer release of its project"
    )]
    Old { name: String, version: String },
    #[error("{name} is not a valid CustomResourceDefinition: {reason}")]
    Invalid { name: String, reason: String },
    #[error(
        "version {version} of {name} has no schema, so nothing is known about its fields; name another version with --version"
    )]
    NoSchema { name: String, version: String },
    #[error("{name} has no version {version}; it has: {}", .known.join(", "))]
    NoSuchVersion { name: String, version: String, known: Vec<String> },
    #[error("there is no definition of a kind {kind}; there are: {}", .known.join(", "))]
    NoSuchKind { kind: String, known: Vec<String> },
    #[error("{name} is in there twice, and the two differ: remove one of them")]
    Twice { name: String },
}

fn only(kinds: &[String]) -> String {
    if kinds.is_empty() { String::new() } else { format!(", only {}", kinds.join(", ")) }
}

/// A definition of a kind.
#[derive(Debug, Clone)]
pub struct Definition {
    /// `certificates.cert-manager.io`.
    pub name: String,
    /// The group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The versions, as the definition orders them.
    pub versions: Vec<DefinitionVersion>,
    pub(super) plural: String,
    pub(super) singular: Option<String>,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) namespaced: bool,
    /// The annotation without which a cluster refuses kinds of Kubernetes' own groups.
    pub(super) approved: Option<String>,
}

/// A version of a kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionVersion {
    /// The name: `v1`.
    pub name: String,
    pub(super) served: bool,
    pub(super) storage: bool,
    #[serde(default)]
    pub(super) deprecated: bool,
    #[serde(default)]
    pub(super) deprecation_warning: Option<String>,
    #[serde(default)]
    schema: Option<Schema>,
    #[serde(default)]
    subresources: Option<Subresources>,
    #[serde(default)]
    additional_printer_columns: Option<Vec<Column>>,
    #[serde(default)]
    selectable_fields: Option<Vec<SelectableField>>,
}

#[derive(Debug, Clone, Deserialize)]
struct Schema {
    #[serde(default, rename = "openAPIV3Schema")]
    open_api: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Subresources {
    #[serde(default)]
    status: Option<Value>,
    #[serde(default)]
    scale: Option<Scale>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "upstream's names")]
pub(super) struct Scale {
    pub(super) spec_replicas_path: String,
    pub(super) status_replicas_path: String,
    #[serde(default)]
    pub(super) label_selector_path: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Column {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) json_path: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) format: Option<String>,
    #[serde(default)]
    pub(super) priority: Option<i32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    json_path: String,
}

impl DefinitionVersion {
    pub(super) fn schema(&self) -> Option<&Map<String, Value>> {
        self.schema.as_ref()?.open_api.as_ref()
    }

    /// Whether something is known about the fields.
    pub fn has_schema(&self) -> bool {
        self.schema().is_some()
    }

    pub(super) fn has_status(&self) -> bool {
        self.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some())
    }

    pub(super) fn scale(&self) -> Option<&Scale> {
        self.subresources.as_ref()?.scale.as_ref()
    }

    pub(super) fn columns(&self) -> &[Column] {
        self.additional_printer_columns.as_deref().unwrap_or_default()
    }

    pub(super) fn selectable(&self) -> impl Iterator<Item = &str> {
        self.selectable_fields.iter().flatten().map(|field| field.json_path.as_str())
    }
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    names: Names,
    scope: String,
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_field_names, reason = "upstream's names")]
struct Names {
    kind: String,
    plural: String,
    #[serde(default)]
    singular: Option<String>,
    #[serde(default)]
    short_names: Option<Vec<String>>,
    #[serde(default)]
    categories: Option<Vec<String>>,
}

impl Definition {
    /// Reads all definitions of a YAML or JSON text, which may have several documents and lists.
    ///
    /// # Errors
    /// If there is none, or one that cannot be used.
    pub fn parse(text: &str) -> Result<Vec<Self>, DefinitionError> {
        let mut definitions = Vec::new();
        let mut others = Vec::new();
        let mut seen: HashMap<String, Value> = HashMap::new();
        for document in documents(text)? {
            Self::collect(document, &mut seen, &mut definitions, &mut others)?;
        }
        if definitions.is_empty() {
            others.sort_unstable();
            others.dedup();
            return Err(DefinitionError::None { found: others });
        }
        Ok(definitions)
    }

    fn collect(
        document: Value,
        seen: &mut HashMap<String, Value>,
        into: &mut Vec<Self>,
        others: &mut Vec<String>,
    ) -> Result<(), DefinitionError> {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "CustomResourceDefinition" => {
                let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                match seen.get(&name) {
                    // Files that were put together have the same definition more than once.
                    Some(other) if *other == document => {}
                    Some(_) if !name.is_empty() => return Err(DefinitionError::Twice { name }),
                    _ => {
                        seen.insert(name, document.clone());
                        into.push(Self::from_value(document)?);
                    }
                }
            }
            "List" | "CustomResourceDefinitionList" => {
                let Value::Object(mut list) = document else { return Ok(()) };
                if let Some(Value::Array(items)) = list.remove("items") {
                    for mut item in items {
                        // The items of a typed list may leave out what they are.
                        if kind != "List"
                            && let Some(item) = item.as_object_mut()
                        {
                            item.entry("kind").or_insert_with(|| "CustomResourceDefinition".into());
                            let version = list.get("apiVersion").cloned().unwrap_or_default();
                            item.entry("apiVersion").or_insert(version);
                        }
                        Self::collect(item, seen, into, others)?;
                    }
                }
            }
            "" => {}
            _ => others.push(kind),
        }
        Ok(())
    }

    fn from_value(mut document: Value) -> Result<Self, DefinitionError> {
        let name = document["metadata"]["name"].as_str().unwrap_or("the definition").to_owned();
        let version = document["apiVersion"].as_str().unwrap_or_default();
        if version != "apiextensions.k8s.io/v1" {
            if version == "apiextensions.k8s.io/v1beta1" {
                return Err(DefinitionError::Old { name, version: version.to_owned() });
            }
            let reason = format!("its apiVersion is {version:?}, not \"apiextensions.k8s.io/v1\"");
            return Err(DefinitionError::Invalid { name, reason });
        }
        let approved = document["metadata"]["annotations"]["api-approved.kubernetes.io"].as_str().map(str::to_owned);
        let invalid = |reason: String| DefinitionError::Invalid { name: name.clone(), reason };
        let spec: Spec =
            serde_json::from_value(document["spec"].take()).map_err(|error| invalid(format!("spec: {error}")))?;
        if spec.versions.is_empty() {
            return Err(invalid("it has no versions".to_owned()));
        }
        for (what, value) in [("kind", &spec.names.kind), ("group", &spec.group), ("plural", &spec.names.plural)] {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
            if value.is_empty() || !value.chars().all(allowed) {
                return Err(invalid(format!("its {what} is {value:?}")));
            }
        }
        for version in &spec.versions {
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if !version.name.starts_with(|c: char| c.is_ascii_lowercase()) || !version.name.chars().all(allowed) {
                return Err(invalid(format!("its version is {:?}", version.name)));
            }
        }
        Ok(Self {
            group: spec.group,
            kind: spec.names.kind,
            versions: spec.versions,
            plural: spec.names.plural,
            singular: spec.names.singular.filter(|singular| !singular.is_empty()),
            short_names: spec.names.short_names.unwrap_or_default(),
            categories: spec.names.categories.unwrap_or_default(),
            namespaced: spec.scope == "Namespaced",
            approved,
            name,
        })
    }

    /// Keeps one version.
    ///
    /// # Errors
    /// If there is no such version.
    pub fn keep_version(&mut self, version: &str) -> Result<(), DefinitionError> {
        if !self.versions.iter().any(|known| known.name == version) {
            let known = self.versions.iter().map(|version| version.name.clone()).collect();
            return Err(DefinitionError::NoSuchVersion { name: self.name.clone(), version: version.to_owned(), known });
        }
        self.versions.retain(|known| known.name == version);
        Ok(())
    }

    /// The definitions of a kind.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_kind(definitions: Vec<Self>, kind: &str) -> Result<Vec<Self>, DefinitionError> {
        let mut known: Vec<String> = definitions.iter().map(|definition| definition.kind.clone()).collect();
        let chosen: Vec<Self> = definitions.into_iter().filter(|definition| definition.kind == kind).collect();
        if chosen.is_empty() {
            known.sort_unstable();
            known.dedup();
            return Err(DefinitionError::NoSuchKind { kind: kind.to_owned(), known });
        }
        Ok(chosen)
    }

    /// The Rust name of the kind: its own, if that is one.
    pub fn type_name(&self) -> String {
        super::identifier::kind(&self.kind)
    }

    /// The name of the module for the kind.
    pub fn module(&self) -> String {
        super::identifier::module(&self.kind)
    }

    /// The Rust source of the types: one version at the top, or a module for each of several.
    ///
    /// # Errors
    /// If a version has no schema.
    pub fn to_rust(&self) -> Result<String, DefinitionError> {
        let mut parts = Vec::new();
        for version in &self.versions {
            let Some(schema) = version.schema() else {
                return Err(DefinitionError::NoSchema { name: self.name.clone(), version: version.name.clone() });
            };
            let Some(model) = build::build(self, version, schema) else {
                let reason = format!("the schema of version {} nests too deeply", version.name);
                return Err(DefinitionError::Invalid { name: self.name.clone(), reason });
            };
            parts.push((version, print::version(self, version, &model)));
        }
        Ok(print::file(self, &parts))
    }
}

/// The documents of a YAML or JSON text.
///
/// # Errors
/// If it is neither.
pub fn documents(text: &str) -> Result<Vec<Value>, DefinitionError> {
    // A JSON document needs no YAML parser, which is slower.
    if text.trim_start().starts_with('{')
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(vec![value]);
    }
    let read = || {
        let budget = serde_saphyr::budget! { max_nodes: 5_000_000, max_events: 20_000_000, max_depth: DEEPEST };
        let options = serde_saphyr::options! { budget: budget };
        serde_saphyr::from_multiple_with_options(text, options)
    };
    // A definition nests as deeply as its fields do, and the parser calls itself for each level.
    let read = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read);
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    match read {
        Ok(Ok(Ok(documents))) => Ok(documents),
        Ok(Ok(Err(error))) => Err(DefinitionError::Syntax(error.to_string())),
        Ok(Err(_)) | Err(_) => Err(DefinitionError::Syntax("it nests too deeply".to_owned())),
    }
}

/// How deeply documents may nest. A level of fields takes two, one of lists of objects three.
const DEEPEST: usize = 512;
/// Enough for that.
const STACK: usize = 128 << 20;
