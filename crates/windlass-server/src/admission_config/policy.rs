//! Admission policies: CEL expressions that refuse or change writes, and the bindings that put them into
//! effect (`apiserver/pkg/admission/plugin/policy`).
//!
//! [`Policies`] holds an immutable set that writes look at with one atomic load.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use serde_json::Value;
use windlass_store::{Entry, Range, Revision, Store, StoreError};

use super::constraints::Constraints;
use super::programs::{Compiled, Compiler, Input, OutOfBudget, Round, Uses, Variable};
use crate::cel::types::Type;
use crate::cel::value::Value as CelValue;
use crate::codec::json;
use crate::effort::{self, Growth};
use crate::validation::access::Access;
use crate::watch::Hub;

/// What the expressions of one policy may cost for one binding and parameter.
pub(crate) const BUDGET: u64 = 10_000_000;
/// What its match conditions may.
const CONDITIONS_BUDGET: u64 = BUDGET / 4;

const VALIDATING: &str = "/registry/validatingadmissionpolicies/";
const VALIDATING_BINDINGS: &str = "/registry/validatingadmissionpolicybindings/";
const MUTATING: &str = "/registry/mutatingadmissionpolicies/";
const MUTATING_BINDINGS: &str = "/registry/mutatingadmissionpolicybindings/";
const ALL: [&str; 4] = [VALIDATING, VALIDATING_BINDINGS, MUTATING, MUTATING_BINDINGS];

/// The policies in effect at this moment: those with bindings, by name.
#[derive(Default)]
pub(crate) struct InEffect {
    pub(crate) validating: Vec<Bound>,
    pub(crate) mutating: Vec<Bound>,
    /// Every policy that was compiled, by key and revision.
    compiled: HashMap<(bytes::Bytes, Revision), Arc<Policy>>,
    /// The revision the set is true at.
    revision: Revision,
}

impl InEffect {
    /// Whether nothing is refused or changed by policies.
    pub(crate) fn is_empty(&self) -> bool {
        self.validating.is_empty() && self.mutating.is_empty()
    }

    /// What is stored, in the order of [`ALL`]. What `old` has compiled is not compiled again.
    fn read(entries: &[Vec<Entry>], old: &Self, revision: Revision) -> Self {
        let mut compiled = HashMap::new();
        let mut bound = |policies: &[Entry], bindings: &[Entry], mutating: bool| {
            let bindings: Vec<Arc<Binding>> = bindings.iter().filter_map(Binding::read).map(Arc::new).collect();
            let mut all = Vec::new();
            for entry in policies {
                let id = (entry.key.clone(), entry.modified);
                let known = old.compiled.get(&id).cloned();
                let Some(policy) = known.or_else(|| Policy::read(entry, mutating).map(Arc::new)) else { continue };
                compiled.insert(id, Arc::clone(&policy));
                let own: Vec<_> = bindings.iter().filter(|b| b.policy == policy.name).map(Arc::clone).collect();
                if !own.is_empty() {
                    all.push(Bound { policy, bindings: own });
                }
            }
            all
        };
        let validating = bound(&entries[0], &entries[1], false);
        let mutating = bound(&entries[2], &entries[3], true);
        Self { validating, mutating, compiled, revision }
    }
}

/// The policies, kept up to date.
pub(crate) struct Policies {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    in_effect: ArcSwap<InEffect>,
    /// One reader at a time, so that an older set never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl Policies {
    /// None are in effect.
    pub(crate) fn new(store: Arc<dyn Store>, hub: Arc<Hub>) -> Self {
        let in_effect = ArcSwap::from_pointee(InEffect::default());
        Self { store, hub, in_effect, reading: tokio::sync::Mutex::new(()) }
    }

    /// The policies in effect.
    pub(crate) fn load(&self) -> Guard<Arc<InEffect>> {
        self.in_effect.load()
    }

    /// Reads policies and bindings anew. When this returns, all that were stored before are in effect.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        let mut entries = Vec::with_capacity(ALL.len());
        let mut revision = Revision::MAX;
        for prefix in ALL {
            let range = self.store.range(Range::prefix(prefix), None, 0).await?;
            revision = revision.min(range.revision);
            entries.push(range.entries);
        }
        let old = self.in_effect.load_full();
        let read = move || InEffect::read(&entries, &old, revision);
        // Compiling takes its time, and this runs where requests are served.
        if let Some(in_effect) = effort::at_once(read).await {
            self.in_effect.store(Arc::new(in_effect));
        }
        Ok(())
    }

    /// Keeps the policies up to date until the store is gone.
    pub(crate) async fn follow(&self) {
        let mut changes = Vec::new();
        for prefix in ALL {
            let Ok(channel) = self.hub.channel(prefix).await else { return };
            changes.push((channel.subscribe(), channel));
        }
        loop {
            let newest = changes.iter_mut().map(|(change, _)| *change.borrow_and_update()).max().unwrap_or_default();
            if newest > self.load().revision
                && let Err(error) = self.refresh().await
            {
                tracing::error!(%error, "admission policies no longer take effect: the store cannot be used");
                return;
            }
            // All only wait, so those that lose the race are simply asked again.
            let waiting = changes.iter_mut().map(|(change, _)| Box::pin(change.changed()));
            if futures::future::select_all(waiting).await.0.is_err() {
                return;
            }
        }
    }
}

/// A policy and the bindings that put it into effect.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) policy: Arc<Policy>,
    pub(crate) bindings: Vec<Arc<Binding>>,
}

/// A compiled policy.
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) constraints: Constraints,
    /// Whether what goes wrong does not matter.
    pub(crate) ignores_failure: bool,
    /// The version and kind of its parameters.
    pub(crate) param_kind: Option<(String, String)>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) conditions: Vec<Compiled>,
    pub(crate) validations: Vec<Validation>,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) mutations: Vec<Change>,
    /// Whether it may change an object again that others changed.
    pub(crate) reinvoked: bool,
    /// How long all its expressions may take.
    pub(crate) growth: Growth,
}

/// One of a policy's `validations`.
pub(crate) struct Validation {
    pub(crate) expression: Compiled,
    pub(crate) message: String,
    pub(crate) message_expression: Option<Compiled>,
    pub(crate) reason: String,
}

/// One of a policy's `auditAnnotations`.
pub(crate) struct Annotation {
    pub(crate) key: String,
    pub(crate) value: Compiled,
}

/// One of a policy's `mutations`.
pub(crate) enum Change {
    Apply(Compiled),
    Patch(Compiled),
}

/// A binding.
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) policy: String,
    pub(crate) constraints: Option<Constraints>,
    pub(crate) params: Value,
    /// `validationActions`: what follows from a refusal.
    pub(crate) actions: Vec<String>,
}

fn parsed(entry: &Entry) -> Option<Value> {
    match json::parse(&entry.value) {
        Ok(parsed) => Some(parsed.value),
        Err(error) => {
            tracing::error!(key = %String::from_utf8_lossy(&entry.key), %error, "a stored policy cannot be read");
            None
        }
    }
}

impl Binding {
    fn read(entry: &Entry) -> Option<Self> {
        let object = parsed(entry)?;
        let spec = object.at("spec");
        Some(Self {
            name: object.at("metadata").text("name").to_owned(),
            policy: spec.text("policyName").to_owned(),
            constraints: spec.has("matchResources").then(|| Constraints::new(spec.at("matchResources"))),
            params: spec.at("paramRef").clone(),
            actions: spec.texts("validationActions").into_iter().map(str::to_owned).collect(),
        })
    }
}

impl Policy {
    fn read(entry: &Entry, mutating: bool) -> Option<Self> {
        Some(Self::new(&parsed(entry)?, mutating))
    }

    pub(crate) fn new(object: &Value, mutating: bool) -> Self {
        let spec = object.at("spec");
        let params = spec.has("paramKind");
        let uses = Uses { params, authorizer: true, patches: false };
        let mut compiler = Compiler::new();
        for variable in spec.list("variables") {
            compiler.variable(variable.text("name"), variable.text("expression"), uses);
        }
        let one = |text: &str, uses: Uses, ty: Type| compiler.compile(text, uses, &[ty]);
        let conditions = spec.list("matchConditions").iter();
        let conditions = conditions.map(|condition| one(condition.text("expression"), uses, Type::Bool)).collect();
        let validation = |validation: &Value| Validation {
            expression: one(validation.text("expression"), uses, Type::Bool),
            message: validation.text("message").trim().to_owned(),
            message_expression: validation
                .text_opt("messageExpression")
                .filter(|text| !text.is_empty())
                .map(|text| one(text, Uses { authorizer: false, ..uses }, Type::String)),
            reason: validation.text("reason").to_owned(),
        };
        let annotation = |annotation: &Value| Annotation {
            key: annotation.text("key").to_owned(),
            value: compiler.compile(annotation.text("valueExpression"), uses, &[Type::String, Type::Null]),
        };
        let change = |change: &Value| match change.text("patchType") {
            "ApplyConfiguration" => {
                let text = change.at("applyConfiguration").text("expression");
                Change::Apply(compiler.apply_configuration(text, params))
            }
            _ => Change::Patch(compiler.json_patch(change.at("jsonPatch").text("expression"), params)),
        };
        let mut policy = Self {
            name: object.at("metadata").text("name").to_owned(),
            constraints: Constraints::new(spec.at("matchConstraints")),
            ignores_failure: spec.text("failurePolicy") == "Ignore",
            param_kind: params.then(|| {
                let kind = spec.at("paramKind");
                (kind.text("apiVersion").to_owned(), kind.text("kind").to_owned())
            }),
            conditions,
            validations: spec.list("validations").iter().map(validation).collect(),
            annotations: spec.list("auditAnnotations").iter().map(annotation).collect(),
            mutations: if mutating { spec.list("mutations").iter().map(change).collect() } else { Vec::new() },
            reinvoked: spec.text("reinvocationPolicy") == "IfNeeded",
            variables: compiler.into_variables(),
            growth: Growth::default(),
        };
        policy.growth = policy.all_growth();
        policy
    }

    fn all_growth(&self) -> Growth {
        let mut growth = Growth::default();
        let validations =
            self.validations.iter().flat_map(|one| [Some(&one.expression), one.message_expression.as_ref()]);
        let mutations = self.mutations.iter().map(|(Change::Apply(one) | Change::Patch(one))| one);
        let annotations = self.annotations.iter().map(|one| &one.value);
        let all = self.conditions.iter().chain(validations.flatten()).chain(annotations).chain(mutations);
        let all = all.filter_map(Compiled::growth).chain(self.variables.iter().filter_map(Variable::growth));
        all.for_each(|one| growth.join(one));
        growth
    }

    /// Whether the conditions hold. One that is false decides, whatever errors others have.
    pub(crate) fn applies(&self, input: Input<'_>) -> Result<bool, String> {
        let mut round = Round::new(input);
        let mut budget = CONDITIONS_BUDGET;
        let mut errors: Vec<String> = Vec::new();
        for condition in &self.conditions {
            match round.eval(condition, &mut budget) {
                Err(OutOfBudget) => return Err(OutOfBudget::MESSAGE.to_owned()),
                Ok(Ok(CelValue::Bool(true))) => {}
                Ok(Ok(_)) => return Ok(false),
                Ok(Err(why)) if !errors.contains(&why) => errors.push(why),
                Ok(Err(_)) => {}
            }
        }
        match &errors[..] {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }
}
