// SPDX-License-Identifier: Apache-2.0

//! What the API server asks the operator before it stores or serves an object.

pub mod v1;

use std::path::PathBuf;

use windlass::webhook::{Certificates, SelfManaged, Webhooks};

/// All webhooks of the operator.
pub fn webhooks() -> Webhooks {
    let mut webhooks = Webhooks::new();
    webhooks = v1::home::add_to(webhooks);
    webhooks
}

/// Certificates from a directory, such as cert-manager fills, or those that the operator makes itself. Outside of a
/// cluster the API server is given the address of this process.
pub fn certificates(namespace: &str, directory: Option<PathBuf>) -> Certificates {
    if let Some(directory) = directory {
        return Certificates::directory(directory);
    }
    let mut own = SelfManaged::new(namespace).register("home").directly();
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        own = own.service("home-webhook-service");
    }
    Certificates::self_managed(own)
}
