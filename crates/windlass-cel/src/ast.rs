//! The tree a parser makes of an expression. Every node has an id; what is known about a node
//! (where it is written, its type, which overloads it calls) lives in tables indexed by that id.

/// Identifies a node within its expression.
pub(super) type Id = u32;

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) id: Id,
    pub(super) kind: Kind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Const(Const),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        test_only: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    Struct {
        name: String,
        fields: Vec<Field>,
    },
    Fold(Box<Fold>),
    /// What stands where the text could not be understood.
    Broken,
}

/// An item of a list literal.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) value: Expr,
    pub(super) optional: bool,
}

/// An entry of a map literal.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Expr,
    pub(super) value: Expr,
    pub(super) optional: bool,
}

/// A field of an object literal.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) id: Id,
    pub(super) name: String,
    pub(super) value: Expr,
    pub(super) optional: bool,
}

/// A comprehension: what macros such as `all` and `map` expand to.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) range: Expr,
    pub(super) var: String,
    pub(super) var2: Option<String>,
    pub(super) accu: String,
    pub(super) init: Expr,
    pub(super) condition: Expr,
    pub(super) step: Expr,
    pub(super) result: Expr,
}

impl Fold {
    /// Whether this only gives a name to a value: it never runs its loop.
    pub(super) fn is_bind(&self) -> bool {
        matches!(&self.range.kind, Kind::List(items) if items.is_empty())
            && matches!(self.condition.kind, Kind::Const(Const::Bool(false)))
            && self.accu != ACCUMULATOR
    }
}

/// The name of the value a fold builds up; no expression can spell it.
pub(super) const ACCUMULATOR: &str = "@result";

/// A value that is known when the expression is compiled.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Const {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Box<[u8]>),
}

impl Expr {
    /// The dotted name an expression spells, if it is one.
    pub(super) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select { operand, field, test_only: false } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }

    /// Calls `visit` with this node and every node below it, parents first.
    pub(super) fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        match &self.kind {
            Kind::Const(_) | Kind::Ident(_) | Kind::Broken => {}
            Kind::Select { operand, .. } => operand.visit(visit),
            Kind::Call { target, args, .. } => {
                if let Some(target) = target {
                    target.visit(visit);
                }
                for arg in args {
                    arg.visit(visit);
                }
            }
            Kind::List(items) => items.iter().for_each(|item| item.value.visit(visit)),
            Kind::Map(entries) => {
                for entry in entries {
                    entry.key.visit(visit);
                    entry.value.visit(visit);
                }
            }
            Kind::Struct { fields, .. } => fields.iter().for_each(|field| field.value.visit(visit)),
            Kind::Fold(fold) => {
                for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    part.visit(visit);
                }
            }
        }
    }
}
