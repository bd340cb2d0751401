//! What calls can cost: cel-go's own functions, its extension libraries, and Kubernetes' libraries
//! (`apiserver/pkg/cel/library/cost.go`).

use super::super::cost::declared_size;
use super::{Argument, Const, Coster, Entries, Expr, Kind, LIST, REGEX_FACTOR, Range, STRING_FACTOR, Type};

/// The cost of a call and the size of its result.
type Estimate = (Range, Option<Range>);

impl<'a> Coster<'a> {
    pub(super) fn overload(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Argument<'a>>,
        args: &[Argument<'a>],
        costs: &[Range],
    ) -> Estimate {
        let sum = costs.iter().fold(Range::ZERO, |sum, cost| sum.add(*cost));
        if let Some((cost, size)) = extension(overload, target, args) {
            return (cost.add(sum), size);
        }
        if let Some((cost, size)) = Self::library(function, overload, target, args) {
            return (cost.add(sum), size);
        }
        match self.standard(expr, overload, target, args, costs, sum) {
            Some(estimate) => estimate,
            None => (Range::exactly(1).add(sum), None),
        }
    }

    fn standard(
        &mut self,
        expr: &Expr,
        overload: &str,
        target: Option<&Argument<'a>>,
        args: &[Argument<'a>],
        costs: &[Range],
        sum: Range,
    ) -> Option<Estimate> {
        let size = |argument: &Argument<'_>| argument.computed.unwrap_or(Range::UNKNOWN);
        let traversal = |size: Range| size.times(STRING_FACTOR);
        Some(match (overload, args) {
            ("string_format", _) => (traversal(size(target?)).add(sum), None),
            ("string_to_bytes", [arg]) => {
                let size = size(arg);
                (traversal(size).add(sum), Some(Range { min: size.min, max: size.max.wrapping_mul(4) }))
            }
            ("bytes_to_string", [arg]) => {
                let size = size(arg);
                (traversal(size).add(sum), Some(Range { min: size.min / 4, max: size.max }))
            }
            ("strings_quote", [arg]) => {
                let size = size(arg);
                let result = Range { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
                (traversal(size).add(sum), Some(result))
            }
            ("starts_with_string" | "ends_with_string", [arg]) => (traversal(size(arg)).add(sum), None),
            ("in_list", [_, list]) => (size(list).times(1.0).add(sum), None),
            ("matches_string", [regex]) => (matching(size(target?), size(regex)).add(sum), None),
            ("matches", [text, regex]) => (matching(size(text), size(regex)).add(sum), None),
            ("contains_string", [arg]) => (traversal(size(target?)).multiply(traversal(size(arg))).add(sum), None),
            ("logical_or" | "logical_and", _) => {
                let (left, right) = (costs.first()?, costs.get(1)?);
                (Range { min: left.min, max: left.add(*right).max }, None)
            }
            ("conditional", [_, yes, no]) => {
                let entries = Entries::union(self.entries_of(yes.expr), self.entries_of(no.expr));
                if let Some(entries) = entries {
                    self.entries.insert(expr.id, entries);
                }
                (costs[0].add(costs[1].union(costs[2])), Some(size(yes).union(size(no))))
            }
            ("add_string" | "add_bytes" | "add_list", [left, right]) => {
                let result = size(left).add(size(right));
                let entries = Entries::union(self.entries_of(left.expr), self.entries_of(right.expr));
                if let Some(entries) = entries {
                    self.entries.insert(expr.id, entries);
                }
                let own = if overload == "add_list" { Range::exactly(1) } else { traversal(result) };
                (own.add(sum), Some(result))
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                [left, right],
            ) => {
                let max = size(left).max.min(size(right).max);
                (traversal(Range { min: u64::from(max > 0), max }).add(sum), None)
            }
            _ => return None,
        })
    }

    /// Kubernetes' libraries.
    fn library(
        function: &str,
        overload: &str,
        target: Option<&Argument<'a>>,
        args: &[Argument<'a>],
    ) -> Option<Estimate> {
        let traversal = |size: Range| size.times(STRING_FACTOR);
        let nominal = Some((Range::exactly(1), None));
        match function {
            "check" => Some((Range::exactly(350_000), None)),
            "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast" => nominal,
            "fieldSelector" | "labelSelector" => match args {
                [selector] => Some((selector_cost(sized(selector)), None)),
                _ => None,
            },
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let target = target?;
                let Some(element) = element_type(target.ty) else {
                    return Some((traversal(sized(target)), None));
                };
                let mut each = Range::exactly(1);
                if matches!(element, Type::String | Type::Bytes) {
                    each = each.add(traversal(element_size(target)));
                }
                Some((sized(target).multiply(each), None))
            }
            "url" | "jsonpatch.escapeKey" => match args {
                [text] => Some((traversal(sized(text)), Some(sized(text)))),
                _ => None,
            },
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = sized(target?);
                Some((traversal(size), Some(size)))
            }
            "replace" => match (target, args) {
                (Some(target), [from, to, ..]) => Some(replace(sized(target), sized(from), sized(to))),
                _ => None,
            },
            "split" => {
                let size = sized(target?);
                let limit = args.get(1).and_then(|limit| match &limit.expr.kind {
                    Kind::Const(Const::Int(limit)) => Some(*limit as u64),
                    _ => None,
                });
                Some((size.times(2.0 * STRING_FACTOR), Some(Range { min: 0, max: limit.unwrap_or(size.max) })))
            }
            "join" => {
                let target = target?;
                let list = sized(target);
                let mut size = Range::ZERO;
                if element_type(target.ty).is_some() {
                    size = list.multiply(element_size(target));
                }
                if let Some(separator) = args.first() {
                    let separators = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                    size = size.add(sized(separator).multiply(separators));
                }
                Some((traversal(size), Some(size)))
            }
            "find" | "findAll" => match (target, args) {
                (Some(target), [regex, ..]) => {
                    let size = sized(target);
                    Some((matching(size, sized(regex)), Some(Range { min: 0, max: size.max })))
                }
                _ => None,
            },
            "ip" if overload == "cidr_ip" => nominal,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                Some((traversal(sized(args.first()?)), None))
            }
            "ip.isCanonical" => Some((sized(args.first()?).times(2.0 * STRING_FACTOR), None)),
            "containsIP" | "containsCIDR" => {
                let address = Range { min: 4, max: 16 };
                let mut cost = traversal(address.add(address));
                if function == "containsCIDR" {
                    cost = cost.add(traversal(address)).add(Range::exactly(1));
                }
                if overload.ends_with("_string") {
                    cost = cost.add(traversal(sized(args.first()?)));
                }
                Some((cost, None))
            }
            "validate" => Some((traversal(sized(args.first()?)).times(128.0 * REGEX_FACTOR), None)),
            "_==_" => match args {
                [left, right] if left.ty.same(right.ty) => equality(left.ty, right),
                _ => None,
            },
            _ => None,
        }
    }
}

/// cel-go's extension libraries: sets and lists.
fn extension(overload: &str, target: Option<&Argument<'_>>, args: &[Argument<'_>]) -> Option<Estimate> {
    let list = |factor: f64, size: Range| (size.times(factor).add(Range::exactly(1 + LIST)), Some(size));
    Some(match (overload, args) {
        ("list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list", [a, b]) => {
            let factor = if overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
            (sized(a).multiply(sized(b)).times(factor).add(Range::exactly(1)), None)
        }
        ("list_slice", [start, end]) => {
            let start = number(start, 0);
            let end = number(end, sized(target?).max);
            list(1.0, Range::exactly(end.wrapping_sub(start)))
        }
        ("lists_range", [count]) => list(1.0, Range::exactly(number(count, u64::MAX))),
        ("list_reverse", []) => list(1.0, sized(target?)),
        ("list_flatten" | "list_flatten_int", _) => {
            let depth = args.first().map_or(1, |depth| number(depth, u64::MAX));
            list(depth as f64, sized(target?))
        }
        ("list_distinct", []) => {
            let size = sized(target?);
            list(2.0, size.multiply(size))
        }
        (_, []) if overload.ends_with("_sort") => sort(overload, sized(target?), list),
        (_, [keys]) if overload.ends_with("_sortByAssociatedKeys") => sort(overload, sized(keys), list),
        _ => return None,
    })
}

/// The size of one element of a list.
fn element_size(list: &Argument<'_>) -> Range {
    let Some(at) = list.path else { return Range::UNKNOWN };
    let element = at.and_then(|declared| declared.element.as_deref());
    declared_size(Some(element)).unwrap_or(Range::UNKNOWN)
}

/// The size of an argument, as far as anything is known.
fn sized(argument: &Argument<'_>) -> Range {
    argument.computed.or_else(|| declared_size(argument.path)).unwrap_or(Range::UNKNOWN)
}

/// The first parameter of a type that has any.
fn element_type(ty: &Type) -> Option<&Type> {
    match ty {
        Type::List(of) | Type::Optional(of) | Type::Meta(Some(of)) => Some(of),
        Type::Map(entry) => Some(&entry.0),
        _ => None,
    }
}

/// The value of an argument that is a whole number in the text.
fn number(argument: &Argument<'_>, otherwise: u64) -> u64 {
    match &argument.expr.kind {
        Kind::Const(Const::Int(value)) => u64::try_from(*value).unwrap_or(0),
        _ => otherwise,
    }
}

fn sort(overload: &str, size: Range, list: impl Fn(f64, Range) -> (Range, Option<Range>)) -> Estimate {
    let textual = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
    list(if textual { 2.0 + STRING_FACTOR } else { 2.0 }, size.multiply(size))
}

fn matching(text: Range, regex: Range) -> Range {
    text.add(Range::exactly(1)).times(STRING_FACTOR).multiply(regex.times(REGEX_FACTOR))
}

fn selector_cost(length: Range) -> Range {
    let requirements = length.times(0.5).times((LIST + super::OBJECT) as f64);
    Range::exactly(LIST).add(length.times(STRING_FACTOR)).add(requirements)
}

fn replace(size: Range, from: Range, to: Range) -> Estimate {
    let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
    if from.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if to.max <= from.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if from.max <= to.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / from.max as f64).ceil() as u64;
    }
    (size.times(2.0 * STRING_FACTOR), Some(count.multiply(to).add(kept)))
}

fn equality(ty: &Type, right: &Argument<'_>) -> Option<Estimate> {
    let name = match ty {
        Type::Opaque(name) => *name,
        Type::Object(object) => &object.name,
        _ => return None,
    };
    match name {
        "kubernetes.NamedFormat" => Some((Range { min: 1, max: 64 }.times(STRING_FACTOR), None)),
        "kubernetes.URL" => {
            let max = right.computed.map_or(1, |size| size.max);
            Some((Range { min: 1, max }.times(STRING_FACTOR), None))
        }
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Some((Range::exactly(1), None)),
        name if name.starts_with("kubernetes.authorization.") => Some((Range::exactly(1), None)),
        _ => None,
    }
}
