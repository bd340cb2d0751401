//! Patches: strategic merge patches, and lists of operations (JSON patch, RFC 6902).

use serde_json::Value;

use super::kustomization::PatchOptions;
use super::merge::merge;
use super::resource::{Id, Resource};
use super::select::Selector;

/// What the text of a patch holds.
pub(super) enum Content {
    Merges(Vec<Value>),
    Operations(json_patch::Patch),
}

pub(super) fn parse(text: &str) -> Result<Content, String> {
    let documents: Vec<Value> = documents(text)?;
    if let [Value::Array(_)] = documents[..] {
        let [operations] = <[Value; 1]>::try_from(documents).map_err(|_| "is empty".to_owned())?;
        let operations = serde_json::from_value(operations).map_err(|error| format!("is no JSON patch: {error}"))?;
        return Ok(Content::Operations(operations));
    }
    if documents.is_empty() || !documents.iter().all(Value::is_object) {
        return Err("is neither a strategic merge patch nor a JSON patch".to_owned());
    }
    Ok(Content::Merges(documents))
}

/// The documents of a YAML text, without those that are empty. Plain values mean what they mean to kustomize: `yes` is a
/// text, and `0644` the mode of a file.
pub(super) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! { strict_booleans: true, legacy_octal_numbers: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Applies a patch to the objects that its target selects, or to the one that it names itself.
pub(super) fn apply(
    resources: &mut Vec<Resource>,
    content: Content,
    target: Option<&Selector>,
    options: PatchOptions,
) -> Result<(), String> {
    match content {
        Content::Operations(operations) => {
            let target = target.ok_or("a JSON patch needs a target")?.compile()?;
            for resource in resources.iter_mut().filter(|resource| target.selects(resource)) {
                resource.remember();
                let applied = json_patch::patch(&mut resource.object, &operations);
                applied.map_err(|error| format!("cannot patch {}: {error}", resource.id()))?;
            }
            Ok(())
        }
        Content::Merges(patches) => {
            let Some(target) = target else {
                return patches.into_iter().try_for_each(|patch| apply_named(resources, patch, options));
            };
            let target = target.compile()?;
            let [patch] = &patches[..] else {
                return Err("several strategic merge patches cannot have one target".to_owned());
            };
            let selected: Vec<bool> = resources.iter().map(|resource| target.selects(resource)).collect();
            let mut at = 0;
            resources.retain_mut(|resource| {
                at += 1;
                !selected[at - 1] || apply_merge(resource, patch.clone(), options)
            });
            Ok(())
        }
    }
}

fn apply_named(resources: &mut Vec<Resource>, patch: Value, options: PatchOptions) -> Result<(), String> {
    let wanted = Id::of(&patch);
    let fits = |resource: &Resource| resource.ids().iter().any(|id| id.same(&wanted));
    let found: Vec<usize> =
        resources.iter().enumerate().filter(|(_, resource)| fits(resource)).map(|(at, _)| at).collect();
    match found[..] {
        [at] => {
            if !apply_merge(&mut resources[at], patch, options) {
                resources.remove(at);
            }
            Ok(())
        }
        [] => Err(format!("no resource is patched: there is no {wanted} ({:?})", wanted.kind)),
        _ => Err(format!("several resources are {wanted}")),
    }
}

/// Merges a patch into an object, which keeps its name, namespace and kind. Returns whether there is still an object.
fn apply_merge(resource: &mut Resource, patch: Value, options: PatchOptions) -> bool {
    let id = resource.id();
    let (api_version, kind) = (resource.object["apiVersion"].clone(), resource.object["kind"].clone());
    if options.allow_name_change || options.allow_kind_change {
        resource.remember();
    }
    let mut patch = patch;
    if let Value::Object(fields) = &mut patch
        && !options.allow_kind_change
    {
        fields.insert("apiVersion".into(), api_version.clone());
        fields.insert("kind".into(), kind.clone());
    }
    let Some(merged) = merge(resource.object.take(), patch, &id.kind) else { return false };
    resource.object = merged;
    if !options.allow_name_change {
        resource.set_metadata("name", &id.name);
    }
    resource.set_metadata("namespace", &id.namespace);
    true
}
