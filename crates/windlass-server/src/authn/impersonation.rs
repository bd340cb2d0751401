//! Acting as another user: the `Impersonate-*` headers.
//!
//! The headers name a user, and a [`Mode`] says what the requester must be allowed to do so. Mirrors upstream's
//! `endpoints/filters/impersonation`, without its caches: no answer depends on earlier requests.

mod mode;

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderMap, HeaderValue};

use self::mode::Mode;
use super::User;
use crate::api::Api;
use crate::attributes::Target;
use crate::field::quote;
use crate::status::Status;
use crate::validation::names;

/// Replaces the user by the one the headers name, if they name one and the user may act as them. `verb` and `target`
/// are what the request asks for.
pub(crate) fn impersonate(
    api: &Api,
    user: User,
    headers: &HeaderMap,
    verb: &str,
    target: Target<'_>,
) -> Result<User, Status> {
    if !headers.keys().any(|key| key.as_str().starts_with("impersonate-")) {
        return Ok(user);
    }
    let Some(wanted) = Wanted::read(headers)? else { return Ok(user) };
    let mut first_refusal = None;
    for mode in Mode::ALL.into_iter().filter(|mode| mode.applies(&wanted, &user)) {
        match mode.check(api, &user, &wanted, verb, target) {
            Ok(()) => return Ok(wanted.into_user(mode)),
            Err(status) => first_refusal = first_refusal.or(Some(status)),
        }
    }
    Err(first_refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// The user to act as.
struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    fn read(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let first = |header: &str| headers.get(header).map(text).unwrap_or_default();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            if let Some(key) = header.as_str().strip_prefix("impersonate-extra-") {
                let key = unescaped(key);
                extra.entry(key).or_default().push(text(value));
            }
        }
        let groups = headers.get_all("impersonate-group").iter().map(text).collect();
        let wanted = Self { name: first("impersonate-user"), uid: first("impersonate-uid"), groups, extra };
        match (wanted.name.is_empty(), wanted.is_only_a_name()) {
            (false, _) => Ok(Some(wanted)),
            (true, true) => Ok(None),
            (true, false) => Err(Status::bad_request(format!("requested {wanted} without impersonating a user name"))),
        }
    }

    /// Whether nothing but the name of the user is asked for.
    fn is_only_a_name(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    /// The node to act as.
    fn node(&self) -> Option<&str> {
        self.name.strip_prefix("system:node:").filter(|node| names::is_subdomain(node))
    }

    fn into_user(mut self, mode: Mode) -> User {
        if let Some(groups) = mode.groups(&self) {
            self.groups = groups;
        }
        let anonymous = self.name == "system:anonymous";
        let standard = if anonymous { "system:unauthenticated" } else { "system:authenticated" };
        let says = |group: &String| group == standard || (!anonymous && group == "system:unauthenticated");
        if !self.groups.iter().any(says) {
            self.groups.push(standard.to_owned());
        }
        User { name: self.name, uid: self.uid, groups: self.groups, extra: self.extra.into_iter().collect() }
    }
}

/// As Go's `%#v` prints the user.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &[String]| items.iter().map(|item| quote(item)).collect::<Vec<_>>().join(", ");
        let groups = match &*self.groups {
            [] => "[]string(nil)".to_owned(),
            groups => format!("[]string{{{}}}", list(groups)),
        };
        let extra = if self.extra.is_empty() {
            "map[string][]string(nil)".to_owned()
        } else {
            let extra = self.extra.iter().map(|(key, values)| format!("{}:[]string{{{}}}", quote(key), list(values)));
            format!("map[string][]string{{{}}}", extra.collect::<Vec<_>>().join(", "))
        };
        let (name, uid) = (quote(&self.name), quote(&self.uid));
        write!(f, "&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
    }
}

/// A key of an extra value as it was before it became part of a header's name. Go decodes all of it or nothing.
fn unescaped(key: &str) -> String {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if key.split('%').skip(1).any(|rest| !is_escape(rest)) {
        return key.to_owned();
    }
    percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned()
}

/// The namespace and name of the service account that a user is.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (names::is_label(namespace) && names::is_subdomain(name)).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &'static str)], mode: Mode) -> Result<Option<User>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Wanted::read(&map).map(|wanted| wanted.map(|wanted| wanted.into_user(mode))).map_err(|status| status.message)
    }

    #[track_caller]
    fn groups(user: &'static str, mode: Mode) -> Vec<String> {
        read(&[("impersonate-user", user)], mode).expect("read").expect("there").groups
    }

    #[test]
    fn headers_name_another_user() {
        let headers = [("impersonate-user", "jane"), ("impersonate-extra-a%2fb", "1")];
        let jane = read(&headers, Mode::Legacy).expect("read").expect("there");
        assert_eq!((jane.name.as_str(), jane.groups), ("jane", vec!["system:authenticated".to_owned()]));
        assert_eq!(jane.extra["a/b"], ["1"]);
        let error = read(&[("impersonate-group", "g")], Mode::Legacy).expect_err("refused");
        assert_eq!(
            error,
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string(nil)} \
             without impersonating a user name"
        );
    }

    #[test]
    fn a_malformed_key_is_taken_as_it_is() {
        assert_eq!(unescaped("a%2fb"), "a/b");
        assert_eq!(unescaped("a%2fb%zz"), "a%2fb%zz");
        assert_eq!(unescaped("100%"), "100%");
    }

    #[test]
    fn groups_follow_from_the_user_and_the_mode() {
        let robot = "system:serviceaccount:n:r";
        let expected = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
        assert_eq!(groups(robot, Mode::Legacy), expected);
        assert_eq!(groups(robot, Mode::ServiceAccount), expected);
        assert_eq!(groups("system:node:n", Mode::Legacy), ["system:authenticated"]);
        assert_eq!(groups("system:node:n", Mode::ArbitraryNode), ["system:nodes", "system:authenticated"]);
        assert_eq!(groups("system:anonymous", Mode::UserInfo), ["system:unauthenticated"]);
    }
}
