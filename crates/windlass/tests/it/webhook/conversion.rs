//! Versions of a custom resource.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::crd::merge_crds;
use kube::{CustomResourceExt as _, ResourceExt as _};
use serde_json::json;
use windlass::controller::from_key_fn;
use windlass::webhook::{Conversion, Convert, ConvertError, Webhooks, hub_round_trip, round_trip};
use windlass::{Controller, Outcome};

use super::{certificates, manager, settings};
use crate::bench::{Bench, Log, Running, wait_for};
use crate::manager::fetch;

mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// `host:port`.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Host", namespaced)]
    pub struct HostSpec {
        pub address: String,
    }
}

mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Host", namespaced)]
    pub struct HostSpec {
        pub name: String,
        pub port: u16,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub aliases: Vec<String>,
    }
}

/// Where version 1 keeps what it has no field for.
const ALIASES: &str = "example.com/aliases";

impl Convert<v2::Host> for v1::Host {
    fn into_hub(mut self) -> Result<v2::Host, ConvertError> {
        let (name, port) = self.spec.address.rsplit_once(':').ok_or("the address has no port")?;
        let (name, port) = (name.to_owned(), port.parse()?);
        assert!(name != "panic", "scripted");
        let kept = self.metadata.annotations.as_mut().and_then(|annotations| annotations.remove(ALIASES));
        let aliases = kept.map(|kept| serde_json::from_str(&kept)).transpose()?.unwrap_or_default();
        Ok(v2::Host { metadata: self.metadata, spec: v2::HostSpec { name, port, aliases } })
    }

    fn from_hub(hub: v2::Host) -> Result<Self, ConvertError> {
        let v2::HostSpec { name, port, aliases } = hub.spec;
        let mut metadata = hub.metadata;
        if !aliases.is_empty() {
            let annotations: &mut BTreeMap<_, _> = metadata.annotations.get_or_insert_default();
            annotations.insert(ALIASES.to_owned(), serde_json::to_string(&aliases)?);
        }
        Ok(v1::Host { metadata, spec: v1::HostSpec { address: format!("{name}:{port}") } })
    }
}

/// The definition, with a conversion that no server does yet.
async fn define(bench: &Bench, storage: &str) {
    let definition = merge_crds(vec![v1::Host::crd(), v2::Host::crd()], storage).expect("merged");
    let crds: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    crds.create(&PostParams::default(), &definition).await.expect("created");
    let hosts: Api<v1::Host> = Api::namespaced(bench.kube.clone(), "default");
    wait_for("served", async || hosts.list(&ListParams::default()).await.is_ok()).await;
}

fn converting() -> Webhooks {
    let conversion = Conversion::<v2::Host>::new().spoke::<v1::Host>();
    Webhooks::new().listen("127.0.0.1:0").certificates(certificates(settings())).conversion(conversion)
}

#[tokio::test]
async fn objects_are_read_and_written_in_every_version() {
    let bench = Bench::start().await;
    define(&bench, "v1").await;
    let old: Api<v1::Host> = Api::namespaced(bench.kube.clone(), "default");
    let new: Api<v2::Host> = Api::namespaced(bench.kube.clone(), "default");
    let a = v1::Host::new("a", v1::HostSpec { address: "a.example.com:80".to_owned() });
    old.create(&PostParams::default(), &a).await.expect("created");

    // A controller of the new version lists what is stored in the old one: its cache is complete
    // only if conversion is served before it is filled.
    let (mut manager, _) = manager(&bench, converting());
    let log: Log<(String, u16)> = Log::default();
    let seen = log.clone();
    manager
        .add(Controller::<v2::Host>::new("host").complete_keyed(from_key_fn(move |key, ctx| {
            let seen = seen.clone();
            async move {
                if let Some(host) = ctx.get::<v2::Host>(&key).await? {
                    seen.push((host.spec.name.clone(), host.spec.port));
                }
                Ok(Outcome::Done)
            }
        })))
        .expect("added");
    let metrics = manager.metrics_address().expect("bound");
    let running = Running::start(manager);
    wait_for("seen", async || log.contains(&("a.example.com".to_owned(), 80))).await;

    let b = v2::HostSpec { name: "b".to_owned(), port: 443, aliases: vec!["c".to_owned()] };
    let made = new.create(&PostParams::default(), &v2::Host::new("b", b)).await.expect("created");
    assert_eq!(made.spec.aliases, ["c"]);
    let read = old.get("b").await.expect("there");
    assert_eq!(read.spec.address, "b:443");
    assert_eq!(read.annotations()[ALIASES], "[\"c\"]");
    assert_eq!(read.uid(), made.uid());
    let patch = Patch::Merge(json!({"spec": {"address": "b:444"}}));
    old.patch("b", &PatchParams::default(), &patch).await.expect("patched");
    let read = new.get("b").await.expect("there");
    assert_eq!((read.spec.port, read.spec.aliases.as_slice()), (444, ["c".to_owned()].as_slice()));
    assert!(!read.annotations().contains_key(ALIASES));

    // One that cannot be converted says why, and one that panics harms no other.
    for (name, address, expected) in
        [("x", "nowhere", "the address has no port"), ("y", "panic:1", "panic: scripted [recovered]")]
    {
        let host = v1::Host::new(name, v1::HostSpec { address: address.to_owned() });
        old.create(&PostParams::default(), &host).await.expect("created");
        let error = new.get(name).await.expect_err("not convertible").to_string();
        assert!(error.contains(expected), "{error}");
        old.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    assert_eq!(new.get("a").await.expect("there").spec.port, 80);
    let text = fetch(metrics, "/metrics").await;
    assert!(!text.contains("controller_runtime_conversion_webhook_panics_total 0"), "{text}");
    assert!(text.contains("controller_runtime_webhook_requests_total{webhook=\"/convert\",code=\"200\"}"), "{text}");
    running.stop().await.expect("stopped");
}

#[test]
fn nothing_is_lost_on_the_way_there_and_back() {
    let old = v1::Host::new("a", v1::HostSpec { address: "a:80".to_owned() });
    assert!(round_trip::<v1::Host, v2::Host>(&old).expect("nothing is lost") >= 1);
    let spec = v2::HostSpec { name: "a".to_owned(), port: 80, aliases: vec!["b".to_owned(), "c".to_owned()] };
    let checked = hub_round_trip::<v1::Host, v2::Host>(&v2::Host::new("a", spec)).expect("nothing is lost");
    assert!(checked >= 8, "only {checked} variations");
}

/// A version that forgets.
#[derive(Clone, Debug)]
struct Forgetful(v2::Host);

impl Convert<v2::Host> for Forgetful {
    fn into_hub(self) -> Result<v2::Host, ConvertError> {
        Ok(self.0)
    }

    fn from_hub(mut hub: v2::Host) -> Result<Self, ConvertError> {
        hub.spec.aliases.truncate(1);
        Ok(Self(hub))
    }
}

#[test]
fn lost_fields_are_named_even_without_a_sample() {
    // One alias survives; the variation with two does not.
    let spec = v2::HostSpec { name: "a".to_owned(), port: 80, aliases: vec!["b".to_owned()] };
    let error = hub_round_trip::<Forgetful, v2::Host>(&v2::Host::new("a", spec)).expect_err("something is lost");
    assert!(error.to_string().contains("/spec/aliases/1"), "{error}");
}
