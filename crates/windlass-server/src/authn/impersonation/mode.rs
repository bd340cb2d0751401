//! The ways in which a user may be allowed to act as another; one of them is enough.
//!
//! Each constrained mode is for one sort of user and needs two rights: `impersonate-on:<mode>:<verb>` on what is
//! requested, and `impersonate:<mode>` on everything that the headers name. The legacy mode needs `impersonate` on the
//! latter only.

use super::{Wanted, service_account};
use crate::api::Api;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::authz;
use crate::field::{FieldErrors, Path, quote};
use crate::status::Status;
use crate::user::{MASTERS, NODE_NAME, User};
use crate::validation::values::domain_prefixed_path;

const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many names on, the right to use any name is looked for first.
const MANY: usize = 4;

/// A way to be allowed to act as another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// As the node that the service account's pod runs on.
    AssociatedNode,
    /// As any node.
    ArbitraryNode,
    /// As a service account.
    ServiceAccount,
    /// As any other user, with uid, groups and extra values.
    UserInfo,
    /// As any user at all, whatever is requested.
    Legacy,
}

impl Mode {
    /// In the order in which they are tried. Of several refusals the first is told.
    pub(super) const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    /// The name of a constrained mode.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::AssociatedNode => Some("associated-node"),
            Self::ArbitraryNode => Some("arbitrary-node"),
            Self::ServiceAccount => Some("serviceaccount"),
            Self::UserInfo => Some("user-info"),
            Self::Legacy => None,
        }
    }

    /// Whether the mode is for such a user.
    pub(super) fn applies(self, wanted: &Wanted, requester: &User) -> bool {
        let (node, account) = (wanted.node(), service_account(&wanted.name));
        match self {
            Self::AssociatedNode => {
                let own = match requester.extra.get(NODE_NAME).map(Vec::as_slice) {
                    Some([name]) if service_account(&requester.name).is_some() => Some(name.as_str()),
                    _ => None,
                };
                wanted.is_only_a_name() && node.is_some() && node == own
            }
            Self::ArbitraryNode => wanted.is_only_a_name() && node.is_some(),
            Self::ServiceAccount => wanted.is_only_a_name() && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }

    /// The groups that the user is in if the headers name none.
    pub(super) fn groups(self, wanted: &Wanted) -> Option<Vec<String>> {
        if !wanted.groups.is_empty() {
            return None;
        }
        if matches!(self, Self::AssociatedNode | Self::ArbitraryNode) {
            return Some(vec!["system:nodes".to_owned()]);
        }
        let (namespace, _) = service_account(&wanted.name)?;
        Some(crate::authn::service_account::groups(namespace))
    }

    /// Refuses what the requester may not do in this mode.
    pub(super) fn check(
        self,
        api: &Api,
        requester: &User,
        wanted: &Wanted,
        verb: &str,
        target: Target<'_>,
    ) -> Result<(), Status> {
        let Some(name) = self.name() else {
            return Names { api, requester, verb: "impersonate", group: "" }.check(wanted, self);
        };
        let on = format!("impersonate-on:{name}:{verb}");
        authz::check(api, &Attributes { user: requester, verb: &on, target })?;
        let verb = format!("impersonate:{name}");
        Names { api, requester, verb: &verb, group: AUTHENTICATION }.check(wanted, self)
    }
}

/// The right to use what the headers name.
struct Names<'a> {
    api: &'a Api,
    requester: &'a User,
    verb: &'a str,
    /// The API group that users and groups are in.
    group: &'a str,
}

impl Names<'_> {
    fn check(&self, wanted: &Wanted, mode: Mode) -> Result<(), Status> {
        self.user(wanted, mode)?;
        if !wanted.uid.is_empty() {
            self.may(ResourceTarget { name: &wanted.uid, ..authentication("uids") })?;
        }
        let constrained = mode != Mode::Legacy;
        self.groups(&wanted.groups, constrained)?;
        self.extra(wanted, constrained)
    }

    fn user(&self, wanted: &Wanted, mode: Mode) -> Result<(), Status> {
        let target = ResourceTarget { group: self.group, ..ResourceTarget::default() };
        self.may(match (mode, service_account(&wanted.name)) {
            // The service account may act as the node of each of its pods, so no single name counts.
            (Mode::AssociatedNode, _) => ResourceTarget { resource: "nodes", name: "*", ..target },
            (Mode::ArbitraryNode, _) => {
                ResourceTarget { resource: "nodes", name: wanted.node().unwrap_or_default(), ..target }
            }
            (_, Some((namespace, name))) => ResourceTarget { resource: "serviceaccounts", namespace, name, ..target },
            (_, None) => ResourceTarget { resource: "users", name: &wanted.name, ..target },
        })
    }

    fn groups(&self, groups: &[String], constrained: bool) -> Result<(), Status> {
        let target = ResourceTarget { group: self.group, resource: "groups", ..ResourceTarget::default() };
        if constrained {
            if groups.iter().any(String::is_empty) {
                return Err(self.refused(target, "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let target = ResourceTarget { name: MASTERS, ..target };
                return Err(self.refused(target, "impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= MANY && self.may(ResourceTarget { name: "*", ..target }).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|name| self.may(ResourceTarget { name, ..target }))
    }

    fn extra(&self, wanted: &Wanted, constrained: bool) -> Result<(), Status> {
        let target = authentication("userextras");
        if constrained {
            if let Some(why) = wanted.extra.iter().find_map(|(key, values)| unfit(key, values)) {
                return Err(self.refused(target, &why));
            }
            let values: usize = wanted.extra.values().map(Vec::len).sum();
            if values >= MANY && self.may(ResourceTarget { subresource: "*", name: "*", ..target }).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for name in values {
                self.may(ResourceTarget { subresource: key, name, ..target })?;
            }
        }
        Ok(())
    }

    fn may(&self, target: ResourceTarget<'_>) -> Result<(), Status> {
        authz::check(self.api, &self.attributes(target))
    }

    fn refused(&self, target: ResourceTarget<'_>, why: &str) -> Status {
        authz::forbidden(&self.attributes(target), why)
    }

    fn attributes<'t>(&'t self, target: ResourceTarget<'t>) -> Attributes<'t> {
        Attributes { user: self.requester, verb: self.verb, target: Target::Resource(target) }
    }
}

fn authentication(resource: &str) -> ResourceTarget<'_> {
    ResourceTarget { group: AUTHENTICATION, resource, ..ResourceTarget::default() }
}

/// What keeps an extra value from being used in a constrained mode.
fn unfit(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let mut errors = FieldErrors::default();
    let path = Path::new("extra");
    domain_prefixed_path(key, &path.child("key"), &mut errors);
    if !errors.is_empty() {
        return Some(format!("impersonating an invalid key in extra is not allowed: {errors}"));
    }
    if key != key.to_lowercase() {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quote(key)));
    }
    let blank = values.iter().any(String::is_empty);
    blank.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}
