//! Webhooks that are not served although API servers are told to call them.
//!
//! With `ENABLE_WEBHOOKS=false` an operator serves none. If it, or `kubectl apply`, has registered them before, API
//! servers go on calling an address where nothing answers, and every write of the kind fails. That is said in the log.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::Webhooks;
use super::admission::Phase;
use super::certificates::Source;
use super::inject::Configuration;
use crate::report::Chain;

impl Webhooks {
    /// Warns of every configuration and definition that has API servers call these webhooks. What cannot be read is
    /// left out.
    pub(crate) async fn warn_if_registered(self, client: kube::Client) {
        for found in [
            self.registered::<MutatingWebhookConfiguration>(&client, Phase::Mutating).await,
            self.registered::<ValidatingWebhookConfiguration>(&client, Phase::Validating).await,
        ] {
            for (kind, name) in found {
                tracing::warn!(
                    kind,
                    name,
                    "webhooks are disabled in this process, but API servers are told to call them: unless \
                    another process serves them, writes fail until the configuration is deleted"
                );
            }
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(client);
        for converter in &self.converters {
            let name = converter.subject().definition();
            let Ok(Some(definition)) = definitions.get_opt(&name).await else { continue };
            if definition.spec.conversion.is_some_and(|conversion| conversion.strategy == "Webhook") {
                tracing::warn!(
                    name,
                    "webhooks are disabled in this process, but API servers are told to have it convert this \
                    kind: unless another process does, reads and writes of other versions than the stored one fail"
                );
            }
        }
    }

    /// Kind and name of the configurations that hold these webhooks: by the name they are registered under, by where
    /// they lead or, if it is not known how API servers reach this process, by the names of the webhooks.
    async fn registered<K: Configuration>(&self, client: &kube::Client, phase: Phase) -> Vec<(String, String)> {
        let names: Vec<&str> =
            self.admissions.iter().filter(|hook| hook.phase == phase).map(|hook| hook.name.as_str()).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let (own, reach) = match &self.certificates.0 {
            Source::SelfManaged(settings) => (settings.registered_as(), settings.reach.as_ref()),
            Source::Files { .. } => (None, None),
        };
        let api: Api<K> = Api::all(client.clone());
        let found: Result<Vec<K>, _> = match own {
            Some(name) => api.get_opt(&phase.configuration(name)).await.map(|found| found.into_iter().collect()),
            None => api.list(&ListParams::default()).await.map(|list| list.items),
        };
        let kind = K::kind(&()).into_owned();
        let found = found.unwrap_or_else(|error| {
            let error = Chain(&error);
            tracing::info!(kind, %error, "webhooks are disabled; whether API servers are to call them cannot be read");
            Vec::new()
        });
        let is_own = |(name, client): &(&str, &WebhookClientConfig)| match (own, reach) {
            // Under a name of one's own, whatever is there was registered.
            (Some(_), _) => true,
            (None, Some(reach)) => {
                let service = client.service.as_ref();
                let service = service.map(|service| (service.namespace.as_str(), service.name.as_str()));
                reach.leads_here(service, client.url.as_deref())
            }
            (None, None) => names.contains(name),
        };
        let held = found.iter().filter(|configuration| configuration.webhooks().iter().any(is_own));
        held.map(|configuration| (kind.clone(), configuration.name_any())).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::api::PostParams;

    use super::super::{Admission, Certificates, Reach, Response, SelfManaged, from_fn};
    use super::*;

    #[tokio::test]
    async fn configurations_of_disabled_webhooks_are_found() {
        let server = windlass_server::Server::builder().start().await.unwrap();
        let client = kube::Client::new(server.service(), "default");
        let webhooks = |certificates| {
            let rule = serde_json::json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE"]});
            let validate = Admission::validating_raw("/validate", from_fn(|_| async { Response::allowed() }));
            let validate = validate.name("validate.example.com").rule(serde_json::from_value(rule).unwrap());
            Webhooks::new().certificates(certificates).admission(validate).enabled(false)
        };
        let reach = Reach::service("default", "webhook-service");
        let mut configuration = webhooks(Certificates::self_managed(SelfManaged::new("default")))
            .validating_configuration("theirs", &reach, "")
            .unwrap();
        let api = Api::all(client.clone());
        for name in ["theirs", "own-validating-webhook-configuration"] {
            configuration.metadata.name = Some(name.to_owned());
            api.create(&PostParams::default(), &configuration).await.unwrap();
        }
        let with = async |certificates| {
            let found =
                webhooks(certificates).registered::<ValidatingWebhookConfiguration>(&client, Phase::Validating).await;
            found.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        let found = async |settings| with(Certificates::self_managed(settings)).await;
        let both = ["own-validating-webhook-configuration", "theirs"];
        assert_eq!(found(SelfManaged::new("default")).await, both, "all that lead to the Service");
        assert_eq!(found(SelfManaged::new("default").register("own")).await, both[..1]);
        assert!(found(SelfManaged::new("default").register("other")).await.is_empty());
        assert!(found(SelfManaged::new("elsewhere")).await.is_empty());
        assert_eq!(with(Certificates::default()).await, both, "all that have the webhook's name");
        assert_eq!(found(SelfManaged::new("default").directly()).await, both, "the address of then is not known");
    }
}
