//! One directory's kustomization applied to what its resources give: the transformers, in kustomize's order.

use serde_json::Value;

use super::KustomizeError;
use super::files::{self, Files, is_below, join};
use super::kustomization::{self, Kustomization, Patch, ReplacementEntry};
use super::patch::{self, Content};
use super::references;
use super::replace::{self, Replacement};
use super::resource::Resource;
use super::transform::{
    Configuration, add_everywhere, rename, set_labels, set_namespace, set_replicas, template_fields,
};
use super::{generate, image, order};

/// How deep directories may refer to each other; a circle is found by this too.
const MAX_DEPTH: usize = 32;
/// Objects with this annotation are for tools that read the files.
const LOCAL: &str = "config.kubernetes.io/local-config";

pub(super) struct Build<'a> {
    files: &'a dyn Files,
}

/// What a directory gives to the one that refers to it.
#[derive(Default)]
struct Layer {
    resources: Vec<Resource>,
    configuration: Configuration,
}

impl<'a> Build<'a> {
    pub(super) fn new(files: &'a dyn Files) -> Self {
        Self { files }
    }

    pub(super) fn run(&self, directory: &str) -> Result<Vec<Value>, KustomizeError> {
        let directory = join("", directory).unwrap_or_default();
        let missing = || KustomizeError::Missing { file: directory.clone(), path: "kustomization.yaml".into() };
        let kustomization = kustomization::read(self.files, &directory)?.ok_or_else(missing)?;
        let mut layer = self.layer(&kustomization, Layer::default(), 0)?;
        for resource in layer.resources.iter_mut().filter(|resource| resource.hashed) {
            let name = format!("{}-{}", resource.name(), generate::hash(&resource.object));
            resource.remember();
            resource.set_metadata("name", &name);
        }
        let mut all = references::defaults();
        all.extend(layer.configuration.name_reference);
        references::follow(&mut layer.resources, &all)
            .map_err(|reason| KustomizeError::invalid(&kustomization.file, reason))?;
        if !kustomization.keeps_order {
            layer.resources.sort_by_cached_key(|resource| order::key(&resource.id()));
        }
        let objects = layer.resources.into_iter().map(|resource| resource.object);
        Ok(objects
            .filter(|object| object["metadata"]["annotations"].get(LOCAL).is_none_or(|value| value != "true"))
            .collect())
    }

    /// Applies a kustomization to what is there already, which for all but components is nothing.
    fn layer(&self, kustomization: &Kustomization, mut layer: Layer, depth: usize) -> Result<Layer, KustomizeError> {
        let invalid = |reason: String| KustomizeError::invalid(&kustomization.file, reason);
        if depth > MAX_DEPTH {
            return Err(invalid("directories refer to each other in a circle".to_owned()));
        }
        for resource in &kustomization.resources {
            self.add_resource(kustomization, resource, &mut layer, depth)?;
        }
        for path in &kustomization.configurations {
            let (path, text) = self.text(kustomization, path)?;
            let configuration = serde_saphyr::from_str(&text);
            layer.configuration.add(configuration.map_err(|error| KustomizeError::invalid(&path, error.to_string()))?);
        }
        generate::apply(self.files, kustomization, &mut layer.resources)?;
        for component in &kustomization.components {
            let inner = self.directory(kustomization, component)?;
            if !inner.component {
                return Err(KustomizeError::invalid(
                    &inner.file,
                    "is used as a component, and its kind is not Component",
                ));
            }
            layer = self.layer(&inner, layer, depth + 1)?;
        }
        self.transform(kustomization, &mut layer)?;
        Ok(layer)
    }

    fn add_resource(
        &self,
        kustomization: &Kustomization,
        resource: &str,
        layer: &mut Layer,
        depth: usize,
    ) -> Result<(), KustomizeError> {
        let below = join(&kustomization.directory, resource).filter(|path| is_below(&kustomization.directory, path));
        let file = below.map(|path| Ok((files::text(self.files, &path)?, path))).transpose()?;
        let inner = if let Some((Some(text), path)) = file {
            Layer { resources: parse(&path, &text)?, configuration: Configuration::default() }
        } else {
            let inner = self.directory(kustomization, resource)?;
            if inner.component {
                return Err(KustomizeError::invalid(&inner.file, "is a Component: list it in `components`"));
            }
            self.layer(&inner, Layer::default(), depth + 1)?
        };
        layer.configuration.add(inner.configuration);
        for resource in inner.resources {
            let id = resource.id();
            if layer.resources.iter().any(|other| other.id().same(&id)) {
                return Err(KustomizeError::invalid(&kustomization.file, format!("has {id} twice")));
            }
            layer.resources.push(resource);
        }
        Ok(())
    }

    fn directory(&self, kustomization: &Kustomization, relative: &str) -> Result<Kustomization, KustomizeError> {
        let file = || kustomization.file.clone();
        if relative.contains("://") || relative.contains("?ref=") || relative.starts_with("git@") {
            return Err(KustomizeError::Unsupported { file: file(), field: format!("resources: {relative}") });
        }
        let outside = || KustomizeError::invalid(&kustomization.file, format!("{relative} is outside of the project"));
        let path = join(&kustomization.directory, relative).ok_or_else(outside)?;
        kustomization::read(self.files, &path)?.ok_or_else(|| KustomizeError::Missing { file: file(), path })
    }

    /// The path and the text of a file that a kustomization names.
    fn text(&self, kustomization: &Kustomization, relative: &str) -> Result<(String, String), KustomizeError> {
        let path = join(&kustomization.directory, relative).filter(|path| is_below(&kustomization.directory, path));
        let path = path.ok_or_else(|| files::outside(&kustomization.file, relative))?;
        match files::text(self.files, &path)? {
            Some(text) => Ok((path, text)),
            None => Err(KustomizeError::Missing { file: kustomization.file.clone(), path }),
        }
    }

    fn transform(&self, kustomization: &Kustomization, layer: &mut Layer) -> Result<(), KustomizeError> {
        let Layer { resources, configuration } = layer;
        let invalid = |reason: String| KustomizeError::invalid(&kustomization.file, reason);
        for merge in &kustomization.strategic_merges {
            let patch = if merge.contains('\n') {
                Patch { patch: merge.clone(), ..Patch::default() }
            } else {
                Patch { path: merge.clone(), ..Patch::default() }
            };
            self.patch(kustomization, resources, &patch)?;
        }
        for patch in &kustomization.patches {
            self.patch(kustomization, resources, patch)?;
        }
        if !kustomization.namespace.is_empty() {
            set_namespace(resources, &kustomization.namespace, &configuration.namespace).map_err(invalid)?;
        }
        rename(resources, kustomization, configuration);
        set_labels(resources, kustomization, configuration);
        if !kustomization.common_annotations.is_empty() {
            let mut fields = template_fields("annotations");
            fields.extend(configuration.common_annotations.clone());
            add_everywhere(resources, &fields, &kustomization.common_annotations);
        }
        for patch in &kustomization.json_patches {
            self.patch(kustomization, resources, patch)?;
        }
        for replicas in &kustomization.replicas {
            set_replicas(resources, &replicas.name, replicas.count).map_err(invalid)?;
        }
        for image in &kustomization.images {
            image::apply(resources, image).map_err(invalid)?;
        }
        for entry in &kustomization.replacements {
            match entry {
                ReplacementEntry::Inline(replacement) => replace::apply(resources, replacement).map_err(invalid)?,
                ReplacementEntry::File(file) => {
                    let (path, text) = self.text(kustomization, &file.path)?;
                    for replacement in replacements(&text).map_err(|reason| KustomizeError::invalid(&path, reason))? {
                        replace::apply(resources, &replacement).map_err(invalid)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn patch(
        &self,
        kustomization: &Kustomization,
        resources: &mut Vec<Resource>,
        patch: &Patch,
    ) -> Result<(), KustomizeError> {
        let (file, text) = match (patch.path.is_empty(), patch.patch.trim().is_empty()) {
            (false, true) => self.text(kustomization, &patch.path)?,
            (true, false) => (kustomization.file.clone(), patch.patch.clone()),
            _ => return Err(KustomizeError::invalid(&kustomization.file, "a patch has one of `path` and `patch`")),
        };
        let content: Result<Content, String> = patch::parse(&text);
        content
            .and_then(|content| patch::apply(resources, content, patch.target.as_ref(), patch.options))
            .map_err(|reason| KustomizeError::invalid(&file, reason))
    }
}

/// One replacement or a list of them, in a file of their own.
fn replacements(text: &str) -> Result<Vec<Replacement>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let value = if value.is_array() { value } else { Value::Array(vec![value]) };
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// The objects of a file. A list is its items.
fn parse(path: &str, text: &str) -> Result<Vec<Resource>, KustomizeError> {
    let invalid = |reason: String| KustomizeError::invalid(path, reason);
    let mut resources = Vec::new();
    for document in patch::documents(text).map_err(invalid)? {
        let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let objects = match document["items"].as_array() {
            Some(items) if is_list => items.clone(),
            _ => vec![document],
        };
        for object in objects {
            let named = object["metadata"]["name"].is_string() || object["metadata"]["generateName"].is_string();
            if !object["apiVersion"].is_string() || !object["kind"].is_string() || !named {
                return Err(invalid("has an object without apiVersion, kind or metadata.name".to_owned()));
            }
            resources.push(Resource::new(object));
        }
    }
    Ok(resources)
}
