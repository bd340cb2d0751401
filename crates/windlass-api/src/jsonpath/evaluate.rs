//! Nodes to values. Mirrors `client-go/util/jsonpath/jsonpath.go` with missing keys allowed: a missing key
//! selects nothing, while an index out of bounds or a comparison of different types is a failure.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use super::{End, Node};

/// The path cannot be applied to this value. A column shows nothing then, whatever the reason.
#[derive(Debug)]
pub(super) struct Unsuited;

type Found<'a> = Vec<Cow<'a, Value>>;

/// Applies the nodes one after another.
pub(super) fn list<'a>(nodes: &[Node], input: Found<'a>) -> Result<Found<'a>, Unsuited> {
    nodes.iter().try_fold(input, |current, node| walk(node, current))
}

fn walk<'a>(node: &Node, input: Found<'a>) -> Result<Found<'a>, Unsuited> {
    let constant = |value: Value| input.iter().map(|_| Cow::Owned(value.clone())).collect();
    Ok(match node {
        Node::Text(text) => vec![Cow::Owned(text.as_str().into())],
        Node::Int(int) => constant((*int).into()),
        Node::Float(float) => constant((*float).into()),
        Node::Bool(flag) => constant((*flag).into()),
        Node::Field(name) => input.into_iter().filter_map(|value| field(value, name)).collect(),
        Node::Wildcard => input.into_iter().flat_map(children).collect(),
        Node::Recursive => {
            let mut out = Vec::new();
            for value in input {
                descend(value, &mut out);
            }
            out
        }
        Node::Slice { start, end, step } => {
            let mut out = Vec::new();
            for value in input {
                let items = match value {
                    Cow::Borrowed(Value::Null) | Cow::Owned(Value::Null) => continue,
                    value => items(value)?,
                };
                match slice(items, start.unwrap_or(0), *end, *step)? {
                    Some(selected) => out.extend(selected),
                    // Upstream stops at the first empty slice.
                    None => break,
                }
            }
            out
        }
        Node::Union(parts) => {
            let mut out = Vec::new();
            for part in parts {
                out.extend(list(part, input.clone())?);
            }
            out
        }
        Node::Filter { left, operator, right } => {
            let mut out = Vec::new();
            for value in input {
                for item in items(value)? {
                    if passes(&item, left, operator.as_deref(), right)? {
                        out.push(item);
                    }
                }
            }
            out
        }
        Node::Identifier => return Err(Unsuited),
    })
}

fn field<'a>(value: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(Value::Object(mut map)) => map.remove(name).map(Cow::Owned),
        Cow::Owned(_) => None,
    }
}

fn items(value: Cow<'_, Value>) -> Result<Found<'_>, Unsuited> {
    match value {
        Cow::Borrowed(Value::Array(items)) => Ok(items.iter().map(Cow::Borrowed).collect()),
        Cow::Owned(Value::Array(items)) => Ok(items.into_iter().map(Cow::Owned).collect()),
        _ => Err(Unsuited),
    }
}

fn children(value: Cow<'_, Value>) -> Found<'_> {
    match value {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(map)) => map.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        _ => Vec::new(),
    }
}

/// The value itself, if there is anything in it, and everything below.
fn descend<'a>(value: Cow<'a, Value>, out: &mut Found<'a>) {
    let below = children(value.clone());
    if !below.is_empty() {
        out.push(value);
        for child in below {
            descend(child, out);
        }
    }
}

/// The selected part, or none for a slice of no elements.
fn slice(items: Found<'_>, start: i64, end: End, step: Option<i64>) -> Result<Option<Found<'_>>, Unsuited> {
    let length = items.len() as i64;
    let from = if start < 0 { start.saturating_add(length) } else { start };
    let to = match end {
        End::One => start.saturating_add(1),
        End::At(to) => to,
        End::Open => length,
    };
    let to = if to < 0 || (to == 0 && end == End::One) { to.saturating_add(length) } else { to };
    if from == to {
        return Ok(None);
    }
    if from < 0 || from >= length || to < 0 || to > length || from > to {
        return Err(Unsuited);
    }
    let step = match step {
        None => 1,
        Some(step) if step > 0 => step as usize,
        Some(_) => return Err(Unsuited),
    };
    let (from, count) = (from as usize, (to - from) as usize);
    Ok(Some(items.into_iter().skip(from).take(count).step_by(step).collect()))
}

fn passes(item: &Value, left: &[Node], operator: Option<&str>, right: &[Node]) -> Result<bool, Unsuited> {
    let evaluate = |nodes: &[Node]| list(nodes, vec![Cow::Borrowed(item)]);
    let Some(operator) = operator else { return Ok(evaluate(left).is_ok_and(|found| !found.is_empty())) };
    let (left, right) = (evaluate(left)?, evaluate(right)?);
    let (left, right) = match (&left[..], &right[..]) {
        ([], _) | (_, []) => return Ok(false),
        ([left], [right]) => (left, right),
        _ => return Err(Unsuited),
    };
    let order = compare(left, right)?;
    let ordered = || if matches!(**left, Value::Bool(_)) { Err(Unsuited) } else { Ok(order) };
    Ok(match operator {
        "==" => order == Some(Ordering::Equal),
        "!=" => order != Some(Ordering::Equal),
        "<" => ordered()? == Some(Ordering::Less),
        ">" => ordered()? == Some(Ordering::Greater),
        "<=" => matches!(ordered()?, Some(Ordering::Less | Ordering::Equal)),
        ">=" => matches!(ordered()?, Some(Ordering::Greater | Ordering::Equal)),
        _ => return Err(Unsuited),
    })
}

/// Only scalars of the same type compare; a whole number and a float are different types in Go.
fn compare(left: &Value, right: &Value) -> Result<Option<Ordering>, Unsuited> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
        (Value::String(left), Value::String(right)) => Ok(Some(left.cmp(right))),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Ok(Some(left.cmp(&right))),
            (None, None) => Ok(left.as_f64().partial_cmp(&right.as_f64())),
            _ => Err(Unsuited),
        },
        _ => Err(Unsuited),
    }
}
