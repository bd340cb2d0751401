//! The names and passwords that docker keeps for registries.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Credentials that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// Docker's file.
    #[error("cannot read {}: {why}", file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// An entry of it.
    #[error("docker's credentials for {0} cannot be read")]
    Entry(String),
    /// A program that docker's configuration names.
    #[error("cannot run {program}, which docker's configuration names: {why}")]
    Helper {
        /// Which program.
        program: String,
        /// Why not.
        why: String,
    },
}

type Result<T> = std::result::Result<T, CredentialsError>;

impl Credentials {
    /// What docker knows about a registry.
    pub fn of(registry: &str) -> Result<Option<Self>> {
        let Some(file) = file().filter(|file| file.is_file()) else { return Ok(None) };
        let failed = |why: String| CredentialsError::File { file: file.clone(), why };
        let text = std::fs::read_to_string(&file).map_err(|error| failed(error.to_string()))?;
        let config: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        Self::in_config(&config, registry)
    }

    /// What a configuration of docker has for a registry.
    fn in_config(config: &Value, registry: &str) -> Result<Option<Self>> {
        for name in names(registry) {
            if let Some(helper) = helper(config, &name) {
                if let Some(found) = ask(&helper, &name)? {
                    return Ok(Some(found));
                }
            } else if let Some(found) = stored(config, &name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// What a configuration of docker that others wrote, such as that of a Secret, has for an image: the entries with the longest
    /// names first. Only passwords count; programs that it names are not run.
    pub fn for_image(config: &Value, registry: &str, repository: &str) -> Vec<Self> {
        let entries = config["auths"].as_object().into_iter().flatten();
        let mut found: Vec<(&String, Self)> = entries
            .filter(|(name, _)| matches(name, registry, repository))
            .filter_map(|(name, _)| Some((name, stored(config, name).ok().flatten()?)))
            .collect();
        found.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        found.into_iter().map(|(_, credentials)| credentials).collect()
    }

    pub(super) fn basic(&self) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }
}

fn file() -> Option<PathBuf> {
    let directory = std::env::var_os("DOCKER_CONFIG").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    Some(directory.or_else(|| Some(std::env::home_dir()?.join(".docker")))?.join("config.json"))
}

/// What docker calls a registry in its file.
fn names(registry: &str) -> Vec<String> {
    if registry == "docker.io" {
        return vec!["https://index.docker.io/v1/".to_owned(), registry.to_owned()];
    }
    vec![registry.to_owned(), format!("https://{registry}")]
}

/// Whether an entry is for an image: `HOST[:PORT][/PATH]`, perhaps as an address, with `*` for any letters of a part of the
/// host. Mirrors `URLsMatch` in `pkg/credentialprovider/keyring.go`.
fn matches(entry: &str, registry: &str, repository: &str) -> bool {
    let entry = entry.strip_prefix("https://").or_else(|| entry.strip_prefix("http://")).unwrap_or(entry);
    let (host, path) = entry.split_once('/').unwrap_or((entry, ""));
    // Versions of the registry's own interface, as docker writes them.
    let path = path.trim_end_matches('/');
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let host = if host == "index.docker.io" { "docker.io" } else { host };
    let (parts, wanted): (Vec<&str>, Vec<&str>) = (host.split('.').collect(), registry.split('.').collect());
    let same_host = parts.len() == wanted.len() && parts.iter().zip(&wanted).all(|(part, wanted)| glob(part, wanted));
    let below =
        path.is_empty() || repository.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    same_host && below
}

/// Whether a text is as a pattern says, in which `*` stands for any letters.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| glob(after, &rest[at..]))
        }),
    }
}

fn helper(config: &Value, name: &str) -> Option<String> {
    let of_registry = config["credHelpers"].get(name);
    of_registry.or_else(|| config.get("credsStore"))?.as_str().filter(|helper| !helper.is_empty()).map(str::to_owned)
}

fn stored(config: &Value, name: &str) -> Result<Option<Credentials>> {
    let entry = &config["auths"][name];
    let Some(text) = entry["auth"].as_str().filter(|text| !text.is_empty()) else {
        let text = |field: &str| entry[field].as_str().map(str::to_owned);
        return Ok(text("username").zip(text("password")).map(|(user, password)| Credentials { user, password }));
    };
    let decoded = BASE64_STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded.as_deref().and_then(|text| text.split_once(':')) {
        Some((user, password)) => Ok(Some(Credentials { user: user.to_owned(), password: password.to_owned() })),
        None => Err(CredentialsError::Entry(name.to_owned())),
    }
}

/// Asks a program that keeps passwords.
fn ask(helper: &str, name: &str) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{helper}");
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |why: String| CredentialsError::Helper { program: program.clone(), why };
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(name.as_bytes()).map_err(|error| failed(error.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Ok(None);
    }
    let answer: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let text = |field: &str| answer[field].as_str().map(str::to_owned);
    Ok(text("Username").zip(text("Secret")).map(|(user, password)| Credentials { user, password }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_for_hosts_and_paths() {
        let check = |entry: &str, expected: bool| {
            assert_eq!(matches(entry, "a.example.com:5000", "team/app"), expected, "{entry}");
        };
        check("a.example.com:5000", true);
        check("https://a.example.com:5000/v2/", true);
        check("*.example.com:5000", true);
        check("a.example.com:5000/team", true);
        check("a.example.com:5000/tea", false);
        check("a.example.com:5000/team/app", true);
        check("a.example.com", false);
        check("*.com:5000", false);
        assert!(matches("https://index.docker.io/v1/", "docker.io", "library/x"));
        let entry = |user: &str| json!({"username": user, "password": "p"});
        let config =
            json!({"credsStore": "evil", "auths": {"h": entry("any"), "h/team": entry("team"), "other": entry("no")}});
        let users: Vec<String> =
            Credentials::for_image(&config, "h", "team/app").into_iter().map(|one| one.user).collect();
        assert_eq!(users, ["team", "any"]);
    }

    #[test]
    fn what_docker_keeps_is_found() {
        let config = json!({"auths": {"registry.example.com": {"auth": BASE64_STANDARD.encode("me:se:cret")}}});
        let found = stored(&config, "registry.example.com").unwrap().unwrap();
        assert_eq!(found, Credentials { user: "me".into(), password: "se:cret".into() });
        assert_eq!(found.basic(), format!("Basic {}", BASE64_STANDARD.encode("me:se:cret")));
        assert_eq!(stored(&config, "other").unwrap(), None);
        stored(&json!({"auths": {"a": {"auth": "!"}}}), "a").unwrap_err();
        let config = json!({"credsStore": "desktop", "credHelpers": {"a": "pass"}});
        assert_eq!(helper(&config, "a").unwrap(), "pass");
        assert_eq!(helper(&config, "b").unwrap(), "desktop");
        assert_eq!(helper(&json!({}), "b"), None);
    }
}
