//! When two values are equal, and which comes first.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::meter::Meter;
use super::value::{Error, Key, List, Map, Shape, Value};
use crate::shape::ListType;

/// Whether two values are equal. Values of different types are not, but for numbers; what comes from a
/// schema's list or map cannot be compared with anything else.
pub(super) fn equal<'a>(left: &Value<'a>, right: &Value<'a>, meter: &mut Meter) -> Result<bool, Error> {
    meter.work(1)?;
    if let Some(order) = numbers(left, right) {
        return Ok(order == Order::Known(Ordering::Equal));
    }
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => {
            meter.work(a.len().min(b.len()) / 64)?;
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            // They may have been decoded for this.
            meter.decoded(left)?;
            meter.decoded(right)?;
            a == b
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => a.key() == b.key(),
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::List(a), Value::List(b)) => lists(a, b, meter)?,
        (Value::List(list), _) if list.is_typed() => return Err(Error::no_overload()),
        (Value::Map(a), Value::Map(b)) => maps(a, b, meter)?,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => equal(a, b, meter)?,
            _ => false,
        },
        (Value::Url(a), Value::Url(b)) => a == b,
        (Value::Quantity(a), Value::Quantity(b)) => a.cmp(b) == Ordering::Equal,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Format(a), Value::Format(b)) => std::ptr::eq(*a, *b),
        (Value::Semver(a), Value::Semver(b)) => a.compare(b) == Ordering::Equal,
        (Value::Preserved(a), Value::Preserved(b)) => {
            meter.work(weight(a).min(weight(b)))?;
            a == b
        }
        (Value::Object(a), Value::Object(b)) => {
            if a.name != b.name || a.fields.len() != b.fields.len() {
                return Ok(false);
            }
            for (name, value) in &a.fields {
                match b.fields.get(name) {
                    Some(other) if equal(value, other, meter)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (
            Value::Map(Map::Json(_, Shape::Schema(_) | Shape::Metadata))
            | Value::Url(_)
            | Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Format(_)
            | Value::Semver(_),
            _,
        ) => return Err(Error::no_overload()),
        _ => false,
    })
}

/// How much there is to compare.
fn weight(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Json::Object(map) => 1 + map.values().map(weight).sum::<usize>(),
        _ => 1,
    }
}

fn lists<'a>(a: &List<'a>, b: &List<'a>, meter: &mut Meter) -> Result<bool, Error> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let typed = a.is_typed();
    match a.list_type() {
        ListType::Set if typed => return same_elements(a, b, meter),
        ListType::Map(keys) if typed => return same_entries(a, b, keys, meter),
        _ => {}
    }
    for index in 0..a.len() {
        match (a.get(index), b.get(index)) {
            (Ok(a), Ok(b)) => match equal(&a, &b, meter) {
                Ok(true) => {}
                // Lists that expressions made go on after an element that cannot be compared.
                Err(Error::Failed(_)) if !typed => {}
                other => return other,
            },
            (Err(error), _) | (_, Err(error)) => return Err(error),
        }
    }
    Ok(true)
}

/// Whether two sets have the same elements.
fn same_elements<'a>(a: &List<'a>, b: &List<'a>, meter: &mut Meter) -> Result<bool, Error> {
    for (index, item) in a.iter().enumerate() {
        let item = item?;
        if find(b, index, |other| equal(&item, other, meter))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether two lists have equal items under equal keys.
fn same_entries<'a>(a: &List<'a>, b: &List<'a>, keys: &[Box<str>], meter: &mut Meter) -> Result<bool, Error> {
    for (index, item) in a.iter().enumerate() {
        let item = item?;
        match find(b, index, |other| same_keys(&item, other, keys, meter))? {
            Some(other) if equal(&item, &other, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The item that `is_it`, looking first where it most likely is.
fn find<'a>(
    list: &List<'a>,
    likely: usize,
    mut is_it: impl FnMut(&Value<'a>) -> Result<bool, Error>,
) -> Result<Option<Value<'a>>, Error> {
    for index in std::iter::once(likely).chain(0..list.len()).filter(|index| *index < list.len()) {
        let item = list.get(index)?;
        if is_it(&item)? {
            return Ok(Some(item));
        }
    }
    Ok(None)
}

/// Whether two items of a map list are the same one.
pub(super) fn same_keys<'a>(a: &Value<'a>, b: &Value<'a>, keys: &[Box<str>], meter: &mut Meter) -> Result<bool, Error> {
    let key = |value: &Value<'a>, name: &str| match value {
        Value::Map(Map::Json(map, _)) => map.get(name).cloned(),
        Value::Map(Map::Made(map)) => match map.get(&Key::String(super::value::Text::Shared(name.into()))) {
            Some(Value::String(text)) => Some(Json::String((**text).to_owned())),
            Some(Value::Int(int)) => Some((*int).into()),
            Some(Value::Bool(bool)) => Some((*bool).into()),
            _ => None,
        },
        _ => None,
    };
    meter.work(keys.len())?;
    Ok(keys.iter().all(|name| key(a, name) == key(b, name)))
}

fn maps<'a>(a: &Map<'a>, b: &Map<'a>, meter: &mut Meter) -> Result<bool, Error> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let (Map::Json(left, shape @ (Shape::Schema(_) | Shape::Metadata)), Map::Json(right, _)) = (a, b) {
        for (name, value) in *left {
            if let Some(below) = shape.field(name) {
                let other = right.get(name);
                match (value.is_null(), other.is_none_or(Json::is_null)) {
                    (true, true) => continue,
                    (false, false) => {}
                    _ => return Ok(false),
                }
                let Some(other) = other else { return Ok(false) };
                let (value, other) = (super::value::adapt(value, below)?, super::value::adapt(other, below)?);
                if !equal(&value, &other, meter)? {
                    return Ok(false);
                }
            } else {
                meter.work(weight(value))?;
                if right.get(name).is_some_and(|other| other != value) {
                    return Ok(false);
                }
            }
        }
        return Ok(true);
    }
    // The cost of comparing maps pays for as many entries as fuel lasts for: this is for those that differ at once.
    meter.work(a.len() / 2)?;
    for key in a.keys() {
        let (Some(value), Some(other)) = (a.find(&key)?, b.find(&key)?) else { return Ok(false) };
        match equal(&value, &other, meter) {
            Ok(true) | Err(Error::Failed(_)) => {}
            other => return other,
        }
    }
    Ok(true)
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Known(Ordering),
    /// One of them is not a number.
    None,
}

impl Order {
    fn of(ordering: Option<Ordering>) -> Self {
        ordering.map_or(Self::None, Self::Known)
    }
}

/// How two numbers compare; `None` if they are not both numbers.
pub(super) fn numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Order> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(int) => Some(i128::from(*int)),
        Value::Uint(uint) => Some(i128::from(*uint)),
        _ => None,
    };
    match (left, right) {
        (Value::Double(a), Value::Double(b)) => Some(Order::of(a.partial_cmp(b))),
        (Value::Double(a), b) => whole(b).map(|b| Order::of(a.partial_cmp(&(b as f64)))),
        (a, Value::Double(b)) => whole(a).map(|a| Order::of((a as f64).partial_cmp(b))),
        (a, b) => Some(Order::Known(whole(a)?.cmp(&whole(b)?))),
    }
}

/// Which of two values comes first.
pub(super) fn compare(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, Error> {
    if let Some(order) = numbers(left, right) {
        return match order {
            Order::Known(ordering) => Ok(ordering),
            Order::None => Err(Error::new("NaN values cannot be ordered")),
        };
    }
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Ok(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.key().cmp(&b.key())),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        _ => Err(Error::no_overload()),
    }
}
