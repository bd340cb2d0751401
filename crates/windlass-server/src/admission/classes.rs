//! Classes that a cluster chooses: upstream's plugins DefaultStorageClass and DefaultIngressClass, and
//! PersistentVolumeClaimResize, which asks the class whether a claim may grow.

use serde_json::Value;
use windlass_store::{Entry, Range};

use super::{Act, refused};
use crate::codec::peek::{self, Raw};
use crate::codec::quantity::Quantity;
use crate::context::Context;
use crate::status::Status;
use crate::validation::access::{Access as _, AccessMut as _};

const STORAGE_CLASSES: &str = "/registry/storageclasses/";
const INGRESS_CLASSES: &str = "/registry/ingressclasses/";
const DEFAULT_STORAGE: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const DEFAULT_INGRESS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];
/// The annotation that named a claim's class before the field did.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// Gives a new claim the default class, if it names none. The empty name is one, too.
pub(super) async fn storage(context: &Context, claim: &mut Value) -> Result<(), Status> {
    let is_named = claim.at("metadata").at("annotations").get(BETA_CLASS).is_some();
    if is_named || claim.at("spec").has("storageClassName") {
        return Ok(());
    }
    if let Some(class) = default(context, STORAGE_CLASSES, &DEFAULT_STORAGE).await? {
        claim.struct_mut("spec").put("storageClassName", class);
    }
    Ok(())
}

/// Gives a new ingress the default class, if it names none.
pub(super) async fn ingress(context: &Context, ingress: &mut Value) -> Result<(), Status> {
    let is_named = ingress.at("metadata").at("annotations").get(INGRESS_CLASS).is_some();
    if is_named || ingress.at("spec").has("ingressClassName") {
        return Ok(());
    }
    if let Some(class) = default(context, INGRESS_CLASSES, &DEFAULT_INGRESS).await? {
        ingress.struct_mut("spec").put("ingressClassName", class);
    }
    Ok(())
}

/// Refuses a larger claim unless it is bound and its class allows it to grow.
pub(super) async fn resize(context: &Context, act: Act<'_>, claim: &Value, old: Option<&Value>) -> Result<(), Status> {
    let is_claim =
        (&*context.served.group, &*context.served.kind, context.subresource()) == ("", "PersistentVolumeClaim", "");
    let (true, Act::Update(_), Some(old)) = (is_claim, act, old) else { return Ok(()) };
    let size = |claim: &Value| Quantity::from_value(claim.below(&["spec", "resources", "requests", "storage"]));
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old.at("status").text("phase") != "Bound" {
        return Err(refused(context, claim, "Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(claim);
    let is_allowed = !class.is_empty() && class == class_of(old) && {
        let key = format!("{STORAGE_CLASSES}{class}");
        let entry = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
        entry.is_some_and(|entry| {
            Raw::new(&entry.value).field("allowVolumeExpansion").is_some_and(|value| value.bytes() == b"true")
        })
    };
    if is_allowed {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(refused(context, claim, why))
}

fn class_of(claim: &Value) -> &str {
    let named = claim.at("metadata").at("annotations").text_opt(BETA_CLASS);
    named.unwrap_or_else(|| claim.at("spec").text("storageClassName"))
}

/// The default class: of several the newest, of equally old ones the first by name.
async fn default(context: &Context, prefix: &'static str, annotations: &[&str]) -> Result<Option<String>, Status> {
    let classes = context.api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    Ok(newest_default(&classes.entries, annotations))
}

fn newest_default(classes: &[Entry], annotations: &[&str]) -> Option<String> {
    let defaults = classes.iter().filter(|entry| {
        annotations.iter().any(|annotation| {
            let value = Raw::new(&entry.value).path(&["metadata", "annotations", annotation]);
            value.and_then(|value| value.as_str()).as_deref() == Some("true")
        })
    });
    // Entries come by name, and of equal ones the first is kept.
    let newest = defaults.fold(None, |newest: Option<(&Entry, String)>, entry| {
        let created = Raw::new(&entry.value).path(&["metadata", "creationTimestamp"]);
        let created = created.and_then(|time| time.as_str()).unwrap_or_default().into_owned();
        match newest {
            Some((_, time)) if time < created => Some((entry, created)),
            None => Some((entry, created)),
            newest => newest,
        }
    });
    newest.and_then(|(entry, _)| Some(peek::name(&entry.value)?.into_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_store::{Expect, Memory, Store as _, Write};

    use super::*;

    #[tokio::test]
    async fn the_newest_default_class_wins() {
        let store = Memory::new();
        let check = async |classes: &[(&str, &str, bool)], expected: Option<&str>| {
            for (name, created, is_default) in classes {
                let annotations = json!({DEFAULT_INGRESS[0]: is_default.to_string()});
                let metadata = json!({"name": name, "creationTimestamp": created, "annotations": annotations});
                let value = windlass_store::Value::plain(json!({ "metadata": metadata }).to_string());
                let key = format!("{INGRESS_CLASSES}{name}").into();
                store.txn(vec![Write::Put { key, expect: Expect::Any, value }]).await.expect("written");
            }
            let found = store.range(Range::prefix(INGRESS_CLASSES), None, 0).await.expect("read").entries;
            assert_eq!(newest_default(&found, &DEFAULT_INGRESS).as_deref(), expected);
        };
        check(&[("a", "2026-01-01T00:00:00Z", false)], None).await;
        check(&[("b", "2026-01-02T00:00:00Z", true)], Some("b")).await;
        check(&[("c", "2026-01-02T00:00:00Z", true)], Some("b")).await;
        check(&[("d", "2026-01-03T00:00:00Z", true)], Some("d")).await;
    }
}
