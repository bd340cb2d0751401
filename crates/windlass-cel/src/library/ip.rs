//! Functions about addresses and networks.

use std::net::IpAddr;

use super::{Builtin, Context, no_overload};
use crate::opaque::ip::{Cidr, parse_cidr, parse_ip};
use crate::value::{Error, Outcome, Value};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "ip" => |context, args| match args {
            [Value::String(text)] => parse_ip(text).map(Value::Ip).map_err(Error::new),
            [Value::Cidr(cidr)] => Ok(Value::Ip(cidr.address)),
            _ => Err(no_overload(context, args)),
        },
        "isIP" => |context, args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_ip(text).is_ok())),
            _ => Err(no_overload(context, args)),
        },
        "ip.isCanonical" => |context, args| match args {
            [Value::String(text)] => parse_ip(text).map(|ip| Value::Bool(ip.to_string() == **text)).map_err(Error::new),
            _ => Err(no_overload(context, args)),
        },
        "cidr" => |context, args| match args {
            [Value::String(text)] => parse_cidr(text).map(Value::Cidr).map_err(Error::new),
            _ => Err(no_overload(context, args)),
        },
        "isCIDR" => |context, args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse_cidr(text).is_ok())),
            _ => Err(no_overload(context, args)),
        },
        "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => inspect,
        "prefixLength" => |context, args| match args {
            [Value::Cidr(cidr)] => Ok(Value::Int(cidr.bits.into())),
            _ => Err(no_overload(context, args)),
        },
        "masked" => |context, args| match args {
            [Value::Cidr(cidr)] => Ok(Value::Cidr(cidr.masked())),
            _ => Err(no_overload(context, args)),
        },
        "containsIP" => |context, args| match args {
            [Value::Cidr(cidr), Value::Ip(ip)] => Ok(Value::Bool(cidr.contains(*ip))),
            [Value::Cidr(cidr), Value::String(text)] => {
                parse_ip(text).map(|ip| Value::Bool(cidr.contains(ip))).map_err(Error::new)
            }
            _ => Err(no_overload(context, args)),
        },
        "containsCIDR" => |context, args| match args {
            [Value::Cidr(cidr), Value::Cidr(other)] => Ok(Value::Bool(contains_cidr(*cidr, *other))),
            [Value::Cidr(cidr), Value::String(text)] => {
                parse_cidr(text).map(|other| Value::Bool(contains_cidr(*cidr, other))).map_err(Error::new)
            }
            _ => Err(no_overload(context, args)),
        },
        _ => return None,
    })
}

fn contains_cidr(cidr: Cidr, other: Cidr) -> bool {
    cidr.bits <= other.bits && cidr.contains(other.address)
}

fn inspect<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Ip(ip)] = args else { return Err(no_overload(context, args)) };
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0) == 0xfe80,
    };
    Ok(match context.function {
        "family" => Value::Int(if ip.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(ip.is_unspecified()),
        "isLoopback" => Value::Bool(ip.is_loopback()),
        "isLinkLocalUnicast" => Value::Bool(link_local),
        "isLinkLocalMulticast" => Value::Bool(match ip {
            IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
            IpAddr::V6(v6) => (v6.segments()[0] & 0xff0f) == 0xff02,
        }),
        _ => {
            let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
            let special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local || broadcast;
            Value::Bool(!special)
        }
    })
}
