//! Decimal numbers of any size, and the ways Go prints them.

use super::{BINARY, DECIMAL, NANO};

/// `digits * 10^exponent`, digits most significant first and without leading zeros.
pub(super) struct Decimal {
    digits: Vec<u8>,
    pub(super) exponent: i64,
}

impl Decimal {
    pub(super) fn new(whole: &str, fraction: &str) -> Self {
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        let mut decimal = Self { digits, exponent: -(fraction.len() as i64) };
        decimal.trim();
        decimal
    }

    /// `value` billionths, whatever its sign.
    pub(super) fn of_nano(value: i128) -> Self {
        let mut decimal = Self::new(&value.unsigned_abs().to_string(), "");
        decimal.exponent = if decimal.is_zero() { 0 } else { decimal.exponent + NANO };
        decimal
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Removes zeros at both ends.
    fn trim(&mut self) {
        let leading = self.digits.iter().take_while(|d| **d == 0).count();
        self.digits.drain(..leading);
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
        if self.digits.is_empty() {
            self.exponent = 0;
        }
    }

    pub(super) fn multiply(&mut self, factor: u128) {
        let mut carry = 0u128;
        let mut out = Vec::with_capacity(self.digits.len() + 20);
        for digit in self.digits.iter().rev() {
            let product = u128::from(*digit) * factor + carry;
            out.push((product % 10) as u8);
            carry = product / 10;
        }
        while carry > 0 {
            out.push((carry % 10) as u8);
            carry /= 10;
        }
        out.reverse();
        self.digits = out;
        self.trim();
    }

    /// Whatever is there at all is at least one nano.
    pub(super) fn round_up_to_nano(&mut self) {
        let excess = NANO - self.exponent;
        if excess <= 0 || self.is_zero() {
            return;
        }
        let keep = self.digits.len().saturating_sub(usize::try_from(excess).unwrap_or(usize::MAX));
        // The digits are trimmed, so something other than zero is cut off.
        self.digits.truncate(keep);
        self.exponent = NANO;
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                self.trim();
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
        self.trim();
    }

    /// The value in units of `10^scale`, rounded up.
    pub(super) fn rounded_up(&self, scale: i64) -> i128 {
        let shift = self.exponent - scale;
        let take = if shift >= 0 {
            self.digits.len()
        } else {
            self.digits.len().saturating_sub(usize::try_from(-shift).unwrap_or(usize::MAX))
        };
        let mut value = 0i128;
        for digit in &self.digits[..take] {
            value = value.saturating_mul(10).saturating_add(i128::from(*digit));
        }
        for _ in 0..shift.clamp(0, 40) {
            value = value.saturating_mul(10);
        }
        if take < self.digits.len() { value.saturating_add(1) } else { value }
    }

    /// Digits and an exponent that is a multiple of three.
    fn engineering(&self) -> (String, i64) {
        let pad = self.exponent.rem_euclid(3);
        let mut text: String = self.digits.iter().map(|d| char::from(d + b'0')).collect();
        text.extend(std::iter::repeat_n('0', pad as usize));
        (text, self.exponent - pad)
    }

    pub(super) fn decimal_text(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        let (digits, exponent) = self.engineering();
        match DECIMAL.iter().find(|(_, e)| *e == exponent) {
            Some((suffix, _)) => format!("{digits}{suffix}"),
            // Upstream has no suffix beyond E and prints none; an exponent keeps the value.
            None => format!("{digits}e{exponent}"),
        }
    }

    pub(super) fn exponent_text(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        match self.engineering() {
            (digits, 0) => digits,
            (digits, exponent) => format!("{digits}e{exponent}"),
        }
    }

    /// In powers of 1024, unless that would round or the value is small.
    pub(super) fn binary_text(&self) -> String {
        let value = self.rounded_up(0);
        let capped = value > i128::from(i64::MAX);
        if !capped && (self.exponent < 0 || value < 1024) {
            return self.decimal_text();
        }
        let (mut mantissa, mut power) = (value.min(i128::from(i64::MAX)), 0);
        while mantissa % 1024 == 0 && power < BINARY.len() {
            mantissa /= 1024;
            power += 1;
        }
        let suffix = power.checked_sub(1).map_or("", |i| BINARY[i].0);
        format!("{mantissa}{suffix}")
    }
}
