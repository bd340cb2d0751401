//! What calls cost at run time: cel-go's `interpreter/runtimecost.go`, its extension libraries and
//! Kubernetes' `library/cost.go`.

use super::cost::{LIST, OBJECT, REGEX_FACTOR, STRING_FACTOR};
use super::value::{Error, List, Map, Value};

/// How a call is charged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Charge {
    Fixed(u64),
    /// Reading the argument with this index, this many times.
    Read(usize, f64),
    /// Writing the result.
    Joined,
    /// Matching a pattern.
    Match,
    /// Searching the second argument.
    Search,
    /// Comparing two arguments.
    Compare,
    /// Putting two arguments together.
    Concatenate,
    /// Looking for one text in another.
    Contains,
    /// Walking through everything in the first argument.
    Walk,
    /// Whether an address is in a network; the flags are for networks and for texts.
    Network {
        cidr: bool,
        text: bool,
    },
    /// Checking against a named format.
    Validate,
    /// Making a list as long as the result.
    Output,
    Flatten,
    /// Comparing all items of a list with each other.
    SelfCompare(usize),
    /// Comparing all items of two lists.
    Sets(f64),
    /// Parsing a selector.
    Selector,
}

impl Charge {
    /// The charge of an overload; empty if it is not known which one is called.
    pub(super) fn of(function: &str, overload: &str) -> Self {
        if let Some(charge) = Self::extension(overload) {
            return charge;
        }
        if let Some(charge) = Self::library(function, overload) {
            return charge;
        }
        match overload {
            "starts_with_string" | "ends_with_string" => Self::Read(1, 1.0),
            "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => Self::Read(0, 1.0),
            "in_list" => Self::Search,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Self::Compare,
            "add_string" | "add_bytes" => Self::Concatenate,
            "matches" | "matches_string" => Self::Match,
            "contains_string" => Self::Contains,
            _ => Self::Fixed(1),
        }
    }

    fn extension(overload: &str) -> Option<Self> {
        Some(match overload {
            "list_slice" | "lists_range" | "list_reverse" => Self::Output,
            "list_flatten" | "list_flatten_int" => Self::Flatten,
            "list_distinct" => Self::SelfCompare(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => Self::Sets(1.0),
            "list_sets_equivalent_list" => Self::Sets(2.0),
            _ if overload.ends_with("_sort") => Self::SelfCompare(0),
            _ if overload.ends_with("_sortByAssociatedKeys") => Self::SelfCompare(1),
            _ => return None,
        })
    }

    fn library(function: &str, overload: &str) -> Option<Self> {
        Some(match function {
            "check" => Self::Fixed(350_000),
            "fieldSelector" | "labelSelector" => Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::Walk,
            "ip" if overload == "cidr_ip" => Self::Fixed(1),
            "url"
            | "jsonpatch.escapeKey"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "cidr"
            | "ip"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => Self::Read(0, 1.0),
            "replace" | "split" | "ip.isCanonical" => Self::Read(0, 2.0),
            "join" => Self::Joined,
            "find" | "findAll" => Self::Match,
            "containsIP" => Self::Network { cidr: false, text: overload == "cidr_contains_ip_string" },
            "containsCIDR" => Self::Network { cidr: true, text: overload == "cidr_contains_cidr_string" },
            "validate" => Self::Validate,
            _ => return None,
        })
    }

    /// What a call with these arguments and this result costs.
    pub(super) fn cost(self, args: &[Value<'_>], result: Option<&Value<'_>>) -> Result<u64, Error> {
        let size = |index: usize| args.get(index).map_or(1, Value::cost_size);
        let read = |size: u64| (size as f64 * STRING_FACTOR).ceil() as u64;
        let result_size = || result.map_or(1, Value::cost_size);
        Ok(match self {
            Self::Fixed(cost) => cost,
            Self::Read(index, times) => (size(index) as f64 * times * STRING_FACTOR).ceil() as u64,
            Self::Joined => (result_size() as f64 * 2.0 * STRING_FACTOR).ceil() as u64,
            Self::Match => {
                let text = ((1.0 + size(0) as f64) * STRING_FACTOR).ceil() as u64;
                text.saturating_mul((size(1) as f64 * REGEX_FACTOR).ceil() as u64)
            }
            Self::Search => size(1),
            Self::Compare => read(size(0).min(size(1))),
            Self::Concatenate => read(size(0).saturating_add(size(1))),
            Self::Contains => read(size(0)).saturating_mul(read(size(1))),
            Self::Walk => args.first().map_or(Ok(0), walk)?,
            Self::Network { cidr, text } => {
                let own = size(0);
                let mut cost = read(own + own);
                if cidr {
                    cost += read(own) + 1;
                }
                cost + if text { read(size(1)) } else { 0 }
            }
            Self::Validate => match args.first() {
                Some(Value::Format(format)) => {
                    let text = ((1.0 + size(1) as f64) * STRING_FACTOR).ceil() as u64;
                    text.saturating_mul((format.regex_size as f64 * REGEX_FACTOR).ceil() as u64)
                }
                _ => 1,
            },
            Self::Output => result_size().saturating_add(1 + LIST),
            Self::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) if *depth >= 0 => *depth as f64,
                    _ => 1.0,
                };
                ((size(0) as f64 * depth) as u64).saturating_add(1 + LIST)
            }
            Self::SelfCompare(index) => {
                let textual = match args.get(index) {
                    Some(Value::List(list)) if !list.is_empty() => {
                        matches!(list.get(0), Ok(Value::String(_) | Value::Bytes(_)))
                    }
                    _ => false,
                };
                let factor = if textual { 2.0 + STRING_FACTOR } else { 2.0 };
                ((size(index).saturating_mul(size(index)) as f64 * factor) as u64).saturating_add(1 + LIST)
            }
            Self::Sets(factor) => ((size(0).saturating_mul(size(1)) as f64 * factor) as u64).saturating_add(1),
            Self::Selector => {
                let length = size(1);
                let requirements = ((length as f64 * 0.5).ceil() * (LIST + OBJECT) as f64).ceil() as u64;
                LIST + read(length) + requirements
            }
        })
    }
}

/// What comparing two values costs.
pub(super) fn equality(left: &Value<'_>, right: &Value<'_>, equal: bool) -> u64 {
    let simple = matches!(
        left,
        Value::Quantity(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Format(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Foreign(_)
    );
    if equal && simple {
        return 1;
    }
    (left.cost_size().min(right.cost_size()) as f64 * STRING_FACTOR).ceil() as u64
}

/// The cost of walking through a whole value.
fn walk(value: &Value<'_>) -> Result<u64, Error> {
    Ok(match value {
        Value::String(text) => (text.len() as f64 * STRING_FACTOR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Value::List(list) => walk_list(list)?,
        Value::Map(map) => walk_map(map)?,
        _ => 1,
    })
}

fn walk_list(list: &List<'_>) -> Result<u64, Error> {
    list.iter().try_fold(0u64, |cost, item| match item {
        Ok(item) => Ok(cost.saturating_add(walk(&item)?)),
        Err(Error::Exhausted) => Err(Error::Exhausted),
        Err(_) => Ok(cost.saturating_add(1)),
    })
}

fn walk_map(map: &Map<'_>) -> Result<u64, Error> {
    map.keys().iter().try_fold(0u64, |cost, key| {
        let value = map.find(key).ok().flatten();
        Ok(cost.saturating_add(walk(key)?).saturating_add(value.map_or(Ok(1), |value| walk(&value))?))
    })
}
