//! The command line, as it is written. Nothing here touches the system.

mod against;
mod dev;
mod generate;
mod nodes;
mod project;
mod rbac;
mod server;
mod tools;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use windlass_cluster::AdmissionPlugin;

pub(crate) use against::{
    Apply, Bundle, BundleCleanup, BundleRun, Deploy, Image, ImageBuild, ImageList, ImageLoad, ImageRemove, Install,
    Operator, Run, Target, Undeploy, Uninstall,
};
pub(crate) use dev::{Dev, Doctor, Guard, Test};
pub(crate) use generate::{Generate, GenerateClient, GenerateTypes};
pub(crate) use nodes::{Nodes, NodesAdd, NodesList, NodesRemove};
pub(crate) use project::{
    Change, Create, CreateApi, CreateWebhook, Delete, DeleteApi, DeleteClient, DeleteWebhook, Edit, ExternalApi, Init,
    LicenseName, OnConflict, Selected, Upgrade,
};
pub(crate) use rbac::{Rbac, RbacInfer};
pub(crate) use server::{Audit, FlowControl};
pub(crate) use tools::{Completion, DocumentFormat, ListFormat, Man, Version, VersionFormat};

/// The toolkit for Kubernetes operators in Rust.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an operator's project
    Init(Init),
    /// Add a kind or webhooks to a project
    #[command(subcommand)]
    Create(Create),
    /// Take a kind, webhooks or the client away from a project
    #[command(subcommand)]
    Delete(Delete),
    /// Change the settings of a project
    Edit(Edit),
    /// Generate Rust: types of somebody else's kinds, clients of your own
    #[command(subcommand)]
    Generate(Generate),
    /// Bring a project's files to what this version generates, and keep your changes
    Upgrade(Upgrade),
    /// Start a local cluster and add it to your kubeconfig
    Up(Up),
    /// Stop a cluster and take it out of your kubeconfig
    Down(Down),
    /// Show whether a cluster runs and answers
    Status(Status),
    /// List the clusters on this machine
    List(List),
    /// Print the kubeconfig of a running cluster
    Kubeconfig(Kubeconfig),
    /// Add, remove and list the simulated nodes of a cluster
    #[command(subcommand)]
    Nodes(Nodes),
    /// Work with permissions
    #[command(subcommand)]
    Rbac(Rbac),
    /// Print or write the manifests that an operator needs, derived from its code
    Manifests(Manifests),
    /// Install the kinds of a project in a cluster
    Install(Install),
    /// Take the kinds of a project out of a cluster, with all their objects
    Uninstall(Uninstall),
    /// Build an operator and run it here, outside of the cluster
    Run(Run),
    /// Apply manifests to a cluster, what others need first
    Apply(Apply),
    /// Build and run an operator with its samples, again after every change of its sources
    Dev(Dev),
    /// Run the tests of a project, with a cluster of their own
    Test(Test),
    /// Find what keeps an operator from being built, installed or run, and say what to do
    Doctor(Doctor),
    /// Run a program until standard input is closed
    #[command(hide = true)]
    Guard(Guard),
    /// Install an operator in a cluster, with an image that is built here
    Deploy(Deploy),
    /// Take an operator out of a cluster
    Undeploy(Undeploy),
    /// Work with bundles for the Operator Lifecycle Manager (OLM)
    #[command(subcommand)]
    Bundle(Bundle),
    /// Make container images without a container engine
    #[command(subcommand)]
    Image(Image),
    /// Run a demo for a few seconds: a cluster, the operator of an example and its objects
    Demo(Demo),
    /// Print a script that completes commands in a shell
    Completion(Completion),
    /// Print or write manual pages
    Man(Man),
    /// Show the version of this command and of the Kubernetes that it serves
    Version(Version),
}

impl Command {
    /// Whether it reads, changes or builds the project of the current directory. `doctor` does as well, and reports what
    /// is wrong with it.
    pub(crate) fn works_on_project(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::Delete(_)
            | Self::Edit(_)
            | Self::Generate(Generate::Client(_))
            | Self::Upgrade(_)
            | Self::Manifests(_)
            | Self::Install(_)
            | Self::Uninstall(_)
            | Self::Run(_)
            | Self::Deploy(_)
            | Self::Undeploy(_)
            | Self::Dev(_)
            | Self::Test(_) => true,
            Self::Init(_)
            | Self::Generate(Generate::Types(_))
            | Self::Up(_)
            | Self::Down(_)
            | Self::Status(_)
            | Self::List(_)
            | Self::Kubeconfig(_)
            | Self::Nodes(_)
            | Self::Rbac(_)
            | Self::Apply(_)
            | Self::Bundle(_)
            | Self::Image(_)
            | Self::Demo(_)
            | Self::Doctor(_)
            | Self::Guard(_)
            | Self::Completion(_)
            | Self::Man(_)
            | Self::Version(_) => false,
        }
    }
}

/// How results are printed that come bit by bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Name {
    /// The cluster's name; its kubeconfig context is `windlass-NAME`
    #[arg(long, default_value = "default", value_parser = parse_name)]
    pub name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub name: Name,
    /// Serve in this process until SIGINT, SIGTERM or SIGHUP instead of in the background
    #[arg(long)]
    pub foreground: bool,
    /// Stop if standard input ends before anything is read from it: the process that started this one has ended
    #[arg(long, hide = true, requires = "foreground")]
    pub watched: bool,
    /// Keep everything in memory; nothing is left when the cluster stops
    #[arg(long, conflicts_with = "data_dir")]
    pub ephemeral: bool,
    /// Where objects and certificates are kept [default: ~/.windlass/NAME/data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The address to serve on; port 0 picks a free one [default: where the cluster served before, else
    /// 127.0.0.1:0]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// How many simulated nodes there are, `node-0` and so on: pods become ready on them, but no container runs. With 0
    /// no nodes are simulated at all
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=16_000))]
    pub nodes: u32,
    /// Accept kwok's objects (`kwok.x-k8s.io`) and do what they say about simulated pods: stages, logs, commands and ports.
    /// Those who may create such objects reach files and programs of this machine with your rights
    #[arg(long)]
    pub kwok: bool,
    /// What pods are: `simulated` pods only become ready; `container` pods run on this machine in namespaces of their own,
    /// `process` pods as processes of this machine, and `auto` pods as containers where that works. A cluster whose pods run
    /// has one node, this machine
    #[arg(long, value_enum, default_value_t)]
    pub runtime: PodRuntime,
    /// Where requests for Ingresses are taken, if containers have a network [default: 127.0.0.1:8080, or a free port]
    #[arg(long, value_name = "ADDR:PORT")]
    pub ingress: Option<SocketAddr>,
    /// Where encrypted requests for Ingresses are taken [default: 127.0.0.1:8443, or a free port]
    #[arg(long, value_name = "ADDR:PORT")]
    pub ingress_tls: Option<SocketAddr>,
    /// Whether containers may connect to addresses outside of the cluster, by TCP, and look up names there
    #[arg(long, value_enum, default_value_t)]
    pub egress: Switch,
    /// Write the kubeconfig to this file instead of adding the cluster to yours. In the foreground yours is left
    /// alone in any case
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Which controllers run, as kube-controller-manager understands it: `*` for all, `foo` for one, `-foo` for all
    /// but one, such as `*,-kube-scheduler` for a cluster that leaves pods without nodes
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true, default_value = "*")]
    pub controllers: Vec<String>,
    /// Has the scheduler take pods with this spec.schedulerName as well, besides those of default-scheduler. May be given
    /// several times
    #[arg(long = "scheduler-name", value_name = "NAME")]
    pub scheduler_names: Vec<String>,
    #[command(flatten)]
    pub admission: Admission,
    /// How long old revisions can be read, such as `90s`, `5m` or `1h`; with 0 until they take too much memory. The next
    /// page of an older list is answered with 410
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = parse_history)]
    pub history: Duration,
    #[command(flatten)]
    pub flow_control: FlowControl,
    #[command(flatten)]
    pub audit: Audit,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

/// What runs the pods of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PodRuntime {
    #[default]
    Simulated,
    Container,
    Process,
    Auto,
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    #[default]
    On,
    Off,
}

/// Which admission plugins the API server runs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Admission {
    /// Admission plugins to run besides those that run by default, by kube-apiserver's names, separated by commas
    #[arg(long, value_name = "PLUGINS", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<AdmissionPlugin>,
    /// Admission plugins not to run, for example ServiceAccount, which gives every pod an account and a token. By default
    /// kube-apiserver's default plugins and NodeRestriction run
    #[arg(long, value_name = "PLUGINS", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<AdmissionPlugin>,
}

/// A number of seconds, minutes or hours.
fn parse_history(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 90s, 5m or 1h");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit = [("s", 1), ("m", 60), ("h", 3600)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds): (&str, u64) = unit.ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    #[command(flatten)]
    pub name: Name,
    /// Also delete the cluster's data
    #[arg(long)]
    pub purge: bool,
    /// Only end what is left of pods; the cluster that they were of has ended
    #[arg(long, hide = true)]
    pub only_pods: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub name: Name,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Kubeconfig {
    #[command(flatten)]
    pub name: Name,
    /// Print the kubeconfig of this user instead of the administrator's, with a certificate that the cluster signs: a
    /// component (system:kube-scheduler), a node (system:node:NAME), a person. The user may do what roles and bindings
    /// allow
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// A group that the user is in. May be given several times; nodes are in system:nodes without it
    #[arg(long = "group", value_name = "GROUP", requires = "user")]
    pub groups: Vec<String>,
    /// How the kubeconfig is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: DocumentFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Which example [default: petstore]
    pub name: Option<String>,
    /// List the examples
    #[arg(long)]
    pub list: bool,
    /// Keep running until Ctrl-C, for use with kubectl, instead of deleting the objects
    #[arg(long)]
    pub keep: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Which manifests are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestKind {
    /// Roles that allow what the operator does
    #[default]
    Rbac,
    /// The definitions of the kinds that the operator declares
    Crd,
    /// The configurations that have API servers call the operator's webhooks
    Webhook,
    /// Write config/default as one file, dist/install.yaml, and the CRDs as dist/crds.yaml
    Install,
    /// Write config/default as a Helm chart, dist/chart
    Chart,
    /// Write config/default as a bundle for the Operator Lifecycle Manager, bundle/
    Bundle,
}

/// How manifests are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestFormat {
    /// Documents for kubectl
    #[default]
    Yaml,
    /// One List
    Json,
}

#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Manifests {
    /// Which manifests to print, or what to make of config/
    #[arg(value_enum, default_value_t)]
    pub kind: ManifestKind,
    /// The operator's image, for `install`, `chart` and `bundle` [default: the one in config/]
    #[arg(long, visible_alias = "img", value_name = "IMAGE", conflicts_with_all = ["write", "check"],
          value_parser = parse_image)]
    pub image: Option<String>,
    /// The version of the chart or bundle
    #[arg(long, default_value = "0.1.0", value_name = "VERSION", value_parser = parse_version)]
    pub version: String,
    /// The channel of the bundle
    #[arg(long, default_value = "alpha", value_name = "CHANNEL", value_parser = parse_channel)]
    pub channel: String,
    /// Leave the CRDs out of the chart; dist/crds.yaml of `install` has them
    #[arg(long)]
    pub skip_crds: bool,
    /// Replace files of the chart or bundle that you have edited; without this your changes are kept
    #[arg(long)]
    pub force: bool,
    /// Write all of them into config/ of the project, instead of printing some
    #[arg(long, conflicts_with_all = ["kind", "name", "namespace"])]
    pub write: bool,
    /// Compare all of them with config/ of the project, and config/ with what was made of it in dist/ and bundle/; fail
    /// if files differ
    #[arg(long, conflicts_with_all = ["kind", "name", "namespace", "write"])]
    pub check: bool,
    /// The package of the operator, which cargo builds [default: the one in this directory]
    #[arg(short, long, value_name = "PACKAGE")]
    pub package: Option<String>,
    /// The operator's program, if the package has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    /// Run this program instead of building one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["package", "bin"])]
    pub program: Option<PathBuf>,
    /// The name of the roles [default: the manager's name]
    #[arg(long)]
    pub name: Option<String>,
    /// The namespace that the operator runs in. Roles for its own objects, such as leases, are created there
    /// [default: such roles have no namespace, and `kubectl apply -n` sets it]
    #[arg(short, long, value_parser = parse_namespace)]
    pub namespace: Option<String>,
    /// How many seconds the program may take to answer
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the manifests are printed [default: yaml], or what was found or written [default: lines for people]
    #[arg(short, long, value_enum)]
    pub output: Option<ManifestFormat>,
    /// Arguments of the operator's program
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// A name that is also a directory and part of a context: lower-case letters, digits and dashes.
fn parse_name(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let valid = !text.is_empty() && text.len() <= 40 && text.chars().all(inner) && !text.starts_with('-');
    if valid { Ok(text.to_owned()) } else { Err("use up to 40 lower-case letters, digits and dashes".to_owned()) }
}

/// The name of a namespace.
fn parse_namespace(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let valid = !text.is_empty() && text.len() <= 63 && text.chars().all(inner);
    if valid && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("a namespace is at most 63 lower-case letters, digits and dashes, with none at its ends".to_owned())
}

/// The name of an image. A digest may follow: an image that is not built here has one.
fn parse_image(text: &str) -> Result<String, String> {
    let name = text.split_once('@').map_or(text, |(name, _)| name);
    name.parse::<crate::image::Reference>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// One line of text, without space around it: files have none at the ends of their lines.
fn parse_line(text: &str) -> Result<String, String> {
    if text.contains(char::is_control) { Err("use one line of text".to_owned()) } else { Ok(text.trim().to_owned()) }
}

/// Where git clones from: a URL, `user@host:path`, or a directory.
fn parse_git(text: &str) -> Result<String, String> {
    let bad = text.is_empty() || text.contains(char::is_whitespace) || text.contains(char::is_control);
    let is_url = ["https://", "http://", "ssh://", "git://", "file://"]
        .iter()
        .any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.trim_matches('/').is_empty()));
    if !bad && is_url {
        return Ok(text.to_owned());
    }
    // Cargo knows URLs only.
    if let Some((host, path)) = text.split_once(':').filter(|(host, _)| !bad && host.contains('@')) {
        return Ok(format!("ssh://{host}/{}", path.trim_start_matches('/')));
    }
    match std::path::Path::new(text).canonicalize() {
        // A bare repository has its files at the top.
        Ok(directory) if directory.join(".git").exists() || directory.join("HEAD").is_file() => {
            Ok(format!("file://{}", directory.display()))
        }
        Ok(directory) if directory.is_dir() => Err("there is no git repository in this directory".to_owned()),
        _ => Err("use the URL of a git repository, such as https://example.com/windlass, or its directory".to_owned()),
    }
}

/// A semantic version, as charts and bundles need one.
fn parse_version(text: &str) -> Result<String, String> {
    let (core, build) = text.split_once('+').map_or((text, None), |(core, build)| (core, Some(build)));
    let (core, pre) = core.split_once('-').map_or((core, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let parts = |text: Option<&str>| text.is_none_or(|text| text.split('.').all(part));
    let valid = core.split('.').count() == 3 && core.split('.').all(number) && parts(pre) && parts(build);
    if valid { Ok(text.to_owned()) } else { Err("use a semantic version without a v, such as 1.2.3".to_owned()) }
}

fn parse_channel(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let valid = !text.is_empty() && text.chars().all(inner);
    if valid { Ok(text.to_owned()) } else { Err("use letters, digits and .-_, such as stable".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_a_number_of_seconds_minutes_or_hours() {
        for (text, seconds) in [("0", 0), ("0s", 0), ("90s", 90), ("5m", 300), ("1h", 3600)] {
            assert_eq!(parse_history(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "m", "-1s", "1d", "1.5h", "9999999999999999999h"] {
            assert!(parse_history(text).is_err(), "{text}");
        }
    }

    #[test]
    fn versions_are_semantic() {
        for version in ["0.1.0", "10.20.30", "1.0.0-alpha.1", "1.0.0-0+build.7", "1.0.0+x"] {
            assert!(parse_version(version).is_ok(), "{version}");
        }
        for version in
            ["", "1", "v1.0.0", "1.0", "1.0.0.0", "01.0.0", "1.0.0-", "1.0.0-a..b", "1.0.x", "1.0.0+ ", "notsemver"]
        {
            assert!(parse_version(version).is_err(), "{version}");
        }
        assert!(
            parse_channel("stable-1.2").is_ok() && parse_channel("bad channel").is_err() && parse_channel("").is_err()
        );
    }

    #[test]
    fn repositories_are_urls_or_directories() {
        for (text, url) in [
            ("https://example.com/windlass", "https://example.com/windlass"),
            ("ssh://git@example.com/windlass.git", "ssh://git@example.com/windlass.git"),
            ("git@example.com:team/windlass.git", "ssh://git@example.com/team/windlass.git"),
        ] {
            assert_eq!(parse_git(text).as_deref(), Ok(url));
        }
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().canonicalize().expect("it exists");
        let path = path.to_str().expect("it is text");
        assert_eq!(parse_git(path), Err("there is no git repository in this directory".to_owned()));
        std::fs::create_dir(dir.path().join(".git")).expect("it is empty");
        assert_eq!(parse_git(path), Ok(format!("file://{path}")));
        for text in ["", "not a url", "https://", "nowhere/at/all", "ftp://example.com/x"] {
            assert!(parse_git(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
