//! How API servers reach the webhooks, and the configurations that tell them so.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::admission::{Admission, FailurePolicy, Phase};

/// How an API server reaches the webhooks: through a Service, or at a URL, which is what is left
/// to an operator that runs outside its cluster.
///
/// ```
/// use windlass::webhook::Reach;
///
/// let inside = Reach::service("petstore-system", "petstore-webhook-service");
/// let outside = Reach::url("https://192.0.2.7:9443");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// Through a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// At a URL, `https://host:port`, to which paths are added.
    Url(String),
}

impl Reach {
    /// Through a Service, at port 443.
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Service { namespace: namespace.into(), name: name.into(), port: 443 }
    }

    /// At a URL.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url(url.into().trim_end_matches('/').to_owned())
    }

    /// The names that a certificate needs to be accepted there.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Service { namespace, name, .. } => {
                let short = format!("{name}.{namespace}");
                vec![name.clone(), short.clone(), format!("{short}.svc"), format!("{short}.svc.cluster.local")]
            }
            Self::Url(url) => {
                let uri: Option<http::Uri> = url.parse().ok();
                let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
                vec![host.trim_matches(['[', ']']).to_owned()]
            }
        }
    }

    fn client_config(&self, path: &str, bundle: &str) -> WebhookClientConfig {
        let ca_bundle = (!bundle.is_empty()).then(|| ByteString(bundle.as_bytes().to_vec()));
        match self {
            Self::Service { namespace, name, port } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: name.clone(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: (*port != 443).then_some(i32::from(*port)),
                }),
                url: None,
            },
            Self::Url(url) => WebhookClientConfig { ca_bundle, service: None, url: Some(format!("{url}{path}")) },
        }
    }

    /// Whether a `clientConfig` leads here.
    pub(super) fn leads_here(&self, service: Option<(&str, &str)>, url: Option<&str>) -> bool {
        match self {
            Self::Service { namespace, name, .. } => service == Some((namespace, name)),
            Self::Url(base) => {
                url.and_then(|url| url.strip_prefix(base.as_str())).is_some_and(|path| path.starts_with('/'))
            }
        }
    }

    /// `spec.conversion` of a definition, to be merged: it says too what must not be there.
    pub(super) fn conversion(&self, bundle: &str) -> Value {
        let path = super::CONVERT_PATH;
        let (service, url) = match self {
            Self::Service { namespace, name, port } => {
                (json!({"namespace": namespace, "name": name, "path": path, "port": port}), Value::Null)
            }
            Self::Url(url) => (Value::Null, format!("{url}{path}").into()),
        };
        let bundle = BASE64_STANDARD.encode(bundle);
        json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"caBundle": bundle, "service": service, "url": url},
            },
        })
    }
}

/// Mutating and validating webhooks are configured alike, by types that have nothing in common.
macro_rules! configuration {
    ($function:ident, $phase:ident, $configuration:ident, $webhook:ident $(, $field:ident: $value:expr)?) => {
        /// The configuration of this phase's webhooks, if there are any with rules.
        pub(super) fn $function(
            name: &str,
            admissions: &[Admission],
            reach: &Reach,
            bundle: &str,
        ) -> Option<$configuration> {
            let ours = admissions.iter().filter(|one| one.phase == Phase::$phase && !one.rules.is_empty());
            let webhooks: Vec<$webhook> = ours
                .map(|admission| $webhook {
                    admission_review_versions: vec!["v1".to_owned()],
                    client_config: reach.client_config(&admission.path, bundle),
                    failure_policy: Some(failure_policy(admission).to_owned()),
                    name: admission.name.clone(),
                    namespace_selector: admission.namespace_selector.clone(),
                    object_selector: admission.object_selector.clone(),
                    rules: Some(admission.rules.clone()),
                    side_effects: "None".to_owned(),
                    timeout_seconds: Some(timeout(admission)),
                    $($field: $value(admission),)?
                    ..Default::default()
                })
                .collect();
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            (!webhooks.is_empty()).then(|| $configuration { metadata, webhooks: Some(webhooks) })
        }
    };
}

configuration!(
    mutating_configuration, Mutating, MutatingWebhookConfiguration, MutatingWebhook,
    reinvocation_policy: reinvocation_policy
);
configuration!(validating_configuration, Validating, ValidatingWebhookConfiguration, ValidatingWebhook);

fn reinvocation_policy(admission: &Admission) -> Option<String> {
    admission.reinvoke.then(|| "IfNeeded".to_owned())
}

fn failure_policy(admission: &Admission) -> &'static str {
    match admission.failure_policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
    }
}

/// The API server takes whole seconds from 1 to 30.
fn timeout(admission: &Admission) -> i32 {
    admission.timeout.as_secs().clamp(1, 30) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_here_is_ours() {
        let service = Reach::service("a", "b");
        assert!(service.leads_here(Some(("a", "b")), None));
        assert!(!service.leads_here(Some(("b", "a")), None) && !service.leads_here(None, Some("https://b.a.svc/x")));
        let url = Reach::url("https://10.0.0.1:94/");
        assert!(url.leads_here(None, Some("https://10.0.0.1:94/x")));
        assert!(!url.leads_here(None, Some("https://10.0.0.1:943/x")) && !url.leads_here(Some(("a", "b")), None));
    }

    #[test]
    fn certificates_are_for_where_requests_go() {
        assert_eq!(Reach::service("a", "b").names(), ["b", "b.a", "b.a.svc", "b.a.svc.cluster.local"]);
        assert_eq!(Reach::url("https://10.0.0.1:9443").names(), ["10.0.0.1"]);
        assert_eq!(Reach::url("https://[::1]:9443/base").names(), ["::1"]);
    }
}
