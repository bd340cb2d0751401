//! Quantities: `100m`, `1Gi`, `1e3`. Parsing, comparing, and the canonical text.
//!
//! A quantity is held in billionths, which is also the finest step Kubernetes keeps; smaller digits
//! round up. What does not fit saturates.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

const NANO: i128 = 1_000_000_000;

/// How a quantity was written, and so how it is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `1Ki`, `1Mi`.
    Binary,
    /// `1k`, `1m`, or no suffix.
    Decimal,
    /// `1e3`.
    Exponent,
}

/// A fixed-point number with a preferred way of writing it.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nano: 0, format: Format::Decimal };

    /// The quantity a text means.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (format, scale) = Scale::parse(suffix)?;
        let mut nano = scale.apply(whole, fraction);
        if negative {
            nano = -nano;
        }
        Some(Self { nano, format })
    }

    /// The quantity a JSON string or number means; null is zero.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::ZERO),
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// A whole number.
    pub fn from_int(value: i64) -> Self {
        Self { nano: i128::from(value) * NANO, format: Format::Decimal }
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i128 {
        self.nano.signum()
    }

    /// Whether it is a whole number.
    pub fn is_whole(&self) -> bool {
        self.nano % NANO == 0
    }

    /// The value rounded up to a whole number.
    pub fn value(&self) -> i128 {
        self.nano.div_euclid(NANO) + i128::from(self.nano.rem_euclid(NANO) != 0)
    }

    /// The value in thousandths, rounded up.
    pub fn milli_value(&self) -> i128 {
        let milli = NANO / 1000;
        self.nano.div_euclid(milli) + i128::from(self.nano.rem_euclid(milli) != 0)
    }

    /// The value rounded up to a whole number, as a quantity.
    #[must_use]
    pub fn rounded_up(&self) -> Self {
        Self { nano: self.value().saturating_mul(NANO), format: self.format }
    }

    /// The value rounded up to whole thousandths, the finest step of a resource amount.
    #[must_use]
    pub fn rounded_up_to_milli(&self) -> Self {
        let milli = NANO / 1000;
        Self { nano: self.milli_value().saturating_mul(milli), format: self.format }
    }

    /// The sum; the format is the first one's unless that is zero.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.nano == 0 { other.format } else { self.format };
        Self { nano: self.nano.saturating_add(other.nano), format }
    }

    /// The difference, in the first one's format.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let format = if self.nano == 0 { other.format } else { self.format };
        Self { nano: self.nano.saturating_sub(other.nano), format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl fmt::Display for Quantity {
    /// The canonical text: the largest suffix that leaves no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano.abs() < 1024 * NANO;
        if self.format == Format::Binary && !small && self.is_whole() {
            let mut value = self.nano / NANO;
            let mut step = 0;
            while value % 1024 == 0 && step < 6 {
                value /= 1024;
                step += 1;
            }
            return write!(f, "{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]);
        }
        let mut value = self.nano;
        let mut exponent = -9;
        while value % 1000 == 0 && exponent < 18 {
            value /= 1000;
            exponent += 3;
        }
        match (self.format, exponent) {
            (_, 0) => write!(f, "{value}"),
            (Format::Exponent, exponent) => write!(f, "{value}e{exponent}"),
            (_, exponent) => {
                let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                write!(f, "{value}{}", suffixes[((exponent + 9) / 3) as usize])
            }
        }
    }
}

enum Scale {
    Power10(i32),
    Power1024(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<(Format, Self)> {
        let decimal = |power| Some((Format::Decimal, Self::Power10(power)));
        let binary = |power| Some((Format::Binary, Self::Power1024(power)));
        match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(1),
            "Mi" => binary(2),
            "Gi" => binary(3),
            "Ti" => binary(4),
            "Pi" => binary(5),
            "Ei" => binary(6),
            _ => {
                let power = suffix.strip_prefix(['e', 'E'])?;
                let power: i32 = power.parse().ok()?;
                Some((Format::Exponent, Self::Power10(power)))
            }
        }
    }

    /// `whole.fraction` times the scale, in billionths, rounded up.
    fn apply(&self, whole: &str, fraction: &str) -> i128 {
        match self {
            Self::Power10(power) => {
                let shift = 9_i64 + i64::from(*power);
                let digits = format!("{whole}{fraction}");
                // The decimal point moves to the right by `shift`.
                let kept = whole.len() as i64 + shift;
                if kept <= 0 {
                    return i128::from(digits.bytes().any(|b| b != b'0'));
                }
                let kept = usize::try_from(kept).unwrap_or(usize::MAX).min(digits.len() + 45);
                if kept >= digits.len() {
                    let zeros = "0".repeat(kept - digits.len());
                    return number(&format!("{digits}{zeros}"));
                }
                let (kept, rest) = digits.split_at(kept);
                number(kept).saturating_add(i128::from(rest.bytes().any(|b| b != b'0')))
            }
            Self::Power1024(power) => {
                let factor = 1024_i128.pow(*power);
                let whole = number(whole).saturating_mul(factor).saturating_mul(NANO);
                let mut part: i128 = 0;
                for (i, digit) in fraction.bytes().take(18).enumerate() {
                    let digit = i128::from(digit - b'0') * factor * NANO;
                    let divisor = 10_i128.pow(i as u32 + 1);
                    part += digit / divisor + i128::from(digit % divisor != 0);
                }
                whole.saturating_add(part)
            }
        }
    }
}

fn number(digits: &str) -> i128 {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { 0 } else { digits.parse().unwrap_or(i128::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_canonically() {
        for (text, expected) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500", "1500"),
            ("100000", "100k"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("512Mi", "512Mi"),
            ("100Ki", "100Ki"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-1", "-1"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("2E", "2E"),
        ] {
            let quantity = Quantity::parse(text).expect(text);
            assert_eq!(quantity.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let parse = |text| Quantity::parse(text).expect(text);
        assert!(parse("2") > parse("1500m"));
        assert_eq!(parse("1Gi"), parse("1024Mi"));
        assert_eq!(parse("1").milli_value(), 1000);
        assert_eq!(parse("1m").value(), 1);
        assert!(Quantity::parse("lots").is_none());
        assert!(Quantity::parse("").is_none());
        assert!(Quantity::parse(".").is_none());
        assert!(Quantity::parse("1.2.3").is_none());
        assert!(parse("1e40") > parse("1E"));
    }
}
