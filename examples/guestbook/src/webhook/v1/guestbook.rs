// SPDX-License-Identifier: Apache-2.0

//! Admission of Guestbook objects: defaults, and what a schema cannot say.

use windlass::webhook::{Defaulter, Denied};
use windlass::webhook::{FieldErrors, Operation, Validate, Verdict, Warnings};
use windlass::webhook::{Request, Webhooks};

use guestbook_api::v1;

/// The longest name: the names of the parts begin with it, and a Service's has at most 63 characters.
const LONGEST_NAME: usize = 63 - "-redis-follower".len();

/// Adds the webhooks of the kind.
pub fn add_to(mut webhooks: Webhooks) -> Webhooks {
    webhooks = webhooks.defaulter::<v1::Guestbook>(Webhook);
    webhooks = webhooks.validator::<v1::Guestbook>(Webhook);
    webhooks
}

struct Webhook;

impl Defaulter<v1::Guestbook> for Webhook {
    /// Writes down what the spec leaves open, so that `kubectl get -o yaml` shows what there is.
    async fn set_defaults(
        &self,
        guestbook: &mut v1::Guestbook,
        _request: &Request<v1::Guestbook>,
    ) -> Result<(), Denied> {
        let spec = &mut guestbook.spec;
        spec.frontends = Some(spec.frontends());
        spec.followers = Some(spec.followers());
        spec.service_type = Some(spec.service_type());
        Ok(())
    }
}

impl Validate<v1::Guestbook> for Webhook {
    // Leave out what need not be asked: every webhook costs each such request a round trip.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

    async fn validate_create(&self, guestbook: &v1::Guestbook, request: &Request<v1::Guestbook>) -> Verdict {
        let mut errors = FieldErrors::default();
        let name = guestbook.metadata.name.as_deref().unwrap_or_default();
        if name.len() > LONGEST_NAME {
            errors.invalid("metadata.name", name, &format!("must be no more than {LONGEST_NAME} characters"));
        }
        errors.into_result::<v1::Guestbook>(&request.name)?;
        if guestbook.spec.followers() == 0 {
            return Ok(Warnings::from("spec.followers: without followers the leader answers all reads"));
        }
        Ok(Warnings::none())
    }

    async fn validate_update(
        &self,
        old: &v1::Guestbook,
        new: &v1::Guestbook,
        request: &Request<v1::Guestbook>,
    ) -> Verdict {
        let was_public = old.spec.service_type() == v1::ServiceType::LoadBalancer;
        if was_public && new.spec.service_type() != v1::ServiceType::LoadBalancer {
            let mut errors = FieldErrors::default();
            errors.forbidden("spec.serviceType", "the address of the load balancer would be lost");
            return errors.into_result::<v1::Guestbook>(&request.name);
        }
        self.validate_create(new, request).await
    }

    async fn validate_delete(&self, guestbook: &v1::Guestbook, _request: &Request<v1::Guestbook>) -> Verdict {
        match guestbook.spec.deletion_protection {
            true => Err(Denied::new("the guestbook is protected: set spec.deletionProtection to false first")),
            false => Ok(Warnings::none()),
        }
    }
}
