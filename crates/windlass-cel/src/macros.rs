//! The macros: calls that stand for a larger tree. `has`, the quantifiers, `map` and `filter`, their
//! two-variable forms, `optMap` and `optFlatMap`, `sortBy`, and `cel.bind` where it is wanted.

use super::ast::{ACCUMULATOR, Const, Entry, Expr, Field, Fold, Id, Item, Kind};
use super::parser::{Parser, call};

const UNUSED: &str = "#unused";
const NOT_AN_IDENT: &str = "argument is not an identifier";
const NOT_SIMPLE: &str = "argument must be a simple name";

/// Which quantifier.
#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

/// A problem with a macro's arguments and where it is.
struct Bad {
    at: usize,
    message: String,
}

impl Parser {
    /// What a call stands for: its expansion if it is a macro's, else the call itself.
    pub(super) fn call_or_macro(&mut self, id: Id, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        if !self.has_room() {
            return Expr { id, kind: Kind::Broken };
        }
        let offset = self.offset(id);
        let expanded = match (target, args.len()) {
            (None, 1) if function == "has" => self.has(offset, args),
            (Some(target), count) if is_receiver_macro(function, count, self.binds, &target) => {
                self.receiver(offset, function, target, args)
            }
            (target, _) => {
                let kind = Kind::Call { target: target.map(Box::new), function: function.to_owned(), args };
                return Expr { id, kind };
            }
        };
        expanded.unwrap_or_else(|bad| self.broken(bad.at, bad.message))
    }

    fn has(&mut self, offset: usize, mut args: Vec<Expr>) -> Result<Expr, Bad> {
        match args.pop() {
            Some(Expr { kind: Kind::Select { operand, field, test_only: false }, .. }) => {
                Ok(Expr { id: self.id(offset), kind: Kind::Select { operand, field, test_only: true } })
            }
            arg => Err(Bad {
                at: arg.map_or(offset, |arg| self.offset(arg.id)),
                message: "invalid argument to has() macro".to_owned(),
            }),
        }
    }

    fn receiver(&mut self, offset: usize, function: &str, target: Expr, args: Vec<Expr>) -> Result<Expr, Bad> {
        use Quantifier::{All, Exists, ExistsOne};
        let two = args.len() >= 3;
        match function {
            "all" => self.quantifier(offset, All, target, args),
            "exists" => self.quantifier(offset, Exists, target, args),
            "exists_one" | "existsOne" => self.quantifier(offset, ExistsOne, target, args),
            "map" => self.map_macro(offset, target, args),
            "filter" => self.filter(offset, target, args),
            "transformList" | "transformMap" | "transformMapEntry" if two => {
                self.transform(offset, function, target, args)
            }
            "sortBy" => self.sort_by(offset, target, args),
            "bind" => self.bind(offset, args),
            _ => self.optional_map(offset, function, target, args),
        }
    }

    fn variable(&self, arg: &Expr, complaint: &str) -> Result<String, Bad> {
        let at = self.offset(arg.id);
        let Kind::Ident(name) = &arg.kind else { return Err(Bad { at, message: complaint.to_owned() }) };
        if name == ACCUMULATOR || name == "__result__" {
            return Err(Bad { at, message: "iteration variable overwrites accumulator variable".to_owned() });
        }
        Ok(name.clone())
    }

    /// The one or two iteration variables at the front of the arguments; takes them off.
    fn variables(&self, args: &mut Vec<Expr>, two: bool) -> Result<(String, Option<String>), Bad> {
        let rest = args.split_off(if two { 2 } else { 1 });
        let vars = std::mem::replace(args, rest);
        let first = match &vars[0].kind {
            Kind::Ident(name) => name.clone(),
            _ => return Err(Bad { at: self.offset(vars[0].id), message: NOT_SIMPLE.to_owned() }),
        };
        if two {
            let at = self.offset(vars[1].id);
            let Kind::Ident(second) = &vars[1].kind else { return Err(Bad { at, message: NOT_SIMPLE.to_owned() }) };
            if *second == first {
                return Err(Bad { at, message: format!("duplicate variable name: {first}") });
            }
        }
        for var in &vars {
            self.variable(var, NOT_SIMPLE)?;
        }
        let second = vars.get(1).map(|var| self.variable(var, NOT_SIMPLE)).transpose()?;
        Ok((first, second))
    }

    fn quantifier(&mut self, offset: usize, kind: Quantifier, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Bad> {
        let two = args.len() == 3;
        let (var, var2) = self.variables(&mut args, two)?;
        let Some(predicate) = args.pop() else { return Err(Bad { at: offset, message: NOT_SIMPLE.to_owned() }) };
        let mut make = Maker { parser: self, offset };
        let (init, condition, step, result);
        match kind {
            Quantifier::All => {
                init = make.literal(Const::Bool(true));
                let accu = make.accu();
                condition = make.call("@not_strictly_false", vec![accu]);
                let accu = make.accu();
                step = make.call("_&&_", vec![accu, predicate]);
                result = make.accu();
            }
            Quantifier::Exists => {
                init = make.literal(Const::Bool(false));
                let accu = make.accu();
                let not = make.call("!_", vec![accu]);
                condition = make.call("@not_strictly_false", vec![not]);
                let accu = make.accu();
                step = make.call("_||_", vec![accu, predicate]);
                result = make.accu();
            }
            Quantifier::ExistsOne => {
                init = make.literal(Const::Int(0));
                condition = make.literal(Const::Bool(true));
                let (accu, one) = (make.accu(), make.literal(Const::Int(1)));
                let more = make.call("_+_", vec![accu, one]);
                let same = make.accu();
                step = make.call("_?_:_", vec![predicate, more, same]);
                let (accu, one) = (make.accu(), make.literal(Const::Int(1)));
                result = make.call("_==_", vec![accu, one]);
            }
        }
        Ok(make.fold(Fold { range: target, var, var2, accu: ACCUMULATOR.to_owned(), init, condition, step, result }))
    }

    fn map_macro(&mut self, offset: usize, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Bad> {
        let var = self.variable(&args[0], NOT_AN_IDENT)?;
        let value = args.pop();
        let filter = if args.len() == 2 { args.pop() } else { None };
        let Some(value) = value else { return Err(Bad { at: offset, message: NOT_AN_IDENT.to_owned() }) };
        let mut make = Maker { parser: self, offset };
        Ok(make.collect(target, (var, None), filter, value))
    }

    fn filter(&mut self, offset: usize, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Bad> {
        let var = self.variable(&args[0], NOT_AN_IDENT)?;
        let (filter, item) = (args.pop(), args.pop());
        let Some(item) = item else { return Err(Bad { at: offset, message: NOT_AN_IDENT.to_owned() }) };
        let mut make = Maker { parser: self, offset };
        Ok(make.collect(target, (var, None), filter, item))
    }

    fn transform(&mut self, offset: usize, function: &str, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Bad> {
        let (var, var2) = self.variables(&mut args, true)?;
        let value = args.pop();
        let filter = args.pop();
        let Some(value) = value else { return Err(Bad { at: offset, message: NOT_SIMPLE.to_owned() }) };
        let mut make = Maker { parser: self, offset };
        if function == "transformList" {
            return Ok(make.collect(target, (var, var2), filter, value));
        }
        let init = make.node(Kind::Map(Vec::new()));
        let condition = make.literal(Const::Bool(true));
        let accu = make.accu();
        let insert = if function == "transformMap" {
            let key = make.node(Kind::Ident(var.clone()));
            make.call("cel.@mapInsert", vec![accu, key, value])
        } else {
            make.call("cel.@mapInsert", vec![accu, value])
        };
        let step = make.when(filter, insert);
        let result = make.accu();
        Ok(make.fold(Fold { range: target, var, var2, accu: ACCUMULATOR.to_owned(), init, condition, step, result }))
    }

    fn sort_by(&mut self, offset: usize, target: Expr, args: Vec<Expr>) -> Result<Expr, Bad> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.kind, Kind::Const(_) | Kind::Map(_) | Kind::Struct { .. }) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(Bad { at: self.offset(target.id), message: message.to_owned() });
        }
        let mut make = Maker { parser: self, offset };
        let input = make.node(Kind::Ident(INPUT.to_owned()));
        let keys = make.parser.map_macro(offset, input, args)?;
        let mut make = Maker { parser: self, offset };
        let input = make.node(Kind::Ident(INPUT.to_owned()));
        let id = make.parser.id(offset);
        let function = "@sortByAssociatedKeys".to_owned();
        let result = Expr { id, kind: Kind::Call { target: Some(Box::new(input)), function, args: vec![keys] } };
        Ok(make.named(INPUT.to_owned(), target, result))
    }

    fn bind(&mut self, offset: usize, mut args: Vec<Expr>) -> Result<Expr, Bad> {
        let complaint = "cel.bind() variable names must be simple identifiers";
        let name = match &args[0].kind {
            Kind::Ident(name) => name.clone(),
            _ => return Err(Bad { at: self.offset(args[0].id), message: complaint.to_owned() }),
        };
        let (result, value) = (args.pop(), args.pop());
        let (Some(result), Some(value)) = (result, value) else {
            return Err(Bad { at: offset, message: complaint.to_owned() });
        };
        Ok(Maker { parser: self, offset }.named(name, value, result))
    }

    fn optional_map(&mut self, offset: usize, function: &str, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Bad> {
        let complaint = format!("{function}() variable name must be a simple identifier");
        let name = match &args[0].kind {
            Kind::Ident(name) => name.clone(),
            _ => return Err(Bad { at: self.offset(args[0].id), message: complaint }),
        };
        let Some(result) = args.pop() else { return Err(Bad { at: offset, message: complaint }) };
        let mut make = Maker { parser: self, offset };
        let copy = make.parser.copy(&target);
        let has_value = make.member("hasValue", target);
        let value = make.member("value", copy);
        let mut present = make.named(name, value, result);
        if function == "optMap" {
            present = make.call("optional.of", vec![present]);
        }
        let none = make.call("optional.none", Vec::new());
        Ok(make.call("_?_:_", vec![has_value, present, none]))
    }

    /// The same tree with ids of its own.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let id = self.id(self.offset(expr.id));
        if !self.has_room() {
            return Expr { id, kind: Kind::Broken };
        }
        let kind = match &expr.kind {
            Kind::Const(_) | Kind::Ident(_) | Kind::Broken => expr.kind.clone(),
            Kind::Select { operand, field, test_only } => {
                Kind::Select { operand: Box::new(self.copy(operand)), field: field.clone(), test_only: *test_only }
            }
            Kind::Call { target, function, args } => Kind::Call {
                target: target.as_ref().map(|target| Box::new(self.copy(target))),
                function: function.clone(),
                args: args.iter().map(|arg| self.copy(arg)).collect(),
            },
            Kind::List(items) => Kind::List(
                items.iter().map(|item| Item { value: self.copy(&item.value), optional: item.optional }).collect(),
            ),
            Kind::Map(entries) => Kind::Map(
                entries
                    .iter()
                    .map(|entry| Entry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            Kind::Struct { name, fields } => Kind::Struct {
                name: name.clone(),
                fields: fields
                    .iter()
                    .map(|field| Field {
                        id: self.id(self.offset(field.id)),
                        name: field.name.clone(),
                        value: self.copy(&field.value),
                        optional: field.optional,
                    })
                    .collect(),
            },
            Kind::Fold(fold) => Kind::Fold(Box::new(Fold {
                range: self.copy(&fold.range),
                var: fold.var.clone(),
                var2: fold.var2.clone(),
                accu: fold.accu.clone(),
                init: self.copy(&fold.init),
                condition: self.copy(&fold.condition),
                step: self.copy(&fold.step),
                result: self.copy(&fold.result),
            })),
        };
        Expr { id, kind }
    }
}

fn is_receiver_macro(function: &str, args: usize, binds: bool, target: &Expr) -> bool {
    match function {
        "all" | "exists" | "exists_one" | "existsOne" | "map" => args == 2 || args == 3,
        "filter" | "optMap" | "optFlatMap" | "sortBy" => args == 2,
        "transformList" | "transformMap" | "transformMapEntry" => args == 3 || args == 4,
        "bind" => args == 3 && binds && matches!(&target.kind, Kind::Ident(name) if name == "cel"),
        _ => false,
    }
}

/// Makes the nodes of an expansion; all of them are where the macro is called.
struct Maker<'a> {
    parser: &'a mut Parser,
    offset: usize,
}

impl Maker<'_> {
    fn node(&mut self, kind: Kind) -> Expr {
        Expr { id: self.parser.id(self.offset), kind }
    }

    fn literal(&mut self, value: Const) -> Expr {
        self.node(Kind::Const(value))
    }

    fn accu(&mut self) -> Expr {
        self.node(Kind::Ident(ACCUMULATOR.to_owned()))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        call(self.parser.id(self.offset), function, args)
    }

    fn member(&mut self, function: &str, target: Expr) -> Expr {
        let function = function.to_owned();
        self.node(Kind::Call { target: Some(Box::new(target)), function, args: Vec::new() })
    }

    fn fold(&mut self, fold: Fold) -> Expr {
        self.node(Kind::Fold(Box::new(fold)))
    }

    /// `step` if the filter lets it, else the accumulator as it is.
    fn when(&mut self, filter: Option<Expr>, step: Expr) -> Expr {
        match filter {
            None => step,
            Some(filter) => {
                let accu = self.accu();
                self.call("_?_:_", vec![filter, step, accu])
            }
        }
    }

    /// A list of `value`s, one for each element that passes the filter.
    fn collect(&mut self, range: Expr, vars: (String, Option<String>), filter: Option<Expr>, value: Expr) -> Expr {
        let init = self.node(Kind::List(Vec::new()));
        let condition = self.literal(Const::Bool(true));
        let accu = self.accu();
        let item = self.node(Kind::List(vec![Item { value, optional: false }]));
        let append = self.call("_+_", vec![accu, item]);
        let step = self.when(filter, append);
        let result = self.accu();
        let (var, var2) = vars;
        self.fold(Fold { range, var, var2, accu: ACCUMULATOR.to_owned(), init, condition, step, result })
    }

    /// `result`, in which `name` is `value`.
    fn named(&mut self, name: String, value: Expr, result: Expr) -> Expr {
        let range = self.node(Kind::List(Vec::new()));
        let condition = self.literal(Const::Bool(false));
        let step = self.node(Kind::Ident(name.clone()));
        let var = UNUSED.to_owned();
        self.fold(Fold { range, var, var2: None, accu: name, init: value, condition, step, result })
    }
}
