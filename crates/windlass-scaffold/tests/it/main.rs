//! Projects on disk: made, changed, edited by a user, and taken back.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod conflicts;
mod format;
mod kustomize;
mod reversal;
mod upgrade;

use std::collections::BTreeMap;
use std::path::Path;

use windlass_scaffold::Project;
use windlass_scaffold::command::{self, CommandError, NewApi, Selector, Webhooks};
use windlass_scaffold::name::{Domain, Group, Kind, ProjectName, Version};
use windlass_scaffold::project::Settings;
use windlass_scaffold::scaffold::{self, Mode};

fn project() -> Project {
    Project::new(ProjectName::new("shop").unwrap(), Domain::new("my.domain").unwrap(), Settings::default())
}

fn api(group: &str, version: &str, kind: &str) -> NewApi {
    NewApi {
        group: Some(Group::new(group).unwrap()),
        version: Version::new(version).unwrap(),
        kind: Kind::new(kind).unwrap(),
        plural: None,
        short_names: Vec::new(),
        namespaced: true,
        resource: true,
        controller: true,
        controller_name: None,
        external: None,
        force: false,
    }
}

fn selector(version: &str, kind: &str) -> Selector {
    Selector { group: None, version: Some(Version::new(version).unwrap()), kind: Kind::new(kind).unwrap() }
}

/// A project on disk.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new(project: &Project) -> Self {
        let dir = tempfile::tempdir().unwrap();
        scaffold::init(dir.path(), project, Mode::default()).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, change: impl FnOnce(&mut Project) -> Result<(), CommandError>) {
        scaffold::change(self.path(), Mode::default(), change).unwrap_or_else(|error| panic!("{error}"));
    }

    fn create(&self, new: NewApi) {
        self.run(|project| command::create_api(project, new));
    }

    fn webhook(&self, selector: &Selector, new: &Webhooks) {
        self.run(|project| command::create_webhook(project, selector, new));
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap()
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{from:?} is not in {path}: {text}");
        std::fs::write(self.path().join(path), text.replacen(from, to, 1)).unwrap();
    }

    /// All files with their contents.
    fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.path().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let name = path.strip_prefix(self.path()).unwrap().display().to_string();
                    files.insert(name, std::fs::read_to_string(path).unwrap());
                }
            }
        }
        files
    }
}
