//! Makes API servers trust the webhooks: puts the authorities into every configuration and
//! definition that leads here, and on request makes those configurations.
//!
//! Nothing is written that is right already. Configurations are made when the operator starts and
//! when they are gone, not whenever they look different: during a rollout two versions of an
//! operator would undo each other's work for as long as both run.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::admission::{Admission, Phase};
use super::registration::{Reach, mutating_configuration, validating_configuration};
use crate::retry::ConflictRetry;

/// What is to be injected where.
pub(super) struct Injector {
    pub(super) client: kube::Client,
    pub(super) field_manager: String,
    pub(super) reach: Reach,
    pub(super) admissions: Vec<Admission>,
    /// The configurations to inject into, by kind; `None` for all that lead here.
    pub(super) mutating: Option<Vec<String>>,
    pub(super) validating: Option<Vec<String>>,
    /// Names of the definitions whose objects are converted here.
    pub(super) definitions: Vec<String>,
    /// The name under which configurations are made, if they are.
    pub(super) register: Option<String>,
    /// Whether API servers are led to this very process rather than to all replicas: then the configurations
    /// follow the replicas that run.
    pub(super) direct: bool,
    /// What this process has made, each by itself: one that is refused has the others not made again. Of
    /// definitions, which are others' to make, with their uid: one that was made anew leads anywhere.
    pub(super) registered: Mutex<HashMap<String, Option<String>>>,
}

impl Injector {
    /// Injects everywhere; on failure, everywhere else before saying so.
    pub(super) async fn inject(&self, bundle: &str) -> Result<(), kube::Error> {
        let mut result = Ok(());
        if let Some(name) = &self.register {
            result = result.and(self.register(name, bundle).await);
        }
        result = result
            .and(self.inject_configurations::<MutatingWebhookConfiguration>(self.mutating.as_deref(), bundle).await);
        result = result.and(
            self.inject_configurations::<ValidatingWebhookConfiguration>(self.validating.as_deref(), bundle).await,
        );
        for definition in &self.definitions {
            result = result.and(self.inject_definition(definition, bundle).await);
        }
        result
    }

    /// Whether this process has not made an object yet.
    fn is_first(&self, name: &str, uid: Option<&str>) -> bool {
        self.registered.lock().get(name).is_none_or(|made| made.as_deref() != uid)
    }

    fn made(&self, name: &str, uid: Option<String>) {
        self.registered.lock().insert(name.to_owned(), uid);
    }

    async fn register(&self, name: &str, bundle: &str) -> Result<(), kube::Error> {
        let mut result = Ok(());
        let mutating = Phase::Mutating.configuration(name);
        if let Some(configuration) = mutating_configuration(&mutating, &self.admissions, &self.reach, bundle) {
            result = result.and(self.apply(&configuration).await);
        } else {
            result = result.and(self.withdraw::<MutatingWebhookConfiguration>(&mutating).await);
        }
        let validating = Phase::Validating.configuration(name);
        if let Some(configuration) = validating_configuration(&validating, &self.admissions, &self.reach, bundle) {
            result = result.and(self.apply(&configuration).await);
        } else {
            result = result.and(self.withdraw::<ValidatingWebhookConfiguration>(&validating).await);
        }
        result
    }

    /// Takes the webhooks of an earlier version of this operator out of a configuration for which there
    /// are none any more: they would not be answered. It stays, for others that are in it, and so that the
    /// earlier version does not make it again.
    async fn withdraw<K: Configuration>(&self, name: &str) -> Result<(), kube::Error> {
        // Once: while two versions run, the other one may need it.
        if !self.is_first(name, None) {
            return Ok(());
        }
        let api: Api<K> = Api::all(self.client.clone());
        let allowed = |error: &kube::Error| !matches!(error, kube::Error::Api(status) if status.code == 403);
        let found = match api.get_metadata_opt(name).await {
            // What it was never allowed to make is not its own.
            Err(error) if !allowed(&error) => None,
            found => found?,
        };
        if !found.is_some_and(|found| self.holds_webhooks(found.managed_fields())) {
            self.made(name, None);
            return Ok(());
        }
        tracing::info!(%name, kind = %K::kind(&()), "taking out webhooks that there are no more");
        let nothing = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}});
        let params = PatchParams::apply(&self.field_manager).force();
        match api.patch(name, &params, &Patch::Apply(nothing)).await {
            Err(error) if !allowed(&error) => {
                tracing::warn!(%name, %error, "webhooks of an earlier version are still registered, and no server answers them");
            }
            written => drop(written?),
        }
        self.made(name, None);
        Ok(())
    }

    /// Whether there are webhooks that an operator of this name has applied.
    fn holds_webhooks(&self, fields: &[ManagedFieldsEntry]) -> bool {
        fields.iter().any(|entry| {
            entry.manager.as_ref() == Some(&self.field_manager)
                && entry.operation.as_deref() == Some("Apply")
                && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:webhooks").is_some())
        })
    }

    /// Takes the webhooks that lead to this process out of the configurations that it has made: it stops, and
    /// nothing else answers there. Another replica then makes them lead to itself.
    pub(super) async fn leave(&self) -> Result<(), kube::Error> {
        let Some(name) = self.register.as_ref().filter(|_| self.direct) else { return Ok(()) };
        let mutating = self.leave_one::<MutatingWebhookConfiguration>(&Phase::Mutating.configuration(name)).await;
        let validating = self.leave_one::<ValidatingWebhookConfiguration>(&Phase::Validating.configuration(name)).await;
        mutating.and(validating)
    }

    async fn leave_one<K: Configuration>(&self, name: &str) -> Result<(), kube::Error> {
        let api: Api<K> = Api::all(self.client.clone());
        let Some(found) = api.get_opt(name).await? else { return Ok(()) };
        let leads_here =
            |(_, client): &(&str, &WebhookClientConfig)| self.reach.leads_here(None, client.url.as_deref());
        if !found.webhooks().iter().any(leads_here) {
            return Ok(());
        }
        tracing::info!(%name, kind = %K::kind(&()), "taking out webhooks that lead to this process");
        let nothing = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}});
        let params = PatchParams::apply(&self.field_manager).force();
        api.patch(name, &params, &Patch::Apply(nothing)).await.map(drop)
    }

    /// Whether one of these URLs leads to another replica that does not run any more.
    async fn is_orphaned(&self, urls: Vec<String>) -> bool {
        for url in urls.iter().filter(|_| self.direct) {
            if !self.reach.leads_here(None, Some(url)) && !is_listening(url).await {
                return true;
            }
        }
        false
    }

    /// Makes a configuration; if not for the first time, only if it is gone, if another version has taken out
    /// what this one needs, or if it leads to a replica that is gone.
    async fn apply<K: Configuration>(&self, object: &K) -> Result<(), kube::Error> {
        let (api, name): (Api<K>, _) = (Api::all(self.client.clone()), object.name_any());
        if !self.is_first(&name, None)
            && let Some(found) = api.get_opt(&name).await?
            && self.holds_webhooks(found.managed_fields())
        {
            let urls = found.webhooks().into_iter().filter_map(|(_, client)| client.url.clone()).collect();
            if !self.is_orphaned(urls).await {
                return Ok(());
            }
        }
        let params = PatchParams::apply(&self.field_manager).force();
        api.patch(&name, &params, &Patch::Apply(object)).await?;
        self.made(&name, None);
        Ok(())
    }

    async fn inject_configurations<K: Configuration>(
        &self,
        names: Option<&[String]>,
        bundle: &str,
    ) -> Result<(), kube::Error> {
        let api: Api<K> = Api::all(self.client.clone());
        let mut result = Ok(());
        match names {
            None => {
                for configuration in api.list(&ListParams::default()).await?.items {
                    result = result.and(self.inject_configuration(&api, configuration, bundle).await);
                }
            }
            Some(names) => {
                for name in names {
                    let injected = match api.get_opt(name).await {
                        Ok(Some(configuration)) => self.inject_configuration(&api, configuration, bundle).await,
                        Ok(None) => Ok(()),
                        Err(error) => Err(error),
                    };
                    result = result.and(injected);
                }
            }
        }
        result
    }

    /// Success means that the authority is there, or the configuration is not. Against a writer that
    /// changes it at the same time it is tried again.
    async fn inject_configuration<K: Configuration>(
        &self,
        api: &Api<K>,
        mut configuration: K,
        bundle: &str,
    ) -> Result<(), kube::Error> {
        let (name, mut retry) = (configuration.name_any(), ConflictRetry::new());
        loop {
            let patch = patch_configuration(&configuration, &self.reach, bundle);
            if patch.0.is_empty() {
                return Ok(());
            }
            tracing::info!(%name, kind = %K::kind(&()), "injecting the certificate authority");
            let Err(refusal) = api.patch(&name, &self.params(), &Patch::Json::<()>(patch)).await else {
                return Ok(());
            };
            let contended = match &refusal {
                kube::Error::Api(status) if status.code == 404 => return Ok(()),
                // What a patch expects to find and does not makes it invalid; so may other things.
                kube::Error::Api(status) => matches!(status.code, 409 | 422),
                _ => false,
            };
            if !contended || !retry.pause().await {
                return Err(refusal);
            }
            match api.get_opt(&name).await? {
                None => return Ok(()),
                Some(found) if found.resource_version() == configuration.resource_version() => return Err(refusal),
                Some(found) => configuration = found,
            }
        }
    }

    async fn inject_definition(&self, name: &str, bundle: &str) -> Result<(), kube::Error> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        // Not there yet: its creation will be seen.
        let Some(definition) = api.get_opt(name).await? else { return Ok(()) };
        let conversion = definition.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
        let client = conversion.and_then(|webhook| webhook.client_config.as_ref());
        let urls = client.and_then(|client| client.url.clone()).into_iter().collect();
        let first = self.is_first(name, definition.metadata.uid.as_deref()) || self.is_orphaned(urls).await;
        if let Some(patch) = self.patch_definition(&definition, bundle, first)? {
            tracing::info!(%name, kind = "CustomResourceDefinition", "injecting the certificate authority");
            api.patch(name, &self.params(), &Patch::Merge(patch)).await?;
        }
        self.made(name, definition.metadata.uid);
        Ok(())
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.field_manager.clone()), ..PatchParams::default() }
    }

    fn patch_definition(
        &self,
        definition: &CustomResourceDefinition,
        bundle: &str,
        first: bool,
    ) -> Result<Option<Value>, kube::Error> {
        let webhook = definition.spec.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook");
        let client = webhook
            .and_then(|conversion| conversion.webhook.as_ref())
            .and_then(|webhook| webhook.client_config.as_ref());
        let leads_here = client.is_some_and(|client| {
            let service = client.service.as_ref().map(|service| (service.namespace.as_str(), service.name.as_str()));
            self.reach.leads_here(service, client.url.as_deref())
        });
        // Another port or path of the same Service may be another version's.
        let make = self.register.is_some() && if leads_here { first } else { first || webhook.is_none() };
        if make {
            let conversion = self.reach.conversion(bundle);
            let current = serde_json::to_value(client).map_err(kube::Error::SerdeError)?;
            let wanted = &conversion["webhook"]["clientConfig"];
            return Ok((!is_like(&current, wanted)).then(|| json!({"spec": {"conversion": conversion}})));
        }
        let is_right = client.is_some_and(|client| is_bundle(client.ca_bundle.as_ref(), bundle));
        Ok((leads_here && !is_right).then(|| {
            let bundle = BASE64_STANDARD.encode(bundle);
            json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}})
        }))
    }
}

/// How long a replica may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether anything accepts connections where a URL leads. A URL that cannot be read is taken to be served.
async fn is_listening(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return true };
    let Some(host) = url.host() else { return true };
    let address = (host.trim_matches(['[', ']']).to_owned(), url.port_u16().unwrap_or(443));
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, tokio::net::TcpStream::connect(address)).await;
    matches!(connected, Ok(Ok(_)))
}

/// Whether a merge of `wanted` would change nothing.
fn is_like(current: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => fields.iter().all(|(key, wanted)| is_like(&current[key], wanted)),
        wanted => current == wanted,
    }
}

fn is_bundle(current: Option<&ByteString>, bundle: &str) -> bool {
    current.is_some_and(|current| current.0 == bundle.as_bytes())
}

/// A webhook configuration of either kind.
pub(super) trait Configuration:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned
{
    /// Name and `clientConfig` of each webhook, in order.
    fn webhooks(&self) -> Vec<(&str, &WebhookClientConfig)>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<(&str, &WebhookClientConfig)> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn webhooks(&self) -> Vec<(&str, &WebhookClientConfig)> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

/// Injects into the webhooks that lead here, provided that they are still where they were.
fn patch_configuration(configuration: &impl Configuration, reach: &Reach, bundle: &str) -> json_patch::Patch {
    let mut operations = Vec::new();
    for (index, (name, client)) in configuration.webhooks().into_iter().enumerate() {
        let service = client.service.as_ref().map(|service| (service.namespace.as_str(), service.name.as_str()));
        if !reach.leads_here(service, client.url.as_deref()) || is_bundle(client.ca_bundle.as_ref(), bundle) {
            continue;
        }
        operations.push(json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": name}));
        let path = format!("/webhooks/{index}/clientConfig/caBundle");
        operations.push(json!({"op": "add", "path": path, "value": BASE64_STANDARD.encode(bundle)}));
    }
    serde_json::from_value(operations.into()).expect("invariant: these are operations")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_outdated_webhooks_are_touched() {
        let client = |service: &str, bundle: &str| {
            let mut client = json!({"service": {"namespace": "a", "name": service}});
            if !bundle.is_empty() {
                client["caBundle"] = BASE64_STANDARD.encode(bundle).into();
            }
            client
        };
        let webhook = |name: &str, client: serde_json::Value| {
            json!({"name": name, "clientConfig": client,
            "admissionReviewVersions": ["v1"], "sideEffects": "None"})
        };
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "x"},
            "webhooks": [
                webhook("theirs", client("other", "")), webhook("none", client("ours", "")),
                webhook("right", client("ours", "new")), webhook("old", client("ours", "old")),
            ],
        }))
        .expect("a configuration");
        let patch = patch_configuration(&configuration, &Reach::service("a", "ours"), "new");
        let new = BASE64_STANDARD.encode("new");
        assert_eq!(
            serde_json::to_value(patch).expect("encoded"),
            json!([
                {"op": "test", "path": "/webhooks/1/name", "value": "none"},
                {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": new},
                {"op": "test", "path": "/webhooks/3/name", "value": "old"},
                {"op": "add", "path": "/webhooks/3/clientConfig/caBundle", "value": new},
            ])
        );
    }
}
