//! Changes the images of containers.

use regex::Regex;
use serde_json::Value;

use super::fields::visit;
use super::kustomization::Image;
use super::resource::Resource;

/// Images that no container has, besides those of all lists of containers.
const VOLUMES: [&str; 2] = ["spec/volumes[]/image/reference", "spec/template/spec/volumes[]/image/reference"];

pub(super) fn apply(resources: &mut [Resource], image: &Image) -> Result<(), String> {
    // The name is an expression in kustomize too.
    let expression =
        format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@[a-zA-Z0-9]+([.+_-][a-zA-Z0-9]+)*:[a-zA-Z0-9_.{{}}-]*)?$", image.name);
    let expression = Regex::new(&expression).map_err(|error| format!("the image {:?}: {error}", image.name))?;
    let mut change = |value: &mut Value| {
        if let Value::String(text) = value
            && expression.is_match(text)
        {
            *text = changed(text, image);
        }
    };
    for resource in resources {
        if resource.kind().kind != "CustomResourceDefinition" {
            containers(&mut resource.object, &mut change);
            for path in VOLUMES {
                visit(&mut resource.object, path, false, &mut change);
            }
        }
    }
    Ok(())
}

/// Visits the image of every container, wherever a list of containers is.
fn containers(value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| containers(item, change)),
        Value::Object(fields) => {
            for (name, value) in fields {
                containers(value, change);
                if matches!(name.as_str(), "containers" | "initContainers")
                    && let Value::Array(items) = value
                {
                    items.iter_mut().filter_map(|item| item.get_mut("image")).for_each(&mut *change);
                }
            }
        }
        _ => {}
    }
}

fn changed(old: &str, image: &Image) -> String {
    let (name, mut tag, mut digest) = split(old);
    let mut name = if image.new_name.is_empty() { name } else { &image.new_name }.to_owned();
    let suffixed = format!("{tag}{}", image.tag_suffix);
    match (image.new_tag.is_empty(), image.digest.is_empty()) {
        (true, true) if image.tag_suffix.is_empty() => {}
        (true, true) => (tag, digest) = (&suffixed, ""),
        _ => (tag, digest) = (&image.new_tag, &image.digest),
    }
    for (separator, part) in [(':', tag), ('@', digest)] {
        if !part.is_empty() {
            name.push(separator);
            name.push_str(part);
        }
    }
    name
}

/// Name, tag and digest. A colon before the first slash belongs to the registry.
fn split(image: &str) -> (&str, &str, &str) {
    let (rest, digest) = image.split_once('@').unwrap_or((image, ""));
    let slash = rest.find('/').unwrap_or(0);
    match rest[slash..].find(':') {
        Some(colon) => (&rest[..slash + colon], &rest[slash + colon + 1..], digest),
        None => (rest, "", digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_tag_and_digest_are_changed_by_themselves() {
        let image = |new_name: &str, new_tag: &str, digest: &str| Image {
            new_name: new_name.into(),
            new_tag: new_tag.into(),
            digest: digest.into(),
            ..Image::default()
        };
        assert_eq!(changed("a:5000/b:1", &image("c", "", "")), "c:1");
        assert_eq!(changed("a:5000/b", &image("", "2", "")), "a:5000/b:2");
        assert_eq!(changed("b:1@sha256:x", &image("", "2", "")), "b:2");
        assert_eq!(changed("b:1", &image("", "", "sha256:y")), "b@sha256:y");
        assert_eq!(changed("b:1", &Image { tag_suffix: "-x".into(), ..Image::default() }), "b:1-x");
    }
}
