// SPDX-License-Identifier: Apache-2.0

//! Decides which requests are traced.
//!
//! The decision is pure: the caller brings the random number. Tracing itself is the service's work.

use std::str::FromStr;

use super::proto;

/// Which requests are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sampler {
    /// None of them.
    #[default]
    Never,
    /// All of them.
    Always,
    /// This fraction of them, from 0 to 1.
    Fraction(f64),
}

/// Why there is no such sampler.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSampler {
    /// The request has no sampler.
    #[error("the sampler is missing")]
    Missing,
    /// The type is unknown or not set.
    #[error("{number} is not a known sampler type")]
    Type {
        /// The number that was sent.
        number: i32,
    },
    /// The fraction is not between 0 and 1.
    #[error("{fraction} is not a fraction between 0 and 1")]
    Fraction {
        /// The number that was sent.
        fraction: f64,
    },
    /// The text is neither a word nor a number.
    #[error("{text:?} is none of never, always and a fraction between 0 and 1")]
    Text {
        /// The text that was given.
        text: String,
    },
}

impl Sampler {
    /// Whether to trace a request for which `roll`, from 0 up to but not including 1, was drawn.
    pub fn picks(self, roll: f64) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Fraction(fraction) => roll < fraction,
        }
    }

    fn fraction(fraction: f64) -> Result<Self, InvalidSampler> {
        if (0.0..=1.0).contains(&fraction) {
            Ok(Self::Fraction(fraction))
        } else {
            Err(InvalidSampler::Fraction { fraction })
        }
    }
}

impl TryFrom<proto::ChangeSamplerReq> for Sampler {
    type Error = InvalidSampler;

    fn try_from(request: proto::ChangeSamplerReq) -> Result<Self, InvalidSampler> {
        let sampler = request.sampler.ok_or(InvalidSampler::Missing)?;
        match sampler.r#type() {
            proto::SamplerType::StNever => Ok(Self::Never),
            proto::SamplerType::StAlways => Ok(Self::Always),
            proto::SamplerType::StFloat => Self::fraction(sampler.float_value),
            proto::SamplerType::StUnknown => Err(InvalidSampler::Type { number: sampler.r#type }),
        }
    }
}

impl FromStr for Sampler {
    type Err = InvalidSampler;

    /// Reads `never`, `always` or a fraction such as `0.25`.
    fn from_str(text: &str) -> Result<Self, InvalidSampler> {
        match text {
            "never" => Ok(Self::Never),
            "always" => Ok(Self::Always),
            number => match number.parse() {
                Ok(fraction) => Self::fraction(fraction),
                Err(_) => Err(InvalidSampler::Text { text: text.into() }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(r#type: i32, float_value: f64) -> Result<Sampler, InvalidSampler> {
        let sampler = Some(proto::Sampler { r#type, float_value });
        proto::ChangeSamplerReq { sampler }.try_into()
    }

    #[test]
    fn a_fraction_picks_the_rolls_below_it() {
        let quarter = Sampler::Fraction(0.25);
        assert!(quarter.picks(0.0));
        assert!(quarter.picks(0.249));
        assert!(!quarter.picks(0.25));
        assert!(!Sampler::Fraction(0.0).picks(0.0));
        assert!(Sampler::Fraction(1.0).picks(0.999_999));
        assert!(Sampler::Always.picks(0.999_999));
        assert!(!Sampler::Never.picks(0.0));
    }

    #[test]
    fn requests_become_samplers() {
        assert_eq!(change(1, 0.5), Ok(Sampler::Never));
        assert_eq!(change(2, 0.5), Ok(Sampler::Always));
        assert_eq!(change(3, 0.5), Ok(Sampler::Fraction(0.5)));
        assert_eq!(change(0, 0.5), Err(InvalidSampler::Type { number: 0 }));
        assert_eq!(change(9, 0.5), Err(InvalidSampler::Type { number: 9 }));
        assert_eq!(change(3, 1.5), Err(InvalidSampler::Fraction { fraction: 1.5 }));
        assert!(change(3, f64::NAN).is_err());
        assert_eq!(Sampler::try_from(proto::ChangeSamplerReq { sampler: None }), Err(InvalidSampler::Missing));
    }

    #[test]
    fn texts_become_samplers() {
        assert_eq!("never".parse(), Ok(Sampler::Never));
        assert_eq!("always".parse(), Ok(Sampler::Always));
        assert_eq!("0.25".parse(), Ok(Sampler::Fraction(0.25)));
        assert!("2".parse::<Sampler>().is_err());
        assert_eq!(
            "often".parse::<Sampler>().unwrap_err().to_string(),
            "\"often\" is none of never, always and a fraction between 0 and 1"
        );
    }
}
