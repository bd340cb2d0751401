//! The API group `petstore.example.com`, one module per version.

pub mod v1alpha1;

use kube::CustomResourceExt;

/// The manifest of the CustomResourceDefinition, as committed in `config/crd/`.
pub fn crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(&v1alpha1::Pet::crd())
}
