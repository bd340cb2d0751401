«header»//! Converts «kind» between its versions. «hub» is the hub: every other version is converted to it and from it.

use windlass::webhook::{Convert, ConvertError};

use super::«variable» as spoke;
use «hub_path» as hub;

«head»
    fn into_hub(self) -> Result<hub::«kind», ConvertError> {
        // Nothing may be lost: keep what the hub has no field for in an annotation.
        Ok(hub::«kind» {
            metadata: self.metadata,
            spec: hub::«kind»Spec { foo: self.spec.foo },
«into_status»
        })
    }

    fn from_hub(hub: hub::«kind») -> Result<Self, ConvertError> {
        Ok(spoke::«kind» {
            metadata: hub.metadata,
            spec: spoke::«kind»Spec { foo: hub.spec.foo },
«from_status»
        })
    }
}

#[cfg(test)]
mod tests {
    use windlass::webhook::{RoundTripError, hub_round_trip, round_trip};

    use super::{hub, spoke};

    #[test]
    fn nothing_is_lost() -> Result<(), RoundTripError> {
        let spec = hub::«kind»Spec { foo: Some("bar".into()) };
        let sample = hub::«kind»::new("sample", spec);
        hub_round_trip::<spoke::«kind», _>(&sample)?;
        let spec = spoke::«kind»Spec { foo: Some("bar".into()) };
        let sample = spoke::«kind»::new("sample", spec);
        round_trip::<_, hub::«kind»>(&sample)?;
        Ok(())
    }
}
