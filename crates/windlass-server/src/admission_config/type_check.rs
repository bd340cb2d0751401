//! What is doubtful about a ValidatingAdmissionPolicy: its expressions, checked against the types of the
//! resources it is for (`apiserver/pkg/admission/plugin/policy/validating/typechecking.go`).
//!
//! A policy that is doubtful is in effect all the same; the warnings are for its status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::programs::{Compiler, Uses};
use crate::catalog::{Served, Snapshot};
use crate::cel::escape::escape;
use crate::cel::types::{Declared, Object, Type};
use crate::schema::builtin::{self, DefinitionId};
use crate::schema::{Schema, SchemaRef, Type as JsonType};
use crate::validation::access::Access;

/// Each rule of a policy is checked against so many kinds.
const MOST: usize = 10;

/// A doubtful expression.
#[derive(Debug, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// Where it is, e.g. `spec.validations[0].expression`.
    pub field_ref: String,
    /// What is wrong with it, kind by kind.
    pub warning: String,
}

/// Checks the validations of a policy.
pub(crate) fn check(snapshot: &Snapshot, policy: &Value) -> Vec<ExpressionWarning> {
    let spec = policy.at("spec");
    let kinds = kinds(snapshot, spec);
    let params = spec.has("paramKind").then(|| {
        let kind = spec.at("paramKind");
        let (group, version) = kind.text("apiVersion").split_once('/').unwrap_or(("", kind.text("apiVersion")));
        let is_it = |served: &&Arc<Served>| {
            (&*served.group, &*served.version, &*served.kind) == (group, version, kind.text("kind"))
        };
        snapshot.served().iter().find(is_it).map_or(Type::Dyn, |served| root(served))
    });
    let mut warnings = Vec::new();
    let mut doubt = |field_ref: String, text: &str| {
        let problems: Vec<String> =
            kinds.iter().filter_map(|kind| problem(kind, params.as_ref(), spec, text)).collect();
        if !problems.is_empty() {
            warnings.push(ExpressionWarning { field_ref, warning: problems.join("\n") });
        }
    };
    for (i, validation) in spec.list("validations").iter().enumerate() {
        doubt(format!("spec.validations[{i}].expression"), validation.text("expression"));
        let message = validation.text("messageExpression");
        if !message.is_empty() {
            doubt(format!("spec.validations[{i}].messageExpression"), message);
        }
    }
    warnings
}

/// What is wrong with an expression about objects of a kind.
fn problem(kind: &Matched, params: Option<&Type>, spec: &Value, text: &str) -> Option<String> {
    let uses = Uses { params: params.is_some(), authorizer: true, patches: false };
    let mut compiler = Compiler::typed(kind.ty.clone(), params.cloned().unwrap_or(Type::Dyn));
    for variable in spec.list("variables") {
        compiler.variable(variable.text("name"), variable.text("expression"), uses);
    }
    let why = compiler.compile(text, uses, &[]).problem()?;
    Some(format!("{}: {why}\n", kind.name))
}

/// A kind that a policy is for: `apps/v1, Kind=Deployment`, and the type of its objects.
struct Matched {
    name: String,
    ty: Type,
}

/// The kinds that the rules name; those with wildcards could be about anything.
fn kinds(snapshot: &Snapshot, spec: &Value) -> Vec<Matched> {
    let mut found: BTreeMap<[Box<str>; 3], Type> = BTreeMap::new();
    for rule in spec.at("matchConstraints").list("resourceRules") {
        let named = |field: &str| -> BTreeSet<&str> {
            let names = rule.texts(field);
            if names.iter().any(|name| name.contains('*')) { BTreeSet::new() } else { names.into_iter().collect() }
        };
        // Among resources, wildcards and subresources are passed over.
        let resources: BTreeSet<&str> =
            rule.texts("resources").into_iter().filter(|name| !name.contains(['*', '/'])).collect();
        let (groups, versions) = (named("apiGroups"), named("apiVersions"));
        let names = groups.iter().flat_map(|group| versions.iter().map(move |version| (*group, *version)));
        let names = names.flat_map(|(group, version)| resources.iter().map(move |name| (group, version, *name)));
        let served = names.filter_map(|(group, version, resource)| snapshot.find(group, version, resource));
        for served in served.take(MOST) {
            let key = [served.group.clone(), served.version.clone(), served.kind.clone()];
            found.entry(key).or_insert_with(|| root(served));
        }
    }
    let named = |([group, version, kind], ty): ([Box<str>; 3], Type)| {
        let name = format!("{group}/{version}, Kind={kind}");
        Matched { name, ty }
    };
    found.into_iter().map(named).collect()
}

/// The type of a kind's objects.
fn root(served: &Served) -> Type {
    let mut declared = object(&served.schema_once(), &served.kind, &mut Vec::new());
    if served.custom().is_some() {
        let metadata = object(builtin::object_meta(), &format!("{}.metadata", served.kind), &mut Vec::new());
        for (name, ty) in [("apiVersion", Type::String), ("kind", Type::String), ("metadata", metadata)] {
            if let Type::Object(object) = &declared {
                let mut object = Object { name: object.name.clone(), fields: object.fields.clone(), open: object.open };
                object.fields.insert(name.into(), Declared { ty, ..Declared::dynamic() });
                declared = Type::Object(Arc::new(object));
            }
        }
    }
    declared
}

/// The type of what a schema describes; `None` if expressions do not get to see it. `above` are the definitions
/// it is part of, as some contain themselves.
fn declare(schema: &SchemaRef, name: &str, above: &mut Vec<DefinitionId>) -> Option<Type> {
    let SchemaRef::Definition { id, .. } = schema else { return of(schema, name, above) };
    if above.contains(id) {
        return Some(Type::named(name));
    }
    above.push(*id);
    let ty = of(builtin::definition(*id), name, above);
    above.pop();
    ty
}

fn of(schema: &Schema, name: &str, above: &mut Vec<DefinitionId>) -> Option<Type> {
    Some(match schema.ty {
        JsonType::Object => match &schema.additional {
            Some(additional) => {
                Type::Map(Arc::new((Type::String, declare(additional, &format!("{name}.@elem"), above)?)))
            }
            None => object(schema, name, above),
        },
        JsonType::Array => Type::List(Arc::new(declare(schema.items.as_ref()?, &format!("{name}.@idx"), above)?)),
        JsonType::String => match schema.format.as_deref() {
            Some("byte") => Type::Bytes,
            Some("duration") => Type::Duration,
            Some("date" | "date-time") => Type::Timestamp,
            _ => Type::String,
        },
        JsonType::Boolean => Type::Bool,
        JsonType::Number => Type::Double,
        JsonType::Integer => Type::Int,
        JsonType::IntOrString => Type::Dyn,
        // Upstream's schema of quantities has no type of its own either.
        JsonType::Any | JsonType::Quantity => return None,
    })
}

fn object(schema: &Schema, name: &str, above: &mut Vec<DefinitionId>) -> Type {
    let mut fields = BTreeMap::new();
    for (field, below) in &schema.properties {
        let Some(escaped) = escape(field) else { continue };
        let Some(ty) = declare(below, &format!("{name}.{escaped}"), above) else { continue };
        fields.insert(Box::from(&*escaped), Declared { ty, ..Declared::dynamic() });
    }
    Type::Object(Arc::new(Object { name: name.into(), fields, open: false }))
}
