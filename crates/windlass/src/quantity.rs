//! Arithmetic on quantities: `500m` of CPU, `1.5Gi` of memory.
//!
//! [`Amount`] is exact: a whole number of billionths, which is the finest Kubernetes knows. It
//! remembers which kind of suffix it was written with and is written in Kubernetes' canonical
//! form, so that what goes in unchanged comes out unchanged.
//!
//! ```
//! use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
//! use windlass::quantity::Amount;
//!
//! let request: Amount = "1.5Gi".parse()?;
//! assert_eq!(request.to_string(), "1536Mi");
//! assert_eq!((request * 3).to_string(), "4608Mi");
//! let total: Amount = ["250m", "0.5", "1"].iter().map(|text| text.parse::<Amount>()).sum::<Result<_, _>>()?;
//! assert_eq!(total.to_string(), "1750m");
//! assert!(total > Amount::from(1));
//! let quantity: Quantity = total.into();
//! assert_eq!(Amount::try_from(&quantity)?, total);
//! # Ok::<(), windlass::quantity::QuantityError>(())
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Neg, Sub, SubAssign};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Why a text is not a quantity.
///
/// ```
/// use windlass::quantity::{Amount, QuantityError};
///
/// assert_eq!("much".parse::<Amount>().unwrap_err(), QuantityError::Format);
/// assert_eq!("5q".parse::<Amount>().unwrap_err(), QuantityError::Format);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// It does not look like one.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// Its suffix is none that Kubernetes knows.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// It is larger than an [`Amount`] can be. The API server accepts it, so an object may hold it.
    #[error("quantity is out of range")]
    Range,
}

crate::report::debug_as_message!(QuantityError);

/// How an amount is written.
///
/// ```
/// use windlass::quantity::{Amount, Format};
///
/// assert_eq!("1Gi".parse::<Amount>()?.format(), Format::BinarySi);
/// assert_eq!("1e3".parse::<Amount>()?.format(), Format::DecimalExponent);
/// # Ok::<(), windlass::quantity::QuantityError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `m`, `k`, `M`, ...: thousands.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, ...: 1024s.
    BinarySi,
    /// `e3`, `e6`, ...
    DecimalExponent,
}

/// Billionths in one.
const ONE: i128 = 1_000_000_000;

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];

/// An exact amount. Two amounts are equal when they stand for the same number, however written.
///
/// Amounts reach up to about 1.7 × 10^29 on either side of zero, 10^10 times what fits in an `i64`.
/// Go's `Quantity` has no such limit for decimal numbers: it keeps `1e40` as it is, while here it is
/// [out of range](QuantityError::Range). Sums and products that leave the range stay at its end.
/// Numbers with binary suffixes end at 2^63 - 1 when they are read, here as there.
///
/// ```
/// use windlass::quantity::Amount;
///
/// let node: Amount = "3920m".parse()?;
/// let pod = Amount::from_milli(250);
/// assert!(node - pod * 15 < pod, "fifteen fit");
/// assert_eq!(Amount::from_bytes(3 << 30).to_string(), "3Gi");
/// # Ok::<(), windlass::quantity::QuantityError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Amount {
    nanos: i128,
    format: Format,
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// So many thousandths, as of CPU.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * (ONE / 1000), format: Format::DecimalSi }
    }

    /// So many bytes, written with binary suffixes.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * ONE, format: Format::BinarySi }
    }

    /// The whole number, rounded away from zero; the largest there is when it does not fit.
    pub fn value(self) -> i64 {
        self.scaled(ONE)
    }

    /// The number of thousandths, rounded away from zero.
    pub fn milli_value(self) -> i64 {
        self.scaled(ONE / 1000)
    }

    /// The number, as near as a float comes.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / ONE as f64
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// How it is written.
    pub fn format(self) -> Format {
        self.format
    }

    /// The same amount, written differently.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    fn scaled(self, unit: i128) -> i64 {
        let (whole, rest) = (self.nanos / unit, self.nanos % unit);
        let rounded = whole + rest.signum();
        i64::try_from(rounded).unwrap_or(if rounded > 0 { i64::MAX } else { i64::MIN })
    }

    /// The format of a sum is that of the first term that is not nothing.
    fn joined(self, other: Self, nanos: i128) -> Self {
        Self { nanos, format: if self.nanos == 0 { other.format } else { self.format } }
    }
}

impl FromStr for Amount {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first().ok_or(QuantityError::Format)? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = |text: &str| text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        check_suffix(suffix)?;
        let (exponent, binary, format) = interpret(suffix).ok_or(QuantityError::Suffix)?;
        // Without any digits it is nothing, as in Kubernetes.
        let nanos = magnitude(whole, fraction, exponent, binary);
        let (mut nanos, mut format) = match nanos {
            Err(QuantityError::Range) if format == Format::BinarySi => (i128::MAX, format),
            nanos => (nanos?, format),
        };
        if format == Format::BinarySi {
            nanos = nanos.min(i128::from(i64::MAX) * ONE);
            if nanos > 0 && nanos < ONE {
                format = Format::DecimalSi;
            }
        }
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }
}

/// What may follow the number at all: letters of suffixes, then perhaps a signed number.
fn check_suffix(suffix: &str) -> Result<(), QuantityError> {
    let rest = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if rest.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(QuantityError::Format) }
}

/// Power of ten, power of 1024, and format.
fn interpret(suffix: &str) -> Option<(i32, u32, Format)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((*exponent, 0, Format::DecimalSi));
    }
    if let Some((_, power)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        return Some((0, *power, Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((exponent.parse().ok()?, 0, Format::DecimalExponent))
}

/// The number in billionths, rounded up: a request for some gets some. Counted in decimal digits, of which there
/// may be any number on the way, so that only what is too large in the end is out of range.
fn magnitude(whole: &str, fraction: &str, exponent: i32, binary: u32) -> Result<i128, QuantityError> {
    // The last digit comes first.
    let mut digits: Vec<u8> = fraction.bytes().rev().chain(whole.bytes().rev()).map(|digit| digit - b'0').collect();
    for _ in 0..binary {
        multiply(&mut digits, 1024);
    }
    let length = digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
    digits.truncate(length);
    let shift = i64::from(exponent) + 9 - fraction.len() as i64;
    let cut = usize::try_from(-shift).unwrap_or_default().min(length);
    let rest = digits[..cut].iter().any(|digit| *digit != 0);
    // Nothing stays nothing, however many zeros follow; of anything else forty are too many.
    let zeros = if length == 0 { 0 } else { shift.clamp(0, 40) as usize };
    let mut value: i128 = 0;
    for digit in digits[cut..].iter().rev().copied().chain(std::iter::repeat_n(0, zeros)) {
        let next = value.checked_mul(10).and_then(|value| value.checked_add(i128::from(digit)));
        value = next.ok_or(QuantityError::Range)?;
    }
    value.checked_add(i128::from(rest)).ok_or(QuantityError::Range)
}

/// Multiplies a number that is written in decimal digits, the last first.
fn multiply(digits: &mut Vec<u8>, by: u32) {
    let mut carry = 0;
    for digit in &mut *digits {
        let product = u32::from(*digit) * by + carry;
        *digit = (product % 10) as u8;
        carry = product / 10;
    }
    while carry > 0 {
        digits.push((carry % 10) as u8);
        carry /= 10;
    }
}

impl fmt::Display for Amount {
    /// The canonical form: no fraction, and the largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % ONE == 0;
        if self.format == Format::BinarySi && whole && (self.nanos / ONE).abs() >= 1024 {
            let (mut value, mut power) = (self.nanos / ONE, 0);
            while value % 1024 == 0 && power < BINARY.len() {
                value /= 1024;
                power += 1;
            }
            return write!(f, "{value}{}", power.checked_sub(1).map_or("", |index| BINARY[index].0));
        }
        let (mut value, mut exponent) = (self.nanos, -9);
        let largest = if self.format == Format::DecimalExponent { i32::MAX } else { 18 };
        while value % 1000 == 0 && exponent < largest {
            value /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 { write!(f, "{value}") } else { write!(f, "{value}e{exponent}") };
        }
        let suffix = DECIMAL.iter().find(|(_, known)| *known == exponent).map_or("", |(suffix, _)| suffix);
        write!(f, "{value}{suffix}")
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl std::hash::Hash for Amount {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.joined(other, self.nanos.saturating_add(other.nanos))
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.joined(other, self.nanos.saturating_sub(other.nanos))
    }
}

impl Mul<i64> for Amount {
    type Output = Self;

    fn mul(self, times: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(times)), ..self }
    }
}

impl Neg for Amount {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: self.nanos.saturating_neg(), ..self }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl From<i64> for Amount {
    fn from(value: i64) -> Self {
        Self { nanos: i128::from(value) * ONE, format: Format::DecimalSi }
    }
}

impl TryFrom<&Quantity> for Amount {
    type Error = QuantityError;

    fn try_from(quantity: &Quantity) -> Result<Self, QuantityError> {
        quantity.0.parse()
    }
}

impl From<Amount> for Quantity {
    fn from(amount: Amount) -> Self {
        Self(amount.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Canonical forms, with the inputs of Kubernetes' own quantity tests.
    #[test]
    fn is_written_as_kubernetes_writes_it() {
        for (text, canonical) in [
            ("0", "0"),
            ("0n", "0"),
            ("0Ki", "0"),
            ("00000000000000000000000000000000000000000000000001", "1"),
            ("1Ki", "1Ki"),
            ("8Ki", "8Ki"),
            ("7Mi", "7Mi"),
            ("100.035k", "100035"),
            ("0.5Mi", "512Ki"),
            ("1.5Gi", "1536Mi"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1000k", "1M"),
            ("12.34", "12340m"),
            ("5.", "5"),
            (".", "0"),
            ("-", "0"),
            (".5", "500m"),
            ("+5", "5"),
            ("-0.3Ki", "-307200m"),
            ("0.1m", "100u"),
            ("1.1E-3", "1100e-6"),
            ("1e3", "1e3"),
            ("1E6", "1e6"),
            ("100e3", "100e3"),
            ("3e3", "3e3"),
            ("1E", "1E"),
            ("3M", "3M"),
            ("1.0000000001", "1000000001n"),
            ("0.00000000001", "1n"),
            ("-0.00000000001", "-1n"),
            ("0.001Ki", "1024m"),
            ("0.0001Ki", "102400u"),
            ("500", "500"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775808"),
            ("8Ei", "9223372036854775807"),
            ("-8Ei", "-9223372036854775807"),
            ("7Ei", "7Ei"),
            ("1023Ki", "1023Ki"),
            ("1.25Ki", "1280"),
            ("1e29", "100e27"),
            ("170141183460469231731687303715", "170141183460469231731687303715"),
            ("1.2345678901234567890123Ei", "1423359869420436337655191610n"),
            ("99999999999999999999999999999999999999999Ei", "9223372036854775807"),
            ("0e2147483647", "0"),
            ("1e-2147483648", "1e-9"),
            ("0.000000000000000000000000000000000000000000000000001Ei", "1n"),
        ] {
            assert_eq!(amount(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("a", QuantityError::Format),
            ("1 ", QuantityError::Format),
            ("1.1.M", QuantityError::Format),
            ("1+1.0M", QuantityError::Format),
            ("0.1mi", QuantityError::Suffix),
            ("0.1am", QuantityError::Format),
            ("aoeu", QuantityError::Format),
            (".5i", QuantityError::Suffix),
            ("1i", QuantityError::Suffix),
            ("-3.01i", QuantityError::Suffix),
            ("-3.01e-", QuantityError::Suffix),
            ("1K", QuantityError::Suffix),
            (" 1", QuantityError::Format),
            ("1e40", QuantityError::Range),
            ("1e99", QuantityError::Range),
            ("-1e40", QuantityError::Range),
            ("170141183460469231731687303716", QuantityError::Range),
            ("100000000000000000000000000000000000000e2147483638", QuantityError::Range),
            ("999999999999999999999999999999999999999e2147483638", QuantityError::Range),
            ("1e2147483647", QuantityError::Range),
        ] {
            assert_eq!(text.parse::<Amount>(), Err(error), "{text}");
        }
    }

    #[test]
    fn sums_keep_the_format_of_what_they_started_with() {
        assert_eq!((amount("1Gi") + amount("512Mi")).to_string(), "1536Mi");
        assert_eq!((Amount::ZERO + amount("1Ki")).to_string(), "1Ki");
        assert_eq!((amount("1Ki") - amount("24")).to_string(), "1k");
        assert_eq!((amount("1") - amount("250m")).to_string(), "750m");
        assert_eq!((-amount("1500m")).value(), -2);
        assert_eq!(amount("1500m").value(), 2);
        assert_eq!(amount("0.0001").milli_value(), 1);
        assert_eq!(Amount::from_bytes(1 << 30).to_string(), "1Gi");
        assert_eq!(Amount::from_milli(1500).to_string(), "1500m");
        assert_eq!(amount("1Gi"), amount("1073741824"));
        assert!(amount("1G") < amount("1Gi"));
    }

    /// The number in billionths as anybody would work it out on paper: `None` if it is too large. Exponents beyond 200
    /// make no difference to numbers as short as these.
    fn on_paper(whole: &str, fraction: &str, exponent: i32, doublings: u32) -> Option<i128> {
        let places = fraction.len();
        let mut digits = format!("{whole}{fraction}");
        for _ in 0..doublings {
            let mut carry = 0;
            let mut doubled: Vec<char> = Vec::new();
            for digit in digits.chars().rev() {
                let sum = digit.to_digit(10).unwrap() * 2 + carry;
                doubled.push(char::from_digit(sum % 10, 10).unwrap());
                carry = sum / 10;
            }
            doubled.push(char::from_digit(carry, 10).unwrap());
            digits = doubled.into_iter().rev().collect();
        }
        // The point is moved through a sea of zeros.
        let sea = "0".repeat(400);
        let point = sea.len() + digits.len() - places;
        let point = point.checked_add_signed(exponent.clamp(-200, 200) as isize + 9).unwrap();
        let number = format!("{sea}{digits}{sea}");
        let (before, after) = number.split_at(point);
        let rest = after.bytes().any(|digit| digit != b'0');
        let before = before.trim_start_matches('0');
        let before: i128 = if before.is_empty() { 0 } else { before.parse().ok()? };
        before.checked_add(i128::from(rest))
    }

    proptest! {
        #[test]
        fn is_what_it_is_on_paper(
            whole in "[0-9]{0,45}",
            fraction in "[0-9]{0,45}",
            suffix in prop_oneof![
                (0usize..10).prop_map(|at| (DECIMAL[at].0.to_owned(), DECIMAL[at].1, 0)),
                (0usize..6).prop_map(|at| (BINARY[at].0.to_owned(), 0, BINARY[at].1 * 10)),
                prop_oneof![-60..60i32, any::<i32>(), i32::MAX - 60..=i32::MAX, i32::MIN..i32::MIN + 60]
                    .prop_map(|exponent| (format!("e{exponent}"), exponent, 0)),
            ],
            sign in prop_oneof![Just(""), Just("-"), Just("+")],
        ) {
            let (suffix, exponent, doublings) = suffix;
            let text = format!("{sign}{whole}.{fraction}{suffix}");
            let mut expected = on_paper(&whole, &fraction, exponent, doublings);
            if doublings > 0 {
                let most = i128::from(i64::MAX) * ONE;
                expected = Some(expected.unwrap_or(most).min(most));
            }
            let expected = expected.map(|nanos| if sign == "-" { -nanos } else { nanos });
            let read = text.parse::<Amount>();
            prop_assert_eq!(read.map(|amount| amount.nanos), expected.ok_or(QuantityError::Range), "{}", text);
        }

        #[test]
        fn the_canonical_form_is_read_as_the_same(value in -1_000_000_000_000i64..1_000_000_000_000, suffix in 0usize..10) {
            let text = format!("{value}{}", ["n", "u", "m", "", "k", "M", "Ki", "Mi", "e3", "e-3"][suffix]);
            let read = amount(&text);
            prop_assert_eq!(amount(&read.to_string()), read);
            prop_assert_eq!(amount(&read.to_string()).to_string(), read.to_string());
        }
    }
}
