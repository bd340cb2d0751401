//! The API group `petstore.example.com`, one module per version.

pub mod v1alpha1;

use kube::CustomResourceExt;

/// The Pets of `config/samples/`: Thor and Tron.
pub fn samples() -> Result<Vec<v1alpha1::Pet>, serde_saphyr::Error> {
    serde_saphyr::from_multiple(include_str!("../config/samples/petstore_v1alpha1_pet.yaml"))
}

/// The manifest of the CustomResourceDefinition, as committed in `config/crd/`.
pub fn crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(&v1alpha1::Pet::crd())
}
