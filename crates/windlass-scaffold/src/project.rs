//! The file `PROJECT`: what a project consists of, in kubebuilder's format, version 3.
//!
//! Everything that a project's generated files depend on is in here, so that they can be generated again: to see
//! what the user has changed, to take something away, to come to a newer version. What kubebuilder has no field
//! for is in the section of our plugin.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::name::{ControllerName, Domain, Group, Kind, Plural, ProjectName, Version, WebhookPath};

/// The layout that this crate writes, as `layout` and `plugins` name it.
pub const LAYOUT: &str = "windlass.dev/v1";
/// The name of the file.
pub const FILE: &str = "PROJECT";
const FORMAT: &str = "3";
const HEADER: &str =
    "# Written by windlass, in kubebuilder's format. Change it with `windlass create`, `delete` and `edit`.\n";

/// Why a `PROJECT` file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// It is not the YAML that is expected.
    #[error("PROJECT cannot be read: {0}\nCorrect it there, or bring the file back with `git checkout PROJECT`")]
    Syntax(String),
    /// Its format is another.
    #[error(
        "PROJECT has version {found:?}, and this windlass knows version \"3\": {}",
        if newer(.found) { "install a newer windlass" } else { "run `windlass init` in another directory" }
    )]
    Format {
        /// What the file says.
        found: String,
    },
    /// Another tool made the project.
    #[error(
        "PROJECT has {}, and windlass works on projects with the layout {LAYOUT}: run `windlass init` in another directory",
        layout(.found)
    )]
    Layout {
        /// What the file says.
        found: String,
    },
    /// It was written by a newer windlass.
    #[error("PROJECT was written by windlass {found}, and this is {own}: install the newer version")]
    Newer {
        /// What the file says.
        found: String,
        /// The version of this crate.
        own: String,
    },
}

impl ProjectError {
    /// Whether a newer windlass can use the file.
    pub fn needs_newer(&self) -> bool {
        match self {
            Self::Format { found } => newer(found),
            Self::Newer { .. } => true,
            Self::Syntax(_) | Self::Layout { .. } => false,
        }
    }
}

/// Whether a format is of later times. One that is no number may be anything, so it is not of the past.
fn newer(format: &str) -> bool {
    let number = |text: &str| text.split(['-', '.']).next().and_then(|text| text.parse::<u64>().ok());
    number(format).is_none_or(|found| Some(found) > number(FORMAT))
}

fn layout(found: &str) -> String {
    if found.is_empty() { "no layout".to_owned() } else { format!("the layout {found}") }
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Project {
    /// The version of windlass that the generated files are of.
    pub cli_version: String,
    /// The domain of the project's groups.
    pub domain: Domain,
    layout: Vec<String>,
    /// Whether files lie in a directory for each group.
    #[serde(default, skip_serializing_if = "is_false")]
    pub multigroup: bool,
    /// Whether the operator watches chosen namespaces only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub namespaced: bool,
    plugins: Plugins,
    /// The name of the project.
    pub project_name: ProjectName,
    /// The kinds, in the order in which they were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Plugins {
    #[serde(rename = "windlass.dev/v1")]
    windlass: Settings,
}

/// What kubebuilder's format has no field for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Where the crates of windlass come from.
    pub windlass: Source,
    /// The license of generated files.
    #[serde(default, skip_serializing_if = "License::is_none")]
    pub license: License,
    /// Whose copyright it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The comment at the top of Rust files, without `//`, instead of the names of owner and license.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Whether the `api` package has clients of its kinds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub client: bool,
}

/// Where the crates of windlass come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The registry, at this version.
    Version(String),
    /// A checkout on this machine: the directory that has `crates/windlass` in it.
    Path(String),
    /// A git repository.
    Git(String),
}

impl Default for Source {
    fn default() -> Self {
        Self::Version(env!("CARGO_PKG_VERSION").to_owned())
    }
}

/// The license of generated files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum License {
    /// None is named.
    #[default]
    None,
    /// Apache License 2.0.
    Apache2,
    /// MIT License.
    Mit,
    /// None is granted: generated files name the owner.
    Copyright,
}

impl License {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// One version of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// The type of the kind, if this project declares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<Api>,
    #[serde(default, skip_serializing_if = "is_false")]
    controller: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    controllers: Vec<NamedController>,
    /// Whether Kubernetes itself declares the kind.
    #[serde(default, skip_serializing_if = "is_false")]
    pub core: bool,
    /// The domain of the kind's group; a built-in kind of the group "" has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// Whether another project declares the kind.
    #[serde(default, skip_serializing_if = "is_false")]
    pub external: bool,
    /// The group, without the domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// The kind.
    pub kind: Kind,
    /// The crate that declares the type of an external kind, as a line of `[dependencies]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The Rust path of the type's module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The plural, if it is not the regular one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plural: Option<Plural>,
    /// The version.
    pub version: Version,
    /// The webhooks of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<WebhookSet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NamedController {
    name: ControllerName,
}

/// The declaration of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Api {
    crd_version: String,
    /// Whether objects of the kind are in namespaces.
    #[serde(default, skip_serializing_if = "is_false")]
    pub namespaced: bool,
    /// Short names for `kubectl get`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<Plural>,
}

impl Api {
    /// A declaration.
    pub fn new(namespaced: bool, mut short_names: Vec<Plural>) -> Self {
        let mut seen = HashSet::new();
        short_names.retain(|name| seen.insert(name.clone()));
        Self { crd_version: "v1".into(), namespaced, short_names }
    }
}

/// The webhooks of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookSet {
    /// The kind is converted, and this version is the hub.
    #[serde(default, skip_serializing_if = "is_false")]
    pub conversion: bool,
    /// Objects get defaults.
    #[serde(default, skip_serializing_if = "is_false")]
    pub defaulting: bool,
    /// Where the defaulting webhook is served, if not at its usual path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaulting_path: Option<WebhookPath>,
    /// The versions that are converted to the hub and from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spoke: Vec<Version>,
    /// Objects are validated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub validation: bool,
    /// Where the validating webhook is served, if not at its usual path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_path: Option<WebhookPath>,
    webhook_version: String,
}

impl Default for WebhookSet {
    fn default() -> Self {
        let webhook_version = "v1".to_owned();
        Self {
            conversion: false,
            defaulting: false,
            defaulting_path: None,
            spoke: Vec::new(),
            validation: false,
            validation_path: None,
            webhook_version,
        }
    }
}

impl WebhookSet {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        !(self.conversion || self.defaulting || self.validation)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What says whether the rest can be understood.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    version: String,
    #[serde(default)]
    layout: Vec<String>,
    #[serde(default)]
    cli_version: String,
}

impl Head {
    fn parse(text: &str) -> Result<Self, ProjectError> {
        serde_saphyr::from_str(text).map_err(|error| syntax(&error))
    }

    fn check_format(&self) -> Result<(), ProjectError> {
        if self.version == FORMAT { Ok(()) } else { Err(ProjectError::Format { found: self.version.clone() }) }
    }

    fn check_release(&self) -> Result<(), ProjectError> {
        let own = env!("CARGO_PKG_VERSION");
        if release(&self.cli_version) > release(own) {
            return Err(ProjectError::Newer { found: self.cli_version.clone(), own: own.to_owned() });
        }
        Ok(())
    }
}

fn syntax(error: &serde_saphyr::Error) -> ProjectError {
    ProjectError::Syntax(error.to_string().trim_end().to_owned())
}

impl Project {
    /// A project without kinds.
    pub fn new(name: ProjectName, domain: Domain, settings: Settings) -> Self {
        Self {
            cli_version: env!("CARGO_PKG_VERSION").to_owned(),
            domain,
            layout: vec![LAYOUT.to_owned()],
            multigroup: false,
            namespaced: false,
            plugins: Plugins { windlass: settings },
            project_name: name,
            resources: Vec::new(),
            version: FORMAT.to_owned(),
        }
    }

    /// Reads the text of a `PROJECT` file.
    ///
    /// # Errors
    /// If another tool or a newer windlass wrote it, or if it is damaged.
    pub fn parse(text: &str) -> Result<Self, ProjectError> {
        let head = Head::parse(text)?;
        head.check_format()?;
        if head.layout != [LAYOUT] {
            return Err(ProjectError::Layout { found: head.layout.join(", ") });
        }
        head.check_release()?;
        serde_saphyr::from_str(text).map_err(|error| syntax(&error))
    }

    /// Checks that no newer windlass wrote a `PROJECT` file, whichever tool did.
    ///
    /// # Errors
    /// If a newer windlass wrote it, or if it is damaged.
    pub fn check_version(text: &str) -> Result<(), ProjectError> {
        let head = Head::parse(text)?;
        head.check_format()?;
        if head.layout == [LAYOUT] { head.check_release() } else { Ok(()) }
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let yaml = serde_saphyr::to_string(self).expect("invariant: a project has string keys and plain values");
        format!("{HEADER}{yaml}")
    }

    /// What kubebuilder's format has no field for.
    pub fn settings(&self) -> &Settings {
        &self.plugins.windlass
    }

    /// The same, to be changed.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.plugins.windlass
    }

    /// Whether the operator decides about objects before they are stored.
    pub fn has_admission(&self) -> bool {
        let sets = self.resources.iter().filter_map(|resource| resource.webhooks.as_ref());
        sets.into_iter().any(|set| set.defaulting || set.validation)
    }

    /// Whether the operator serves webhooks.
    pub fn has_webhooks(&self) -> bool {
        self.resources.iter().any(|resource| resource.webhooks.is_some())
    }

    /// The versions of a kind that this project declares, oldest first.
    pub fn versions_of(&self, like: &Resource) -> Vec<&Resource> {
        let mut versions: Vec<&Resource> =
            self.resources.iter().filter(|other| other.api.is_some() && other.same_kind(like)).collect();
        versions.sort_by_key(|resource| resource.version.priority());
        versions
    }

    /// The version of a kind that is stored: the hub of its conversion, or else the version added first.
    pub fn storage_version(&self, like: &Resource) -> Option<&Version> {
        let declared = || self.resources.iter().filter(|other| other.api.is_some() && other.same_kind(like));
        let hub = declared().find(|other| other.webhooks.as_ref().is_some_and(|webhooks| webhooks.conversion));
        hub.or_else(|| declared().next()).map(|resource| &resource.version)
    }
}

/// Major, minor and patch of a version; nothing else counts.
fn release(version: &str) -> [u64; 3] {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = plain.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

impl Resource {
    /// A version of a kind of this project.
    pub fn new(domain: Domain, group: Option<Group>, version: Version, kind: Kind) -> Self {
        Self {
            api: None,
            controller: false,
            controllers: Vec::new(),
            core: false,
            domain: Some(domain),
            external: false,
            group,
            kind,
            module: None,
            path: None,
            plural: None,
            version,
            webhooks: None,
        }
    }

    /// The group as clients name it: `webapp.my.domain`.
    pub fn qualified_group(&self) -> String {
        match (&self.group, &self.domain) {
            (Some(group), Some(domain)) => format!("{group}.{domain}"),
            (Some(group), None) => group.to_string(),
            (None, Some(domain)) => domain.to_string(),
            (None, None) => String::new(),
        }
    }

    /// Whether the group belongs to the Kubernetes community: API servers accept a definition in it only with the annotation
    /// `api-approved.kubernetes.io`. Mirrors `apihelpers/helpers.go` of apiextensions-apiserver.
    pub fn is_protected(&self) -> bool {
        let group = self.qualified_group();
        let is_in =
            |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        is_in("k8s.io") || is_in("kubernetes.io")
    }

    /// The plural.
    pub fn plural(&self) -> Plural {
        self.plural.clone().unwrap_or_else(|| Plural::of(&self.kind))
    }

    /// Sets the plural.
    pub fn set_plural(&mut self, plural: Plural) {
        self.plural = (plural != Plural::of(&self.kind)).then_some(plural);
    }

    /// The names of the kind's controllers.
    pub fn controllers(&self) -> Vec<ControllerName> {
        if self.controller {
            return vec![ControllerName::of(&self.kind)];
        }
        self.controllers.iter().map(|controller| controller.name.clone()).collect()
    }

    /// Sets the names of the kind's controllers. One with the kind's own name is written as kubebuilder always did.
    pub fn set_controllers(&mut self, names: Vec<ControllerName>) {
        self.controller = names == [ControllerName::of(&self.kind)];
        let named = |name| NamedController { name };
        self.controllers = if self.controller { Vec::new() } else { names.into_iter().map(named).collect() };
    }

    /// What a file is for, which stays the same when its path changes.
    pub(crate) fn part(&self, what: &str) -> String {
        format!("{what} {} {} {}", self.qualified_group(), self.version, self.kind)
    }

    /// Whether both are versions of one kind.
    pub fn same_kind(&self, other: &Self) -> bool {
        self.kind == other.kind && self.qualified_group() == other.qualified_group()
    }

    /// Whether nothing of it is left.
    pub fn is_empty(&self) -> bool {
        self.api.is_none() && self.controllers().is_empty() && self.webhooks.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> Project {
        let name = ProjectName::new("guestbook").unwrap();
        let domain = Domain::new("my.domain").unwrap();
        let mut project = Project::new(name, domain.clone(), Settings::default());
        let mut guestbook = Resource::new(
            domain,
            Some(Group::new("webapp").unwrap()),
            Version::new("v1").unwrap(),
            Kind::new("Guestbook").unwrap(),
        );
        guestbook.api = Some(Api::new(true, Vec::new()));
        guestbook.set_controllers(vec![ControllerName::of(&guestbook.kind)]);
        project.resources.push(guestbook);
        project
    }

    #[test]
    fn what_is_written_is_read() {
        let mut project = project();
        project.multigroup = true;
        project.settings_mut().windlass = Source::Path("/src/windlass".into());
        let resource = &mut project.resources[0];
        resource.set_controllers(vec![
            ControllerName::of(&resource.kind),
            ControllerName::new("guestbook-backup").unwrap(),
        ]);
        resource.webhooks = Some(WebhookSet { defaulting: true, ..WebhookSet::default() });
        assert_eq!(Project::parse(&project.to_text()).unwrap(), project);
    }

    #[test]
    fn the_format_is_kubebuilders() {
        let expected = format!(
            "{HEADER}cliVersion: \"{version}\"\ndomain: my.domain\nlayout:\n- {LAYOUT}\nplugins:\n  {LAYOUT}:\n    windlass:\n      \
             version: \"{version}\"\nprojectName: guestbook\nresources:\n- api:\n    crdVersion: v1\n    namespaced: true\n  \
             controller: true\n  domain: my.domain\n  group: webapp\n  kind: Guestbook\n  version: v1\nversion: \"3\"\n",
            version = env!("CARGO_PKG_VERSION"),
        );
        assert_eq!(project().to_text(), expected);
    }

    #[test]
    fn groups_of_the_community_are_protected() {
        let is_protected = |domain: &str, group: Option<&str>| {
            let group = group.map(|group| Group::new(group).unwrap());
            let (version, kind) = (Version::new("v1").unwrap(), Kind::new("Pet").unwrap());
            Resource::new(Domain::new(domain).unwrap(), group, version, kind).is_protected()
        };
        for (domain, group, protected) in [
            ("k8s.io", None, true),
            ("kubernetes.io", None, true),
            ("k8s.io", Some("pets"), true),
            ("kubernetes.io", Some("pets"), true),
            ("x-k8s.io", Some("pets"), false),
            ("mykubernetes.io", Some("pets"), false),
            ("k8s.io.example.com", Some("pets"), false),
        ] {
            assert_eq!(is_protected(domain, group), protected, "{group:?} of {domain}");
        }
    }

    #[test]
    fn other_files_are_refused_with_what_to_do() {
        let refused = |text: String, part: &str| {
            let error = Project::parse(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{part:?} is not in: {error}");
        };
        let text = project().to_text();
        for (version, part) in [
            ("4", "install a newer windlass"),
            ("4-alpha", "install a newer windlass"),
            ("2", "run `windlass init` in another directory"),
            ("3-alpha", "run `windlass init` in another directory"),
        ] {
            refused(text.replace("version: \"3\"", &format!("version: \"{version}\"")), part);
        }
        refused(text.replace("layout:\n- windlass.dev/v1", "layout:\n- go.kubebuilder.io/v4"), "go.kubebuilder.io/v4");
        refused(
            text.replace(&format!("cliVersion: \"{}\"", env!("CARGO_PKG_VERSION")), "cliVersion: 99.0.0"),
            "99.0.0",
        );
        refused(text.replace("kind: Guestbook", "kind: guestbook"), "upper case letter");
        refused("version: \"3\"\nresources: [".into(), "cannot be read: error: line 2");
        refused("resources: [".into(), "`git checkout PROJECT`");
    }
}
