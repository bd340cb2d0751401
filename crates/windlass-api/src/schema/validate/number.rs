//! Numbers as Go sees them: what is a whole number, how they compare with bounds, how they print.

use serde_json::Value;

/// A number as Go's JSON decoder holds it: an `int64` if it is written as one and fits, else a float.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(super) fn of(number: &serde_json::Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
    }

    pub(super) fn from_f64(value: f64) -> Self {
        Self::Float(value)
    }

    pub(super) fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }

    pub(super) fn is_whole(self) -> bool {
        match self {
            Self::Int(_) => true,
            Self::Float(float) => is_whole(float),
        }
    }

    pub(super) fn is_int64(self) -> bool {
        match self {
            Self::Int(_) => true,
            // 2^63 is the first float that no longer fits.
            Self::Float(float) => {
                float.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float)
            }
        }
    }

    pub(super) fn fits_int32(self) -> bool {
        self.is_int64() && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&self.as_f64())
    }

    pub(super) fn fits_float32(self) -> bool {
        (self.as_f64() as f32).is_finite()
    }

    /// Compares with a bound; an integer compares with the bound's whole part.
    pub(super) fn compare(self, bound: f64, native: bool) -> (String, std::cmp::Ordering) {
        match self {
            Self::Int(int) if native => {
                let bound = bound as i64;
                (bound.to_string(), int.cmp(&bound))
            }
            other => {
                let ordering = other.as_f64().partial_cmp(&bound).unwrap_or(std::cmp::Ordering::Equal);
                (windlass_cel::go::float::verbose(bound), ordering)
            }
        }
    }

    pub(super) fn shown(self, native: bool) -> Value {
        match self {
            Self::Int(int) if native => int.into(),
            other => shown_float(other.as_f64()),
        }
    }
}

/// A float as an error shows it: without a fraction if it has none.
fn shown_float(float: f64) -> Value {
    if float.fract() == 0.0 && float.abs() < 1e15 { Value::from(float as i64) } else { Value::from(float) }
}

/// Whether a float is near enough to a whole number that JSON could have meant one.
pub(super) fn is_whole(float: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    const EPSILON: f64 = 1e-9;
    if !float.is_finite() || float.abs() > LARGEST {
        return false;
    }
    let nearest = float.round();
    let difference = (float - nearest).abs();
    difference == 0.0 || (nearest != 0.0 && difference / (float.abs() + nearest.abs()) < EPSILON)
}
