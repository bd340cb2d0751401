//! Which objects the files of the samples hold. What no file holds any more is deleted from the cluster. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

/// An object, as a sample names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    pub api_version: String,
    pub kind: String,
    /// That of the loop, if the file names none.
    pub namespace: String,
    pub name: String,
}

impl Sample {
    pub(super) fn of(object: &Value, namespace: &str) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: object["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned(),
            name: text(&object["metadata"]["name"]),
        }
    }

    /// Whether both are one object of the cluster, perhaps in different versions of its kind.
    fn is(&self, other: &Self) -> bool {
        let group = |sample: &Self| sample.api_version.split_once('/').map(|(group, _)| group.to_owned());
        let rest = |sample: &Self| (sample.kind.clone(), sample.namespace.clone(), sample.name.clone());
        group(self) == group(other) && rest(self) == rest(other)
    }
}

/// What a file holds now; nothing, if it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// A directory that is gone takes its files along.
    pub path: PathBuf,
    pub objects: Vec<Sample>,
}

/// What the files held when they were read last.
#[derive(Debug, Default)]
pub(super) struct Held {
    files: BTreeMap<PathBuf, Vec<Sample>>,
}

impl Held {
    /// Takes in what files hold now. Returns the objects that they held before, and that no file holds any more.
    pub(super) fn read(&mut self, contents: Vec<Content>) -> Vec<Sample> {
        let mut before = Vec::new();
        for content in contents {
            self.files.retain(|file, objects| {
                let is_read = file.starts_with(&content.path);
                if is_read {
                    before.append(objects);
                }
                !is_read
            });
            if !content.objects.is_empty() {
                self.files.insert(content.path, content.objects);
            }
        }
        before.retain(|object| !self.files.values().flatten().any(|held| held.is(object)));
        before
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(name: &str) -> Sample {
        Sample::of(&json!({"apiVersion": "a/v1", "kind": "Hen", "metadata": {"name": name}}), "default")
    }

    fn content(path: &str, names: &[&str]) -> Content {
        Content { path: path.into(), objects: names.iter().map(|name| sample(name)).collect() }
    }

    #[test]
    fn objects_that_no_file_holds_any_more_are_named() {
        let mut held = Held::default();
        let all =
            vec![content("s/a.yaml", &["a", "b"]), content("s/in/c.yaml", &["c"]), content("s/in/d.yaml", &["d"])];
        assert_eq!(held.read(all), []);
        assert_eq!(held.read(vec![content("s/a.yaml", &["a"])]), [sample("b")], "taken out of its file");
        // Moved to another file, whichever is read first.
        assert_eq!(held.read(vec![content("s/a.yaml", &[]), content("s/b.yaml", &["a"])]), []);
        assert_eq!(held.read(vec![content("s/a.yaml", &["a"]), content("s/b.yaml", &[])]), []);
        assert_eq!(held.read(vec![content("s/in", &[])]), [sample("c"), sample("d")], "a directory");
        assert_eq!(held.read(vec![content("s/in", &[]), content("s/unknown.yaml", &[])]), []);
        assert_eq!(held.read(vec![content("s", &[])]), [sample("a")]);
    }

    #[test]
    fn another_version_of_an_object_is_the_same_object() {
        let object = |version: &str, metadata: Value| {
            Sample::of(&json!({"apiVersion": version, "kind": "Hen", "metadata": metadata}), "default")
        };
        let mut held = Held::default();
        let read =
            |held: &mut Held, object: Sample| held.read(vec![Content { path: "a.yaml".into(), objects: vec![object] }]);
        let first = object("farm.example.com/v1", json!({"name": "a"}));
        assert_eq!(read(&mut held, first), []);
        let newer = object("farm.example.com/v2", json!({"name": "a", "namespace": "default"}));
        assert_eq!(read(&mut held, newer.clone()), []);
        let elsewhere = object("farm.example.com/v2", json!({"name": "a", "namespace": "other"}));
        assert_eq!(read(&mut held, elsewhere), [newer]);
    }
}
