//! Admission policies: CEL expressions that refuse or change writes, and the bindings that put them into
//! effect (`apiserver/pkg/admission/plugin/policy`).
//!
//! [`Policies`] holds an immutable set that writes look at with one atomic load. [`validate`] is called
//! before validating webhooks, [`Mutation`] takes its turn before mutating ones. Evaluation itself never
//! waits; what waits is reading parameters and namespaces.

mod constraints;
mod mutating;
mod params;
mod programs;
pub(crate) mod type_check;
mod validating;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use serde_json::Value;
use windlass_store::{Entry, Range, Revision, StoreError};

use self::constraints::Constraints;
use self::programs::{Compiled, Compiler, Input, OutOfBudget, Round, Uses, Variable};
use super::authorizer::Subject;
use super::request::{GroupVersionKind, Request};
use super::review;
use crate::api::Api;
use crate::catalog::Served;
use crate::cel::types::Type;
use crate::cel::value::Value as CelValue;
use crate::codec::json;
use crate::effort::{self, Growth};
use crate::registry::strategy::Expression;
use crate::status::{Qualified, Status};
use crate::validation::access::Access;
use crate::versions;

pub(super) use mutating::Mutation;
pub(super) use validating::validate;

/// What the expressions of one policy may cost for one binding and parameter.
const BUDGET: u64 = 10_000_000;
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
    pub(super) validating: Vec<Bound>,
    pub(super) mutating: Vec<Bound>,
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
    in_effect: ArcSwap<InEffect>,
    /// One reader at a time, so that an older set never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl Policies {
    /// None are in effect.
    pub(crate) fn new() -> Self {
        Self { in_effect: ArcSwap::from_pointee(InEffect::default()), reading: tokio::sync::Mutex::new(()) }
    }

    /// The policies in effect.
    pub(crate) fn load(&self) -> Guard<Arc<InEffect>> {
        self.in_effect.load()
    }

    /// Reads policies and bindings anew. When this returns, all that were stored before are in effect.
    pub(crate) async fn refresh(&self, api: &Api) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        let mut entries = Vec::with_capacity(ALL.len());
        let mut revision = Revision::MAX;
        for prefix in ALL {
            let range = api.store.range(Range::prefix(prefix), None, 0).await?;
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
}

/// Keeps the policies up to date until the store is gone.
pub(crate) async fn follow(api: Arc<Api>) {
    let mut changes = Vec::new();
    for prefix in ALL {
        let Ok(channel) = api.hub.channel(prefix).await else { return };
        changes.push((channel.subscribe(), channel));
    }
    loop {
        let newest = changes.iter_mut().map(|(change, _)| *change.borrow_and_update()).max().unwrap_or_default();
        if newest > api.policies.load().revision
            && let Err(error) = api.policies.refresh(&api).await
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

/// A policy and the bindings that put it into effect.
#[derive(Clone)]
pub(super) struct Bound {
    policy: Arc<Policy>,
    bindings: Vec<Arc<Binding>>,
}

/// A compiled policy.
pub(super) struct Policy {
    name: String,
    constraints: Constraints,
    /// Whether what goes wrong does not matter.
    ignores_failure: bool,
    /// The version and kind of its parameters.
    param_kind: Option<(String, String)>,
    variables: Vec<Variable>,
    conditions: Vec<Compiled>,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
    mutations: Vec<Change>,
    /// Whether it may change an object again that others changed.
    reinvoked: bool,
    /// How long all its expressions may take.
    growth: Growth,
}

/// One of a policy's `validations`.
struct Validation {
    expression: Compiled,
    message: String,
    message_expression: Option<Compiled>,
    reason: String,
}

/// One of a policy's `auditAnnotations`.
struct Annotation {
    key: String,
    value: Compiled,
}

/// One of a policy's `mutations`.
enum Change {
    Apply(Compiled),
    Patch(Compiled),
}

/// A binding.
pub(super) struct Binding {
    name: String,
    policy: String,
    constraints: Option<Constraints>,
    params: Value,
    /// `validationActions`: what follows from a refusal.
    actions: Vec<String>,
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

    fn new(object: &Value, mutating: bool) -> Self {
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
    fn applies(&self, input: Input<'_>) -> Result<bool, String> {
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

/// Why the expressions of an object that configures admission are refused; `None` for each that is not.
pub(super) fn problems(expressions: &[Expression]) -> Vec<Option<String>> {
    programs::problems(expressions)
}

/// What expressions see of a request, in the version that a policy asks for.
struct View {
    served: Arc<Served>,
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
    subject: Subject,
}

impl View {
    async fn new(
        request: &Request,
        served: &Arc<Served>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Self, Status> {
        let same = (&served.group, &served.version) == (&request.served.group, &request.served.version);
        let convert = async |object: Option<&Value>| match object {
            None => Ok(Value::Null),
            Some(object) if same || request.is_view => Ok(object.clone()),
            Some(object) => versions::between(&request.api, &request.served, served, object.clone()).await,
        };
        let kind = GroupVersionKind::of(served, &request.subresource);
        Ok(Self {
            object: convert(object).await?,
            old: convert(old).await?,
            request: review::request_variable(request, served, &kind),
            namespace: namespace(request).await?,
            subject: Subject { user: request.user.clone(), policy: Arc::clone(&request.api.rbac.policy()) },
            served: Arc::clone(served),
        })
    }

    /// Whether the expressions of a policy may take long.
    fn is_long(&self, policy: &Policy, params: &Value) -> bool {
        let all = [&self.object, &self.old, &self.namespace, params];
        policy.growth.is_long(all.into_iter().map(effort::size).sum())
    }

    fn input<'a>(&'a self, policy: &'a Policy, params: &'a Value) -> Input<'a> {
        Input {
            object: &self.object,
            old_object: &self.old,
            namespace: &self.namespace,
            request: &self.request,
            params,
            subject: &self.subject,
            variables: &policy.variables,
        }
    }
}

/// The namespace of a request, as far as expressions see it; null if there is none.
async fn namespace(request: &Request) -> Result<Value, Status> {
    if request.namespace.is_empty() || request.is_namespaces() {
        return Ok(Value::Null);
    }
    let key = format!("/registry/namespaces/{}", request.namespace);
    let entry = request.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
    let missing = || Status::not_found(Qualified { group: "", name: "namespaces" }, &request.namespace);
    let mut namespace = json::parse(&entry.ok_or_else(missing)?.value).map_err(Status::internal)?.value;
    if let Some(object) = namespace.as_object_mut() {
        object.retain(|field, _| matches!(field.as_str(), "metadata" | "spec" | "status"));
    }
    if let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences" | "selfLink"));
    }
    Ok(namespace)
}

#[cfg(test)]
mod tests;
