//! Why a command cannot do what it is asked for.

use crate::name::{ControllerName, Kind, NameError, Plural, Version, WebhookPath};

/// Why a command cannot do what it is asked for, and what can be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CommandError {
    #[error(transparent)]
    Name(NameError),
    #[error("neither a resource nor a controller is wanted: leave out --resource=false or --controller=false")]
    Nothing,
    #[error("a kind of another project is not declared here: add --resource=false to --external-api-path")]
    ExternalDeclared,
    #[error(
        "Kubernetes has no kind {kind} of version {version} in this group, and neither has this project; for a kind of \
         another project, say where its Rust types are with --external-api-path"
    )]
    UnknownKind { kind: Kind, version: Version },
    #[error("{kind} {version} exists already; to add a controller to it use --resource=false --controller-name NAME")]
    Exists { kind: Kind, version: Version },
    #[error(
        "the group {group:?} has no dot, and Kubernetes wants one: use --group, or a domain such as \"example.com\""
    )]
    GroupWithoutDot { group: String },
    #[error(
        "{group} is a group of Kubernetes itself, and API servers do not serve kinds that a CRD adds to it: choose another \
         --group, or another --domain for the project"
    )]
    BuiltInGroup { group: String },
    #[error(
        "the kinds of this project are in the group {existing}, and this one would be in {group}: run `windlass edit \
         --multigroup` first"
    )]
    OtherGroup { group: String, existing: String },
    #[error(
        "Kubernetes has a kind {kind}, and `kubectl get` would find that: choose another name, or add --allow-builtin-name"
    )]
    BuiltIn { kind: Kind },
    #[error(
        "Kubernetes serves {name}, and `kubectl get {name}` would find that: choose another name, or add \
         --allow-builtin-name"
    )]
    Served { name: Plural },
    #[error("{kind} {version} has the other scope: all versions of a kind are in namespaces, or none is")]
    OtherScope { kind: Kind, version: Version },
    #[error("other versions of {kind} have the plural {plural}: use --plural {plural}")]
    OtherPlural { kind: Kind, plural: Plural },
    #[error(
        "{kind} is too similar to {other}: their plural, or Rust modules or types of theirs, would have the same name"
    )]
    Clash { kind: Kind, other: Kind },
    #[error(
        "the name of the CRD, {name}, has more than 253 characters: choose a shorter --group, or a shorter --domain for the \
         project"
    )]
    LongName { name: String },
    #[error("the short name {name} is a name of {other}: an API server does not serve a second kind of that name")]
    ShortNameTaken { name: Plural, other: Kind },
    #[error("--external-api-path {path:?} is no Rust path: it names the module of the types, as cert_manager_api::v1")]
    ExternalPath { path: String },
    #[error(
        "--external-api-module {module:?} is no line of [dependencies]: it names the crate of the types, as \
         cert-manager-api = \"1\" or cert-manager-api = {{ git = \"https://example.com/api\" }}"
    )]
    ExternalModule { module: String },
    #[error("there is a controller \"{name}\" already: give this one another name, as with --controller-name={free}")]
    ControllerExists { name: ControllerName, free: ControllerName },
    #[error(
        "{kind} {version} has the controller \"{name}\", and one controller is enough for all versions of a kind: add \
         --controller=false, or give this version one of its own with --controller-name"
    )]
    ControllerOfVersion { name: ControllerName, kind: Kind, version: Version },
    #[error(
        "the controller would be called \"{name}\", which no controller can be, because it has more than 63 characters or is \
         a reserved word: name it with --controller-name"
    )]
    NoControllerName { name: String },
    #[error("no webhook is named: use --defaulting, --validation or --conversion")]
    NoWebhook,
    #[error("{kind} has a {webhook} webhook already")]
    WebhookExists { kind: Kind, webhook: &'static str },
    #[error("another webhook is served at {path}: choose another path")]
    PathTaken { path: WebhookPath },
    #[error("{kind} has a conversion with the hub {hub} already, and these versions are part of it")]
    ConversionExists { kind: Kind, hub: Version },
    #[error("{kind} has {webhook} webhook")]
    WebhookMissing { kind: Kind, webhook: &'static str },
    #[error(
        "{kind} has the hub {hub} already: `windlass delete webhook{group} --kind {kind} --version {hub} --conversion` \
         first"
    )]
    OtherHub { kind: Kind, hub: Version, group: String },
    #[error("{kind} has no version {version}: create it first")]
    NoSuchVersion { kind: Kind, version: Version },
    #[error("{kind} has one version only: create the other with `windlass create api` first")]
    OneVersion { kind: Kind },
    #[error(
        "versions of {kind} are converted, and {hub} is the hub: `windlass delete webhook{group} --kind {kind} --version \
         {hub} --conversion` first"
    )]
    Converted { kind: Kind, hub: Version, group: String },
    #[error("the project has kinds in several groups: {groups}")]
    SeveralGroups { groups: String },
    #[error("the project has no kinds yet: add one with `windlass create api`")]
    NoKinds,
    #[error("{kind} has no controller \"{name}\"; it has: {known}")]
    NoSuchController { name: ControllerName, kind: Kind, known: String },
    #[error("version {version} of {kind} is not part of its conversion")]
    NoSuchSpoke { kind: Kind, version: Version },
    #[error("{kind} is declared elsewhere, and so are the conversions between its versions")]
    ConversionOfForeign { kind: Kind },
    #[error("the project has no such version of {kind} in such a group; it has: {known}")]
    NoSuchKind { kind: Kind, known: String },
    #[error("there is more than one {kind}: {found}; say which with --group and --version")]
    Ambiguous { kind: Kind, found: String },
}

impl CommandError {
    /// Whether the command itself makes no sense, whatever the project has.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::Nothing
                | Self::ExternalDeclared
                | Self::ExternalPath { .. }
                | Self::ExternalModule { .. }
                | Self::NoWebhook
        )
    }
}
