//! The webhooks that are registered, ready to be asked.
//!
//! [`Webhooks`] holds an immutable [`Registered`] set that writes look at with one atomic load. It is
//! read anew from the store when a configuration was written: by the handler that wrote it, before it
//! answers, and by [`follow`](Webhooks::follow) for all other changes of the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use serde_json::Value;
use windlass_store::{Entry, Range, Revision, Store, StoreError};

use super::conditions::Conditions;
use crate::codec::json;
use crate::effort;
use crate::validation::access::Access;
use crate::validation::selector::Selector;
use crate::watch::Hub;
use crate::webhook::{Client, Clients};

const MUTATING: &str = "/registry/mutatingwebhookconfigurations/";
const VALIDATING: &str = "/registry/validatingwebhookconfigurations/";

/// The registered webhooks of this moment.
#[derive(Default)]
pub(crate) struct Registered {
    /// In the order they are called: configurations by name, webhooks as listed.
    pub mutating: Vec<Arc<Hook>>,
    /// The same; these are called all at once.
    pub validating: Vec<Arc<Hook>>,
    /// The revision the set is true at.
    revision: Revision,
    /// Which configurations the hooks come from: key and revision of each.
    sources: Vec<(bytes::Bytes, Revision)>,
}

/// The registered webhooks, kept up to date.
pub(crate) struct Webhooks {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    clients: Arc<Clients>,
    registered: ArcSwap<Registered>,
    /// One reader at a time, so that an older set never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl Webhooks {
    /// None are registered.
    pub(crate) fn new(store: Arc<dyn Store>, hub: Arc<Hub>, clients: Arc<Clients>) -> Self {
        let registered = ArcSwap::from_pointee(Registered::default());
        Self { store, hub, clients, registered, reading: tokio::sync::Mutex::new(()) }
    }

    /// The registered webhooks.
    pub(crate) fn load(&self) -> Guard<Arc<Registered>> {
        self.registered.load()
    }

    /// Reads the configurations anew. When this returns, every configuration that was stored before is in
    /// effect. Webhooks of configurations that did not change are kept.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        let mutating = self.store.range(Range::prefix(MUTATING), None, 0).await?;
        let validating = self.store.range(Range::prefix(VALIDATING), None, 0).await?;
        let revision = mutating.revision.min(validating.revision);
        let (clients, old) = (Arc::clone(&self.clients), self.registered.load_full());
        let read = move || Registered::read(&clients, &old, &mutating.entries, &validating.entries, revision);
        // Compiling conditions takes its time, and this runs where requests are served.
        if let Some(registered) = effort::at_once(read).await {
            self.registered.store(Arc::new(registered));
        }
        Ok(())
    }

    /// Keeps the set up to date until the store is gone.
    pub(crate) async fn follow(&self) {
        let (Ok(mutating), Ok(validating)) = (self.hub.channel(MUTATING).await, self.hub.channel(VALIDATING).await)
        else {
            return;
        };
        let (mut mutations, mut validations) = (mutating.subscribe(), validating.subscribe());
        loop {
            let newest = (*mutations.borrow_and_update()).max(*validations.borrow_and_update());
            if newest > self.load().revision
                && let Err(error) = self.refresh().await
            {
                tracing::error!(%error, "webhooks no longer take effect: the store cannot be used");
                return;
            }
            // Both only wait, so whichever loses the race is simply asked again.
            let changed = tokio::select! {
                changed = mutations.changed() => changed,
                changed = validations.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }
}

impl Registered {
    /// What is stored. Webhooks of configurations that are as they were in `old` are kept.
    fn read(clients: &Clients, old: &Self, mutating: &[Entry], validating: &[Entry], revision: Revision) -> Self {
        let entries = mutating.iter().chain(validating);
        let sources: Vec<_> = entries.map(|entry| (entry.key.clone(), entry.modified)).collect();
        let kept = old.kept(&sources);
        let hooks = |entries: &[Entry]| {
            let mut hooks = Vec::new();
            for entry in entries {
                match kept.get(&entry.key) {
                    Some(known) => hooks.extend(known.iter().cloned()),
                    None => hooks.extend(read(clients, &entry.key, &entry.value)),
                }
            }
            hooks
        };
        Self { mutating: hooks(mutating), validating: hooks(validating), revision, sources }
    }

    /// Whether no webhook is to be asked, whatever is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// The hooks of configurations that are still as they were.
    fn kept(&self, sources: &[(bytes::Bytes, Revision)]) -> HashMap<bytes::Bytes, Vec<Arc<Hook>>> {
        let same = self.sources.iter().filter(|source| sources.contains(source));
        let mut kept: HashMap<_, Vec<_>> = same.map(|(key, _)| (key.clone(), Vec::new())).collect();
        for hook in self.mutating.iter().chain(&self.validating) {
            if let Some(hooks) = kept.get_mut(&hook.source) {
                hooks.push(Arc::clone(hook));
            }
        }
        kept
    }
}

/// One webhook.
pub(crate) struct Hook {
    /// The key of its configuration.
    source: bytes::Bytes,
    /// Tells it from all others.
    pub id: String,
    pub name: String,
    pub rules: Vec<Rule>,
    pub namespace_selector: Selector,
    pub object_selector: Selector,
    /// Whether rules match a resource in whatever version it is written.
    pub matches_equivalent: bool,
    /// Whether a webhook that cannot be called does not matter.
    pub ignores_failure: bool,
    pub timeout: Duration,
    pub side_effects: Option<String>,
    /// The AdmissionReview versions it understands, in order of preference.
    pub review_versions: Vec<String>,
    /// Whether it is asked again when a later one changed the object.
    pub reinvoked: bool,
    pub conditions: Conditions,
    pub client: Result<Arc<Client>, String>,
}

/// One of a webhook's `rules`.
pub(crate) struct Rule {
    pub operations: Vec<String>,
    pub groups: Vec<String>,
    pub versions: Vec<String>,
    /// Resource and subresource; `*` is any.
    pub resources: Vec<(String, String)>,
    pub scope: Scope,
}

/// Which objects a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// The webhooks of a stored configuration.
fn read(clients: &Clients, key: &bytes::Bytes, bytes: &[u8]) -> Vec<Arc<Hook>> {
    let configuration = match json::parse(bytes) {
        Ok(parsed) => parsed.value,
        Err(error) => {
            tracing::error!(key = %String::from_utf8_lossy(key), %error, "a stored webhook configuration cannot be read");
            return Vec::new();
        }
    };
    let name = configuration.at("metadata").text("name");
    let hooks = configuration.list("webhooks");
    let number = |i: usize, name: &str| hooks[..i].iter().filter(|earlier| earlier.text("name") == name).count();
    let hook = |(i, webhook): (usize, &Value)| {
        let number = number(i, webhook.text("name"));
        Arc::new(Hook::new(clients, key, format!("{name}/{}/{number}", webhook.text("name")), webhook))
    };
    hooks.iter().enumerate().map(hook).collect()
}

impl Hook {
    /// The name of its configuration.
    pub(crate) fn configuration(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }

    fn new(clients: &Clients, source: &bytes::Bytes, id: String, webhook: &Value) -> Self {
        let selector = |field: &str| match webhook.at(field) {
            Value::Null => Selector::All(Vec::new()),
            // Validation has seen to it that selectors are well-formed; one that is not selects nothing.
            selector => Selector::from_object(selector).unwrap_or(Selector::Nothing),
        };
        let timeout = webhook.int_opt("timeoutSeconds").and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(10);
        Self {
            source: source.clone(),
            id,
            name: webhook.text("name").to_owned(),
            rules: webhook.list("rules").iter().map(Rule::new).collect(),
            namespace_selector: selector("namespaceSelector"),
            object_selector: selector("objectSelector"),
            matches_equivalent: webhook.text("matchPolicy") != "Exact",
            ignores_failure: webhook.text("failurePolicy") == "Ignore",
            timeout: Duration::from_secs(timeout),
            side_effects: webhook.text_opt("sideEffects").map(str::to_owned),
            review_versions: owned(webhook, "admissionReviewVersions"),
            reinvoked: webhook.text("reinvocationPolicy") == "IfNeeded",
            conditions: Conditions::new(webhook),
            client: clients.get(webhook.at("clientConfig")),
        }
    }
}

impl Rule {
    pub(crate) fn new(rule: &Value) -> Self {
        let split = |resource: &str| match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (resource.to_owned(), String::new()),
        };
        Self {
            operations: owned(rule, "operations"),
            groups: owned(rule, "apiGroups"),
            versions: owned(rule, "apiVersions"),
            resources: rule.texts("resources").into_iter().map(split).collect(),
            scope: match rule.text("scope") {
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }
}

fn owned(value: &Value, field: &str) -> Vec<String> {
    value.texts(field).into_iter().map(str::to_owned).collect()
}
