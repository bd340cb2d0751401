//! What is recorded about which requests: `audit.k8s.io/v1` Policy.
//!
//! The first rule that matches a request decides; without one nothing is recorded. Mirrors `audit/policy/checker.go` and
//! `apis/audit/validation`, with one difference: what holds credentials (Secrets, tokens and their reviews) is recorded
//! beyond its metadata only by a rule that names the resource, never by one that applies to everything.

use serde_json::Value;

use crate::attributes::{ResourceTarget, Target};
use crate::codec::body;
use crate::codec::negotiate::Format;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access as _;
use crate::validation::names;

use super::Stage;

/// How much is recorded of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Resources whose bodies hold credentials: group, resource, subresource.
const CREDENTIALS: [(&str, &str, &str); 3] =
    [("", "secrets", ""), ("", "serviceaccounts", "token"), ("authentication.k8s.io", "tokenreviews", "")];

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditPolicyError {
    /// The text is neither YAML nor JSON.
    #[error("it is neither YAML nor JSON: {0}")]
    Syntax(String),
    /// The object is of another kind.
    #[error("it is a {kind:?} of {api_version:?}, not a Policy of audit.k8s.io/v1")]
    Kind {
        /// What it is.
        kind: String,
        /// And of what version.
        api_version: String,
    },
    /// Upstream refuses it, in these words.
    #[error("{0}")]
    Invalid(String),
}

/// What is recorded about which requests.
///
/// ```
/// use windlass_server::AuditPolicy;
///
/// let policy = AuditPolicy::parse(
///     "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Request\n  resources: [{group: apps}]\n",
/// )?;
/// assert!(AuditPolicy::parse("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]").is_err());
/// # Ok::<(), windlass_server::AuditPolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
    omit_stages: Stages,
    omit_managed_fields: bool,
}

/// Some stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stages(u8);

impl Stages {
    fn read(value: &Value) -> Self {
        let stages = value.texts("omitStages");
        let bits = Stage::ALL.iter().filter(|stage| stages.contains(&stage.name())).map(|stage| 1 << *stage as u8);
        Self(bits.fold(0, |all, bit: u8| all | bit))
    }

    pub(super) fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }
}

#[derive(Clone, Debug)]
struct Rule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    urls: Vec<String>,
    omit_stages: Stages,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// What the policy says about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) level: Level,
    pub(super) omit_stages: Stages,
    pub(super) omit_managed_fields: bool,
}

/// A request, as rules see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) user: Option<&'a crate::user::User>,
    pub(super) verb: &'a str,
    pub(super) target: Target<'a>,
}

fn strings(value: &Value, field: &str) -> Vec<String> {
    value.texts(field).into_iter().map(str::to_owned).collect()
}

impl Default for AuditPolicy {
    /// The metadata of all requests.
    fn default() -> Self {
        let all = serde_json::json!({"level": "Metadata"});
        Self { rules: vec![Rule::read(&all)], omit_stages: Stages::default(), omit_managed_fields: false }
    }
}

impl AuditPolicy {
    /// Reads a policy, in YAML or JSON.
    ///
    /// # Errors
    ///
    /// If it is no policy, or one that kube-apiserver would refuse.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let (policy, _) = body::read(text.as_bytes(), Format::Yaml).map_err(AuditPolicyError::Syntax)?;
        let (kind, api_version) = (policy.text("kind"), policy.text("apiVersion"));
        if (kind, api_version) != ("Policy", "audit.k8s.io/v1") {
            return Err(AuditPolicyError::Kind { kind: kind.to_owned(), api_version: api_version.to_owned() });
        }
        let errors = validate(&policy);
        if !errors.is_empty() {
            return Err(AuditPolicyError::Invalid(errors.to_string()));
        }
        Ok(Self {
            rules: policy.list("rules").iter().map(Rule::read).collect(),
            omit_stages: Stages::read(&policy),
            omit_managed_fields: policy.flag("omitManagedFields"),
        })
    }

    /// What is recorded of a request.
    pub(super) fn judge(&self, seen: &Seen<'_>) -> Verdict {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(seen)) else {
            let (omit_stages, omit_managed_fields) = (self.omit_stages, self.omit_managed_fields);
            return Verdict { level: Level::None, omit_stages, omit_managed_fields };
        };
        let hides =
            matches!(&seen.target, Target::Resource(target) if holds_credentials(target) && !rule.names(target));
        Verdict {
            level: if hides { rule.level.min(Level::Metadata) } else { rule.level },
            omit_stages: Stages(self.omit_stages.0 | rule.omit_stages.0),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

fn holds_credentials(target: &ResourceTarget<'_>) -> bool {
    CREDENTIALS.contains(&(target.group, target.resource, target.subresource))
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let level = Level::ALL.into_iter().find(|level| level.name() == rule.text("level"));
        let resources = |entry: &Value| GroupResources {
            group: entry.text("group").to_owned(),
            resources: strings(entry, "resources"),
            names: strings(entry, "resourceNames"),
        };
        Self {
            level: level.unwrap_or(Level::None),
            users: strings(rule, "users"),
            groups: strings(rule, "userGroups"),
            verbs: strings(rule, "verbs"),
            resources: rule.list("resources").iter().map(resources).collect(),
            namespaces: strings(rule, "namespaces"),
            urls: strings(rule, "nonResourceURLs"),
            omit_stages: Stages::read(rule),
            omit_managed_fields: rule.flag_opt("omitManagedFields"),
        }
    }

    fn matches(&self, seen: &Seen<'_>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|known| known == text);
        let is_user = self.users.is_empty() || seen.user.is_some_and(|user| has(&self.users, &user.name));
        let in_group =
            self.groups.is_empty() || seen.user.is_some_and(|user| user.groups.iter().any(|g| has(&self.groups, g)));
        if !is_user || !in_group || !(self.verbs.is_empty() || has(&self.verbs, seen.verb)) {
            return false;
        }
        let about_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
        match &seen.target {
            Target::Resource(_) if !about_resources => self.urls.is_empty(),
            Target::Resource(target) => {
                (self.namespaces.is_empty() || has(&self.namespaces, target.namespace))
                    && (self.resources.is_empty() || self.resources.iter().any(|entry| entry.matches(target)))
            }
            Target::Path(_) if about_resources => false,
            Target::Path(path) => self.urls.is_empty() || self.urls.iter().any(|url| url_matches(url, path)),
        }
    }

    /// Whether the rule names the resource, and not just matches it.
    fn names(&self, target: &ResourceTarget<'_>) -> bool {
        let named = |name: &String| match target.subresource {
            "" => name == target.resource,
            subresource => name.split_once('/') == Some((target.resource, subresource)),
        };
        self.resources.iter().any(|entry| entry.matches(target) && entry.resources.iter().any(named))
    }
}

impl GroupResources {
    fn matches(&self, target: &ResourceTarget<'_>) -> bool {
        if self.group != target.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let is_named = self.names.is_empty() || self.names.iter().any(|name| name == target.name);
        is_named && self.resources.iter().any(|resource| resource_matches(resource, target))
    }
}

fn resource_matches(rule: &str, target: &ResourceTarget<'_>) -> bool {
    match rule.split_once('/') {
        None => rule == "*" || (target.subresource.is_empty() && rule == target.resource),
        Some(("*", subresource)) => !target.subresource.is_empty() && subresource == target.subresource,
        Some((resource, "*")) => resource == target.resource,
        Some(both) => both == (target.resource, target.subresource),
    }
}

fn url_matches(rule: &str, path: &str) -> bool {
    rule == "*" || rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

/// What upstream says is wrong with a policy.
fn validate(policy: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    omit_stages(policy, &Path::new("omitStages"), &mut errors);
    let rules = Path::new("rules");
    for (i, rule) in policy.list("rules").iter().enumerate() {
        let path = rules.index(i);
        let level = rule.text("level");
        if level.is_empty() {
            errors.push(FieldError::required(&path.child("level"), ""));
        } else if !Level::ALL.iter().any(|known| known.name() == level) {
            let known = Level::ALL.map(Level::name);
            errors.push(FieldError::not_supported(&path.child("level"), level, &known));
        }
        urls(rule, &path, &mut errors);
        for entry in rule.list("resources") {
            group_resources(entry, &path.child("resources"), &mut errors);
        }
        omit_stages(rule, &path.child("omitStages"), &mut errors);
        if !rule.list("nonResourceURLs").is_empty()
            && (!rule.list("resources").is_empty() || !rule.list("namespaces").is_empty())
        {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            let urls = rule.at("nonResourceURLs").clone();
            errors.push(FieldError::invalid(&path.child("nonResourceURLs"), urls, detail));
        }
    }
    errors
}

fn omit_stages(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for (i, stage) in value.texts("omitStages").into_iter().enumerate() {
        if !Stage::ALL.iter().any(|known| known.name() == stage) {
            let detail = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic";
            errors.push(FieldError::invalid(&path.index(i), stage, detail));
        }
    }
}

fn urls(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("nonResourceURLs");
    for (i, url) in rule.texts("nonResourceURLs").into_iter().enumerate().filter(|(_, url)| *url != "*") {
        if !url.starts_with('/') {
            let detail = "non-resource URL rules must begin with a '/' character";
            errors.push(FieldError::invalid(&path.index(i), url, detail));
        }
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            let detail = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.push(FieldError::invalid(&path.index(i), url, detail));
        }
    }
}

fn group_resources(entry: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let group = entry.text("group");
    if !group.is_empty() && group != "*" {
        let wrong = names::subdomain(group);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(&path.child("group"), group, wrong.join(",")));
        }
    }
    if !entry.list("resourceNames").is_empty() && entry.list("resources").is_empty() {
        let names = entry.at("resourceNames").clone();
        let detail = "using resourceNames requires at least one resource";
        errors.push(FieldError::invalid(&path.child("resourceNames"), names, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::User;

    fn policy(rules: &str) -> AuditPolicy {
        AuditPolicy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).expect("a policy")
    }

    fn pods(namespace: &'static str, subresource: &'static str) -> ResourceTarget<'static> {
        ResourceTarget { resource: "pods", namespace, subresource, name: "p", ..ResourceTarget::default() }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(
            "omitStages: [RequestReceived]
rules:
- {level: None, users: ['system:kube-proxy'], verbs: [watch]}
- {level: None, userGroups: ['system:authenticated'], nonResourceURLs: ['/api*', /version]}
- {level: Request, namespaces: [kube-system], resources: [{group: '', resources: [configmaps]}]}
- {level: RequestResponse, resources: [{group: '', resources: [pods, pods/status]}], omitStages: [ResponseStarted]}
- {level: Metadata, resources: [{group: '', resources: ['*/log', 'nodes/*']}], omitManagedFields: true}
",
        );
        let jane = User::new("jane", []);
        let judge = |verb, target| policy.judge(&Seen { user: Some(&jane), verb, target });
        let level = |verb, target| judge(verb, Target::Resource(target)).level;
        let proxy = User::new("system:kube-proxy", []);
        let seen = Seen { user: Some(&proxy), verb: "watch", target: Target::Resource(pods("a", "")) };
        assert_eq!(policy.judge(&seen).level, Level::None);
        assert_eq!(level("get", pods("a", "")), Level::RequestResponse);
        assert_eq!(level("get", pods("a", "status")), Level::RequestResponse);
        assert_eq!(level("get", pods("a", "log")), Level::Metadata);
        assert_eq!(level("get", pods("a", "exec")), Level::None);
        let configmap = ResourceTarget { resource: "configmaps", namespace: "kube-system", ..pods("", "") };
        assert_eq!(level("get", configmap), Level::Request);
        assert_eq!(level("get", ResourceTarget { namespace: "a", ..configmap }), Level::None);
        let nodes = ResourceTarget { resource: "nodes", ..pods("", "") };
        assert_eq!(level("get", nodes), Level::Metadata, "the star stands for the resource itself, too");
        assert_eq!(judge("get", Target::Path("/apis")).level, Level::None);
        let verdict = judge("get", Target::Resource(pods("a", "")));
        assert!(verdict.omit_stages.has(Stage::RequestReceived) && verdict.omit_stages.has(Stage::ResponseStarted));
        assert!(!verdict.omit_stages.has(Stage::ResponseComplete) && !verdict.omit_managed_fields);
        assert!(judge("get", Target::Resource(pods("a", "log"))).omit_managed_fields);
    }

    #[test]
    fn credentials_are_recorded_only_by_rules_that_name_them() {
        let secret = ResourceTarget { resource: "secrets", namespace: "a", ..ResourceTarget::default() };
        let token = ResourceTarget { resource: "serviceaccounts", subresource: "token", ..secret };
        let check = |rules: &str, target, expected| {
            let verdict = policy(rules).judge(&Seen { user: None, verb: "create", target: Target::Resource(target) });
            assert_eq!(verdict.level, expected, "{rules}");
        };
        check("rules: [{level: RequestResponse}]", secret, Level::Metadata);
        check("rules: [{level: RequestResponse, resources: [{group: '*'}]}]", secret, Level::Metadata);
        check("rules: [{level: RequestResponse, resources: [{group: '', resources: ['*']}]}]", token, Level::Metadata);
        check("rules: [{level: Request, resources: [{group: '', resources: [secrets]}]}]", secret, Level::Request);
        check("rules: [{level: RequestResponse}]", pods("a", ""), Level::RequestResponse);
    }

    #[test]
    fn policies_that_upstream_refuses_are_refused_in_its_words() {
        let check = |rules: &str, expected: &str| {
            let error = AuditPolicy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}"));
            assert_eq!(error.expect_err(rules).to_string(), expected);
        };
        check("rules: [{}]", "rules[0].level: Required value");
        check(
            "rules: [{level: All}]",
            "rules[0].level: Unsupported value: \"All\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"",
        );
        check(
            "rules: [{level: None, nonResourceURLs: [api]}]",
            "rules[0].nonResourceURLs[0]: Invalid value: \"api\": non-resource URL rules must begin with a '/' character",
        );
        check(
            "omitStages: [Later]",
            "omitStages[0]: Invalid value: \"Later\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic",
        );
        let error = AuditPolicy::parse("kind: Pod\napiVersion: v1").expect_err("no policy").to_string();
        assert_eq!(error, "it is a \"Pod\" of \"v1\", not a Policy of audit.k8s.io/v1");
    }
}
