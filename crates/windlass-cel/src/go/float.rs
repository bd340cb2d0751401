//! Floating-point numbers as Go prints them: the shortest digits that read back, and an exponent where Go has one.
//!
//! Go has three ways, which differ in when an exponent is written and how.

/// As `fmt` prints it with `%v`: with an exponent outside 1e-4 to 1e21.
pub fn verbose(float: f64) -> String {
    exponential_outside(-4..21, float)
}

/// As `strconv` prints it with the format `g`: with an exponent outside 1e-4 to 1e6.
pub fn general(float: f64) -> String {
    exponential_outside(-4..6, float)
}

/// As `encoding/json` writes it: with an exponent outside 1e-6 to 1e21, whose digits are not filled up if it is negative.
pub fn json(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return format!("{float}");
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent:0>2}"),
        _ => text,
    }
}

fn exponential_outside(plain: std::ops::Range<i32>, float: f64) -> String {
    if !float.is_finite() {
        let name = if float.is_nan() {
            "NaN"
        } else if float > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        };
        return name.to_owned();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if plain.contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(float: f64, expected: [&str; 3]) {
        assert_eq!([verbose(float), general(float), json(float)], expected);
    }

    /// What Go 1.24 prints with `%v`, with `FormatFloat(f, 'g', -1, 64)` and with `json.Marshal`.
    #[test]
    fn floats_print_as_in_go() {
        check(0.0, ["0", "0", "0"]);
        check(-0.0, ["-0", "-0", "-0"]);
        check(80.0, ["80", "80", "80"]);
        check(-1.5, ["-1.5", "-1.5", "-1.5"]);
        check(123_456.75, ["123456.75", "123456.75", "123456.75"]);
        check(1e6, ["1000000", "1e+06", "1000000"]);
        check(1e20, ["100000000000000000000", "1e+20", "100000000000000000000"]);
        check(1e21, ["1e+21", "1e+21", "1e+21"]);
        check(0.0001, ["0.0001", "0.0001", "0.0001"]);
        check(0.000_01, ["1e-05", "1e-05", "0.00001"]);
        check(1.5e-7, ["1.5e-07", "1.5e-07", "1.5e-7"]);
        assert_eq!([verbose(f64::NAN), verbose(f64::INFINITY), verbose(f64::NEG_INFINITY)], ["NaN", "+Inf", "-Inf"]);
    }
}
