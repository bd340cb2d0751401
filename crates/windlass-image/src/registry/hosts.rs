//! Where images are pulled from: the mirrors of their registry, and then the registry itself.
//!
//! The files are those of containerd: `REGISTRY/hosts.toml` in the directory that `$WINDLASS_REGISTRIES` names, or `.registries`
//! below `$WINDLASS_HOME` or `~/.windlass`. `_default` is for registries without a directory of their own. Mirrors the parts of
//! containerd's `core/remotes/docker/config/hosts.go` that pulling needs; anything else in a file is an error with its line.

mod toml;

use std::path::{Path, PathBuf};

use http::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::{RegistryError, Result};

/// A host that has images of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// Its scheme and its name, such as `https://mirror.example.com:5000`.
    pub(super) base: String,
    /// The path below which its interface is.
    pub(super) path: String,
    /// Whether it is asked which image a tag is.
    pub(super) resolves: bool,
    /// Whether it is asked for content by digest.
    pub(super) pulls: bool,
    /// The only authorities that its certificate may be of.
    pub(super) authorities: Option<PathBuf>,
    /// Whether its certificate is not looked at.
    pub(super) skips_verification: bool,
    /// What requests have besides.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a file says about a registry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts {
    /// In the order in which they are asked.
    pub(super) mirrors: Vec<Host>,
    /// What is asked last; the registry itself if there is none.
    pub(super) server: Option<Host>,
}

impl Host {
    /// Its name, with its port.
    pub(super) fn authority(&self) -> &str {
        self.base.split_once("://").map_or(&self.base, |(_, authority)| authority)
    }
}

/// The directory of this user.
fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("WINDLASS_REGISTRIES")
        .or_else(|| Some(variable("WINDLASS_HOME")?.join(".registries")))
        .or_else(|| Some(variable("HOME")?.join(".windlass/.registries")))
}

/// What this user's files say about a registry.
pub(super) fn of(registry: &str) -> Result<Hosts> {
    directory().map_or_else(|| Ok(Hosts::default()), |directory| read(&directory, registry))
}

fn read(directory: &Path, registry: &str) -> Result<Hosts> {
    // A port is written as containerd writes it where file systems have no colons, or as it is.
    let escaped = registry.rsplit_once(':').map(|(host, port)| format!("{host}_{port}_"));
    let own = [registry.to_owned()].into_iter().filter(|name| !matches!(name.as_str(), "." | ".."));
    for name in escaped.into_iter().chain(own).chain(["_default".to_owned()]) {
        let file = directory.join(name).join("hosts.toml");
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                return parse(&text, file.parent().unwrap_or(directory))
                    .map_err(|(line, why)| RegistryError::Misconfigured { file, line, why });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(RegistryError::Misconfigured { file, line: 0, why: error.to_string() }),
        }
    }
    Ok(Hosts::default())
}

/// A mistake in a file, with its line.
type Mistake = (usize, String);

/// What a table says about a host.
struct Settings {
    /// The line of the table's name.
    line: usize,
    address: String,
    entries: Vec<toml::Entry>,
    headers: Vec<toml::Entry>,
}

fn parse(text: &str, dir: &Path) -> std::result::Result<Hosts, Mistake> {
    let mut root = Settings { line: 1, address: String::new(), entries: Vec::new(), headers: Vec::new() };
    let mut mirrors: Vec<Settings> = Vec::new();
    for table in toml::parse(text)? {
        let toml::Table { line, name, entries } = table;
        let name: Vec<&str> = name.iter().map(String::as_str).collect();
        match name.as_slice() {
            [] => root.entries = entries,
            ["header"] => root.headers = entries,
            ["host"] if entries.is_empty() => {}
            ["host", address] => {
                mirrors.push(Settings { line, address: (*address).to_owned(), entries, headers: Vec::new() });
            }
            ["host", address, "header"] => match mirrors.iter_mut().find(|mirror| mirror.address == *address) {
                Some(mirror) => mirror.headers = entries,
                None => return Err((line, format!("[host.\"{address}\"] comes before its headers"))),
            },
            _ => return Err((line, format!("there is no table [{}]", name.join(".")))),
        }
    }
    let server = root.entries.iter().position(|entry| entry.key == "server").map(|at| root.entries.remove(at));
    let server = match server {
        Some(entry) => {
            string(&entry)?.clone_into(&mut root.address);
            Some(host(&root, dir)?)
        }
        None if root.entries.is_empty() && root.headers.is_empty() => None,
        None => {
            return Err((root.entries.first().map_or(1, |entry| entry.line), "name the `server` as well".to_owned()));
        }
    };
    let mirrors = mirrors.iter().map(|mirror| host(mirror, dir)).collect::<std::result::Result<_, _>>()?;
    Ok(Hosts { mirrors, server })
}

fn host(settings: &Settings, dir: &Path) -> std::result::Result<Host, Mistake> {
    let has_scheme = ["http://", "https://"].iter().any(|scheme| settings.address.starts_with(scheme));
    let whole = if has_scheme { settings.address.clone() } else { format!("https://{}", settings.address) };
    let authority = whole.find("://").map_or(0, |at| at + 3);
    let (base, path) = whole.split_at(whole[authority..].find('/').map_or(whole.len(), |at| at + authority));
    if base.parse::<http::Uri>().is_err() || base.ends_with("//") {
        return Err((settings.line, format!("{:?} is no address", settings.address)));
    }
    // Docker's own registry has one name for people and one for programs.
    let base = if base == "https://docker.io" { "https://registry-1.docker.io" } else { base };
    let mut found = Host {
        base: base.to_owned(),
        path: path.trim_end_matches('/').to_owned(),
        resolves: true,
        pulls: true,
        authorities: None,
        skips_verification: false,
        headers: Vec::new(),
    };
    let mut overrides_path = false;
    for entry in &settings.entries {
        let mistake = |why: String| (entry.line, why);
        match entry.key.as_str() {
            "capabilities" => {
                let names: Vec<String> = strings(entry)?.iter().map(|name| name.to_lowercase()).collect();
                if let Some(unknown) = names.iter().find(|name| !matches!(name.as_str(), "pull" | "resolve" | "push")) {
                    return Err(mistake(format!("there is no capability {unknown:?}: pull, resolve and push")));
                }
                let has = |wanted: &str| names.is_empty() || names.iter().any(|name| name == wanted);
                (found.resolves, found.pulls) = (has("resolve"), has("pull"));
            }
            "ca" => match strings(entry)?.as_slice() {
                [file] => found.authorities = Some(dir.join(file)),
                _ => return Err(mistake("put the certificates of all authorities into one file".to_owned())),
            },
            "skip_verify" => found.skips_verification = flag(entry)?,
            "override_path" => overrides_path = flag(entry)?,
            // Connections have a limit of their own.
            "dial_timeout" => {}
            "client" => return Err(mistake("client certificates cannot be used".to_owned())),
            unknown => return Err(mistake(format!("there is no setting {unknown:?}"))),
        }
    }
    for entry in &settings.headers {
        let name = entry
            .key
            .parse::<HeaderName>()
            .map_err(|_| (entry.line, format!("{:?} is no name of a header", entry.key)))?;
        for value in strings(entry)? {
            let value =
                value.parse::<HeaderValue>().map_err(|_| (entry.line, format!("{value:?} is no value of a header")))?;
            found.headers.push((name.clone(), value));
        }
    }
    if !overrides_path && !found.path.ends_with("/v2") {
        found.path.push_str("/v2");
    }
    Ok(found)
}

fn string(entry: &toml::Entry) -> std::result::Result<&str, Mistake> {
    entry.value.as_str().ok_or_else(|| (entry.line, format!("{} is a text in quotation marks", entry.key)))
}

fn strings(entry: &toml::Entry) -> std::result::Result<Vec<&str>, Mistake> {
    match &entry.value {
        Value::Array(values) => Ok(values.iter().filter_map(Value::as_str).collect()),
        _ => string(entry).map(|one| vec![one]),
    }
}

fn flag(entry: &toml::Entry) -> std::result::Result<bool, Mistake> {
    entry.value.as_bool().ok_or_else(|| (entry.line, format!("{} is true or false", entry.key)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const FILE: &str = r#"
server = "https://docker.io" # as containerd's documentation has it

[host."https://mirror.example.com"]
  capabilities = ["pull", "resolve"]

[host."http://127.0.0.1:5000/proxy/"]
  capabilities = [
    "pull",
  ]
  ca = 'ca.pem'
  skip_verify = true
  [host."http://127.0.0.1:5000/proxy/".header]
    x-custom = ["1", "2"]

[host."plain.example.com/api"]
  override_path = true
  dial_timeout = "1s"
"#;

    #[test]
    fn mirrors_are_asked_in_the_order_of_the_file() {
        let hosts = parse(FILE, Path::new("/dir")).unwrap();
        let server = hosts.server.unwrap();
        assert_eq!((server.base.as_str(), server.path.as_str()), ("https://registry-1.docker.io", "/v2"));
        let all: Vec<(&str, &str, bool, bool)> = hosts
            .mirrors
            .iter()
            .map(|host| (host.base.as_str(), host.path.as_str(), host.resolves, host.pulls))
            .collect();
        let expected = [
            ("https://mirror.example.com", "/v2", true, true),
            ("http://127.0.0.1:5000", "/proxy/v2", false, true),
            ("https://plain.example.com", "/api", true, true),
        ];
        assert_eq!(all, expected);
        let second = &hosts.mirrors[1];
        assert_eq!((second.authorities.as_deref(), second.skips_verification), (Some(Path::new("/dir/ca.pem")), true));
        assert_eq!(second.headers.len(), 2);
        assert_eq!(second.authority(), "127.0.0.1:5000");
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let check = |text: &str, expected: Mistake| assert_eq!(parse(text, Path::new("/")), Err(expected), "{text}");
        check("\nserver = 7", (2, "a value is \"text\", true, false, or [\"a\", \"list\"]".to_owned()));
        check("[host.\"https://a\"]\npull = true", (2, "there is no setting \"pull\"".to_owned()));
        check(
            "[host.\"https://a\"]\ncapabilities = [\"put\"]",
            (2, "there is no capability \"put\": pull, resolve and push".to_owned()),
        );
        check("[host.\"https://a\"]\nclient = \"me.pem\"", (2, "client certificates cannot be used".to_owned()));
        check("[mirrors]\n", (1, "there is no table [mirrors]".to_owned()));
        check("[host.\"https://\"]\n", (1, "\"https://\" is no address".to_owned()));
        check("skip_verify = true", (1, "name the `server` as well".to_owned()));
    }

    #[test]
    fn directories_are_found_as_containerd_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let mirror = |name: &str| {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("hosts.toml"), format!("[host.\"https://{name}\"]")).unwrap();
        };
        let first = |registry: &str| {
            let hosts = read(dir.path(), registry).unwrap();
            hosts.mirrors.first().map(|host| host.authority().to_owned())
        };
        assert_eq!(first("docker.io"), None);
        mirror("_default");
        assert_eq!(first("docker.io").as_deref(), Some("_default"));
        mirror("docker.io");
        assert_eq!(first("docker.io").as_deref(), Some("registry-1.docker.io"));
        mirror("localhost_5000_");
        assert_eq!(first("localhost:5000").as_deref(), Some("localhost_5000_"));
        std::fs::write(dir.path().join("hosts.toml"), "[host.\"https://escaped\"]").unwrap();
        assert_eq!(first("..").as_deref(), Some("_default"));
        std::fs::write(dir.path().join("docker.io/hosts.toml"), "what").unwrap();
        let error = read(dir.path(), "docker.io").unwrap_err().to_string();
        assert!(error.contains("docker.io/hosts.toml, line 1:"), "{error}");
    }
}
