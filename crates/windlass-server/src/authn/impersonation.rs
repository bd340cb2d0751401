//! Acting as somebody else: the `Impersonate-*` headers.
//!
//! Each thing to act as (user or service account, groups, extra values, uid) needs the verb
//! `impersonate`; masters have it, RBAC may give it.

use std::collections::HashMap;

use http::{HeaderMap, HeaderValue};

use super::User;
use crate::api::Api;
use crate::authz::{self, Attributes, ResourceTarget, Target};
use crate::status::Status;

const AUTHENTICATION: &str = "authentication.k8s.io";

/// Replaces the user by the one the headers name, if they do and the user may.
pub(super) fn impersonate(api: &Api, user: User, headers: &HeaderMap) -> Result<User, Status> {
    if !headers.keys().any(|key| key.as_str().starts_with("impersonate-")) {
        return Ok(user);
    }
    let Some(wanted) = Wanted::read(headers)? else { return Ok(user) };
    if !user.is_master() {
        wanted.check(api, &user)?;
    }
    Ok(wanted.into_user())
}

/// Who to act as.
struct Wanted {
    name: String,
    groups: Vec<String>,
    uid: String,
    extra: HashMap<String, Vec<String>>,
}

impl Wanted {
    fn read(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let first = |header: &str| headers.get(header).map(text).unwrap_or_default();
        let mut extra: HashMap<String, Vec<String>> = HashMap::new();
        for (header, value) in headers {
            if let Some(key) = header.as_str().strip_prefix("impersonate-extra-") {
                let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
                extra.entry(key).or_default().push(text(value));
            }
        }
        let groups = headers.get_all("impersonate-group").iter().map(text).collect();
        let wanted = Self { name: first("impersonate-user"), groups, uid: first("impersonate-uid"), extra };
        if !wanted.name.is_empty() {
            return Ok(Some(wanted));
        }
        if wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty() {
            return Ok(None);
        }
        let asked = wanted.references().join(" ");
        Err(Status::bad_request(format!("requested [{asked}] without impersonating a user")))
    }

    /// What is asked for besides a user, as Go prints references to it.
    fn references(&self) -> Vec<String> {
        let mut out: Vec<String> = self.groups.iter().map(|group| format!("{{Group  {group}    }}")).collect();
        for (key, values) in &self.extra {
            let reference = |value| format!("{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}");
            out.extend(values.iter().map(reference));
        }
        if !self.uid.is_empty() {
            out.push(format!("{{UID  {}  {AUTHENTICATION}/v1  }}", self.uid));
        }
        out
    }

    /// The namespace and name of the service account to act as.
    fn service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    fn check(&self, api: &Api, user: &User) -> Result<(), Status> {
        let may = |target: ResourceTarget<'_>| {
            authz::check(api, &Attributes { user, verb: "impersonate", target: Target::Resource(target) })
        };
        match self.service_account() {
            Some((namespace, name)) => {
                may(ResourceTarget { resource: "serviceaccounts", namespace, name, ..ResourceTarget::default() })?;
            }
            None => may(ResourceTarget { resource: "users", name: &self.name, ..ResourceTarget::default() })?,
        }
        for name in &self.groups {
            may(ResourceTarget { resource: "groups", name, ..ResourceTarget::default() })?;
        }
        for (key, values) in &self.extra {
            for name in values {
                let target = ResourceTarget {
                    group: AUTHENTICATION,
                    resource: "userextras",
                    subresource: key,
                    namespace: "",
                    name,
                };
                may(target)?;
            }
        }
        if !self.uid.is_empty() {
            let name = self.uid.as_str();
            may(ResourceTarget { group: AUTHENTICATION, resource: "uids", name, ..ResourceTarget::default() })?;
        }
        Ok(())
    }

    fn into_user(mut self) -> User {
        if let (Some((namespace, _)), true) = (self.service_account(), self.groups.is_empty()) {
            self.groups = super::service_account::groups(namespace);
        }
        let anonymous = self.name == "system:anonymous";
        let standard = if anonymous { "system:unauthenticated" } else { "system:authenticated" };
        let says = |group: &String| group == standard || (!anonymous && group == "system:unauthenticated");
        if !self.groups.iter().any(says) {
            self.groups.push(standard.to_owned());
        }
        User { name: self.name, uid: self.uid, groups: self.groups, extra: self.extra }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &'static str)]) -> Result<Option<User>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Wanted::read(&map).map(|wanted| wanted.map(Wanted::into_user)).map_err(|status| status.message)
    }

    #[test]
    fn headers_name_somebody_else() {
        let jane =
            read(&[("impersonate-user", "jane"), ("impersonate-extra-a%2fb", "1")]).expect("read").expect("there");
        assert_eq!((jane.name.as_str(), jane.groups), ("jane", vec!["system:authenticated".to_owned()]));
        assert_eq!(jane.extra["a/b"], ["1"]);
        let robot = read(&[("impersonate-user", "system:serviceaccount:n:r")]).expect("read").expect("there");
        assert_eq!(robot.groups, ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]);
        let error = read(&[("impersonate-group", "g")]).expect_err("refused");
        assert_eq!(error, "requested [{Group  g    }] without impersonating a user");
    }
}
