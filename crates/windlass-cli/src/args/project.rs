//! The arguments of the commands that change an operator's project. Flags have kubebuilder's names, and those of its
//! flags that mean nothing here are accepted, because tutorials use them.

use std::path::PathBuf;

use clap::{ArgAction, Subcommand, ValueEnum};
use windlass_scaffold::name::{ControllerName, Domain, Group, Kind, Plural, ProjectName, Version, WebhookPath};

use super::{ListFormat, parse_git, parse_line};

/// How the files of a project are changed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Change {
    /// Show what would change as a diff, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replace files that you have edited; without this they are merged, and nothing is written if that fails
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set,
          default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub force: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Where to create the project; the directory is created if it does not exist
    #[arg(default_value = ".", value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// The domain of the project's API groups
    #[arg(long, default_value = "my.domain")]
    pub domain: Domain,
    /// The name of the project, at most 28 characters [default: the name of the directory]
    #[arg(long, visible_alias = "project-name")]
    pub name: Option<ProjectName>,
    /// Keep the files of each API group in a directory of their own
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set,
          default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub multigroup: bool,
    /// Let the operator watch chosen namespaces only, with Roles instead of ClusterRoles
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set,
          default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub namespaced: bool,
    /// The license of the project: its text in LICENSE, and its name in Cargo.toml and in generated files
    #[arg(long, value_enum, default_value_t)]
    pub license: LicenseName,
    /// The owner that the license and the headers of files name
    #[arg(long, value_parser = parse_line, required_if_eq("license", "copyright"))]
    pub owner: Option<String>,
    /// A file with the comment at the top of Rust files, instead of the names of owner and license
    #[arg(long, value_name = "FILE")]
    pub license_file: Option<PathBuf>,
    /// Take windlass from this checkout [default: the one that this command was built from, if it is still there]
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "windlass_git")]
    pub windlass_path: Option<PathBuf>,
    /// Take windlass from this git repository, a URL or a directory
    #[arg(long, value_name = "URL", value_parser = parse_git)]
    pub windlass_git: Option<String>,
    #[command(flatten)]
    pub change: Change,
    #[command(flatten)]
    pub ignored: Ignored,
}

/// The license of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LicenseName {
    /// Apache License 2.0
    #[default]
    Apache2,
    /// MIT License
    Mit,
    /// No license; generated files name the owner if there is one
    None,
    /// No license; generated files name the owner
    Copyright,
}

/// Flags of kubebuilder that mean nothing here.
#[derive(Debug, clap::Args)]
pub(crate) struct Ignored {
    #[arg(long, hide = true)]
    repo: Option<String>,
    #[arg(long, hide = true)]
    pub plugins: Option<String>,
    #[arg(long, hide = true)]
    project_version: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    make: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    fetch_deps: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    skip_go_version_check: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    ssa: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    component_config: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    example: Option<bool>,
    #[arg(long, hide = true)]
    crd_version: Option<String>,
    #[arg(long, hide = true)]
    webhook_version: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Create {
    /// Add a kind, a version of it, or a controller
    Api(CreateApi),
    /// Add webhooks to a kind
    Webhook(CreateWebhook),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Delete {
    /// Take away a version of a kind with its controllers and webhooks
    Api(DeleteApi),
    /// Take webhooks away from a kind
    Webhook(DeleteWebhook),
    /// Take away the client that `generate client` added
    Client(DeleteClient),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteClient {
    #[command(flatten)]
    pub change: Change,
}

#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub(crate) struct CreateApi {
    /// The API group, without the project's domain
    #[arg(long)]
    pub group: Option<Group>,
    /// The version, such as v1 or v1alpha1
    #[arg(long)]
    pub version: Version,
    /// The kind, such as Guestbook
    #[arg(long)]
    pub kind: Kind,
    /// The plural of the kind in lower case [default: formed as in English]
    #[arg(long)]
    pub plural: Option<Plural>,
    /// A short name for `kubectl get`; may be given more than once
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub shortname: Vec<Plural>,
    /// Whether objects of the kind are in namespaces
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          action = ArgAction::Set, value_name = "BOOL")]
    pub namespaced: bool,
    /// Whether to declare the kind; `false` is for controllers of kinds that Kubernetes or another project declares
    /// [default: asks on a terminal, else true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub resource: Option<bool>,
    /// Whether to add a controller for the kind [default: asks on a terminal, else true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub controller: Option<bool>,
    /// The controller's name [default: the kind's]
    #[arg(long, value_name = "NAME")]
    pub controller_name: Option<ControllerName>,
    /// Allow a kind, plural or short name that Kubernetes serves too
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set,
          default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub allow_builtin_name: bool,
    #[command(flatten)]
    pub external: ExternalApi,
    #[command(flatten)]
    pub change: Change,
    #[command(flatten)]
    pub ignored: Ignored,
    #[command(flatten)]
    pub image: DeployImage,
}

/// Flags of kubebuilder's plugin deploy-image.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_field_names, reason = "they are the names of flags")]
pub(crate) struct DeployImage {
    #[arg(long, hide = true)]
    image: Option<String>,
    #[arg(long, hide = true)]
    image_container_command: Option<String>,
    #[arg(long, hide = true)]
    image_container_port: Option<String>,
    #[arg(long, hide = true)]
    run_as_user: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    manifests: Option<bool>,
}

impl DeployImage {
    /// Whether a flag asks for what the plugin generates. `--manifests` only says whether `make manifests` runs afterwards.
    pub(crate) fn is_given(&self) -> bool {
        [&self.image, &self.image_container_command, &self.image_container_port, &self.run_as_user]
            .into_iter()
            .any(Option::is_some)
    }
}

/// Where the types of a kind are that another project declares.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_field_names, reason = "they are the names of flags")]
pub(crate) struct ExternalApi {
    /// The Rust module with the types of a kind that another project declares, such as `their_api::v1`
    #[arg(long, value_name = "PATH", requires = "external_api_module")]
    pub external_api_path: Option<String>,
    /// The domain of that kind's group
    #[arg(long, value_name = "DOMAIN", requires = "external_api_path")]
    pub external_api_domain: Option<Domain>,
    /// The crate with these types, as a line of `[dependencies]`, such as `their-api = "1"`
    #[arg(long, value_name = "DEPENDENCY", requires = "external_api_path")]
    pub external_api_module: Option<String>,
}

/// Which version of which kind.
#[derive(Debug, clap::Args)]
pub(crate) struct Selected {
    /// The API group, without the project's domain; needed if several have the kind
    #[arg(long)]
    pub group: Option<Group>,
    /// The version; needed if the kind has several
    #[arg(long)]
    pub version: Option<Version>,
    /// The kind
    #[arg(long)]
    pub kind: Kind,
}

#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub(crate) struct CreateWebhook {
    #[command(flatten)]
    pub selected: Selected,
    /// Set defaults before an object is stored
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set,
          default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub defaulting: bool,
    /// Validate objects before they are created, updated or deleted
    #[arg(long, visible_alias = "programmatic-validation", num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set,
          default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub validation: bool,
    /// Where the defaulting webhook is served [default: /mutate-<group>-<version>-<kind>]
    #[arg(long, value_name = "PATH", requires = "defaulting")]
    pub defaulting_path: Option<WebhookPath>,
    /// Where the validating webhook is served [default: /validate-<group>-<version>-<kind>]
    #[arg(long, value_name = "PATH", requires = "validation")]
    pub validation_path: Option<WebhookPath>,
    /// Convert objects between the versions of the kind
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, action = ArgAction::Set,
          default_value_t = false, hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub conversion: bool,
    /// The version that all others are converted to and from [default: --version]
    #[arg(long, value_name = "VERSION", requires = "conversion", conflicts_with = "version")]
    pub hub: Option<Version>,
    /// The versions that are converted to the hub and from it [default: all others]
    #[arg(long, value_name = "VERSION", requires = "conversion", value_delimiter = ',')]
    pub spoke: Vec<Version>,
    #[command(flatten)]
    pub external: ExternalApi,
    #[command(flatten)]
    pub change: Change,
    #[command(flatten)]
    pub ignored: Ignored,
    // The plural is that of `create api`.
    #[arg(long, hide = true)]
    plural: Option<Plural>,
    // Where kubebuilder's older layouts had webhooks; here they have one place.
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    legacy: Option<bool>,
}

#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub(crate) struct DeleteApi {
    #[command(flatten)]
    pub selected: Selected,
    /// Delete only this controller of the kind
    #[arg(long, value_name = "NAME")]
    pub controller_name: Option<ControllerName>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub(crate) struct DeleteWebhook {
    #[command(flatten)]
    pub selected: Selected,
    /// Delete only the defaulting webhook
    #[arg(long)]
    pub defaulting: bool,
    /// Delete only the validating webhook
    #[arg(long, visible_alias = "programmatic-validation")]
    pub validation: bool,
    /// Delete only the conversion
    #[arg(long)]
    pub conversion: bool,
    /// Delete only these versions from the conversion
    #[arg(long, value_name = "VERSION", requires = "conversion", value_delimiter = ',')]
    pub spoke: Vec<Version>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Edit {
    /// Whether to keep the files of each API group in a directory of their own
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub multigroup: Option<bool>,
    /// Whether the operator watches chosen namespaces only
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub namespaced: Option<bool>,
    /// The license of the project: its text in LICENSE, and its name in Cargo.toml and in generated files
    #[arg(long, value_enum)]
    pub license: Option<LicenseName>,
    /// The owner that the license and the headers of files name; empty for none
    #[arg(long, value_parser = parse_line)]
    pub owner: Option<String>,
    /// A file with the comment at the top of Rust files, instead of the names of owner and license; --license goes back to
    /// these
    #[arg(long, value_name = "FILE")]
    pub license_file: Option<PathBuf>,
    #[command(flatten)]
    pub change: Change,
    #[command(flatten)]
    pub ignored: Ignored,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Upgrade {
    /// The git revision at which the generated files had no edits; for projects without a record of what was generated
    /// [default: the record in .windlass/]
    #[arg(long, value_name = "REVISION")]
    pub from: Option<String>,
    /// What to do where you and the newer version have changed the same lines
    #[arg(long, value_enum, default_value_t)]
    pub conflicts: OnConflict,
    #[command(flatten)]
    pub change: Change,
}

/// What to do where changes contradict each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnConflict {
    /// Change nothing and name the lines
    #[default]
    Refuse,
    /// Write both versions between markers; for files that tools read, such as the Makefile, beside the file
    Markers,
}
