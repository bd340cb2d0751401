//! The file `kustomization.yaml`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::KustomizeError;
use super::fields::FieldSpec;
use super::files::{self, Files, join};
use super::replace::Replacement;
use super::select::Selector;

const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

#[derive(Debug, Default)]
pub(super) struct Kustomization {
    /// The directory that it is in.
    pub directory: String,
    /// Its own path, for messages.
    pub file: String,
    pub component: bool,
    /// Whether objects stay in the order of the resources.
    pub keeps_order: bool,
    pub resources: Vec<String>,
    pub components: Vec<String>,
    pub namespace: String,
    pub name_prefix: String,
    pub name_suffix: String,
    pub labels: Vec<Labels>,
    pub common_labels: BTreeMap<String, String>,
    pub common_annotations: BTreeMap<String, String>,
    pub strategic_merges: Vec<String>,
    pub patches: Vec<Patch>,
    pub json_patches: Vec<Patch>,
    pub images: Vec<Image>,
    pub replicas: Vec<Replicas>,
    pub replacements: Vec<ReplacementEntry>,
    pub config_maps: Vec<Generator>,
    pub secrets: Vec<Generator>,
    pub generator_options: GeneratorOptions,
    pub configurations: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Labels {
    #[serde(default)]
    pub pairs: BTreeMap<String, String>,
    #[serde(default)]
    pub include_selectors: bool,
    #[serde(default)]
    pub include_templates: bool,
    #[serde(default)]
    pub fields: Vec<FieldSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(clippy::struct_field_names, reason = "the field has kustomize's name")]
pub(super) struct Patch {
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub patch: String,
    #[serde(default)]
    pub target: Option<Selector>,
    #[serde(default)]
    pub options: PatchOptions,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PatchOptions {
    pub allow_name_change: bool,
    pub allow_kind_change: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Image {
    pub name: String,
    pub new_name: String,
    pub tag_suffix: String,
    pub new_tag: String,
    pub digest: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Replicas {
    pub name: String,
    pub count: i64,
}

/// A replacement, or the file that has some.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ReplacementEntry {
    File(ReplacementFile),
    Inline(Box<Replacement>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplacementFile {
    pub path: String,
}

/// Makes a ConfigMap or a Secret.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Generator {
    pub name: String,
    pub namespace: String,
    pub behavior: String,
    pub literals: Vec<String>,
    pub files: Vec<String>,
    pub envs: Vec<String>,
    pub env: String,
    #[serde(rename = "type")]
    pub type_: String,
    pub options: GeneratorOptions,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct GeneratorOptions {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub disable_name_suffix_hash: bool,
    pub immutable: bool,
}

/// Reads the kustomization of a directory; `None` if it has none.
pub(super) fn read(files: &dyn Files, directory: &str) -> Result<Option<Kustomization>, KustomizeError> {
    let mut found = None;
    for name in NAMES {
        let path = join(directory, name).unwrap_or_else(|| name.to_owned());
        if let Some(text) = files::text(files, &path)? {
            if found.is_some() {
                return Err(KustomizeError::invalid(&path, "is a second kustomization in this directory"));
            }
            found = Some((path, text));
        }
    }
    let Some((file, text)) = found else { return Ok(None) };
    let document: Option<Map<String, Value>> =
        serde_saphyr::from_str(&text).map_err(|error| KustomizeError::invalid(&file, error.to_string()))?;
    let mut kustomization =
        Kustomization { directory: directory.to_owned(), file: file.clone(), ..Kustomization::default() };
    for (field, value) in document.unwrap_or_default() {
        if !value.is_null() {
            kustomization.set(&field, value)?;
        }
    }
    Ok(Some(kustomization))
}

impl Kustomization {
    fn set(&mut self, field: &str, value: Value) -> Result<(), KustomizeError> {
        let file = self.file.clone();
        let into = Reader { file: &file, field };
        match field {
            // Names of the kustomization itself have no effect.
            "apiVersion" | "metadata" => {}
            "kind" => self.component = value == "Component",
            "resources" | "bases" => self.resources.extend(into.read::<Vec<String>>(value)?),
            "components" => self.components = into.read(value)?,
            "namespace" => self.namespace = into.read(value)?,
            "namePrefix" => self.name_prefix = into.read(value)?,
            "nameSuffix" => self.name_suffix = into.read(value)?,
            "labels" => self.labels = into.read(value)?,
            "commonLabels" => self.common_labels = into.read(value)?,
            "commonAnnotations" => self.common_annotations = into.read(value)?,
            "patchesStrategicMerge" => self.strategic_merges = into.read(value)?,
            "patches" => self.patches = into.read(value)?,
            "patchesJson6902" => self.json_patches = into.read(value)?,
            "images" => self.images = into.read(value)?,
            "replicas" => self.replicas = into.read(value)?,
            "replacements" => self.replacements = into.read(value)?,
            "configMapGenerator" => self.config_maps = into.read(value)?,
            "secretGenerator" => self.secrets = into.read(value)?,
            "generatorOptions" => self.generator_options = into.read(value)?,
            "configurations" => self.configurations = into.read(value)?,
            "sortOptions" if value == json!({"order": "fifo"}) => self.keeps_order = true,
            "sortOptions" if value == json!({"order": "legacy"}) => {}
            _ => return Err(KustomizeError::Unsupported { file, field: field.to_owned() }),
        }
        Ok(())
    }
}

struct Reader<'a> {
    file: &'a str,
    field: &'a str,
}

impl Reader<'_> {
    fn read<T: DeserializeOwned>(&self, value: Value) -> Result<T, KustomizeError> {
        serde_json::from_value(value)
            .map_err(|error| KustomizeError::invalid(self.file, format!("the field `{}`: {error}", self.field)))
    }
}
