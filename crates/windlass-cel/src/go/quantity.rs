//! Resource quantities (`100m`, `1.5Gi`, `2e3`): [`canonical`] text as Go prints it, and [`Quantity`], a value
//! to compare and add up.
//!
//! Mirrors `apimachinery/pkg/api/resource/quantity.go`, including its habit of keeping a text that is nearly
//! canonical (`1.500`) as it is. Texts are read exactly: digits and a decimal exponent, never a float. Whatever
//! is smaller than a billionth, the finest step Kubernetes keeps, rounds up.

mod amount;
mod decimal;

pub use amount::Quantity;

use decimal::Decimal;

const BAD_FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const BAD_SUFFIX: &str = "unable to parse quantity's suffix";

/// The smallest power of ten a quantity can hold: nano.
const NANO: i64 = -9;

/// Rewrites a quantity in canonical form, or says in upstream's words why it is none.
pub fn canonical(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    let (parts, suffix) = Parts::parse(text)?;
    if text == "0" || parts.keeps_its_form(suffix) {
        return Ok(text.to_owned());
    }
    let mut amount = parts.amount(suffix);
    amount.round_up_to_nano();
    Ok(suffix.show(&amount, parts.negative))
}

/// A quantity as whole units, rounded up, for comparisons and sums; saturates at the ends of `i128`.
/// `scale` is the power of ten of the unit: 0 for bytes, -3 for milli-CPUs.
pub fn scaled(text: &str, scale: i32) -> Result<i128, &'static str> {
    let (parts, suffix) = Parts::parse(text)?;
    Ok(parts.scaled(suffix, scale.into()))
}

struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn parse(text: &'a str) -> Result<(Self, Suffix), &'static str> {
        if text.is_empty() {
            return Err(BAD_FORMAT);
        }
        let parts = Self::split(text)?;
        let suffix = Suffix::parse(parts.suffix).ok_or(BAD_SUFFIX)?;
        Ok((parts, suffix))
    }

    fn split(text: &'a str) -> Result<Self, &'static str> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BAD_FORMAT);
        }
        Ok(Self { negative, whole: whole.trim_start_matches('0'), fraction, suffix })
    }

    /// Whether upstream takes the text for canonical already and prints it as it came.
    fn keeps_its_form(&self, suffix: Suffix) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let digits = whole.len() + self.fraction.len();
        match suffix {
            Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
                let scale = exponent - self.fraction.len() as i64;
                digits <= 18
                    && scale >= NANO
                    && scale % 3 == 0
                    && !format!("{whole}{}", self.fraction).ends_with("000")
                    && !whole.starts_with('0')
            }
            Suffix::Binary(bits) => {
                self.fraction.is_empty()
                    && digits + bits as usize * 3 / 10 < 15
                    && whole.parse::<u64>().is_ok_and(|value| value & 7 != 0)
            }
        }
    }

    /// The value without its sign.
    fn amount(&self, suffix: Suffix) -> Decimal {
        let mut amount = Decimal::new(self.whole, self.fraction);
        match suffix {
            Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => amount.exponent += exponent,
            Suffix::Binary(bits) => amount.multiply(1u128 << bits),
        }
        amount
    }

    /// The value in units of `10^scale`; its magnitude is rounded up.
    fn scaled(&self, suffix: Suffix, scale: i64) -> i128 {
        let magnitude = self.amount(suffix).rounded_up(scale);
        if self.negative { -magnitude } else { magnitude }
    }
}

/// How a quantity is written, and so how it is written again.
#[derive(Clone, Copy, Debug)]
enum Suffix {
    /// A power of ten, written as a letter.
    Decimal(i64),
    /// A power of ten, written as such.
    Exponent(i64),
    /// A power of two.
    Binary(u32),
}

const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i64); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == text) {
            return Some(Self::Decimal(*exponent));
        }
        if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == text) {
            return Some(Self::Binary(*bits));
        }
        let exponent = text.strip_prefix(['e', 'E']).filter(|rest| !rest.is_empty())?;
        // Upstream cuts the exponent to 32 bits; beyond that nothing is meant anyway.
        exponent.parse::<i64>().ok().map(|e| Self::Exponent(e.clamp(i64::from(i32::MIN), i64::from(i32::MAX))))
    }

    /// A value in the form of this suffix, with the largest one that leaves no fraction.
    fn show(self, amount: &Decimal, negative: bool) -> String {
        let sign = if negative && !amount.is_zero() { "-" } else { "" };
        let text = match self {
            Self::Binary(_) => amount.binary_text(),
            Self::Decimal(_) => amount.decimal_text(),
            Self::Exponent(_) => amount.exponent_text(),
        };
        format!("{sign}{text}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_print_as_in_go() {
        for (text, expected) in [
            ("0", "0"),
            ("0m", "0"),
            ("-0", "0"),
            ("0Ki", "0"),
            ("1", "1"),
            ("0.1", "100m"),
            (".5", "500m"),
            ("1.", "1."),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("0.100", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("100000", "100k"),
            ("1000", "1k"),
            ("12345", "12345"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1.1Ki", "1126400m"),
            ("2048Ki", "2Mi"),
            ("1024", "1024"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("100e1", "1e3"),
            ("12e-2", "120e-3"),
            ("5E", "5E"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("-1500m", "-1500m"),
            ("-0.1", "-100m"),
            ("+5", "+5"),
            ("100Ei", "9223372036854775807"),
            ("250M", "250M"),
            ("1e-30", "1e-9"),
            ("00100m", "00100m"),
            ("  2 ", "2"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_upstreams_words() {
        for text in ["", "lots", "1x", "1.2.3", "1 Gi", "1Gi2x"] {
            assert_eq!(canonical(text), Err(BAD_FORMAT), "{text}");
        }
        for text in ["1mm", "1KiKi", "1e", "1ki", "1i", "1K", "--1"] {
            assert_eq!(canonical(text), Err(BAD_SUFFIX), "{text}");
        }
    }

    #[test]
    fn amounts_compare_in_a_unit() {
        assert_eq!(scaled("1.5Gi", 0), Ok(1_610_612_736));
        assert_eq!(scaled("100m", 0), Ok(1));
        assert_eq!(scaled("1500m", -3), Ok(1500));
        assert_eq!(scaled("-2", -3), Ok(-2000));
        assert_eq!(scaled("1e90", 0), Ok(i128::MAX));
    }

    proptest! {
        #[test]
        fn canonical_is_idempotent_and_keeps_the_value(text in "[+-]?[0-9]{0,9}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|Ki|Mi|Gi|e[0-9]|E-?[0-9])?") {
            if let Ok(first) = canonical(&text) {
                prop_assert!(canonical(&first).as_ref() == Ok(&first), "{}", text);
                prop_assert_eq!(scaled(&first, -9), scaled(&text, -9), "{} became {}", text, first);
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,30}", looks in "[0-9.eEimKMG+-]{0,20}") {
            let _ = (canonical(&text), canonical(&looks), scaled(&looks, -3));
        }
    }
}
