//! CEL expressions of admission: what they may refer to, and what they must return
//! (`apiserver/pkg/admission/plugin/cel`).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;

use super::authorizer::{Authorizer, ResourceCheck, Subject};
use crate::cel::types::{Declared, Object, Type};
use crate::cel::value::{Outcome, Shape, Value, adapt};
use crate::cel::{CALL_LIMIT, CompileError, Environment, Globals, Program, compile};
use crate::effort::Growth;

/// What expressions may refer to.
#[derive(Clone, Copy)]
pub(crate) struct Variables<'a> {
    /// `object`: the new object; null when something is deleted.
    pub object: &'a Json,
    /// `oldObject`: the object as it was; null when something is created.
    pub old_object: &'a Json,
    /// `request`: the AdmissionRequest, without its objects.
    pub request: &'a Json,
    /// The user that `authorizer` decides about.
    pub subject: &'a Subject,
}

/// The variables, in the order of the environment.
const OBJECT: usize = 0;
const OLD_OBJECT: usize = 1;
const NAMESPACE: usize = 2;
const REQUEST: usize = 3;
const AUTHORIZER: usize = 4;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .with("object", Type::Dyn)
        .with("oldObject", Type::Dyn)
        .with("namespaceObject", namespace_type())
        .with("request", request_type())
        .with("authorizer", Type::named("kubernetes.authorization.Authorizer"))
        .with("authorizer.requestResource", Type::named("kubernetes.authorization.ResourceCheck"))
});

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Condition {
    text: Box<str>,
    program: Result<Program, String>,
}

/// Why an expression has no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It failed; others may still decide.
    Failed(String),
    /// All expressions together used up what they may cost.
    Exhausted(String),
}

impl Condition {
    /// Compiles an expression that says yes or no.
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.into(), program: compile_to(text, &[Type::Bool]) }
    }

    /// How long it may take.
    pub(crate) fn growth(&self) -> Option<&Growth> {
        self.program.as_ref().ok().map(|program| &program.growth)
    }

    /// Whether it holds. What it costs is taken from `budget`.
    pub(crate) fn holds(&self, variables: Variables<'_>, budget: &mut u64) -> Result<bool, Failure> {
        let program = self.program.as_ref().map_err(|why| Failure::Failed(format!("compilation error: {why}")))?;
        let mut globals = AdmissionGlobals { variables };
        let (outcome, cost) = program.eval(&mut globals, CALL_LIMIT);
        let Some(left) = budget.checked_sub(cost) else {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            return Err(Failure::Exhausted(why.to_owned()));
        };
        *budget = left;
        match outcome {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err(Failure::Failed(format!("expression '{}' is neither true nor false", self.text))),
            Err(why) => Err(Failure::Failed(format!("expression '{}' resulted in error: {why}", self.text))),
        }
    }
}

fn compile_to(text: &str, returns: &[Type]) -> Result<Program, String> {
    compile_in(text, &ENVIRONMENT, returns)
}

/// Compiles an expression that must make a value of one of these types; of any, if none is given.
pub(crate) fn compile_in(text: &str, environment: &Environment, returns: &[Type]) -> Result<Program, String> {
    let program = compile(text, environment).map_err(|error| match error {
        CompileError::Invalid(why) => format!("compilation failed: {why}"),
        CompileError::Program(why) => format!("program instantiation failed: {why}"),
    })?;
    let found = program.ty.display("");
    if returns.is_empty() || returns.iter().any(|wanted| wanted.display("") == found) {
        return Ok(program);
    }
    let wanted: Vec<String> = returns.iter().map(|wanted| wanted.display("")).collect();
    Err(match &wanted[..] {
        [one] => format!("must evaluate to {one} but got {found}"),
        several => format!("must evaluate to one of [{}] but got {found}", several.join(" ")),
    })
}

struct AdmissionGlobals<'a> {
    variables: Variables<'a>,
}

impl<'a> Globals<'a> for AdmissionGlobals<'a> {
    fn get(&mut self, index: usize) -> Outcome<'a> {
        let Variables { object, old_object, request, subject } = self.variables;
        match index {
            OBJECT => adapt(object, Shape::Dynamic),
            OLD_OBJECT => adapt(old_object, Shape::Dynamic),
            // Webhooks' conditions do not get to see the namespace.
            NAMESPACE => Ok(Value::Null),
            REQUEST => adapt(request, Shape::Dynamic),
            AUTHORIZER => Ok(Value::Foreign(Rc::new(Authorizer { subject: subject.clone() }))),
            _ => Ok(Value::Foreign(Rc::new(ResourceCheck::of_request(subject, request)))),
        }
    }
}

pub(crate) fn object_type(name: &str, fields: &[(&str, Type)]) -> Type {
    let declared = |ty: &Type| Declared { ty: ty.clone(), ..Declared::dynamic() };
    let fields: BTreeMap<Box<str>, Declared> = fields.iter().map(|(name, ty)| ((*name).into(), declared(ty))).collect();
    Type::Object(Arc::new(Object { name: name.into(), fields, open: false }))
}

fn list(item: Type) -> Type {
    Type::List(Arc::new(item))
}

fn map(value: Type) -> Type {
    Type::Map(Arc::new((Type::String, value)))
}

pub(crate) fn request_type() -> Type {
    let text = Type::String;
    let kind = object_type(
        "kubernetes.GroupVersionKind",
        &[("group", text.clone()), ("version", text.clone()), ("kind", text.clone())],
    );
    let resource = object_type(
        "kubernetes.GroupVersionResource",
        &[("group", text.clone()), ("version", text.clone()), ("resource", text.clone())],
    );
    let user = object_type(
        "kubernetes.UserInfo",
        &[
            ("username", text.clone()),
            ("uid", text.clone()),
            ("groups", list(text.clone())),
            ("extra", map(list(text.clone()))),
        ],
    );
    object_type(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text.clone()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text.clone()),
            ("name", text.clone()),
            ("namespace", text.clone()),
            ("operation", text),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
}

pub(crate) fn namespace_type() -> Type {
    let text = Type::String;
    let texts = || map(Type::String);
    let condition = object_type(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text.clone()),
            ("type", text.clone()),
            ("lastTransitionTime", Type::Timestamp),
            ("message", text.clone()),
            ("reason", text.clone()),
        ],
    );
    let metadata = object_type(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text.clone()),
            ("generateName", text.clone()),
            ("namespace", text.clone()),
            ("labels", texts()),
            ("annotations", texts()),
            ("UID", text.clone()),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", text.clone()),
            ("finalizers", list(text.clone())),
        ],
    );
    let spec = object_type("kubernetes.NamespaceSpec", &[("finalizers", list(text.clone()))]);
    let status = object_type("kubernetes.NamespaceStatus", &[("conditions", list(condition)), ("phase", text)]);
    object_type("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission_config::problems;
    use windlass_kinds::strategy::{Expression, ExpressionKind};

    #[track_caller]
    fn check(text: &str, expected: Result<bool, &str>) {
        let object = json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"replicas": 3}});
        let request = json!({
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "name": "x", "namespace": "n", "operation": "CREATE", "dryRun": false,
            "userInfo": {"username": "alice", "groups": ["devs"]},
        });
        let subject = Subject { user: crate::user::User::admin(), policy: Arc::default() };
        let variables = Variables { object: &object, old_object: &Json::Null, request: &request, subject: &subject };
        let expected = expected.map_err(|why| Failure::Failed(why.to_owned()));
        assert_eq!(Condition::new(text).holds(variables, &mut 1_000_000), expected, "{text}");
    }

    #[test]
    fn conditions_see_the_request_and_its_objects() {
        check("object.metadata.name.startsWith('x')", Ok(true));
        check("object.spec.replicas > 3", Ok(false));
        check("oldObject == null", Ok(true));
        check("request.userInfo.username == 'alice' && 'devs' in request.userInfo.groups", Ok(true));
        check("request.resource.group == 'apps' && request.namespace == 'n'", Ok(true));
        check("has(request.subResource)", Ok(false));
        check("!has(object.metadata.annotations)", Ok(true));
        check("namespaceObject == null", Ok(true));
    }

    #[test]
    fn what_goes_wrong_is_said_in_upstreams_words() {
        check("object.data.x == 'y'", Err("expression 'object.data.x == 'y'' resulted in error: no such key: data"));
        check("request.name", Err("compilation error: must evaluate to bool but got string"));
        check("object.x", Err("compilation error: must evaluate to bool but got dyn"));
        let refused = |text: &str| {
            let field = "webhooks[0].matchConditions[0].expression".to_owned();
            let kind = ExpressionKind::MatchCondition;
            problems(&[Expression { field, text: text.to_owned(), kind, params: false }]).remove(0)
        };
        assert_eq!(refused("true"), None);
        assert!(refused("1 +").is_some_and(|why| why.starts_with("compilation failed: ERROR")), "{:?}", refused("1 +"));
        let unknown = refused("request.colour == 'red'");
        assert!(unknown.is_some_and(|why| why.contains("undefined field 'colour'")));
    }

    #[test]
    fn conditions_may_ask_what_the_user_may_do() {
        check("authorizer.group('apps').resource('deployments').namespace('n').check('delete').allowed()", Ok(true));
        check("authorizer.requestResource.check('delete').allowed()", Ok(true));
        check("authorizer.path('/healthz').check('get').allowed()", Ok(true));
        let nobody = "authorizer.serviceAccount('n', 'a').group('').resource('pods').check('get')";
        check(&format!("{nobody}.allowed()"), Ok(false));
        check(&format!("{nobody}.errored()"), Ok(false));
    }
}
