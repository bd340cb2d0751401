«header»//! Admission of «kind» objects.

%% if defaulting_path or validation_path
use windlass::webhook::Admission;
%% endif
%% if defaulting
use windlass::webhook::{Defaulter, Denied};
%% endif
%% if validation
use windlass::webhook::{Operation, Validate, Verdict, Warnings};
%% endif
use windlass::webhook::{Request, Webhooks};

use «types»;

/// Adds the webhooks of the kind.
pub fn add_to(mut webhooks: Webhooks) -> Webhooks {
%% if defaulting_path
    webhooks = webhooks.admission(Admission::defaulting::<«type»>(Webhook).at("«defaulting_path»"));
%% elif defaulting
    webhooks = webhooks.defaulter::<«type»>(Webhook);
%% endif
%% if validation_path
    webhooks = webhooks.admission(Admission::validating::<«type»>(Webhook).at("«validation_path»"));
%% elif validation
    webhooks = webhooks.validator::<«type»>(Webhook);
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
    // Leave out what need not be asked: every webhook costs each such request a round trip.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

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
