//! Where an object of a kind is written: what functions take that must know both the client and the kind.

use super::{CachedClient, Objects};
use crate::object::{Object, TypedObject};

/// A client that knows how objects of kind `K` are read and written.
///
/// [`CachedClient`] and [`Context`](crate::Context) are one for every type that stands for one kind, and
/// [`Objects<K>`](Objects) is one for its kind, also if that is known only at run time. The trait is sealed: there is
/// nothing to implement.
///
/// ```
/// # use kube::api::{ApiResource, DynamicObject};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass::{Context, Draft};
/// # async fn example(
/// #     ctx: Context, resource: ApiResource, mut settings: Draft<ConfigMap>, mut gateway: Draft<DynamicObject>,
/// # ) -> windlass::Result<()> {
/// settings.commit(&ctx).await?;
/// settings.commit(ctx.client()).await?;
/// gateway.commit(&ctx.client().dynamic(&resource)).await?;
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "objects of kind `{K}` cannot be written with `{Self}`",
    label = "expected a `Context`, a `CachedClient` or an `Objects<{K}>`",
    note = "a kind that is known only at run time (`DynamicObject`) needs its handle: `ctx.dynamic(&resource)`, or what `ctx.own()` contains for the controller's own kind"
)]
pub trait Target<K: Object>: Sealed<K> + Send + Sync {
    /// Everything that can be done with the kind.
    fn target(&self) -> Objects<K>;
}

/// Cannot be named outside of the crate.
pub trait Sealed<K> {}

#[diagnostic::do_not_recommend]
impl<K: TypedObject> Sealed<K> for CachedClient {}

#[diagnostic::do_not_recommend]
impl<K: TypedObject> Target<K> for CachedClient {
    fn target(&self) -> Objects<K> {
        self.objects()
    }
}

impl<K: Object> Sealed<K> for Objects<K> {}

impl<K: Object> Target<K> for Objects<K> {
    fn target(&self) -> Objects<K> {
        self.clone()
    }
}
