//! ConfigMaps and Secrets that are made of literals and files, with a hash of the content at the end of their names.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::KustomizeError;
use super::files::{self, Files, is_below, join};
use super::kustomization::{Generator, GeneratorOptions, Kustomization};
use super::resource::{Resource, text};

/// Generates what a kustomization asks for, and adds it to the resources or merges it into them.
pub(super) fn apply(
    files: &dyn Files,
    kustomization: &Kustomization,
    resources: &mut Vec<Resource>,
) -> Result<(), KustomizeError> {
    let maps = kustomization.config_maps.iter().map(|generator| ("ConfigMap", generator));
    let secrets = kustomization.secrets.iter().map(|generator| ("Secret", generator));
    for (kind, generator) in maps.chain(secrets) {
        let resource = generate(files, kustomization, kind, generator)?;
        add(resources, resource, &generator.behavior)
            .map_err(|reason| KustomizeError::invalid(&kustomization.file, reason))?;
    }
    Ok(())
}

fn generate(
    files: &dyn Files,
    kustomization: &Kustomization,
    kind: &str,
    generator: &Generator,
) -> Result<Resource, KustomizeError> {
    let file = &kustomization.file;
    if generator.name.is_empty() {
        return Err(KustomizeError::invalid(file, format!("a generated {kind} needs a name")));
    }
    let options = options(&kustomization.generator_options, &generator.options);
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": generator.name}});
    if !generator.namespace.is_empty() {
        object["metadata"]["namespace"] = generator.namespace.as_str().into();
    }
    for (field, entries) in [("labels", &options.labels), ("annotations", &options.annotations)] {
        if !entries.is_empty() {
            object["metadata"][field] = json!(entries);
        }
    }
    let entries = entries(files, kustomization, generator)?;
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (name, content) in entries {
        match String::from_utf8(content) {
            Ok(content) if kind == "ConfigMap" => data.insert(name, content.into()),
            Ok(content) => data.insert(name, BASE64_STANDARD.encode(content).into()),
            Err(error) if kind == "ConfigMap" => binary.insert(name, BASE64_STANDARD.encode(error.as_bytes()).into()),
            Err(error) => data.insert(name, BASE64_STANDARD.encode(error.as_bytes()).into()),
        };
    }
    for (field, entries) in [("data", data), ("binaryData", binary)] {
        if !entries.is_empty() {
            object[field] = entries.into();
        }
    }
    if kind == "Secret" {
        object["type"] = if generator.type_.is_empty() { "Opaque" } else { &generator.type_ }.into();
    }
    if options.immutable {
        object["immutable"] = true.into();
    }
    let mut resource = Resource::new(object);
    resource.hashed = !options.disable_name_suffix_hash;
    Ok(resource)
}

fn options(all: &GeneratorOptions, own: &GeneratorOptions) -> GeneratorOptions {
    let merged = |all: &BTreeMap<String, String>, own: &BTreeMap<String, String>| {
        let mut merged = all.clone();
        merged.extend(own.clone());
        merged
    };
    GeneratorOptions {
        labels: merged(&all.labels, &own.labels),
        annotations: merged(&all.annotations, &own.annotations),
        disable_name_suffix_hash: all.disable_name_suffix_hash || own.disable_name_suffix_hash,
        immutable: all.immutable || own.immutable,
    }
}

fn entries(
    files: &dyn Files,
    kustomization: &Kustomization,
    generator: &Generator,
) -> Result<BTreeMap<String, Vec<u8>>, KustomizeError> {
    let invalid = |reason: String| KustomizeError::invalid(&kustomization.file, reason);
    let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
    let environments = generator.envs.iter().chain(Some(&generator.env).filter(|env| !env.is_empty()));
    for path in environments {
        let content = read(files, kustomization, path)?;
        let text = String::from_utf8(content).map_err(|_| invalid(format!("{path} is not UTF-8")))?;
        let lines = text.strip_prefix('\u{feff}').unwrap_or(&text).lines().map(str::trim_start);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            pairs.push((name.to_owned(), value.as_bytes().to_vec()));
        }
    }
    for literal in &generator.literals {
        let pair = literal.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = pair.ok_or_else(|| invalid(format!("the literal {literal:?} is not name=value")))?;
        pairs.push((name.to_owned(), unquoted(value).as_bytes().to_vec()));
    }
    for source in &generator.files {
        let (name, path) = match source.split_once('=') {
            Some((name, path)) => (name, path),
            None => (source.rsplit('/').next().unwrap_or_default(), source.as_str()),
        };
        if name.is_empty() || path.is_empty() || path.contains('=') {
            return Err(invalid(format!("the file {source:?} is not name=path")));
        }
        pairs.push((name.to_owned(), read(files, kustomization, path)?));
    }
    let mut entries = BTreeMap::new();
    for (name, content) in pairs {
        if entries.insert(name.clone(), content).is_some() {
            return Err(invalid(format!("{} has {name:?} twice", generator.name)));
        }
    }
    Ok(entries)
}

fn read(files: &dyn Files, kustomization: &Kustomization, relative: &str) -> Result<Vec<u8>, KustomizeError> {
    let path = join(&kustomization.directory, relative).filter(|path| is_below(&kustomization.directory, path));
    let path = path.ok_or_else(|| files::outside(&kustomization.file, relative))?;
    let read = files.read(&path).map_err(|source| KustomizeError::Read { path: path.clone(), source })?;
    read.ok_or_else(|| KustomizeError::Missing { file: kustomization.file.clone(), path })
}

/// Without the quotes that are around the whole of it.
fn unquoted(value: &str) -> &str {
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

fn add(resources: &mut Vec<Resource>, mut new: Resource, behavior: &str) -> Result<(), String> {
    let id = new.id();
    let at = resources.iter().position(|resource| resource.ids().iter().any(|other| other.same(&id)));
    match (at, behavior) {
        (None, "" | "create" | "unspecified") => resources.push(new),
        (None, _) => return Err(format!("there is no {id} to {behavior}")),
        (Some(at), "merge" | "replace") => {
            let old = &resources[at];
            for field in ["labels", "annotations"] {
                inherit(&mut new.object["metadata"], &old.object["metadata"], field);
            }
            if behavior == "merge" {
                for field in ["data", "binaryData"] {
                    inherit(&mut new.object, &old.object, field);
                }
            }
            new.set_metadata("name", old.name());
            new.set_metadata("namespace", old.namespace());
            new.previous.clone_from(&old.previous);
            new.prefixes.clone_from(&old.prefixes);
            new.suffixes.clone_from(&old.suffixes);
            resources[at] = new;
        }
        (Some(_), _) => return Err(format!("there is a {id} already; say whether to merge or to replace it")),
    }
    Ok(())
}

/// Adds the entries of an older map that a newer one does not have.
fn inherit(new: &mut Value, old: &Value, field: &str) {
    let Some(old) = old[field].as_object() else { return };
    let mut merged = old.clone();
    if let Some(own) = new[field].as_object() {
        merged.extend(own.clone());
    }
    new[field] = merged.into();
}

/// The end of the name of a ConfigMap or Secret with this content.
pub(super) fn hash(object: &Value) -> String {
    let field = |name: &str| object.get(name).cloned().unwrap_or_else(|| "".into());
    // kustomize leaves the name empty, so that it does not matter.
    let mut content = json!({"kind": text(object, "kind"), "name": "", "data": field("data")});
    let mut optional = |name: &str| {
        if let Some(value) = object.get(name).filter(|value| value.is_object()) {
            content[name] = value.clone();
        }
    };
    if text(object, "kind") == "Secret" {
        optional("stringData");
        content["type"] = field("type");
    } else {
        optional("binaryData");
    }
    let digest = Sha256::digest(as_go_writes(&content));
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(10);
    // No vowels and no digits that look like letters, so that no words come out.
    digits.map(|digit| char::from(b"gh2k456789mbcdtf"[usize::from(digit)])).collect()
}

/// The JSON that Go writes: names in order, and escapes for what HTML would take for its own.
fn as_go_writes(content: &Value) -> String {
    let mut text = String::new();
    match content {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            let fields = sorted.into_iter();
            let fields = fields.map(|(name, value)| format!("{}:{}", as_go_writes(&json!(name)), as_go_writes(value)));
            text = format!("{{{}}}", fields.collect::<Vec<_>>().join(","));
        }
        other => {
            for character in other.to_string().chars() {
                match character {
                    '<' => text.push_str("\\u003c"),
                    '>' => text.push_str("\\u003e"),
                    '&' => text.push_str("\\u0026"),
                    '\u{2028}' => text.push_str("\\u2028"),
                    '\u{2029}' => text.push_str("\\u2029"),
                    other => text.push(other),
                }
            }
        }
    }
    text
}
