// SPDX-License-Identifier: Apache-2.0

//! Admission of Pet objects. The API server converts what is written in another version before it asks.

use windlass::webhook::{FieldErrors, Operation, Validate, Verdict, Warnings};
use windlass::webhook::{Request, Webhooks};

use petstore_api::v1beta1;

/// Adds the webhooks of the kind.
pub fn add_to(mut webhooks: Webhooks) -> Webhooks {
    webhooks = webhooks.validator::<v1beta1::Pet>(Webhook);
    webhooks
}

struct Webhook;

impl Validate<v1beta1::Pet> for Webhook {
    // Leave out what need not be asked: every webhook costs each such request a round trip.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    async fn validate_create(&self, pet: &v1beta1::Pet, request: &Request<v1beta1::Pet>) -> Verdict {
        let mut errors = FieldErrors::default();
        if pet.spec.birthday().is_none() {
            errors.invalid("spec.birthday", &pet.spec.birthday, "no day of the calendar");
        }
        errors.into_result::<v1beta1::Pet>(&request.name)?;
        Ok(Warnings::none())
    }

    async fn validate_update(
        &self,
        old: &v1beta1::Pet,
        new: &v1beta1::Pet,
        request: &Request<v1beta1::Pet>,
    ) -> Verdict {
        // A Pet that is older than this webhook can still be labelled, and deleted.
        if old.spec.birthday == new.spec.birthday {
            return Ok(Warnings::none());
        }
        self.validate_create(new, request).await
    }
}
