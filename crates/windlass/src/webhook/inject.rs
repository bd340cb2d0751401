//! Makes API servers trust the webhooks: puts the authorities into every configuration and
//! definition that leads here, and on request makes those configurations.
//!
//! Nothing is written that is right already. Configurations are made when the operator starts and
//! when they are gone, not whenever they look different: during a rollout two versions of an
//! operator would undo each other's work for as long as both run.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::admission::{Admission, Phase};
use super::registration::{Reach, mutating_configuration, validating_configuration};

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
    /// Whether they have been made by this process.
    pub(super) registered: AtomicBool,
}

impl Injector {
    /// Injects everywhere; on failure, everywhere else before saying so.
    pub(super) async fn inject(&self, bundle: &str) -> Result<(), kube::Error> {
        let mut result = Ok(());
        let first = !self.registered.load(Ordering::Relaxed);
        if let Some(name) = &self.register {
            result = result.and(self.register(name, bundle, first).await);
        }
        result = result
            .and(self.inject_configurations::<MutatingWebhookConfiguration>(self.mutating.as_deref(), bundle).await);
        result = result.and(
            self.inject_configurations::<ValidatingWebhookConfiguration>(self.validating.as_deref(), bundle).await,
        );
        for definition in &self.definitions {
            result = result.and(self.inject_definition(definition, bundle, first).await);
        }
        if result.is_ok() {
            self.registered.store(true, Ordering::Relaxed);
        }
        result
    }

    async fn register(&self, name: &str, bundle: &str, first: bool) -> Result<(), kube::Error> {
        let mutating = Phase::Mutating.configuration(name);
        if let Some(configuration) = mutating_configuration(&mutating, &self.admissions, &self.reach, bundle) {
            self.apply(&configuration, first).await?;
        }
        let validating = Phase::Validating.configuration(name);
        if let Some(configuration) = validating_configuration(&validating, &self.admissions, &self.reach, bundle) {
            self.apply(&configuration, first).await?;
        }
        Ok(())
    }

    /// Makes a configuration; if not for the first time, only if it is gone.
    async fn apply<K>(&self, object: &K, first: bool) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        if !first && api.get_metadata_opt(&object.name_any()).await?.is_some() {
            return Ok(());
        }
        let params = PatchParams::apply(&self.field_manager).force();
        api.patch(&object.name_any(), &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    async fn inject_configurations<K: Configuration>(
        &self,
        names: Option<&[String]>,
        bundle: &str,
    ) -> Result<(), kube::Error> {
        let api: Api<K> = Api::all(self.client.clone());
        let configurations = match names {
            None => api.list(&ListParams::default()).await?.items,
            Some(names) => {
                let found = futures::future::try_join_all(names.iter().map(|name| api.get_opt(name))).await?;
                found.into_iter().flatten().collect()
            }
        };
        for configuration in configurations {
            let patch = patch_configuration(&configuration, &self.reach, bundle);
            if patch.0.is_empty() {
                continue;
            }
            let name = configuration.name_any();
            tracing::info!(%name, kind = %K::kind(&()), "injecting the certificate authority");
            let params = PatchParams { field_manager: Some(self.field_manager.clone()), ..PatchParams::default() };
            match api.patch(&name, &params, &Patch::Json::<()>(patch)).await {
                // Deleted, or changed by somebody, whose change will be seen.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    async fn inject_definition(&self, name: &str, bundle: &str, first: bool) -> Result<(), kube::Error> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        // Not there yet: its creation will be seen.
        let Some(definition) = api.get_opt(name).await? else { return Ok(()) };
        let Some(patch) = self.patch_definition(&definition, bundle, first)? else { return Ok(()) };
        tracing::info!(%name, kind = "CustomResourceDefinition", "injecting the certificate authority");
        let params = PatchParams { field_manager: Some(self.field_manager.clone()), ..PatchParams::default() };
        api.patch(name, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    fn patch_definition(
        &self,
        definition: &CustomResourceDefinition,
        bundle: &str,
        first: bool,
    ) -> Result<Option<serde_json::Value>, kube::Error> {
        let webhook = definition.spec.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook");
        let client = webhook
            .and_then(|conversion| conversion.webhook.as_ref())
            .and_then(|webhook| webhook.client_config.as_ref());
        let ours = client.filter(|client| {
            let service = client.service.as_ref().map(|service| (service.namespace.as_str(), service.name.as_str()));
            self.reach.leads_here(service, client.url.as_deref())
        });
        Ok(match ours {
            Some(client) if is_bundle(client.ca_bundle.as_ref(), bundle) => None,
            Some(_) => {
                let bundle = BASE64_STANDARD.encode(bundle);
                Some(json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}}))
            }
            None if self.register.is_some() && (first || webhook.is_none()) => {
                let conversion = self.reach.conversion(bundle).map_err(kube::Error::SerdeError)?;
                Some(json!({"spec": {"conversion": conversion}}))
            }
            None => None,
        })
    }
}

fn is_bundle(current: Option<&ByteString>, bundle: &str) -> bool {
    current.is_some_and(|current| current.0 == bundle.as_bytes())
}

/// A webhook configuration of either kind.
trait Configuration: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned {
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
    fn only_webhooks_that_lead_here_and_are_out_of_date_are_touched() {
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
