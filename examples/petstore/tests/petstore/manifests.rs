//! The committed manifests say what the code says.

use std::{fs, net::TcpListener, path::PathBuf};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api, CustomResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use tokio::process::Command;
use windlass_petstore::api::{
    crd_yaml,
    v1alpha1::{Pet, PetType},
};

use crate::{cluster, process};

fn config(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config").join(path)
}

/// Run with `BLESS=1` to write the file anew after a change of the type.
#[test]
fn the_crd_is_up_to_date() {
    let path = config("crd/petstore.example.com_pets.yaml");
    let generated = format!("---\n{}", crd_yaml().unwrap());
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), generated, "run the test with BLESS=1 to update {}", path.display());
}

#[test]
fn the_samples_are_valid_pets() {
    let text = fs::read_to_string(config("samples/petstore_v1alpha1_pet.yaml")).unwrap();
    let pets: Vec<Pet> = serde_saphyr::from_multiple(&text).unwrap();
    let summary: Vec<_> = pets
        .iter()
        .map(|pet| {
            let details = pet.spec.details().unwrap();
            (
                pet.metadata.name.as_deref().unwrap(),
                details.name().to_owned(),
                pet.spec.pet_type,
                details.birthday().to_string(),
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            ("thor", "Thor".into(), PetType::Dog, "2021-04-01".into()),
            ("tron", "Tron".into(), PetType::Cat, "2020-06-25".into()),
        ]
    );
}

/// Run with `BLESS=1` to write the file anew after a change of the operator.
#[tokio::test]
async fn the_role_is_what_the_operator_says_it_needs() {
    let mut ask = Command::new(process::windlass().await);
    ask.args(["manifests", "rbac", "--program", env!("CARGO_BIN_EXE_petstore-operator")]);
    // No cluster and no free port is needed to answer.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    ask.args(["--", "--probe-addr", &taken.local_addr().unwrap().to_string()]).env("KUBECONFIG", "/nonexistent");
    let asked = ask.output().await.unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let said = String::from_utf8(asked.stdout).unwrap();
    let path = config("rbac/role.yaml");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &said).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), said, "run the test with BLESS=1 to update {}", path.display());
    let role: ClusterRole = serde_saphyr::from_str(&said).unwrap();
    assert_eq!(role.metadata.name.as_deref(), Some("petstore-operator"));
}

#[tokio::test]
async fn a_cluster_accepts_the_samples_and_refuses_what_is_not_a_pet() {
    let cluster = cluster::with_pets().await;
    let pets: Api<Pet> = Api::default_namespaced(cluster.client());
    let text = fs::read_to_string(config("samples/petstore_v1alpha1_pet.yaml")).unwrap();
    for pet in serde_saphyr::from_multiple::<Pet>(&text).unwrap() {
        pets.create(&PostParams::default(), &pet).await.unwrap();
    }

    let pets: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &Pet::api_resource());
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("  ")),
        ("name", Value::Null),
        ("type", json!("dragon")),
        ("birthday", json!("yesterday")),
    ] {
        let mut spec = json!({ "name": "Odd", "type": "cat", "birthday": "2020-01-01T00:00:00Z" });
        spec[field] = value;
        let mut odd = DynamicObject::new("odd", &Pet::api_resource());
        odd.data = json!({ "spec": spec });
        let refused = pets.create(&PostParams::default(), &odd).await.unwrap_err();
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 422), "{odd:?}: {refused:?}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_table_of_pets_says_what_matters() {
    let cluster = cluster::with_pets().await;
    let pets: Api<Pet> = Api::default_namespaced(cluster.client());
    let text = fs::read_to_string(config("samples/petstore_v1alpha1_pet.yaml")).unwrap();
    let thor = serde_saphyr::from_multiple::<Pet>(&text).unwrap().remove(0);
    pets.create(&PostParams::default(), &thor).await.unwrap();

    let request = http::Request::get("/apis/petstore.example.com/v1alpha1/namespaces/default/pets")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = cluster.client().request(request).await.unwrap();
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|column| column["priority"] == 0)
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Pet Name", "Type", "ID", "Ready", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("thor"), json!("Thor"), json!("dog")]);
    cluster.stop().await.unwrap();
}
