//! Resource quantities.

use std::cmp::Ordering;

use crate::go::quantity::scaled;

/// The largest quantity that can be written.
const MAX: i128 = i64::MAX as i128 * 1_000_000_000;

/// A quantity.
#[derive(Debug)]
pub struct Quantity {
    /// Its value in billionths.
    nanos: i128,
    /// Digits and a power of ten, where Go holds it that way. Only then it can be an integer.
    exact: Option<(i64, i32)>,
}

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let nanos = scaled(text, -9)?;
        Ok(Self { nanos: nanos.clamp(-MAX, MAX), exact: exact(text) })
    }

    pub(crate) fn of(value: i64) -> Self {
        Self { nanos: i128::from(value) * 1_000_000_000, exact: Some((value, 0)) }
    }

    pub(crate) fn plus(&self, other: &Self, sign: i64) -> Self {
        let nanos = self.nanos.saturating_add(other.nanos.saturating_mul(i128::from(sign)));
        let exact = match (self.exact, other.exact) {
            (Some(a), Some((value, scale))) => value.checked_mul(sign).and_then(|value| add_exact(a, (value, scale))),
            _ => None,
        };
        Self { nanos, exact }
    }

    pub(crate) fn as_integer(&self) -> Option<i64> {
        let (value, scale) = self.exact?;
        let factor = 10i64.checked_pow(u32::try_from(scale).ok()?)?;
        value.checked_mul(factor)
    }

    pub(crate) fn as_float(&self) -> f64 {
        match self.exact {
            Some((value, 0)) => value as f64,
            Some((value, scale)) => value as f64 * 10f64.powi(scale),
            None => self.nanos as f64 / 1e9,
        }
    }

    /// Whether it is negative, zero or positive.
    pub(crate) fn sign(&self) -> i64 {
        self.nanos.signum() as i64
    }

    pub(crate) fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// Digits and a power of ten, if Go's parser keeps the quantity that way
/// (`apimachinery/pkg/api/resource/quantity.go`).
fn exact(text: &str) -> Option<(i64, i32)> {
    const LETTERS: [(&str, i32); 10] =
        [("", 0), ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let length = (whole.len() + fraction.len()) as i32;
    let (scale, factor, room) = if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        let room = if fraction.is_empty() { 15 - length - bits * 3 / 10 - 1 } else { -1 };
        (0, 1i64 << bits, room)
    } else {
        let exponent = match LETTERS.iter().find(|(name, _)| *name == suffix) {
            Some((_, exponent)) => *exponent,
            None => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
        };
        (exponent, 1, 18 - length)
    };
    let scale = scale.checked_sub(fraction.len() as i32)?;
    if room < 0 || scale < -9 {
        return None;
    }
    let value = format!("{whole}{fraction}").parse::<i64>().ok()?.checked_mul(factor)?;
    Some((if negative { -value } else { value }, scale))
}

fn add_exact(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    if b.0 == 0 {
        return Some(a);
    }
    if a.0 == 0 {
        return Some(b);
    }
    let scale = a.1.min(b.1);
    let align = |(value, own): (i64, i32)| value.checked_mul(10i64.checked_pow((own - scale) as u32)?);
    Some((align(a)?.checked_add(align(b)?)?, scale))
}
