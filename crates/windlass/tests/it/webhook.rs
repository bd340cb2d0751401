//! Webhooks, asked by a real API server over real TLS.

mod admission;
mod call;
mod certificates;
mod conversion;
mod inject;
mod server;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use tokio::sync::Semaphore;
use windlass::Manager;
use windlass::webhook::{
    Certificates, Defaulter, Denied, FieldErrors, Operation, Request, SelfManaged, Validate, Verdict, Warnings,
    Webhooks,
};

use crate::bench::{Bench, Pet, Running};
use call::Caller;

pub const DEFAULT: &str = "/mutate-petstore-example-com-v1-pet";
pub const VALIDATE: &str = "/validate-petstore-example-com-v1-pet";

/// Rules for pets: every one knows to sit, a secret is none of ours, and so on.
#[derive(Clone)]
pub struct Rules {
    /// Pets named `slow` are judged once there is a permit.
    pub gate: Arc<Semaphore>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)) }
    }
}

impl Defaulter<Pet> for Rules {
    async fn set_defaults(&self, pet: &mut Pet, request: &Request<Pet>) -> Result<(), Denied> {
        if pet.spec.name == "nobody" {
            return Err("nobody is not a pet".into());
        }
        if pet.spec.tricks.is_empty() {
            pet.spec.tricks.push("sit".to_owned());
        }
        let user = request.user_info.username.clone().unwrap_or_default();
        pet.metadata.annotations.get_or_insert_default().insert("by".to_owned(), user);
        Ok(())
    }
}

impl Validate<Pet> for Rules {
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

    async fn validate_create(&self, pet: &Pet, request: &Request<Pet>) -> Verdict {
        match pet.spec.name.as_str() {
            "slow" => drop(self.gate.acquire().await),
            "panic" => panic!("scripted"),
            _ => {}
        }
        let mut errors = FieldErrors::default();
        if pet.spec.name.len() > 8 {
            errors.invalid("spec.name", &pet.spec.name, "must have at most 8 letters");
        }
        if pet.spec.tricks.iter().any(|trick| trick == "bite") {
            errors.forbidden("spec.tricks", "no biting");
        }
        errors.into_result::<Pet>(&request.name)?;
        Ok(if pet.spec.tricks.len() > 2 { "that is a lot of tricks".into() } else { Warnings::none() })
    }

    async fn validate_update(&self, old: &Pet, new: &Pet, request: &Request<Pet>) -> Verdict {
        if old.spec.name != new.spec.name {
            let warnings = Warnings::from("it would not listen to it");
            return Err(Denied::with_code(409, "Conflict", "pets keep their name").warn(warnings));
        }
        self.validate_create(new, request).await
    }

    async fn validate_delete(&self, pet: &Pet, _: &Request<Pet>) -> Verdict {
        match pet.spec.name.as_str() {
            "immortal" => Err(Denied::new("it does not die").warn("do not try again".into())),
            "beloved" => Ok("it will be missed".into()),
            _ => Ok(Warnings::none()),
        }
    }
}

/// The rules, at a free port.
pub fn webhooks(rules: &Rules, certificates: Certificates) -> Webhooks {
    Webhooks::new()
        .listen("127.0.0.1:0")
        .certificates(certificates)
        .defaulter::<Pet>(rules.clone())
        .validator::<Pet>(rules.clone())
}

/// Self-managed, registered, reached directly, looked after often.
pub fn settings() -> SelfManaged {
    SelfManaged::new("default").directly().register("it").settle(Duration::ZERO)
}

pub fn certificates(settings: SelfManaged) -> Certificates {
    Certificates::self_managed(settings).check_every(Duration::from_millis(20))
}

/// A manager that serves the rules, with the address where it does.
pub fn manager(bench: &Bench, webhooks: Webhooks) -> (Manager, Caller) {
    let builder = Manager::builder(bench.kube.clone()).name("it").probes("127.0.0.1:0").metrics("127.0.0.1:0");
    let mut manager = builder.build().expect("a manager");
    manager.add_webhooks(webhooks).expect("added");
    let address = manager.webhook_addresses()[0];
    (manager, Caller::new(address))
}

/// The same, running and registered.
pub async fn serve(bench: &Bench, rules: &Rules) -> (Running, Caller) {
    let (manager, caller) = manager(bench, webhooks(rules, certificates(settings())));
    let running = Running::ready(manager).await;
    (running, caller.trusting(&bundle(bench).await))
}

pub async fn secret(bench: &Bench) -> Secret {
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.get("webhook-server-cert").await.expect("there")
}

pub fn entry(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref().expect("data");
    String::from_utf8(data[key].0.clone()).expect("text")
}

pub async fn bundle(bench: &Bench) -> String {
    entry(&secret(bench).await, "ca.crt")
}
