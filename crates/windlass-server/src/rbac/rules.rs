//! Policy rules: what they allow, what they cover, and how messages show them.

use serde_json::{Map, Value};

use crate::attributes::{ResourceTarget, Target};
use crate::cel::go::quote_list;
use crate::validation::access::Access as _;

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    urls: Vec<String>,
}

const FIELDS: [&str; 5] = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];

impl Rule {
    /// A rule as roles spell it.
    pub(crate) fn from_value(rule: &Value) -> Self {
        let [verbs, groups, resources, names, urls] =
            FIELDS.map(|field| rule.texts(field).into_iter().map(str::to_owned).collect());
        Self { verbs, groups, resources, names, urls }
    }

    /// The rules of a role.
    pub(crate) fn of_role(role: &Value) -> Vec<Self> {
        role.list("rules").iter().map(Self::from_value).collect()
    }

    /// Everything there is.
    pub(crate) fn full_authority() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        let resources = Self { verbs: all(), groups: all(), resources: all(), ..Self::default() };
        [resources, Self { verbs: all(), urls: all(), ..Self::default() }]
    }

    /// The rule as roles spell it.
    pub(crate) fn to_value(&self) -> Value {
        let lists = [&self.verbs, &self.groups, &self.resources, &self.names, &self.urls];
        let fields = FIELDS.iter().zip(lists).filter(|(_, list)| !list.is_empty());
        Value::Object(fields.map(|(field, list)| ((*field).to_owned(), list.as_slice().into())).collect::<Map<_, _>>())
    }

    /// Whether the rule is about resources.
    pub(crate) fn is_for_resources(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Whether the rule is about paths.
    pub(crate) fn is_for_paths(&self) -> bool {
        !self.urls.is_empty()
    }

    /// Whether the rule lets a verb be used on a target.
    pub(crate) fn allows(&self, verb: &str, target: &Target<'_>) -> bool {
        if !has_or_all(&self.verbs, verb) {
            return false;
        }
        match target {
            Target::Path(path) => self.urls.iter().any(|url| path_covers(url, path)),
            Target::Resource(target) => {
                has_or_all(&self.groups, target.group)
                    && self.resources.iter().any(|resource| resource_matches(resource, target))
                    && (self.names.is_empty() || self.names.iter().any(|name| name == target.name))
            }
        }
    }

    /// The rule as rules with one verb, one resource and at most one name each.
    fn breakdown(&self, out: &mut Vec<Self>) {
        let names: Vec<Vec<String>> =
            if self.names.is_empty() { vec![Vec::new()] } else { self.names.iter().map(|n| vec![n.clone()]).collect() };
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    out.extend(names.iter().map(|names| Self {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        names: names.clone(),
                        urls: Vec::new(),
                    }));
                }
            }
        }
        for url in &self.urls {
            out.extend(self.verbs.iter().map(|verb| Self {
                verbs: vec![verb.clone()],
                urls: vec![url.clone()],
                ..Self::default()
            }));
        }
    }

    /// Whether the rule gives everything that a broken-down rule does.
    fn covers(&self, part: &Self) -> bool {
        let named =
            self.names.is_empty() || (!part.names.is_empty() && part.names.iter().all(|n| self.names.contains(n)));
        part.verbs.iter().all(|verb| has_or_all(&self.verbs, verb))
            && part.groups.iter().all(|group| has_or_all(&self.groups, group))
            && part.resources.iter().all(|resource| resource_covers(&self.resources, resource))
            && part.urls.iter().all(|url| self.urls.iter().any(|own| path_covers(own, url)))
            && named
    }

    /// Whether rules that differ from this one in their verbs only can be shown together with it.
    fn is_simple(&self) -> bool {
        self.names.len() <= 1 && self.urls.is_empty() && self.groups.len() == 1 && self.resources.len() == 1
    }

    fn differs_by_verb(&self, other: &Self) -> bool {
        self.groups == other.groups && self.resources == other.resources && self.names == other.names
    }
}

impl std::fmt::Display for Rule {
    /// `{APIGroups:["apps"], Resources:["*"], Verbs:["get" "list"]}`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown = parts
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quote_list(list)));
        write!(f, "{{{}}}", shown.collect::<Vec<_>>().join(", "))
    }
}

/// The parts of `wanted` that `owned` does not cover, as messages show them, in order.
pub(crate) fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut shown: Vec<String> = uncovered(owned, wanted).iter().map(ToString::to_string).collect();
    shown.sort();
    shown.dedup();
    shown
}

/// The parts of `wanted` that `owned` does not cover; rules that differ in their verbs only are put together.
pub(crate) fn uncovered(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut parts = Vec::new();
    for rule in wanted {
        rule.breakdown(&mut parts);
    }
    let mut compact: Vec<Rule> = Vec::new();
    for part in parts.into_iter().filter(|part| !owned.iter().any(|rule| rule.covers(part))) {
        let like = compact.iter_mut().find(|rule| part.is_simple() && rule.is_simple() && rule.differs_by_verb(&part));
        match like {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => compact.push(part),
        }
    }
    compact
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|known| known == "*" || known == item)
}

fn resource_matches(rule: &str, target: &ResourceTarget<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => target.subresource.is_empty() && rule == target.resource,
        Some((resource, subresource)) => {
            !target.subresource.is_empty()
                && subresource == target.subresource
                && (resource == "*" || resource == target.resource)
        }
    }
}

fn resource_covers(own: &[String], resource: &str) -> bool {
    has_or_all(own, resource)
        || resource.split_once('/').is_some_and(|(_, sub)| own.iter().any(|rule| rule.strip_prefix("*/") == Some(sub)))
}

fn path_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: &Value) -> Rule {
        Rule::from_value(value)
    }

    #[test]
    fn rules_allow_what_they_name() {
        let check = |value: Value, verb: &str, resource: &str, name: &str, expected: bool| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let target = ResourceTarget { group: "apps", resource, subresource, namespace: "n", name, node: "" };
            assert_eq!(rule(&value).allows(verb, &Target::Resource(target)), expected, "{value} {verb} {resource}");
        };
        let scale = || json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*/scale"]});
        check(scale(), "get", "deployments/scale", "x", true);
        check(scale(), "get", "deployments", "x", false);
        check(scale(), "list", "deployments/scale", "x", false);
        let named =
            || json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["deployments"], "resourceNames": ["a"]});
        check(named(), "get", "deployments", "a", true);
        check(named(), "get", "deployments", "b", false);
        check(named(), "list", "deployments", "", false);
        check(named(), "get", "deployments/scale", "a", false);
        let paths = rule(&json!({"verbs": ["get"], "nonResourceURLs": ["/apis/*", "/version"]}));
        for (path, expected) in [("/apis/apps", true), ("/version", true), ("/versions", false), ("/", false)] {
            assert_eq!(paths.allows("get", &Target::Path(path)), expected, "{path}");
        }
    }

    #[test]
    fn missing_rights_are_listed_compactly() {
        let owned = [rule(&json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}))];
        let wanted = [
            rule(&json!({"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["configmaps", "secrets"]})),
            rule(&json!({"verbs": ["*"], "nonResourceURLs": ["*"]})),
        ];
        let expected = [
            r#"{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}"#,
            r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}"#,
            r#"{NonResourceURLs:["*"], Verbs:["*"]}"#,
        ];
        assert_eq!(missing(&owned, &wanted), expected);
        assert!(missing(&Rule::full_authority(), &wanted).is_empty());
    }
}
