//! The expressions of a policy, compiled, and what they see when they are evaluated
//! (`apiserver/pkg/admission/plugin/cel`).
//!
//! A policy's variables are computed when an expression first asks for them, at most once for each
//! round of expressions. An expression sees the variables that come before it.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value as Json;

use super::authorizer::{Authorizer, ResourceCheck, Subject};
use super::expression::{compile_in, namespace_type, object_type, request_type};
use crate::cel::types::Type;
use crate::cel::value::{Error, Key, Map, Outcome, Shape, Text, Value, adapt};
use crate::cel::{CALL_LIMIT, Environment, Globals, Program};
use crate::effort::Growth;
use windlass_kinds::strategy::{Expression, ExpressionKind};

/// The variables, in the order of the environment; a policy's own come after them.
const OBJECT: usize = 0;
const OLD_OBJECT: usize = 1;
const NAMESPACE: usize = 2;
const REQUEST: usize = 3;
const PARAMS: usize = 4;
const VARIABLES: usize = 5;
const AUTHORIZER: usize = 6;
const OWN: usize = 8;

/// What an expression may use besides what all may.
#[derive(Clone, Copy)]
pub(crate) struct Uses {
    pub(crate) params: bool,
    pub(crate) authorizer: bool,
    /// Whether it makes patches.
    pub(crate) patches: bool,
}

/// Compiles the expressions of one policy, in order: a variable is there for those after it.
pub(crate) struct Compiler {
    variables: Vec<Variable>,
    types: Vec<(String, Type)>,
    object: Type,
    params: Type,
}

/// A named value of a policy.
#[derive(Debug)]
pub(crate) struct Variable {
    name: String,
    program: Result<Program, String>,
}

/// One expression.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) text: String,
    program: Result<Program, String>,
}

impl Variable {
    /// How long it may take.
    pub(crate) fn growth(&self) -> Option<&Growth> {
        self.program.as_ref().ok().map(|program| &program.growth)
    }
}

impl Compiled {
    /// How long it may take.
    pub(crate) fn growth(&self) -> Option<&Growth> {
        self.program.as_ref().ok().map(|program| &program.growth)
    }

    /// Why it cannot be evaluated.
    pub(crate) fn problem(self) -> Option<String> {
        self.program.err()
    }
}

impl Compiler {
    /// For objects and parameters of any type: expressions that are to be evaluated.
    pub(crate) fn new() -> Self {
        Self::typed(Type::Dyn, Type::Dyn)
    }

    /// For objects and parameters of these types.
    pub(crate) fn typed(object: Type, params: Type) -> Self {
        Self { variables: Vec::new(), types: Vec::new(), object, params }
    }

    /// Compiles an expression that makes a value of one of these types.
    pub(crate) fn compile(&self, text: &str, uses: Uses, returns: &[Type]) -> Compiled {
        Compiled { text: text.to_owned(), program: compile_in(text, &self.environment(uses), returns) }
    }

    /// Compiles a variable.
    pub(crate) fn variable(&mut self, name: &str, text: &str, uses: Uses) -> Option<&str> {
        let program = compile_in(text, &self.environment(uses), &[]);
        let ty = program.as_ref().map_or(Type::Dyn, |program| program.ty.clone());
        self.types.push((name.to_owned(), ty));
        self.variables.push(Variable { name: name.to_owned(), program });
        self.variables.last().and_then(|variable| variable.program.as_ref().err()).map(String::as_str)
    }

    /// The variables, once everything is compiled.
    pub(crate) fn into_variables(self) -> Vec<Variable> {
        self.variables
    }

    fn environment(&self, uses: Uses) -> Environment {
        // Names that no expression can spell keep the places of what is not to be used.
        let named = |used: bool, name: &'static str| if used { name } else { "@" };
        let fields: Vec<(&str, Type)> = self.types.iter().map(|(name, ty)| (name.as_str(), ty.clone())).collect();
        let authorizer = |name: &str| Type::named(&format!("kubernetes.authorization.{name}"));
        let mut environment = Environment::new()
            .with("object", self.object.clone())
            .with("oldObject", self.object.clone())
            .with("namespaceObject", namespace_type())
            .with("request", request_type())
            .with(named(uses.params, "params"), self.params.clone())
            .with(named(!fields.is_empty(), "variables"), object_type("kubernetes.variables", &fields))
            .with(named(uses.authorizer, "authorizer"), authorizer("Authorizer"))
            .with(named(uses.authorizer, "authorizer.requestResource"), authorizer("ResourceCheck"));
        for (name, ty) in &self.types {
            environment = environment.with(format!("variables.{name}"), ty.clone());
        }
        if uses.patches { environment.patching() } else { environment }
    }
}

/// What expressions see.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) object: &'a Json,
    pub(crate) old_object: &'a Json,
    pub(crate) namespace: &'a Json,
    pub(crate) request: &'a Json,
    pub(crate) params: &'a Json,
    pub(crate) subject: &'a Subject,
    pub(crate) variables: &'a [Variable],
}

/// Why a round of expressions ended early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfBudget;

impl OutOfBudget {
    pub(crate) const MESSAGE: &'static str =
        "validation failed due to running out of cost budget, no further validation rules will be run";
}

/// A round of expressions about one request.
pub(crate) struct Round<'a> {
    input: Input<'a>,
    known: Vec<Option<Outcome<'a>>>,
    /// What variables cost since that was last taken.
    spent: u64,
}

impl<'a> Round<'a> {
    pub(crate) fn new(input: Input<'a>) -> Self {
        Self { input, known: vec![None; input.variables.len()], spent: 0 }
    }

    /// Evaluates an expression. What it costs is taken from `budget`.
    pub(crate) fn eval(
        &mut self,
        compiled: &'a Compiled,
        budget: &mut u64,
    ) -> Result<Result<Value<'a>, String>, OutOfBudget> {
        let program = match &compiled.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        let (outcome, cost) = program.eval(self, CALL_LIMIT);
        let cost = cost.saturating_add(std::mem::take(&mut self.spent));
        *budget = budget.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(outcome.map_err(|why| format!("expression '{}' resulted in error: {why}", compiled.text)))
    }

    fn variable(&mut self, index: usize) -> Outcome<'a> {
        if let Some(known) = self.known.get(index).and_then(Option::as_ref) {
            return known.clone();
        }
        let variables: &'a [Variable] = self.input.variables;
        let Some(variable) = variables.get(index) else { return Err(Error::new("no such attribute(s): variables")) };
        let failed = |why: &str| Error::new(format!("composited variable \"{}\" {why}", variable.name));
        let outcome = match &variable.program {
            Err(why) => Err(failed(&format!("fails to compile: {why}"))),
            Ok(program) => {
                let (outcome, cost) = program.eval(self, CALL_LIMIT);
                self.spent = self.spent.saturating_add(cost);
                outcome.map_err(|why| failed(&format!("fails to evaluate: {why}")))
            }
        };
        self.known[index] = Some(outcome.clone());
        outcome
    }

    /// All variables that have a value, for expressions that look at them as a whole.
    fn all_variables(&mut self) -> Value<'a> {
        let mut map = BTreeMap::new();
        for index in 0..self.known.len() {
            if let Ok(value) = self.variable(index) {
                map.insert(Key::String(Text::Shared(self.input.variables[index].name.as_str().into())), value);
            }
        }
        Value::Map(Map::Made(Rc::new(map)))
    }
}

impl<'a> Globals<'a> for Round<'a> {
    fn get(&mut self, index: usize) -> Outcome<'a> {
        let input = self.input;
        let json = |json: &'a Json| adapt(json, Shape::Dynamic);
        match index {
            OBJECT => json(input.object),
            OLD_OBJECT => json(input.old_object),
            NAMESPACE => json(input.namespace),
            REQUEST => json(input.request),
            PARAMS => json(input.params),
            VARIABLES => Ok(self.all_variables()),
            AUTHORIZER => Ok(Value::Foreign(Rc::new(Authorizer { subject: input.subject.clone() }))),
            index if index < OWN => {
                Ok(Value::Foreign(Rc::new(ResourceCheck::of_request(input.subject, input.request))))
            }
            index => self.variable(index - OWN),
        }
    }
}

/// Why each of the expressions of an object is refused, if it is.
pub(crate) fn problems(expressions: &[Expression]) -> Vec<Option<String>> {
    let mut compiler = Compiler::new();
    let nothing = Compiler::new();
    let problem = Compiled::problem;
    expressions
        .iter()
        .map(|expression| {
            let text = expression.text.trim();
            let uses = Uses { params: expression.params, authorizer: true, patches: false };
            match &expression.kind {
                ExpressionKind::MatchCondition => problem(nothing.compile(text, uses, &[Type::Bool])),
                ExpressionKind::Variable(name) => compiler.variable(name, text, uses).map(str::to_owned),
                ExpressionKind::Validation => problem(compiler.compile(text, uses, &[Type::Bool])),
                ExpressionKind::Message => {
                    problem(compiler.compile(text, Uses { authorizer: false, ..uses }, &[Type::String]))
                }
                ExpressionKind::AuditAnnotation => problem(compiler.compile(text, uses, &[Type::String, Type::Null])),
                ExpressionKind::ApplyConfiguration => problem(compiler.apply_configuration(text, uses.params)),
                ExpressionKind::JsonPatch => problem(compiler.json_patch(text, uses.params)),
            }
        })
        .collect()
}

impl Compiler {
    /// Compiles an expression that makes a partial object.
    pub(crate) fn apply_configuration(&self, text: &str, params: bool) -> Compiled {
        self.compile(text, Uses { params, authorizer: true, patches: true }, &[Type::named("Object")])
    }

    /// Compiles an expression that makes a JSON patch.
    pub(crate) fn json_patch(&self, text: &str, params: bool) -> Compiled {
        let returns = Type::List(std::sync::Arc::new(Type::named("JSONPatch")));
        self.compile(text, Uses { params, authorizer: true, patches: true }, &[returns])
    }
}
