//! Quantities as values: compared, added up, rounded.
//!
//! Held in billionths; what does not fit saturates.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::decimal::Decimal;
use super::{Parts, Suffix};

const NANO: i128 = 1_000_000_000;

/// A fixed-point number with a preferred way of writing it.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    suffix: Suffix,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nano: 0, suffix: Suffix::Decimal(0) };

    /// The quantity a text means.
    pub fn parse(text: &str) -> Option<Self> {
        let (parts, suffix) = Parts::parse(text).ok()?;
        Some(Self { nano: parts.scaled(suffix, super::NANO), suffix })
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
        Self { nano: i128::from(value) * NANO, suffix: Suffix::Decimal(0) }
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
        Self { nano: self.value().saturating_mul(NANO), suffix: self.suffix }
    }

    /// The value rounded up to whole thousandths, the finest step of a resource amount.
    #[must_use]
    pub fn rounded_up_to_milli(&self) -> Self {
        let milli = NANO / 1000;
        Self { nano: self.milli_value().saturating_mul(milli), suffix: self.suffix }
    }

    /// The sum; the format is the first one's unless that is zero.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let suffix = if self.nano == 0 { other.suffix } else { self.suffix };
        Self { nano: self.nano.saturating_add(other.nano), suffix }
    }

    /// The difference, in the first one's format.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let suffix = if self.nano == 0 { other.suffix } else { self.suffix };
        Self { nano: self.nano.saturating_sub(other.nano), suffix }
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
    /// The canonical text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.suffix.show(&Decimal::of_nano(self.nano), self.nano < 0))
    }
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
        assert!(Quantity::parse("1.2.3").is_none());
        assert!(parse("1e40") > parse("1E"));
    }
}
