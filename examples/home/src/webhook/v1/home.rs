// SPDX-License-Identifier: Apache-2.0

//! Admission of Home objects. With `ENABLE_WEBHOOKS=false` in its environment the operator serves none of it.

use windlass::webhook::{Defaulter, Denied};
use windlass::webhook::{FieldErrors, Operation, Validate, Verdict, Warnings};
use windlass::webhook::{Request, Webhooks};

use home_api::v1;

/// Adds the webhooks of the kind.
pub fn add_to(mut webhooks: Webhooks) -> Webhooks {
    webhooks = webhooks.defaulter::<v1::Home>(Webhook);
    webhooks = webhooks.validator::<v1::Home>(Webhook);
    webhooks
}

struct Webhook;

impl Defaulter<v1::Home> for Webhook {
    async fn set_defaults(&self, home: &mut v1::Home, _request: &Request<v1::Home>) -> Result<(), Denied> {
        for room in &mut home.spec.rooms {
            room.celsius = Some(room.celsius());
        }
        Ok(())
    }
}

impl Validate<v1::Home> for Webhook {
    // Leave out what need not be asked: every webhook costs each such request a round trip.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

    async fn validate_create(&self, home: &v1::Home, _request: &Request<v1::Home>) -> Verdict {
        // A warning is printed by kubectl; the object is stored.
        match home.spec.rooms.iter().find(|room| room.celsius() > 25) {
            Some(room) => Ok(Warnings::from(format!("spec.rooms: {} is to be very warm", room.name))),
            None => Ok(Warnings::none()),
        }
    }

    async fn validate_update(&self, old: &v1::Home, new: &v1::Home, request: &Request<v1::Home>) -> Verdict {
        let mut errors = FieldErrors::default();
        if old.spec.address != new.spec.address {
            errors.invalid("spec.address", &new.spec.address, "a home does not move");
        }
        errors.into_result::<v1::Home>(&request.name)?;
        self.validate_create(new, request).await
    }

    async fn validate_delete(&self, home: &v1::Home, _request: &Request<v1::Home>) -> Verdict {
        match home.spec.occupied {
            true => Err(Denied::new("somebody lives there: set spec.occupied to false first")),
            false => Ok(Warnings::none()),
        }
    }
}
