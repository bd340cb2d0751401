//! Names that a project is made of, checked once, when they enter.
//!
//! A value of one of these types is valid for Kubernetes, for Cargo and as a Rust identifier, so that nothing
//! after this module has to ask again. Every refusal says what is allowed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A name that cannot be used, and what can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} {problem}; {allowed}")]
pub struct NameError {
    what: &'static str,
    given: String,
    problem: String,
    allowed: &'static str,
}

/// Words that are no identifiers in Rust, whatever the edition.
const KEYWORDS: [&str; 53] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "test",
];

/// Types and traits that generated code and the code of its derives use by these names.
const USED_BY_CODE: [&str; 49] = [
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Condition",
    "Copy",
    "CustomResource",
    "Debug",
    "Default",
    "Deserialize",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "ExactSizeIterator",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Future",
    "Hash",
    "Into",
    "IntoFuture",
    "IntoIterator",
    "Iterator",
    "JsonSchema",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Self",
    "Send",
    "Serialize",
    "Sized",
    "Some",
    "String",
    "Sync",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Unpin",
    "Vec",
    "Resource",
];

macro_rules! name {
    ($(#[$docs:meta])* $type:ident, $what:literal, $allowed:literal, $check:expr) => {
        $(#[$docs])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks the name.
            ///
            /// # Errors
            /// If it is not allowed; the error says what is.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                let check: fn(&str) -> Result<(), String> = $check;
                match check(&name) {
                    Ok(()) => Ok(Self(name)),
                    Err(problem) => Err(Self::error(name, problem)),
                }
            }

            fn error(given: String, problem: String) -> NameError {
                NameError { what: $what, given, problem, allowed: $allowed }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }
    };
}

name!(
    /// The domain under which the groups of a project live: `my.domain`.
    Domain,
    "domain",
    "a domain is lower case letters, digits, `-` and `.`, such as \"example.com\"",
    subdomain
);
name!(
    /// The group of a kind without the domain: `webapp` in `webapp.my.domain`.
    Group,
    "group",
    "a group is lower case letters, digits, `-` and `.`, begins with a letter, and is no reserved word of Rust, such as \
     \"webapp\"",
    group
);
name!(
    /// A version of a kind: `v1`, `v1beta2`.
    Version,
    "version",
    "a version is `v` and a number, and may continue with `alpha` or `beta` and a number, such as \"v1\" or \"v1beta2\"",
    version
);
name!(
    /// A kind: `Guestbook`.
    Kind,
    "kind",
    "a kind is at most 59 letters and digits, begins with an upper case letter, and is no reserved word of Rust, such \
     as \"Guestbook\"",
    kind
);
name!(
    /// The plural of a kind, as in URLs: `guestbooks`. Also used for short names.
    Plural,
    "plural or short name",
    "it is at most 63 lower case letters, digits and `-`, and begins with a letter, such as \"guestbooks\"",
    label_1035
);
name!(
    /// The name of a project, of its Cargo package, and the prefix of what it installs.
    ProjectName,
    "project name",
    "a project name is at most 28 lower case letters, digits and `-`, begins with a letter and ends with a letter or \
     digit, such as \"guestbook-operator\"; choose one with --name",
    project
);
name!(
    /// The name of a controller, in logs, metrics and as a Rust module: `guestbook`, `guestbook-backup`.
    ControllerName,
    "controller name",
    "a controller name is at most 63 lower case letters, digits and `-`, begins with a letter, and is no reserved word \
     of Rust, such as \"guestbook-backup\"",
    controller
);

name!(
    /// Where a webhook is served: `/check/pets`.
    WebhookPath,
    "webhook path",
    "a path is letters, digits, `-` and `_` between slashes, and begins with a slash, such as \"/validate-pets\"",
    webhook_path
);

fn characters(name: &str, allowed: impl Fn(char) -> bool, longest: usize) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty".into());
    }
    if name.chars().count() > longest {
        return Err(format!("is longer than {longest} characters"));
    }
    match name.chars().find(|c| !allowed(*c)) {
        Some(c) => Err(format!("contains {c:?}")),
        None => Ok(()),
    }
}

fn lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

fn subdomain(name: &str) -> Result<(), String> {
    characters(name, |c| lower(c) || c == '.', 253)?;
    for label in name.split('.') {
        if label.is_empty() {
            return Err("has an empty part between dots".into());
        }
        if label.len() > 63 {
            return Err("has a part of more than 63 characters".into());
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(format!("has the part {label:?}, which begins or ends with `-`"));
        }
    }
    Ok(())
}

fn webhook_path(path: &str) -> Result<(), String> {
    characters(path, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/'), 253)?;
    let Some(segments) = path.strip_prefix('/') else { return Err("does not begin with a slash".into()) };
    if segments.split('/').any(str::is_empty) {
        return Err("has an empty part between slashes".into());
    }
    if path == "/convert" { Err("is where conversions are served".into()) } else { Ok(()) }
}

fn group(name: &str) -> Result<(), String> {
    subdomain(name)?;
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err("begins with a digit".into());
    }
    not_reserved(&group_module(name))
}

/// The Rust module of a group. The group of Pods and Services has a crate's name and gets another one; Cargo takes
/// `src/lib.rs` for the library and the files in `src/bin` for programs.
fn group_module(name: &str) -> String {
    if ["bin", "core", "lib"].contains(&name) { format!("{name}_group") } else { module(name) }
}

fn version(name: &str) -> Result<(), String> {
    let wrong = || Err("is not a version".to_owned());
    let number = |text: &str| !text.is_empty() && text.len() <= 4 && text.bytes().all(|c| c.is_ascii_digit());
    let Some(rest) = name.strip_prefix('v') else { return wrong() };
    let split = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(split);
    if !number(major) || major.starts_with('0') {
        return wrong();
    }
    let minor = rest.strip_prefix("alpha").or_else(|| rest.strip_prefix("beta"));
    if rest.is_empty() || minor.is_some_and(|minor| number(minor) && !minor.starts_with('0')) {
        Ok(())
    } else {
        wrong()
    }
}

/// The longest kind: an API server takes a list's kind, such as `GuestbookList`, of at most 63 characters.
const LONGEST_KIND: usize = 63 - "List".len();

fn kind(name: &str) -> Result<(), String> {
    characters(name, |c| c.is_ascii_alphanumeric(), LONGEST_KIND)?;
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Err("does not begin with an upper case letter".into());
    }
    if USED_BY_CODE.contains(&name) {
        return Err(format!("is the name of a Rust type or trait that generated code uses, try \"{name}Resource\""));
    }
    if name == "List" {
        return Err("is what kubectl takes for a list of objects, try \"ItemList\"".to_owned());
    }
    if version(&name.to_ascii_lowercase()).is_ok() {
        return Err("would be a Rust module of the name of a version".into());
    }
    not_reserved(&snake(name))
}

fn label_1035(name: &str) -> Result<(), String> {
    characters(name, lower, 63)?;
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err("does not begin with a letter".into());
    }
    if name.ends_with('-') { Err("ends with `-`".into()) } else { Ok(()) }
}

/// The longest name of a new project: its longest Service is `NAME-controller-manager-metrics-service`, and the name of
/// a Service has at most 63 characters.
const LONGEST_NEW: usize = 63 - "-controller-manager-metrics-service".len();
/// The longest name of a project that exists.
const LONGEST_READ: usize = 50;

/// The packages of this repository, which projects depend on.
const PACKAGES: [&str; 19] = [
    "windlass",
    "windlass-api",
    "windlass-cel",
    "windlass-cli",
    "windlass-cluster",
    "windlass-codecs",
    "windlass-container",
    "windlass-crd",
    "windlass-image",
    "windlass-kinds",
    "windlass-kwok",
    "windlass-network",
    "windlass-node",
    "windlass-scaffold",
    "windlass-scheduler",
    "windlass-server",
    "windlass-store",
    "windlass-testing",
    "windlass-testing-macros",
];

fn project(name: &str) -> Result<(), String> {
    characters(name, lower, LONGEST_READ)?;
    label_1035(name)?;
    // Cargo refuses these.
    if ["build", "deps", "examples", "incremental", "proc-macro"].contains(&name) {
        return Err("cannot be the name of a Cargo package here".into());
    }
    not_reserved(&module(name))
}

fn controller(name: &str) -> Result<(), String> {
    label_1035(name)?;
    not_reserved(&module(name))
}

/// Crates and modules that generated code names: one of the project's own would hide them.
const USED_AS_MODULES: [&str; 19] = [
    "alloc",
    "api",
    "clap",
    "controller",
    "core",
    "k8s_openapi",
    "kube",
    // The compiler warns of modules of the names `lib` and `main`.
    "lib",
    "main",
    "schemars",
    "serde",
    "serde_json",
    "std",
    "tokio",
    "tracing",
    "tracing_subscriber",
    "windlass",
    "windlass_crd",
    "windlass_testing",
];

fn not_reserved(module: &str) -> Result<(), String> {
    if USED_AS_MODULES.contains(&module) {
        return Err(format!("would be the Rust module or crate `{module}`, which generated code uses itself"));
    }
    if KEYWORDS.contains(&module) {
        return Err(format!("would be the Rust module `{module}`, which is a reserved word"));
    }
    Ok(())
}

/// A DNS name as a Rust identifier: `my-group.example` is `my_group_example`.
fn module(name: &str) -> String {
    name.replace(['-', '.'], "_")
}

/// `AppService` is `app_service`, `IPPool` is `ip_pool`.
fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len() + 4);
    for (i, c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| chars[i]);
        let after = chars.get(i + 1);
        let boundary = c.is_ascii_uppercase()
            && before.is_some_and(|before| !before.is_ascii_uppercase() || after.is_some_and(char::is_ascii_lowercase));
        if boundary {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

impl Kind {
    /// The Rust module of the kind: `app_service`.
    pub fn module(&self) -> String {
        snake(&self.0)
    }

    /// What generated functions call an object of the kind: the module's name, unless another argument has it, clippy
    /// refuses it as a placeholder, or it is too long to read.
    pub fn variable(&self) -> String {
        let module = self.module();
        match module.as_str() {
            "ctx" | "draft" | "request" | "foo" | "baz" | "quux" => format!("{module}_object"),
            long if long.len() > 30 => "object".to_owned(),
            _ => module,
        }
    }

    /// What stands before the kind in a sentence: `an Order`. A kind with U begins as `User` does.
    pub fn article(&self) -> &'static str {
        if self.0.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" }
    }

    /// The kind in lower case, as in file names and webhook paths: `appservice`.
    pub fn lower(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl Group {
    /// The Rust module of the group: `my_group`.
    pub fn module(&self) -> String {
        group_module(&self.0)
    }
}

impl ProjectName {
    /// Checks that a new project can have the name. Projects with longer names exist, and can still be worked on.
    ///
    /// # Errors
    /// If the names of what it installs would be too long, or a package would have the name of one of windlass.
    pub fn check_new(&self) -> Result<(), NameError> {
        if PACKAGES.contains(&self.0.as_str()) {
            let problem = "is the name of a package of windlass, and Cargo tells packages apart by their names";
            return Err(Self::error(self.0.clone(), problem.to_owned()));
        }
        if self.0.len() <= LONGEST_NEW {
            return Ok(());
        }
        let problem = format!(
            "is longer than {LONGEST_NEW} characters, and the Service {self}-controller-manager-metrics-service may have \
             63 at most"
        );
        Err(Self::error(self.0.clone(), problem))
    }

    /// The name as a Rust identifier, as crates are imported: `guestbook_operator`.
    pub fn module(&self) -> String {
        module(&self.0)
    }
}

impl ControllerName {
    /// The Rust module of the controller: `guestbook_backup`.
    pub fn module(&self) -> String {
        module(&self.0)
    }

    /// The name of a kind's first controller.
    pub fn of(kind: &Kind) -> Self {
        // Valid because a kind is checked against the same reserved words.
        Self(kind.module().replace('_', "-"))
    }
}

impl Version {
    /// Newer versions are greater, as Kubernetes orders them: `v2`, `v1`, `v1beta2`, `v1alpha1`.
    pub fn priority(&self) -> (u8, u32, u32) {
        let rest = &self.0[1..];
        let split = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(split);
        let number = |text: &str| text.parse().unwrap_or(0);
        let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, number(minor)),
            (_, Some(minor)) => (0, number(minor)),
            _ => (2, 0),
        };
        (stability, number(major), minor)
    }
}

/// The plural of an English noun in lower case, as kubebuilder forms it for common nouns.
pub(crate) fn pluralize(singular: &str) -> String {
    const UNCHANGED: [&str; 8] = ["series", "species", "equipment", "information", "sheep", "fish", "news", "redis"];
    const IRREGULAR: [(&str, &str); 8] = [
        ("person", "people"),
        ("child", "children"),
        ("mouse", "mice"),
        ("man", "men"),
        ("foot", "feet"),
        ("tooth", "teeth"),
        ("index", "indices"),
        ("vertex", "vertices"),
    ];
    for word in UNCHANGED {
        if singular.ends_with(word) {
            return singular.to_owned();
        }
    }
    for (one, many) in IRREGULAR {
        if let Some(stem) = singular.strip_suffix(one) {
            return format!("{stem}{many}");
        }
    }
    if let Some(stem) = singular.strip_suffix('y')
        && stem.ends_with(|c: char| !"aeiou".contains(c))
    {
        return format!("{stem}ies");
    }
    if ["ysis", "asis", "esis", "osis"].iter().any(|end| singular.ends_with(end)) {
        return format!("{}es", &singular[..singular.len() - 2]);
    }
    if ["s", "x", "z", "ch", "sh"].iter().any(|end| singular.ends_with(end)) {
        return format!("{singular}es");
    }
    format!("{singular}s")
}

impl Plural {
    /// The plural that a kind has unless another is given.
    pub fn of(kind: &Kind) -> Self {
        // A kind in lower case is a valid label with room for the one letter or two by which its plural is longer.
        Self(pluralize(&kind.lower()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(result: Result<T, NameError>, part: &str) {
        let Err(error) = result else { panic!("not refused: {part}") };
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }

    #[test]
    fn projects_are_not_called_like_packages_of_windlass() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut known: Vec<String> =
            std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        known.sort();
        assert_eq!(known, PACKAGES);
        refused(ProjectName::new("windlass-server").unwrap().check_new(), "the name of a package of windlass");
        ProjectName::new("windlass-demo").unwrap().check_new().unwrap();
    }

    #[test]
    fn the_core_group_is_a_group_with_another_module() {
        assert_eq!(Group::new("core").unwrap().module(), "core_group");
        assert_eq!(Group::new("my-group.sub").unwrap().module(), "my_group_sub");
        refused(Group::new("std"), "generated code uses itself");
    }

    #[test]
    fn names_of_the_field_are_accepted() {
        for name in ["my.domain", "k8s.io", "example", "a-b.c"] {
            Domain::new(name).unwrap();
        }
        for name in ["v1", "v1alpha1", "v2beta13", "v10"] {
            Version::new(name).unwrap();
        }
        for name in ["Guestbook", "IPPool", "At", "V2Ray", "Home", "Context", "Manager"] {
            Kind::new(name).unwrap();
        }
    }

    #[test]
    fn refusals_say_what_is_allowed() {
        refused(Domain::new("My.Domain"), "contains 'M'");
        refused(Domain::new("a..b"), "empty part");
        refused(Domain::new("-a"), "begins or ends with `-`");
        refused(Group::new("type"), "reserved word");
        refused(Group::new("9lives"), "begins with a digit");
        refused(Version::new("1"), "such as \"v1\" or \"v1beta2\"");
        for version in ["v", "v0", "v01", "v1gamma1", "v1beta", "v1beta0", "v1 ", "V1"] {
            refused(Version::new(version), "is not a version");
        }
        refused(Kind::new("guestbook"), "upper case letter");
        refused(Kind::new("Guest book"), "contains ' '");
        refused(Kind::new("Gästebuch"), "contains 'ä'");
        refused(Kind::new("Type"), "reserved word");
        refused(Kind::new("Option"), "try \"OptionResource\"");
        refused(Kind::new("List"), "kubectl takes for a list of objects");
        Kind::new("WishList").unwrap();
        refused(Kind::new("A".repeat(60)), "longer than 59");
        Kind::new("A".repeat(59)).unwrap();
        refused(ProjectName::new("My Project"), "--name");
        refused(ProjectName::new("windlass"), "generated code uses itself");
        refused(Kind::new("Main"), "generated code uses itself");
        refused(Kind::new("Lib"), "generated code uses itself");
        refused(ProjectName::new("tokio"), "generated code uses itself");
        refused(ProjectName::new("a".repeat(51)), "longer than 50");
        refused(Plural::new(""), "is empty");
    }

    #[test]
    fn kinds_become_modules_and_plurals() {
        for (kind, module, plural) in [
            ("AppService", "app_service", "appservices"),
            ("IPPool", "ip_pool", "ippools"),
            ("At", "at", "ats"),
            ("Policy", "policy", "policies"),
            ("Gateway", "gateway", "gateways"),
            ("Redis", "redis", "redis"),
            ("Analysis", "analysis", "analyses"),
            ("Mailbox", "mailbox", "mailboxes"),
            ("HTTPRoute", "http_route", "httproutes"),
        ] {
            let kind = Kind::new(kind).unwrap();
            assert_eq!((kind.module().as_str(), Plural::of(&kind).as_str()), (module, plural));
        }
    }

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let ordered = ["v1alpha1", "v1alpha2", "v2alpha1", "v1beta1", "v1beta10", "v1", "v2", "v10"];
        let mut versions: Vec<Version> = ordered.iter().rev().map(|v| Version::new(*v).unwrap()).collect();
        versions.sort_by_key(Version::priority);
        assert_eq!(versions.iter().map(Version::as_str).collect::<Vec<_>>(), ordered);
    }
}
