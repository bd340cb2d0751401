//! `windlass deploy --push`: the image is in its registry before the operator that needs it is applied.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;

use super::Stage;
use super::deploy::program;
use crate::foreground::client;
use crate::image::registry::{Access, Registry};
use crate::process::Said;

#[tokio::test]
async fn an_image_is_pushed_before_its_operator_is_applied() {
    let stage = Stage::new();
    stage.sandbox.succeeds("init --name pets --domain example.com");
    program(&stage);
    let registry = Registry::start(Access::Token);
    let image = format!("{}/team/app:v1", registry.address);
    let deploy = || -> Said {
        let config = stage.cluster.kubeconfig.display();
        let args = format!("deploy --program operator --no-wait --push --image {image} --kubeconfig {config}");
        stage.sandbox.command(&args).env("DOCKER_CONFIG", stage.sandbox.path("docker")).output().unwrap().into()
    };
    let deployments: Api<Deployment> = Api::namespaced(client(&stage.cluster).await, "pets-system");

    let said = deploy();
    assert!(!said.status.success() && said.stderr.contains("docker login"), "{said:?}");
    assert!(deployments.list(&ListParams::default()).await.unwrap().items.is_empty());

    std::fs::create_dir(stage.sandbox.path("docker")).unwrap();
    // me:secret
    let config = format!(r#"{{"auths": {{"{}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#, registry.address);
    stage.write("docker/config.json", &config);
    let said = deploy();
    assert!(said.status.success(), "{said:?}");
    let digest = registry.manifest("team/app", "v1").expect("it is pushed");
    assert!(said.stderr.contains(&format!("pushed {image}@{digest}")), "{said:?}");
    assert!(!stage.sandbox.path("target").exists(), "no file is written for a registry");
    let deployment = deployments.get("pets-controller-manager").await.unwrap();
    let template = deployment.spec.unwrap().template;
    let (metadata, pod) = (template.metadata.unwrap(), template.spec.unwrap());
    assert_eq!(pod.containers[0].image, Some(image.clone()));
    assert_eq!(metadata.annotations.unwrap()["windlass.dev/image-digest"], digest);

    // The same program is the same image, and nothing is rolled out again.
    let said = deploy();
    assert!(said.status.success() && said.stdout.contains("controller-manager unchanged"), "{said:?}");
}
