//! A request as authorisation, flow control and the audit log see it: a user, a verb and a target.

use crate::request::ResourcePath;
use crate::user::User;

/// What a user wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    /// The user.
    pub user: &'a User,
    /// The verb.
    pub verb: &'a str,
    /// What it is done to.
    pub target: Target<'a>,
}

/// What something is done to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    /// A resource.
    Resource(ResourceTarget<'a>),
    /// A path that is no resource's.
    Path(&'a str),
}

/// A resource something is done to. What does not apply is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceTarget<'a> {
    /// The API group.
    pub group: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The node whose objects alone a list or watch selects by field.
    pub node: &'a str,
}

impl<'a> ResourceTarget<'a> {
    /// What a path leads to. A namespace is in itself.
    pub(crate) fn of_path(path: &'a ResourcePath, name: &'a str) -> Self {
        let namespace = match (&path.namespace, path.resource.as_str()) {
            (Some(namespace), _) => namespace,
            (None, "namespaces") if path.group.is_empty() => path.name.as_deref().unwrap_or_default(),
            (None, _) => "",
        };
        let subresource = path.subresource.as_deref().unwrap_or_default();
        Self { group: &path.group, resource: &path.resource, subresource, namespace, name, node: "" }
    }
}
