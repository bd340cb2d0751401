//! Tells aggregated servers how requests of this server are recognised: the ConfigMap
//! `kube-system/extension-apiserver-authentication`, which they read. Mirrors `pkg/controlplane/controller/clusterauthenticationtrust`.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::loopback::{self, Failed};
use crate::state::contention::Attempts;
use crate::validation::access::{Access as _, AccessMut as _};

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "extension-apiserver-authentication";

/// Writes the ConfigMap if it says something else.
pub(crate) async fn publish(api: &Arc<Api>) {
    let mut attempts = Attempts::begin();
    loop {
        match put(api).await {
            Ok(false) if attempts.again() => {}
            Ok(_) => return,
            Err(Failed { method, path, message }) => {
                tracing::warn!(%method, %path, %message, "aggregated servers cannot be told whom to trust");
                return;
            }
        }
    }
}

/// Whether it says what it should.
async fn put(api: &Arc<Api>) -> Result<bool, Failed> {
    let wanted = api.front_proxy.published();
    let path = format!("{MAPS}/{NAME}");
    let Some(mut found) = loopback::get(api, &path).await? else {
        let metadata = json!({"name": NAME, "namespace": "kube-system"});
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": wanted});
        loopback::send(api, Method::POST, MAPS, &object).await?;
        return Ok(false);
    };
    let data = found.at("data");
    if wanted.as_object().into_iter().flatten().all(|(key, value)| data.get(key) == Some(value)) {
        return Ok(true);
    }
    let data = found.struct_mut("data");
    for (key, value) in wanted.as_object().into_iter().flatten() {
        data.put(key, Value::clone(value));
    }
    loopback::send(api, Method::PUT, &path, &found).await?;
    Ok(false)
}
