//! Images for containers: as `imagePullPolicy` says, with the credentials of `imagePullSecrets`.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use windlass_image::registry::{self, Credentials, RegistryError};
use windlass_image::store::Collected;
use windlass_image::{Name, Origin, Store, manifest};
use windlass_node::runtime::{ContainerRef, Image, Pulled, RuntimeError};

use super::image_id;

/// The image that a container wants.
pub(super) struct Wanted {
    image: String,
    policy: String,
    secrets: Vec<Arc<Secret>>,
}

impl Wanted {
    pub(super) fn of(container: &ContainerRef<'_>) -> Self {
        Self {
            image: container.spec.image.clone().unwrap_or_default(),
            policy: container.spec.image_pull_policy.clone().unwrap_or_default(),
            secrets: container.pull_secrets.to_vec(),
        }
    }

    fn name(&self) -> Result<Name, RuntimeError> {
        let image = &self.image;
        image
            .parse()
            .map_err(|error| RuntimeError::ImageName(format!("Failed to apply default image tag {image:?}: {error}")))
    }

    /// The image, if it is here and need not be looked for. What was loaded or built here is never pulled.
    pub(super) fn present(&self, store: &Store) -> Option<Image> {
        let name = self.name().ok()?;
        let stored = store.find(&name).ok().flatten()?;
        let is_enough = stored.origin == Origin::Local || self.policy != "Always";
        is_enough.then(|| Image { id: image_id(&name, &stored.digest), pulled: None })
    }

    /// Fetches the image.
    pub(super) async fn pull(self, store: &Store) -> Result<Image, RuntimeError> {
        let name = self.name()?;
        if let Some(image) = self.present(store) {
            return Ok(image);
        }
        if self.policy == "Never" {
            let message = format!("Container image {:?} is not present with pull policy of Never", self.image);
            return Err(RuntimeError::NeverPull(message));
        }
        let began = std::time::Instant::now();
        let pulled = fetch(store, &name, &credentials(&self.secrets, &name)).await.map_err(|error| {
            let tried = if error.is_unauthorized() { said_of(&self.secrets) } else { String::new() };
            RuntimeError::Pull(format!("failed to pull and unpack image {:?}: {error}{tried}", name.to_string()))
        })?;
        if pulled.replaced {
            collect(store.clone()).await;
        }
        let size = pulled.stored.size;
        Ok(Image { id: image_id(&name, &pulled.stored.digest), pulled: Some(Pulled { took: began.elapsed(), size }) })
    }
}

/// Deletes what no name leads to any more. What is in use stays until another image is replaced, or the cluster ends.
async fn collect(store: Store) {
    match tokio::task::spawn_blocking(move || store.collect()).await {
        Ok(Ok(collected)) if collected != Collected::default() => {
            tracing::debug!(
                count = collected.count,
                bytes = collected.bytes,
                "what no image name leads to was deleted"
            );
        }
        Ok(Err(error)) => tracing::warn!(%error, "what no image name leads to cannot be deleted"),
        _ => {}
    }
}

/// Fetches an image with each of these credentials, until the registry accepts one. At last with those of the machine's user.
async fn fetch(store: &Store, name: &Name, credentials: &[Credentials]) -> Result<registry::Pulled, RegistryError> {
    let all = credentials.iter().cloned().map(Some).chain([None]);
    let mut refused = None;
    for credentials in all {
        let is_last = credentials.is_none();
        match registry::pull(store, name, manifest::host_architecture(), credentials, &|_, _| {}).await {
            // What the registry says about the credentials of the pod is worth more than what it says without any.
            Err(error) if error.is_unauthorized() && !is_last => _ = refused.get_or_insert(error),
            Err(error) if error.is_unauthorized() => return Err(refused.unwrap_or(error)),
            other => return other,
        }
    }
    Err(RegistryError::Unauthorized("there are no credentials".to_owned()))
}

/// What was tried, for a registry that refused it.
fn said_of(secrets: &[Arc<Secret>]) -> String {
    let names: Vec<&str> = secrets.iter().filter_map(|secret| secret.metadata.name.as_deref()).collect();
    match names.as_slice() {
        [] => "; the pod has no imagePullSecrets".to_owned(),
        names => format!("; tried the imagePullSecrets {}", names.join(", ")),
    }
}

/// The credentials that Secrets have for an image, the best match first.
fn credentials(secrets: &[Arc<Secret>], name: &Name) -> Vec<Credentials> {
    let mut found = Vec::new();
    for secret in secrets {
        let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
        let read = |ByteString(text): &ByteString| serde_json::from_slice::<Value>(text).ok();
        let config = match (data(".dockerconfigjson"), data(".dockercfg")) {
            (Some(text), _) => read(text),
            // The older form is what `auths` holds in the newer one.
            (None, Some(text)) => read(text).map(|auths| json!({ "auths": auths })),
            (None, None) => None,
        };
        if let Some(config) = config {
            found.extend(Credentials::for_image(&config, &name.reference.registry, &name.reference.repository));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn secret(key: &str, value: &Value) -> Arc<Secret> {
        let mut secret = Secret::default();
        secret.metadata.name = Some("pull".to_owned());
        secret.data = Some([(key.to_owned(), ByteString(value.to_string().into_bytes()))].into());
        Arc::new(secret)
    }

    #[test]
    fn secrets_of_both_forms_have_credentials() {
        let name: Name = "registry.example.com/team/app:1".parse().unwrap();
        let auths = json!({"registry.example.com": {"username": "me", "password": "pw"}});
        let both = [secret(".dockerconfigjson", &json!({ "auths": auths })), secret(".dockercfg", &auths)];
        assert_eq!(credentials(&both, &name).len(), 2);
        assert!(credentials(&[secret("other", &auths)], &name).is_empty());
        assert_eq!(said_of(&both), "; tried the imagePullSecrets pull, pull");
    }
}
