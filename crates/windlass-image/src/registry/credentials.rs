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

    /// What a configuration of docker, such as that of a Secret for pulling images, has for a registry.
    pub fn in_config(config: &Value, registry: &str) -> Result<Option<Self>> {
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
