«header»//! What the API server asks the operator before it stores or serves an object.

%% for module in modules
%% if module == "webhook"
#[allow(clippy::module_inception)]
%% endif
pub mod «module»;
%% endfor
%% if modules

%% endif
use std::path::PathBuf;

%% if conversion_calls
use windlass::webhook::Conversion;
%% endif
use windlass::webhook::{Certificates, SelfManaged, Webhooks};

/// All webhooks of the operator.
pub fn webhooks() -> Webhooks {
    let mut webhooks = Webhooks::new();
%% for path in webhook_paths
    webhooks = «path»::add_to(webhooks);
%% endfor
%% for hub, spokes in conversion_calls
«hub»
%% for spoke in spokes
«spoke»
%% endfor
    webhooks = webhooks.conversion(conversion);
%% endfor
    webhooks
}

/// Certificates from a directory, such as cert-manager fills, or those that the operator makes itself. Outside of a
/// cluster the API server is given the address of this process.
pub fn certificates(namespace: &str, directory: Option<PathBuf>) -> Certificates {
    if let Some(directory) = directory {
        return Certificates::directory(directory);
    }
    let mut own = SelfManaged::new(namespace).register("«name»").directly();
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        own = own.service("«name»-webhook-service");
    }
    Certificates::self_managed(own)
}
