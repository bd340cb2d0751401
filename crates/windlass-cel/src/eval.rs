//! Evaluation. Every step is charged as cel-go charges it; beyond the limit evaluation ends.
//!
//! What takes more than a fixed time for a unit of that cost uses fuel besides: see [`Meter`].

use std::collections::BTreeMap;
use std::rc::Rc;

use super::ast::Const;
use super::charge::equality;
use super::cost::{LIST, MAP, OBJECT};
use super::equal::{Order, equal, numbers};
use super::library::format_string::go_value;
use super::library::{Context, Fixed};
use super::meter::{Allowance, Meter};
use super::plan::{Attribute, Base, Call, Entry, FoldNode, Node, Qualifier, QualifierKey};
use super::value::{Error, Key, List, Made, Map, Outcome, Text, Value};

/// One evaluation.
pub(super) struct Evaluator<'a, 'v> {
    globals: &'v mut dyn Globals<'a>,
    locals: Vec<Slot<'a>>,
    cost: u64,
    limit: u64,
    meter: Meter,
}

/// The variables of an evaluation, by index.
pub trait Globals<'a> {
    /// The variable's value. `budget` is what computing it may cost at most; the cost is added.
    fn get(&mut self, index: usize) -> Outcome<'a>;
}

/// A local variable.
enum Slot<'a> {
    /// Not computed yet.
    Lazy(&'a Node),
    Known(Outcome<'a>),
}

impl<'a, 'v> Evaluator<'a, 'v> {
    pub(super) fn new(globals: &'v mut dyn Globals<'a>, limit: u64, allowance: Allowance) -> Self {
        Self { globals, locals: Vec::new(), cost: 0, limit, meter: Meter::new(allowance) }
    }

    /// Evaluates, and says what it cost and what is left of the allowance.
    pub(super) fn run(mut self, node: &'a Node) -> (Outcome<'a>, u64, Allowance) {
        let outcome = self.eval(node);
        (outcome, self.cost, self.meter.allowance)
    }

    fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            return Err(Error::Exhausted);
        }
        self.meter.work(1)
    }

    fn eval(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Fixed(fixed) => self.fixed(fixed),
            Node::Attribute(attribute) => {
                let outcome = self.resolve(attribute);
                if !matches!(outcome, Err(Error::Exhausted)) && !matches!(attribute.base, Base::Choice(_)) {
                    self.charge(1)?;
                }
                outcome
            }
            Node::Test(attribute) => self.test(attribute),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Equal(terms) => self.equality(terms, true),
            Node::NotEqual(terms) => self.equality(terms, false),
            Node::Call(call) => self.call(call),
            Node::InSet(arg, set) => {
                let value = self.eval(arg)?;
                self.meter.work(set.len())?;
                Ok(Value::Bool(set.iter().any(|item| is_constant(&value, item))))
            }
            Node::OrElse(pair, unwrap) => {
                let [optional, other] = &**pair;
                match self.eval(optional)? {
                    Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                    present @ Value::Optional(Some(_)) => Ok(present),
                    Value::Optional(None) => self.eval(other),
                    _ => Err(Error::no_overload()),
                }
            }
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Object(name, fields) => self.object(name, fields),
            Node::Fold(fold) => self.fold(fold),
            Node::Append(slot, item, fixed) => self.append(*slot, item, *fixed),
            Node::Insert(slot, entry) => self.insert(*slot, entry),
        }
    }

    fn fixed(&mut self, fixed: &'a Fixed) -> Outcome<'a> {
        Ok(match fixed {
            Fixed::Const(value) => {
                let value = Value::constant(value);
                self.meter.decoded(&value)?;
                value
            }
            Fixed::Timestamp(time) => Value::Timestamp(*time),
            Fixed::Duration(nanos) => Value::Duration(*nanos),
            Fixed::Type(name) => Value::Type((&**name).into()),
            Fixed::List(items) => {
                self.meter.work(items.len())?;
                Value::list(items.iter().map(|item| self.fixed(item)).collect::<Result<_, _>>()?)
            }
            Fixed::Map(entries) => {
                self.meter.work(entries.len())?;
                let mut map = BTreeMap::new();
                for (key, value) in entries {
                    let key = self.fixed(key)?;
                    let key = Key::of(&key).ok_or_else(|| unsupported_key(&key))?;
                    map.insert(key, self.fixed(value)?);
                }
                Value::Map(Map::Made(Rc::new(map)))
            }
        })
    }

    fn local(&mut self, slot: usize) -> Outcome<'a> {
        let outcome = match &self.locals[slot] {
            Slot::Known(outcome) => return outcome.clone(),
            // The value was planned where its slot did not exist yet: it may use that one itself.
            Slot::Lazy(node) => {
                let node = *node;
                let hidden = self.locals.split_off(slot);
                let outcome = self.eval(node);
                self.locals.extend(hidden);
                outcome
            }
        };
        self.locals[slot] = Slot::Known(outcome.clone());
        outcome
    }

    /// Follows an attribute's path.
    fn resolve(&mut self, attribute: &'a Attribute) -> Outcome<'a> {
        let base = self.base(&attribute.base)?;
        self.qualify(base, &attribute.qualifiers)
    }

    fn base(&mut self, base: &'a Base) -> Outcome<'a> {
        match base {
            Base::Global(index) => {
                let value = self.globals.get(*index)?;
                self.meter.decoded(&value)?;
                Ok(value)
            }
            Base::Local(slot) => self.local(*slot),
            Base::Operand(node) => self.eval(node),
            Base::Choice(choice) => {
                let (condition, yes, no) = &**choice;
                match self.eval(condition)? {
                    Value::Bool(true) => self.resolve(yes),
                    Value::Bool(false) => self.resolve(no),
                    _ => Err(Error::no_overload()),
                }
            }
        }
    }

    fn qualify(&mut self, base: Value<'a>, qualifiers: &'a [Qualifier]) -> Outcome<'a> {
        if qualifiers.is_empty() {
            return Ok(base);
        }
        let (mut value, mut optional) = match base {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => ((*value).clone(), true),
            other => (other, false),
        };
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            let key = self.key(&qualifier.key)?;
            match lookup(&value, &key) {
                Ok(Some(found)) => {
                    self.charge(1)?;
                    self.meter.decoded(&found)?;
                    value = found;
                }
                Ok(None) if optional => return Ok(Value::Optional(None)),
                other => {
                    self.charge(1)?;
                    let error = other.err().unwrap_or_else(|| missing(&value, &key));
                    self.meter.failed(&error)?;
                    return Err(error);
                }
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    fn key(&mut self, key: &'a QualifierKey) -> Outcome<'a> {
        match key {
            QualifierKey::Field(field) => Ok(Value::String(Text::Borrowed(field))),
            QualifierKey::Fixed(fixed) => self.fixed(fixed),
            QualifierKey::Attribute(attribute) => self.resolve(attribute),
            QualifierKey::Computed(node) => self.eval(node),
        }
    }

    /// `has(...)`. The variable itself is not charged.
    fn test(&mut self, attribute: &'a Attribute) -> Outcome<'a> {
        let Some((last, before)) = attribute.qualifiers.split_last() else { return Err(Error::no_overload()) };
        let base = self.base(&attribute.base)?;
        let (value, optional) = match self.qualify(base, before)? {
            Value::Optional(None) => return Ok(Value::Bool(false)),
            Value::Optional(Some(value)) => ((*value).clone(), true),
            other => (other, false),
        };
        let key = self.key(&last.key)?;
        let found = lookup(&value, &key);
        if !optional || matches!(found, Ok(Some(_))) {
            self.charge(1)?;
        }
        Ok(Value::Bool(found?.is_some()))
    }

    fn logic(&mut self, terms: &'a [Node; 2], decisive: bool) -> Outcome<'a> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(Error::no_overload())),
                Err(Error::Exhausted) => return Err(Error::Exhausted),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    fn equality(&mut self, terms: &'a [Node; 2], wanted: bool) -> Outcome<'a> {
        let left = self.eval(&terms[0]);
        if matches!(left, Err(Error::Exhausted)) {
            return left;
        }
        let right = self.eval(&terms[1]);
        if matches!(right, Err(Error::Exhausted)) {
            return right;
        }
        let (left, right) = match (left, right) {
            (Ok(left), Ok(right)) => (left, right),
            (left, right) => {
                self.charge(1)?;
                return Err(left.err().or(right.err()).unwrap_or_else(Error::no_overload));
            }
        };
        self.meter.read([&left, &right])?;
        self.charge(equality(&left, &right, wanted))?;
        match equal(&left, &right, &mut self.meter) {
            Ok(same) => Ok(Value::Bool(same == wanted)),
            Err(Error::Failed(_)) if !wanted => Ok(Value::Bool(true)),
            Err(error) => Err(error),
        }
    }

    fn call(&mut self, call: &'a Call) -> Outcome<'a> {
        if call.lenient {
            let outcome = self.eval(&call.args[0]);
            self.charge(1)?;
            return match outcome {
                Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
                Err(Error::Exhausted) => Err(Error::Exhausted),
                _ => Ok(Value::Bool(true)),
            };
        }
        let mut args = Vec::with_capacity(call.args.len());
        let mut failed = None;
        for arg in &call.args {
            match self.eval(arg) {
                Ok(value) => args.push(value),
                Err(Error::Exhausted) => return Err(Error::Exhausted),
                // With two arguments both are evaluated, with more the first failure ends it.
                Err(error) if call.args.len() > 2 => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            self.charge(1)?;
            return Err(error);
        }
        self.meter.read(&args)?;
        // Arguments that make a call too expensive are charged before the work is done.
        if self.cost.saturating_add(call.charge.cost(&args, None)?) > self.limit {
            return self.charge(self.limit).and(Err(Error::Exhausted));
        }
        let mut context = Context {
            function: call.function,
            overload: call.overload,
            meter: &mut self.meter,
            regex: call.regex.as_ref(),
        };
        let outcome = (call.builtin)(&mut context, &args);
        if let Err(error) = &outcome {
            self.meter.failed(error)?;
        }
        self.charge(call.charge.cost(&args, outcome.as_ref().ok())?)?;
        outcome
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (node, optional) in items {
            let value = self.eval(node)?;
            match value {
                Value::Optional(None) if *optional => {}
                Value::Optional(Some(value)) if *optional => values.push((*value).clone()),
                value if *optional => {
                    let shown = go_value(&value);
                    let message = format!("cannot initialize optional list element from non-optional value {shown}");
                    return Err(Error::new(message));
                }
                value => values.push(value),
            }
        }
        self.charge(LIST)?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Outcome<'a> {
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            let key = Key::of(&key).ok_or_else(|| unsupported_key(&key))?;
            match value {
                Value::Optional(None) if *optional => {
                    map.remove(&key);
                }
                Value::Optional(Some(value)) if *optional => {
                    map.insert(key, (*value).clone());
                }
                _ if *optional => {
                    return Err(Error::new("cannot initialize optional entry from non-optional value"));
                }
                value => {
                    map.insert(key, value);
                }
            }
        }
        self.charge(MAP)?;
        Ok(Value::Map(Map::Made(Rc::new(map))))
    }

    fn object(&mut self, name: &str, fields: &'a [(Box<str>, Node, bool)]) -> Outcome<'a> {
        let mut made = BTreeMap::new();
        for (field, node, optional) in fields {
            match self.eval(node)? {
                Value::Optional(None) if *optional => {}
                Value::Optional(Some(value)) if *optional => {
                    made.insert(field.clone(), (*value).clone());
                }
                value => {
                    made.insert(field.clone(), value);
                }
            }
        }
        self.charge(OBJECT)?;
        Ok(Value::Object(Rc::new(Made { name: name.into(), fields: made })))
    }

    fn append(&mut self, slot: usize, item: &'a Node, fixed: bool) -> Outcome<'a> {
        // The accumulator, then the list of one, then putting them together.
        self.charge(1)?;
        let item = self.eval(item);
        if matches!(item, Err(Error::Exhausted)) {
            return item;
        }
        let cost = if fixed || item.is_err() { 1 } else { 1 + LIST };
        self.charge(cost)?;
        let before = self.local(slot)?;
        let item = item?;
        // Only the slot and `before` hold the list now; drop the slot's to append in place.
        self.locals[slot] = Slot::Known(Ok(Value::Null));
        let Value::List(List::Made(mut items)) = before else { return Err(Error::no_overload()) };
        self.shared(&items, items.len())?;
        Rc::make_mut(&mut items).push(item);
        Ok(Value::List(List::Made(items)))
    }

    /// The accumulator with more entries; charged like a call that has it for an argument.
    fn insert(&mut self, slot: usize, entry: &'a Entry) -> Outcome<'a> {
        self.charge(1)?;
        let before = self.local(slot);
        let entries = match entry {
            Entry::One(key, value) => {
                before.as_ref().map_err(Clone::clone)?;
                vec![(self.eval(key)?, self.eval(value)?)]
            }
            Entry::All(more) => match (self.eval(more), &before) {
                (Err(Error::Exhausted), _) => return Err(Error::Exhausted),
                (_, Err(error)) => {
                    self.charge(1)?;
                    return Err(error.clone());
                }
                (Err(error), _) => {
                    self.charge(1)?;
                    return Err(error);
                }
                (Ok(Value::Map(more)), _) => self.entries(&more)?,
                (Ok(other), _) => {
                    self.charge(1)?;
                    let given = other.type_name();
                    return Err(Error::new(format!("no such overload: cel.@mapInsert(map, {given})")));
                }
            },
        };
        self.charge(1)?;
        // As for lists, nothing but this holds the map now. If inserting fails the loop has no use for it any more.
        self.locals[slot] = Slot::Known(Ok(Value::Null));
        let Value::Map(mut map @ Map::Made(_)) = before? else { return Err(Error::no_overload()) };
        if let Map::Made(made) = &map {
            self.shared(made, made.len())?;
        }
        self.meter.inserted(entries.len())?;
        for (key, value) in entries {
            if let Err(error) = insert_new(&mut map, &key, value) {
                self.meter.failed(&error)?;
                return Err(error);
            }
        }
        Ok(Value::Map(map))
    }

    fn entries(&mut self, map: &Map<'a>) -> Result<Vec<(Value<'a>, Value<'a>)>, Error> {
        self.meter.work(map.len())?;
        let mut entries = Vec::with_capacity(map.len());
        for key in map.keys() {
            if let Some(value) = map.find(&key)? {
                self.meter.decoded(&value)?;
                entries.push((key, value));
            }
        }
        Ok(entries)
    }

    /// What others hold too is copied before it is changed.
    fn shared<T>(&mut self, held: &Rc<T>, size: usize) -> Result<(), Error> {
        if Rc::strong_count(held) > 1 { self.meter.work(size) } else { Ok(()) }
    }

    fn fold(&mut self, fold: &'a FoldNode) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        self.locals.truncate(fold.slot);
        self.locals.push(Slot::Lazy(&fold.init));
        for _ in 0..if fold.two { 2 } else { 1 } {
            self.locals.push(Slot::Known(Ok(Value::Null)));
        }
        let outcome = self.iterate(fold, &range).and_then(|()| self.eval(&fold.result));
        self.locals.truncate(fold.slot);
        outcome
    }

    fn iterate(&mut self, fold: &'a FoldNode, range: &Value<'a>) -> Result<(), Error> {
        match range {
            Value::List(list) => {
                for index in 0..list.len() {
                    let item = list.get(index);
                    let (first, second) =
                        if fold.two { (Ok(Value::Int(index as i64)), Some(item)) } else { (item, None) };
                    if !self.turn(fold, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                let keys = map.keys();
                self.meter.work(keys.len())?;
                for key in keys {
                    let value = if fold.two {
                        Some(map.find(&key).and_then(|value| value.ok_or_else(|| missing(range, &key))))
                    } else {
                        None
                    };
                    if !self.turn(fold, Ok(key), value)? {
                        break;
                    }
                }
            }
            other => {
                let name = other.type_name();
                return Err(Error::new(format!("got '{name}', expected iterable type")));
            }
        }
        Ok(())
    }

    /// One turn of a loop. Says whether there is another.
    fn turn(&mut self, fold: &'a FoldNode, first: Outcome<'a>, second: Option<Outcome<'a>>) -> Result<bool, Error> {
        self.meter.work(1)?;
        for value in [&first].into_iter().chain(&second).flatten() {
            self.meter.decoded(value)?;
        }
        self.locals[fold.slot + 1] = Slot::Known(first);
        if let Some(second) = second {
            self.locals[fold.slot + 2] = Slot::Known(second);
        }
        match self.eval(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(Error::Exhausted) => return Err(Error::Exhausted),
            _ => {}
        }
        let step = self.eval(&fold.step);
        if matches!(step, Err(Error::Exhausted)) {
            return Err(Error::Exhausted);
        }
        self.locals[fold.slot] = Slot::Known(step);
        Ok(true)
    }
}

/// Puts an entry into a map that has none of this key.
fn insert_new<'a>(map: &mut Map<'a>, key: &Value<'a>, value: Value<'a>) -> Result<(), Error> {
    if map.find(key)?.is_some() {
        return Err(Error::new(format!("insert failed: key {} already exists", go_value(key))));
    }
    map.insert(key, value)
}

/// What is at a key, index or field.
fn lookup<'a>(value: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, Error> {
    match value {
        Value::Map(map) => map.find(key),
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => *index,
                Value::Uint(index) => i64::try_from(*index).map_err(|_| bad_index(key))?,
                Value::Double(index) if index.fract() == 0.0 && index.abs() < 9e18 => *index as i64,
                Value::Double(_) => return Err(bad_index(key)),
                other => {
                    return Err(Error::new(format!("unsupported index type '{}' in list", other.type_name())));
                }
            };
            match usize::try_from(index) {
                Ok(index) if index < list.len() => list.get(index).map(Some),
                _ => Ok(None),
            }
        }
        Value::Object(object) => match key {
            Value::String(field) => Ok(object.fields.get(&**field).cloned()),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn bad_index(key: &Value<'_>) -> Error {
    Error::new(format!("unsupported index value {} in list", go_value(key)))
}

fn missing(value: &Value<'_>, key: &Value<'_>) -> Error {
    let key = go_value(key);
    match value {
        Value::List(_) => Error::new(format!("index out of bounds: {key}")),
        _ => Error::new(format!("no such key: {key}")),
    }
}

fn unsupported_key(key: &Value<'_>) -> Error {
    Error::new(format!("unsupported key type: {}", key.type_name()))
}

/// Whether a value is a constant; numbers of different types compare.
fn is_constant(value: &Value<'_>, constant: &Const) -> bool {
    match (value, constant) {
        (Value::Bool(a), Const::Bool(b)) => a == b,
        (Value::String(a), Const::String(b)) => **a == **b,
        (a, b) => numbers(a, &Value::constant(b)) == Some(Order::Known(std::cmp::Ordering::Equal)),
    }
}
