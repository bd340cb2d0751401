//! The commands, as changes of a project's description.
//!
//! Each function takes a project and returns nothing or the reason why not; files are not its business.

mod error;

use crate::builtin;
use crate::name::{ControllerName, Domain, Group, Kind, Plural, Version, WebhookPath};
use crate::project::{Api, License, Project, Resource, WebhookSet};

pub use error::CommandError;

/// What `create api` is asked for.
#[derive(Debug, Clone)]
pub struct NewApi {
    /// The group, without the domain.
    pub group: Option<Group>,
    /// The version.
    pub version: Version,
    /// The kind.
    pub kind: Kind,
    /// The plural, if it is not the regular one.
    pub plural: Option<Plural>,
    /// Short names for `kubectl get`.
    pub short_names: Vec<Plural>,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// Whether this project declares the kind.
    pub resource: bool,
    /// Whether a controller for the kind is wanted.
    pub controller: bool,
    /// The controller's name, if it is not the kind's.
    pub controller_name: Option<ControllerName>,
    /// Where the types of a kind are that another project declares.
    pub external: Option<External>,
    /// Whether the kind, its plural and its short names may be those of a built-in kind.
    pub builtin_name: bool,
}

/// How long the name of a definition may be, `guestbooks.webapp.my.domain`.
const LONGEST_DEFINITION: usize = 253;

/// Where the types of a kind are that another project declares.
#[derive(Debug, Clone)]
pub struct External {
    /// The Rust module of the types: `cert_manager_api::v1`.
    pub path: String,
    /// The domain of the group: `io`.
    pub domain: Option<Domain>,
    /// The crate, as a line of `[dependencies]`.
    pub module: Option<String>,
}

/// Which resource a command is about; what is left out must not be needed to tell it from others.
#[derive(Debug, Clone)]
pub struct Selector {
    /// The group, without the domain.
    pub group: Option<Group>,
    /// The version.
    pub version: Option<Version>,
    /// The kind.
    pub kind: Kind,
}

/// Which webhooks a command is about.
#[derive(Debug, Clone, Default)]
pub struct Webhooks {
    /// Defaults.
    pub defaulting: bool,
    /// Where the defaulting webhook is served, if not at its usual path.
    pub defaulting_path: Option<WebhookPath>,
    /// Validation.
    pub validation: bool,
    /// Where the validating webhook is served, if not at its usual path.
    pub validation_path: Option<WebhookPath>,
    /// Conversion; the resource is the hub.
    pub conversion: bool,
    /// The versions that are converted to the hub and from it. All others of the kind, if none is named.
    pub spokes: Vec<Version>,
    /// Where the types of a kind are that another project declares, if this project has nothing of it yet.
    pub external: Option<External>,
}

/// What `edit` changes.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// A directory for each group.
    pub multigroup: Option<bool>,
    /// Chosen namespaces only.
    pub namespaced: Option<bool>,
    /// The license of generated files.
    pub license: Option<License>,
    /// Whose copyright it is.
    pub owner: Option<String>,
    /// The comment at the top of Rust files, without `//`.
    pub header: Option<String>,
}

/// Adds a version of a kind, a controller, or both. A further version of a kind with a conversion is converted too.
///
/// # Errors
/// If the project cannot have it; nothing is changed then.
pub fn create_api(project: &mut Project, new: NewApi) -> Result<(), CommandError> {
    if !new.resource && !new.controller {
        return Err(CommandError::Nothing);
    }
    let mut wanted = resource(project, &new)?;
    let existing =
        project.resources.iter().position(|other| other.same_kind(&wanted) && other.version == wanted.version);
    if new.resource {
        let definition = format!("{}.{}", wanted.plural(), wanted.qualified_group());
        if definition.len() > LONGEST_DEFINITION {
            return Err(CommandError::LongName { name: definition });
        }
        check_declaration(project, &new, &wanted, existing)?;
        wanted.api = Some(Api::new(new.namespaced, new.short_names.clone()));
    }
    if let Some(at) = existing {
        let api = wanted.api.take();
        wanted = project.resources[at].clone();
        wanted.api = api.or(wanted.api);
    }
    if new.controller {
        add_controller(project, &mut wanted, new.controller_name)?;
    }
    if new.resource {
        let hub =
            project.resources.iter_mut().find(|other| other.same_kind(&wanted) && crate::render::has_conversion(other));
        if let Some(set) = hub.and_then(|hub| hub.webhooks.as_mut()) {
            set.spoke.push(wanted.version.clone());
        }
    }
    match existing {
        Some(at) => project.resources[at] = wanted,
        None => project.resources.push(wanted),
    }
    Ok(())
}

/// The resource that is meant, without anything of it.
fn resource(project: &Project, new: &NewApi) -> Result<Resource, CommandError> {
    let mut wanted = Resource::new(project.domain.clone(), new.group.clone(), new.version.clone(), new.kind.clone());
    // All versions of a kind have one plural.
    let earlier = project.resources.iter().find(|other| other.same_kind(&wanted)).map(Resource::plural);
    if let Some(plural) = new.plural.clone().or(earlier) {
        wanted.set_plural(plural);
    }
    if new.resource {
        if new.external.is_some() {
            return Err(CommandError::ExternalDeclared);
        }
    } else if new.external.is_some()
        || !project.resources.iter().any(|other| other.same_kind(&wanted) && other.version == new.version)
    {
        return foreign(wanted, new.external.as_ref());
    }
    Ok(wanted)
}

/// A resource that another project declares, or Kubernetes itself.
fn foreign(mut wanted: Resource, external: Option<&External>) -> Result<Resource, CommandError> {
    if let Some(external) = external {
        check_external(external)?;
        wanted.external = true;
        wanted.domain.clone_from(&external.domain);
        wanted.path = Some(external.path.clone());
        wanted.module.clone_from(&external.module);
        return Ok(wanted);
    }
    let group = wanted.group.clone().map_or_else(|| Group::new("core"), Ok).map_err(CommandError::Name)?;
    let Some(found) = builtin::find(&group, &wanted.version, &wanted.kind) else {
        return Err(CommandError::UnknownKind { kind: wanted.kind, version: wanted.version });
    };
    wanted.core = true;
    wanted.domain = None;
    wanted.group =
        (!found.group.is_empty()).then(|| Group::new(found.group)).transpose().map_err(CommandError::Name)?;
    wanted.path = Some(found.path);
    Ok(wanted)
}

/// What is written into Rust and TOML files as it is given must be Rust and TOML.
fn check_external(external: &External) -> Result<(), CommandError> {
    let path = &external.path;
    if syn::parse_str::<syn::Path>(path).is_err() || path.contains(char::is_whitespace) {
        return Err(CommandError::ExternalPath { path: path.clone() });
    }
    match &external.module {
        Some(module) if !is_dependency(module) => Err(CommandError::ExternalModule { module: module.clone() }),
        _ => Ok(()),
    }
}

/// Whether text is `name = "version"` or `name = { ... }`.
fn is_dependency(line: &str) -> bool {
    let Some((name, value)) = line.split_once('=') else { return false };
    let (name, value) = (name.trim(), value.trim());
    let in_quotes = |text: &str| !text.contains(['"', '\\']);
    let is_version = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).is_some_and(in_quotes);
    let is_table = value.starts_with('{') && value.ends_with('}') && value.matches('"').count() % 2 == 0;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    is_name && (is_version || is_table) && !line.contains(char::is_control)
}

fn check_declaration(
    project: &Project,
    new: &NewApi,
    wanted: &Resource,
    existing: Option<usize>,
) -> Result<(), CommandError> {
    if existing.is_some_and(|at| project.resources[at].api.is_some()) {
        return Err(CommandError::Exists { kind: wanted.kind.clone(), version: wanted.version.clone() });
    }
    let group = wanted.qualified_group();
    if !group.contains('.') {
        return Err(CommandError::GroupWithoutDot { group });
    }
    // Upstream's server answers any path below a group of its own (`apiserver/pkg/server/handler.go`, `director`).
    if builtin::is_group(&group) {
        return Err(CommandError::BuiltInGroup { group });
    }
    let declared = || project.resources.iter().filter(|other| other.api.is_some());
    if !project.multigroup
        && let Some(other) = declared().find(|other| other.qualified_group() != group)
    {
        return Err(CommandError::OtherGroup { group, existing: other.qualified_group() });
    }
    if builtin::is_taken(&wanted.kind) && !new.builtin_name {
        return Err(CommandError::BuiltIn { kind: wanted.kind.clone() });
    }
    let mut names = new.plural.iter().chain(&new.short_names);
    if let Some(name) = names.find(|name| builtin::is_served(name)).filter(|_| !new.builtin_name) {
        return Err(CommandError::Served { name: name.clone() });
    }
    for other in declared() {
        if other.same_kind(wanted) {
            if other.api.as_ref().is_some_and(|api| api.namespaced != new.namespaced) {
                return Err(CommandError::OtherScope { kind: wanted.kind.clone(), version: other.version.clone() });
            }
            if other.plural() != wanted.plural() {
                return Err(CommandError::OtherPlural { kind: wanted.kind.clone(), plural: other.plural() });
            }
            continue;
        }
        // `Foo` has the types `FooSpec`, `FooStatus` and `FooList` beside it.
        let types = |kind: &Kind| ["Spec", "Status", "List"].map(|part| format!("{kind}{part}"));
        let beside = types(&other.kind).contains(&wanted.kind.to_string())
            || types(&wanted.kind).contains(&other.kind.to_string());
        if beside && other.qualified_group() == group {
            return Err(CommandError::Clash { kind: wanted.kind.clone(), other: other.kind.clone() });
        }
        let module = wanted.kind.module() == other.kind.module();
        let same_group = other.qualified_group() == group;
        let short_names = other.api.as_ref().map_or(&[][..], |api| &api.short_names);
        let is_name = |name: &&Plural| {
            name.as_str() == other.kind.lower() || **name == other.plural() || short_names.contains(name)
        };
        if same_group && let Some(name) = new.short_names.iter().find(is_name) {
            return Err(CommandError::ShortNameTaken { name: name.clone(), other: other.kind.clone() });
        }
        let named = |name: &Plural| name.as_str() == wanted.kind.lower() || *name == wanted.plural();
        if same_group && short_names.iter().any(named) {
            return Err(CommandError::Clash { kind: wanted.kind.clone(), other: other.kind.clone() });
        }
        // Singular and plural names are names of one list for the API server.
        let plural_of = |one: &Resource, other: &Resource| one.plural().as_str() == other.kind.lower();
        let same_plural = other.plural() == wanted.plural() || plural_of(other, wanted) || plural_of(wanted, other);
        if (same_group && (same_plural || module)) || (module && !project.multigroup) {
            return Err(CommandError::Clash { kind: wanted.kind.clone(), other: other.kind.clone() });
        }
    }
    Ok(())
}

/// The name of a kind's controller: the kind's, with the group in front of it if a controller of another kind has that.
fn default_controller(project: &Project, resource: &Resource) -> Result<ControllerName, CommandError> {
    let plain = ControllerName::of(&resource.kind);
    let has_it = |other: &Resource| !other.same_kind(resource) && other.controllers().contains(&plain);
    if !project.resources.iter().any(has_it) {
        return Ok(plain);
    }
    let group = resource.group.as_ref().map_or_else(|| resource.qualified_group(), ToString::to_string);
    let group = if group.is_empty() { "core".to_owned() } else { group.replace('.', "-") };
    let name = format!("{group}-{plain}");
    ControllerName::new(name.as_str()).map_err(|_| CommandError::NoControllerName { name })
}

/// A name like `name` that no controller has.
fn free_controller(project: &Project, name: &ControllerName) -> Result<ControllerName, CommandError> {
    let is_taken =
        |name: &ControllerName| project.resources.iter().any(|resource| resource.controllers().contains(name));
    let mut number = 2;
    loop {
        let end = format!("-{number}");
        let start: String = name.as_str().chars().take(63 - end.len()).collect();
        let free = ControllerName::new(format!("{start}{end}")).map_err(CommandError::Name)?;
        if !is_taken(&free) {
            return Ok(free);
        }
        number += 1;
    }
}

fn add_controller(
    project: &Project,
    resource: &mut Resource,
    name: Option<ControllerName>,
) -> Result<(), CommandError> {
    let name = name.map_or_else(|| default_controller(project, resource), Ok)?;
    if let Some(other) = project.resources.iter().find(|other| other.controllers().contains(&name)) {
        if other.same_kind(resource) && other.version != resource.version {
            let (kind, version) = (other.kind.clone(), other.version.clone());
            return Err(CommandError::ControllerOfVersion { name, kind, version });
        }
        let free = free_controller(project, &name)?;
        return Err(CommandError::ControllerExists { name, free });
    }
    let mut names = resource.controllers();
    names.push(name);
    resource.set_controllers(names);
    Ok(())
}

/// Adds webhooks to a kind. Those that it has stay; versions can be added to a conversion. A kind that Kubernetes or
/// another project declares needs no controller here.
///
/// # Errors
/// If the project does not have the kind, or the kind has these webhooks.
pub fn create_webhook(project: &mut Project, selector: &Selector, new: &Webhooks) -> Result<(), CommandError> {
    if !(new.defaulting || new.validation || new.conversion) {
        return Err(CommandError::NoWebhook);
    }
    let (at, added) = match find(project, selector) {
        Ok(at) => (at, None),
        Err(error) => {
            // Without a version it is not known which kind is meant.
            let Some(version) = selector.version.clone() else { return Err(error) };
            let wanted = Resource::new(project.domain.clone(), selector.group.clone(), version, selector.kind.clone());
            let wanted = foreign(wanted, new.external.as_ref()).map_err(|reason| match reason {
                CommandError::UnknownKind { .. } => error,
                other => other,
            })?;
            (project.resources.len(), Some(wanted))
        }
    };
    if new.conversion && added.is_some() {
        return Err(CommandError::ConversionOfForeign { kind: selector.kind.clone() });
    }
    let mut set = added.is_none().then(|| project.resources[at].webhooks.clone()).flatten().unwrap_or_default();
    for (wanted, existing, name) in
        [(new.defaulting, set.defaulting, "defaulting"), (new.validation, set.validation, "validation")]
    {
        if wanted && existing {
            return Err(CommandError::WebhookExists { kind: selector.kind.clone(), webhook: name });
        }
    }
    let taken = project.resources.iter().filter_map(|resource| resource.webhooks.as_ref());
    let mut taken: Vec<&WebhookPath> =
        taken.flat_map(|set| [&set.defaulting_path, &set.validation_path]).flatten().collect();
    for path in [&new.defaulting_path, &new.validation_path].into_iter().flatten() {
        if taken.contains(&path) {
            return Err(CommandError::PathTaken { path: path.clone() });
        }
        taken.push(path);
    }
    if new.defaulting {
        (set.defaulting, set.defaulting_path) = (true, new.defaulting_path.clone());
    }
    if new.validation {
        (set.validation, set.validation_path) = (true, new.validation_path.clone());
    }
    if new.conversion {
        let added = spokes(project, at, &set.spoke, new)?;
        set.spoke.extend(added);
        set.conversion = true;
    }
    project.resources.extend(added);
    project.resources[at].webhooks = Some(set);
    Ok(())
}

/// The option that tells a kind from those of the same name in other groups: ` --group sales`.
fn group_option(project: &Project, resource: &Resource) -> String {
    let group = resource.group.as_ref().filter(|_| project.multigroup);
    group.map(|group| format!(" --group {group}")).unwrap_or_default()
}

/// The versions that a conversion gets, beside those that it has.
fn spokes(project: &Project, hub: usize, existing: &[Version], new: &Webhooks) -> Result<Vec<Version>, CommandError> {
    let hub = &project.resources[hub];
    let kind = || hub.kind.clone();
    let versions = project.versions_of(hub);
    let is_other_hub = |other: &&&Resource| other.version != hub.version && crate::render::has_conversion(other);
    if let Some(other) = versions.iter().find(is_other_hub) {
        let group = group_option(project, other);
        return Err(CommandError::OtherHub { kind: kind(), hub: other.version.clone(), group });
    }
    let others: Vec<Version> =
        versions.iter().map(|other| other.version.clone()).filter(|version| *version != hub.version).collect();
    if let Some(unknown) = new.spokes.iter().find(|version| !others.contains(version)) {
        return Err(CommandError::NoSuchVersion { kind: kind(), version: unknown.clone() });
    }
    if others.is_empty() {
        return Err(CommandError::OneVersion { kind: kind() });
    }
    let mut added: Vec<Version> = Vec::new();
    for version in if new.spokes.is_empty() { &others } else { &new.spokes } {
        if !existing.contains(version) && !added.contains(version) {
            added.push(version.clone());
        }
    }
    if added.is_empty() {
        let (kind, hub) = (kind(), hub.version.clone());
        return Err(CommandError::ConversionExists { kind, hub });
    }
    Ok(added)
}

/// Takes away a version of a kind with everything that is generated for it, also its conversion if that leaves others.
///
/// # Errors
/// If the project does not have it, or it is needed for a conversion.
pub fn delete_api(project: &mut Project, selector: &Selector) -> Result<(), CommandError> {
    let at = find(project, selector)?;
    let gone = &project.resources[at];
    let mut conversion = None;
    for (place, other) in project.resources.iter().enumerate().filter(|(_, other)| other.same_kind(gone)) {
        let Some(set) = other.webhooks.as_ref().filter(|set| set.conversion) else { continue };
        let is_spoke = set.spoke.contains(&gone.version);
        if other.version == gone.version || (is_spoke && set.spoke.len() == 1) {
            let group = group_option(project, other);
            return Err(CommandError::Converted { kind: gone.kind.clone(), hub: other.version.clone(), group });
        }
        conversion = is_spoke.then_some(place).or(conversion);
    }
    let version = gone.version.clone();
    if let Some(set) = conversion.and_then(|place| project.resources[place].webhooks.as_mut()) {
        set.spoke.retain(|spoke| *spoke != version);
    }
    project.resources.remove(at);
    Ok(())
}

/// Takes one controller of a kind away, and the kind with it if nothing else of it is here.
///
/// # Errors
/// If the kind has no such controller.
pub fn delete_controller(
    project: &mut Project,
    selector: &Selector,
    name: &ControllerName,
) -> Result<(), CommandError> {
    let at = find(project, selector)?;
    let resource = &mut project.resources[at];
    let mut names = resource.controllers();
    if !names.contains(name) {
        let known = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(CommandError::NoSuchController { name: name.clone(), kind: selector.kind.clone(), known });
    }
    names.retain(|other| other != name);
    resource.set_controllers(names);
    if resource.is_empty() {
        project.resources.remove(at);
    }
    Ok(())
}

/// Takes webhooks away; all of them, if none is named. Of a conversion only the named versions, if there are any.
///
/// # Errors
/// If the kind does not have them.
pub fn delete_webhook(project: &mut Project, selector: &Selector, gone: &Webhooks) -> Result<(), CommandError> {
    let at = find_webhook(project, selector, gone)?;
    let kind = || selector.kind.clone();
    let Some(mut set) = project.resources[at].webhooks.clone() else {
        return Err(CommandError::WebhookMissing { kind: kind(), webhook: "no" });
    };
    if gone.defaulting || gone.validation || gone.conversion {
        for (named, existing, name) in [
            (gone.defaulting, &mut set.defaulting, "no defaulting"),
            (gone.validation, &mut set.validation, "no validation"),
            (gone.conversion, &mut set.conversion, "no conversion"),
        ] {
            if named && !*existing {
                return Err(CommandError::WebhookMissing { kind: kind(), webhook: name });
            }
            *existing &= !named;
        }
        if let Some(unknown) = gone.spokes.iter().find(|spoke| !set.spoke.contains(spoke)) {
            return Err(CommandError::NoSuchSpoke { kind: kind(), version: unknown.clone() });
        }
        if gone.conversion && !gone.spokes.is_empty() {
            set.spoke.retain(|spoke| !gone.spokes.contains(spoke));
            set.conversion = !set.spoke.is_empty();
        }
    } else {
        set = WebhookSet::default();
    }
    if !set.conversion {
        set.spoke = Vec::new();
    }
    set.defaulting_path.take_if(|_| !set.defaulting);
    set.validation_path.take_if(|_| !set.validation);
    project.resources[at].webhooks = (!set.is_empty()).then_some(set);
    if project.resources[at].is_empty() {
        project.resources.remove(at);
    }
    Ok(())
}

/// Changes the settings of a project.
///
/// # Errors
/// If its kinds do not allow that.
pub fn edit(project: &mut Project, edit: Edit) -> Result<(), CommandError> {
    if let Some(multigroup) = edit.multigroup {
        if !multigroup {
            let mut groups: Vec<String> = project.resources.iter().map(Resource::qualified_group).collect();
            groups.sort_unstable();
            groups.dedup();
            if groups.len() > 1 {
                return Err(CommandError::SeveralGroups { groups: groups.join(", ") });
            }
        }
        project.multigroup = multigroup;
    }
    if let Some(namespaced) = edit.namespaced {
        project.namespaced = namespaced;
    }
    let settings = project.settings_mut();
    if let Some(license) = edit.license {
        settings.license = license;
        settings.header = None;
    }
    if let Some(header) = edit.header {
        settings.header = Some(header);
    }
    if let Some(owner) = edit.owner {
        settings.owner = (!owner.is_empty()).then_some(owner);
    }
    Ok(())
}

/// Whether a resource is of a group as commands name it. That of a built-in kind may have a short name: `core`,
/// `networking`.
fn is_group(resource: &Resource, group: &Group) -> bool {
    if resource.group.as_ref() == Some(group) {
        return true;
    }
    let found = builtin::find(group, &resource.version, &resource.kind).filter(|_| resource.core);
    found.is_some_and(|found| found.group == resource.qualified_group())
}

/// The one resource whose webhooks are meant: of several versions, the one that has them.
fn find_webhook(project: &Project, selector: &Selector, gone: &Webhooks) -> Result<usize, CommandError> {
    let found = find(project, selector);
    if !matches!(found, Err(CommandError::Ambiguous { .. })) {
        return found;
    }
    let has_them = |at: &usize| {
        project.resources[*at].webhooks.as_ref().is_some_and(|set| {
            (set.defaulting || !gone.defaulting)
                && (set.validation || !gone.validation)
                && (set.conversion || !gone.conversion)
        })
    };
    match fitting(project, selector).into_iter().filter(has_them).collect::<Vec<_>>()[..] {
        [at] => Ok(at),
        _ => found,
    }
}

/// The resources that a selector allows.
fn fitting(project: &Project, selector: &Selector) -> Vec<usize> {
    let fits = |resource: &Resource| {
        resource.kind == selector.kind
            && selector.version.as_ref().is_none_or(|version| *version == resource.version)
            && selector.group.as_ref().is_none_or(|group| is_group(resource, group))
    };
    project.resources.iter().enumerate().filter(|(_, resource)| fits(resource)).map(|(at, _)| at).collect()
}

/// The one resource that is meant.
fn find(project: &Project, selector: &Selector) -> Result<usize, CommandError> {
    let found = fitting(project, selector);
    match found[..] {
        [at] => Ok(at),
        [] if project.resources.is_empty() => Err(CommandError::NoKinds),
        [] => {
            let known = project.resources.iter();
            let known =
                known.map(|resource| format!("{} {}/{}", resource.kind, resource.qualified_group(), resource.version));
            Err(CommandError::NoSuchKind { kind: selector.kind.clone(), known: known.collect::<Vec<_>>().join(", ") })
        }
        _ => {
            let found = found.iter().map(|at| &project.resources[*at]);
            let found = found.map(|resource| format!("{}/{}", resource.qualified_group(), resource.version));
            Err(CommandError::Ambiguous { kind: selector.kind.clone(), found: found.collect::<Vec<_>>().join(", ") })
        }
    }
}
