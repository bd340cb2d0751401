//! Labels and the selectors over them: of pods, of nodes, of namespaces.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The labels of an object, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The labels of a map.
    pub fn new(labels: Option<&BTreeMap<String, String>>) -> Self {
        let pairs = labels.into_iter().flatten();
        Self(pairs.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect())
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
    values: Box<[Box<str>]>,
}

impl Requirement {
    fn new(key: &str, operator: &str, values: Option<&Vec<String>>) -> Option<Self> {
        let operator = match operator {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        let values = values.into_iter().flatten().map(|value| value.as_str().into()).collect();
        Some(Self { key: key.into(), operator, values })
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|one| **one == *value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt | Operator::Lt => {
                let numbers = value.and_then(|value| value.parse::<i64>().ok());
                let bound = self.values.first().and_then(|bound| bound.parse::<i64>().ok());
                let (Some(number), Some(bound)) = (numbers, bound) else { return false };
                if self.operator == Operator::Gt { number > bound } else { number < bound }
            }
        }
    }
}

/// A compiled label selector.
///
/// ```
/// # use std::collections::BTreeMap;
/// use windlass_scheduler::labels::{Labels, Selector};
///
/// let web = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
/// assert!(Selector::all_of(&web).matches(&Labels::new(Some(&web))));
/// assert!(!Selector::new(None).matches(&Labels::default()), "no selector selects nothing");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    nothing: bool,
    requirements: Vec<Requirement>,
}

impl Selector {
    /// The selector of the API; no selector, and one that cannot be understood, selects nothing.
    pub fn new(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self { nothing: true, requirements: Vec::new() } };
        let mut compiled = match &selector.match_labels {
            Some(labels) => Self::all_of(labels),
            None => Self { nothing: false, requirements: Vec::new() },
        };
        for one in selector.match_expressions.iter().flatten() {
            match Requirement::new(&one.key, &one.operator, one.values.as_ref()) {
                Some(requirement) => compiled.requirements.push(requirement),
                None => compiled.nothing = true,
            }
        }
        compiled
    }

    /// Selects what has all of these labels.
    pub fn all_of(labels: &BTreeMap<String, String>) -> Self {
        let requirement = |(key, value): (&String, &String)| Requirement {
            key: key.as_str().into(),
            operator: Operator::In,
            values: Box::new([value.as_str().into()]),
        };
        Self { nothing: false, requirements: labels.iter().map(requirement).collect() }
    }

    /// Selects what this and another one select.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.nothing |= other.nothing;
        self.requirements.extend_from_slice(&other.requirements);
        self
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether it selects an object with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        !self.nothing && self.requirements.iter().all(|one| one.matches(labels.get(&one.key)))
    }
}

/// A term of a node affinity: requirements on labels and on the name, all of which hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTerm {
    /// A term without requirements, or with one that cannot be understood, matches no node.
    nothing: bool,
    labels: Vec<Requirement>,
    names: Vec<Requirement>,
}

impl NodeTerm {
    /// The term of the API.
    pub fn new(term: &NodeSelectorTerm) -> Self {
        let compile = |list: Option<&Vec<NodeSelectorRequirement>>| -> Option<Vec<Requirement>> {
            let requirements = list.into_iter().flatten();
            requirements.map(|one| Requirement::new(&one.key, &one.operator, one.values.as_ref())).collect()
        };
        let labels = compile(term.match_expressions.as_ref());
        let names =
            compile(term.match_fields.as_ref()).filter(|names| names.iter().all(|name| &*name.key == "metadata.name"));
        let nothing = match (&labels, &names) {
            (Some(labels), Some(names)) => labels.is_empty() && names.is_empty(),
            _ => true,
        };
        Self { nothing, labels: labels.unwrap_or_default(), names: names.unwrap_or_default() }
    }

    /// Whether a node is meant.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        !self.nothing
            && self.names.iter().all(|one| one.matches(Some(name)))
            && self.labels.iter().all(|one| one.matches(labels.get(&one.key)))
    }

    /// Whether it matches nothing whatever the node.
    pub(crate) fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The only names that can match, if the term says so.
    pub(crate) fn only_names(&self) -> Option<Vec<&str>> {
        let mut lists = self.names.iter().filter(|one| one.operator == Operator::In);
        let mut names: Vec<&str> = lists.next()?.values.iter().map(|name| &**name).collect();
        for other in lists {
            names.retain(|name| other.values.iter().any(|value| **value == **name));
        }
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Labels::new(Some(&map))
    }

    fn check(operator: &str, values: &[&str], with: &[(&str, &str)], expected: bool) {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let requirement = NodeSelectorRequirement {
            key: "k".to_owned(),
            operator: operator.to_owned(),
            values: Some(values.clone()),
        };
        let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
        assert_eq!(NodeTerm::new(&term).matches("n", &labels(with)), expected, "{operator} {values:?} {with:?}");
    }

    #[test]
    fn node_terms() {
        check("In", &["a", "b"], &[("k", "b")], true);
        check("In", &["a"], &[("k", "b")], false);
        check("In", &["a"], &[], false);
        check("NotIn", &["a"], &[("k", "b")], true);
        check("NotIn", &["a"], &[("k", "a")], false);
        check("NotIn", &["a"], &[], true);
        check("Exists", &[], &[("k", "")], true);
        check("Exists", &[], &[("j", "")], false);
        check("DoesNotExist", &[], &[], true);
        check("DoesNotExist", &[], &[("k", "")], false);
        check("Gt", &["10"], &[("k", "11")], true);
        check("Gt", &["10"], &[("k", "10")], false);
        check("Gt", &["10"], &[], false);
        check("Lt", &["10"], &[("k", "9")], true);
        check("Lt", &["10"], &[("k", "x")], false);
        check("Near", &["10"], &[("k", "10")], false);
    }

    #[test]
    fn empty_terms_match_nothing() {
        assert!(!NodeTerm::new(&NodeSelectorTerm::default()).matches("n", &Labels::default()));
    }

    #[test]
    fn terms_name_nodes() {
        let named = |lists: &[&[&str]]| {
            let requirement = |values: &&[&str]| NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
            };
            let fields = lists.iter().map(requirement).collect();
            NodeTerm::new(&NodeSelectorTerm { match_expressions: None, match_fields: Some(fields) })
        };
        assert_eq!(named(&[&["a", "b"]]).only_names(), Some(vec!["a", "b"]));
        assert_eq!(named(&[&["a", "b"], &["b", "c"]]).only_names(), Some(vec!["b"]));
        assert!(named(&[&["a"]]).matches("a", &Labels::default()));
        assert!(!named(&[&["a"]]).matches("b", &Labels::default()));
    }

    #[test]
    fn selectors_of_the_api() {
        let expression = LabelSelectorRequirement {
            key: "tier".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec!["db".to_owned()]),
        };
        let selector = LabelSelector {
            match_labels: Some(BTreeMap::from([("app".to_owned(), "web".to_owned())])),
            match_expressions: Some(vec![expression]),
        };
        let selector = Selector::new(Some(&selector));
        assert!(selector.matches(&labels(&[("app", "web")])));
        assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "db")])));
        assert!(Selector::new(Some(&LabelSelector::default())).is_everything());
        assert!(!Selector::new(None).is_everything());
    }
}
