//! Which objects of a kind are watched.

use crate::reflector::Selection;
use crate::selector::Labels;

/// Which objects of a kind are watched.
///
/// The API server applies the namespace and the selectors, so objects outside of the scope are never sent.
///
/// ```
/// use windlass::cache::Scope;
///
/// let everything = Scope::default();
/// let some = Scope::default()
///     .namespace("pets")
///     .labels("app=petstore");
/// assert_ne!(everything, some);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<Labels>,
    pub(super) fields: Option<String>,
    pub(super) cluster_scoped: bool,
}

impl Scope {
    /// Says that the objects of the kind are in no namespace. Only needed for kinds known at run time: a type knows
    /// this itself.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.cluster_scoped = true;
        self
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.cluster_scoped
    }

    /// Only objects of a namespace; the empty one means all.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self
    }

    /// Only objects whose labels match: text as in `kubectl get -l`, or one of the other forms of [`Labels`]. What is no
    /// selector is an error of the first read.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<Labels>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects whose fields match, as `metadata.name=x`.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    pub(crate) fn in_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(super) fn selection(&self) -> Selection {
        Selection {
            namespace: self.namespace.clone(),
            labels: self.labels.as_ref().map(ToString::to_string),
            fields: self.fields.clone(),
        }
    }
}
