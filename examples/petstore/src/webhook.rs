// SPDX-License-Identifier: Apache-2.0

//! What the API server asks the operator before it stores or serves an object.

pub mod v1beta1;

use std::path::PathBuf;

use windlass::webhook::Conversion;
use windlass::webhook::{Certificates, SelfManaged, Webhooks};

/// All webhooks of the operator.
pub fn webhooks() -> Webhooks {
    let mut webhooks = Webhooks::new();
    webhooks = v1beta1::pet::add_to(webhooks);
    let conversion = Conversion::<petstore_api::v1beta1::Pet>::new();
    let conversion = conversion.spoke::<petstore_api::v1alpha1::Pet>();
    webhooks = webhooks.conversion(conversion);
    webhooks
}

/// Certificates from a directory, such as cert-manager fills, or those that the operator makes itself. Outside of a
/// cluster the API server is given the address of this process.
pub fn certificates(namespace: &str, directory: Option<PathBuf>) -> Certificates {
    if let Some(directory) = directory {
        return Certificates::directory(directory);
    }
    let mut own = SelfManaged::new(namespace).register("petstore").directly();
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        own = own.service("petstore-webhook-service");
    }
    Certificates::self_managed(own)
}
