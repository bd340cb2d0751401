//! Defaulting, validating, warnings, denial, raw handlers; registration.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::json;
use windlass::webhook::{Admission, Response, Webhooks, from_fn};

use super::{Rules, certificates, entry, manager, secret, serve, settings};
use crate::bench::{Bench, Pet, Running, pet, wait_for};

fn refused(result: Result<Pet, kube::Error>) -> Box<Status> {
    match result {
        Err(kube::Error::Api(status)) => status,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn defaults_are_filled_in() {
    let bench = Bench::start().await;
    let (running, _) = serve(&bench, &Rules::default()).await;
    let thor = bench.create(&pet("thor")).await;
    assert_eq!(thor.spec.tricks, ["sit"]);
    assert_eq!(thor.metadata.annotations.expect("annotations")["by"], "kubernetes-admin");
    let mut loki = pet("loki");
    loki.spec.tricks = vec!["roll".to_owned()];
    assert_eq!(bench.create(&loki).await.spec.tricks, ["roll"]);
    let denied = refused(
        bench
            .pets()
            .create(&PostParams::default(), &{
                let mut nobody = pet("x");
                nobody.spec.name = "nobody".to_owned();
                nobody
            })
            .await,
    );
    assert_eq!((denied.code, denied.reason.as_str()), (403, "Forbidden"));
    assert_eq!(denied.message, "admission webhook \"mpet-v1.kb.io\" denied the request: nobody is not a pet");
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn an_operator_older_than_its_definition_does_no_harm() {
    let bench = Bench::start().await;
    let crds: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour";
    let newer = serde_json::from_value(json!([{"op": "add", "path": path, "value": {"type": "string"}}]));
    let newer = Patch::Json::<()>(newer.expect("a patch"));
    crds.patch("pets.petstore.example.com", &PatchParams::default(), &newer).await.expect("patched");
    let (running, _) = serve(&bench, &Rules::default()).await;
    let resource = kube::api::ApiResource::erase::<Pet>(&());
    let pets: Api<DynamicObject> = Api::namespaced_with(bench.kube.clone(), "default", &resource);
    let mut number = 0;
    // The definition takes effect a little after it was written.
    let colour = async |number: u32| {
        let pet = DynamicObject::new(&format!("p{number}"), &resource);
        let pet = pet.data(json!({"spec": {"name": "thor", "colour": "red"}}));
        let made = pets.create(&PostParams::default(), &pet).await.expect("created");
        assert_eq!(made.data["spec"]["tricks"], json!(["sit"]));
        made.data["spec"]["colour"].clone()
    };
    while colour(number).await != "red" {
        number += 1;
        assert!(number < 100, "the colour is gone");
    }
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn validation_names_fields_codes_and_reasons() {
    let bench = Bench::start().await;
    let (running, _) = serve(&bench, &Rules::default()).await;
    let mut bad = pet("methuselah");
    bad.spec.tricks = vec!["bite".to_owned()];
    let denied = refused(bench.pets().create(&PostParams::default(), &bad).await);
    assert_eq!((denied.code, denied.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        denied.message,
        "admission webhook \"vpet-v1.kb.io\" denied the request: Pet.petstore.example.com \"methuselah\" is invalid: \
         [spec.name: Invalid value: \"methuselah\": must have at most 8 letters, spec.tricks: Forbidden: no biting]"
    );
    let causes = denied.details.expect("details").causes;
    let fields: Vec<_> = causes.iter().map(|cause| (cause.field.as_str(), cause.reason.as_str())).collect();
    assert_eq!(fields, [("spec.name", "FieldValueInvalid"), ("spec.tricks", "FieldValueForbidden")]);

    bench.create(&pet("thor")).await;
    let rename = Patch::Merge(json!({"spec": {"name": "loki"}}));
    let denied = refused(bench.pets().patch("thor", &PatchParams::default(), &rename).await);
    assert_eq!((denied.code, denied.reason.as_str()), (409, "Conflict"));
    assert!(denied.message.ends_with("pets keep their name"), "{}", denied.message);

    bench.create(&pet("immortal")).await;
    let denied = bench.pets().delete("immortal", &DeleteParams::default()).await.expect_err("refused");
    assert!(denied.to_string().contains("it does not die"), "{denied}");
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn warnings_reach_the_user() {
    let bench = Bench::start().await;
    let (running, _) = serve(&bench, &Rules::default()).await;
    let ask = async |method: &str, name: &str, body: serde_json::Value| {
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/apis/petstore.example.com/v1/namespaces/default/pets{name}"))
            .header("content-type", content_type)
            .body(serde_json::to_vec(&body).expect("encoded").into())
            .expect("a request");
        let response = bench.kube.send(request).await.expect("answered");
        let warnings = response.headers().get_all("warning").iter();
        let warnings: Vec<_> = warnings.map(|warning| warning.to_str().expect("text").to_owned()).collect();
        (response.status().as_u16(), warnings)
    };
    let warned = |code: u16, text: &str| (code, vec![format!("299 - \"{text}\"")]);
    let tricks = json!(["sit", "roll", "sing"]);
    let clever = json!({"apiVersion": "petstore.example.com/v1", "kind": "Pet", "metadata": {"name": "thor"},
        "spec": {"name": "thor", "tricks": tricks}});
    assert_eq!(ask("POST", "", clever).await, warned(201, "that is a lot of tricks"));

    bench.create(&pet("loki")).await;
    let learn = json!({"spec": {"tricks": tricks}});
    assert_eq!(ask("PATCH", "/loki", learn).await, warned(200, "that is a lot of tricks"));
    let forget = json!({"spec": {"tricks": ["sit"]}});
    assert_eq!(ask("PATCH", "/loki", forget).await, (200, Vec::new()));
    let rename = json!({"spec": {"name": "odin"}});
    assert_eq!(ask("PATCH", "/loki", rename).await, warned(409, "it would not listen to it"));

    for (name, expected) in [
        ("beloved", warned(200, "it will be missed")),
        ("immortal", warned(403, "do not try again")),
        ("freya", (200, Vec::new())),
    ] {
        bench.create(&pet(name)).await;
        assert_eq!(ask("DELETE", &format!("/{name}"), json!({})).await, expected, "{name}");
    }
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn raw_handlers_see_any_kind_and_may_patch_it() {
    let bench = Bench::start().await;
    let handler = from_fn(|request| async move {
        let before = serde_json::to_value(&request.object).expect("encoded");
        let mut after = before.clone();
        after["data"]["kind"] = request.kind.kind.into();
        Response::changed(&before, &after).warn("marked").audit("seen", "yes")
    });
    let rule = serde_json::from_value(json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"], "scope": "Namespaced"}));
    let hook = Admission::mutating_raw("/mark", handler).name("mark.example.com").rule(rule.expect("a rule"));
    let webhooks = Webhooks::new().listen("127.0.0.1:0").certificates(certificates(settings())).admission(hook);
    let (manager, _) = manager(&bench, webhooks);
    let running = Running::start(manager);
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    wait_for("marked", async || {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}, "data": {"a": "b"}});
        let map = serde_json::from_value(map).expect("a map");
        let made = maps.create(&PostParams::default(), &map).await.expect("created");
        made.data.expect("data").get("kind").map(String::as_str) == Some("ConfigMap")
    })
    .await;
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn what_is_registered_becomes_a_configuration() {
    let bench = Bench::start().await;
    let (running, caller) = serve(&bench, &Rules::default()).await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let mutating = mutating.get("it-mutating-webhook-configuration").await.expect("there");
    let webhook = &mutating.webhooks.expect("webhooks")[0];
    assert_eq!((webhook.name.as_str(), webhook.side_effects.as_str()), ("mpet-v1.kb.io", "None"));
    let url = format!("https://{}/mutate-petstore-example-com-v1-pet", caller.address);
    assert_eq!(webhook.client_config.url.as_deref(), Some(url.as_str()));
    let bundle = entry(&secret(&bench).await, "ca.crt");
    assert_eq!(webhook.client_config.ca_bundle.as_ref().expect("a bundle").0, bundle.as_bytes());
    let rule = &webhook.rules.as_ref().expect("rules")[0];
    assert_eq!(rule.operations.as_ref().expect("operations"), &["CREATE", "UPDATE"]);
    assert_eq!(rule.resources.as_ref().expect("resources"), &["pets"]);
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let validating = validating.get("it-validating-webhook-configuration").await.expect("there");
    let webhooks = validating.webhooks.expect("webhooks");
    let rule = &webhooks[0].rules.as_ref().expect("rules")[0];
    assert_eq!(rule.operations.as_ref().expect("operations"), &["CREATE", "UPDATE", "DELETE"]);
    running.stop().await.expect("stopped");
}
