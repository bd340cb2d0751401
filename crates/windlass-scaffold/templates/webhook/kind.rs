«header»//! Admission of «kind» objects.

%% if validation
use windlass::webhook::{Admission, Operation, Validate, Verdict, Warnings};
%% endif
%% if defaulting
use windlass::webhook::{Defaulter, Denied};
%% endif
use windlass::webhook::{Request, Webhooks};

use «types»;

/// Adds the webhooks of the kind.
pub fn add_to(mut webhooks: Webhooks) -> Webhooks {
%% if defaulting
    webhooks = webhooks.defaulter::<«type»>(Webhook);
%% endif
%% if validation
    // Leave out what need not be asked: every webhook costs each such request a round trip.
    let operations = [Operation::Create, Operation::Update, Operation::Delete];
    webhooks = webhooks.admission(Admission::validating::<«type»>(Webhook).operations(operations));
%% endif
    webhooks
}

struct Webhook;
%% if defaulting

impl Defaulter<«type»> for Webhook {
«set_defaults» {
        Ok(())
    }
}
%% endif
%% if validation

impl Validate<«type»> for Webhook {
«validate_create» {
        Ok(Warnings::none())
    }

«validate_update» {
        self.validate_create(new, request).await
    }

«validate_delete» {
        Ok(Warnings::none())
    }
}
%% endif
