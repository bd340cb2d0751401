//! Webhooks that do not answer: which object has the server call them, and what to do about it.

use serde_json::Value;

use super::apply;

/// What API servers say before the name of a webhook for admission (`webhook/errors.go` in apiserver).
const ADMISSION: &str = "failed calling webhook \"";
/// And before the kind that is converted (`conversion/webhook_converter.go` in apiextensions-apiserver).
const CONVERSION: &str = "conversion webhook for ";
/// Where webhooks for admission are registered.
const KINDS: [&str; 2] = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];

/// The webhook that a request failed for.
#[derive(Debug, PartialEq, Eq)]
enum Silent<'a> {
    /// One for admission, by its name.
    Admission(&'a str),
    Conversion,
}

impl<'a> Silent<'a> {
    fn read(message: &'a str) -> Option<Self> {
        if let Some((_, rest)) = message.split_once(ADMISSION) {
            return rest.split_once('"').map(|(name, _)| Self::Admission(name));
        }
        message.contains(CONVERSION).then_some(Self::Conversion)
    }
}

/// What a server says about a request that failed, about objects of a definition. If a webhook did not answer, also where
/// it is registered and what to do.
pub(crate) async fn explain(client: &kube::Client, definition: &str, message: String) -> String {
    match Silent::read(&message) {
        None => message,
        Some(Silent::Admission(name)) => {
            format!("{message}. {}", of_admission(name, &configurations(client, name).await))
        }
        Some(Silent::Conversion) => format!(
            "{message}. The webhook is named in customresourcedefinition/{definition}: start the operator that serves it, or \
             turn conversion off with `kubectl patch customresourcedefinition {definition} --type merge -p \
             '{{\"spec\":{{\"conversion\":{{\"strategy\":\"None\",\"webhook\":null}}}}}}'`; then run this command again"
        ),
    }
}

fn of_admission(webhook: &str, configurations: &[String]) -> String {
    let what_next = "then run this command again";
    if configurations.is_empty() {
        return format!(
            "Start the operator that serves it, or delete the webhook configuration that has {webhook:?}; {what_next}"
        );
    }
    let delete: Vec<String> = configurations.iter().map(|named| format!("`kubectl delete {named}`")).collect();
    format!(
        "The webhook is registered by {}: start the operator that serves it, or take it away with {}; {what_next}",
        configurations.join(" and "),
        delete.join(" and ")
    )
}

/// The configurations that have a webhook of this name, as `kind/name`. What cannot be read is left out.
async fn configurations(client: &kube::Client, webhook: &str) -> Vec<String> {
    let mut found = Vec::new();
    for kind in KINDS {
        let list = apply::get(client, &format!("/apis/admissionregistration.k8s.io/v1/{kind}s")).await;
        let list = list.ok().flatten().unwrap_or_default();
        found.extend(with_webhook(&list, webhook).map(|name| format!("{kind}/{name}")));
    }
    found
}

fn with_webhook<'a>(list: &'a Value, webhook: &'a str) -> impl Iterator<Item = &'a str> {
    let has_it = move |configuration: &&Value| {
        configuration["webhooks"].as_array().into_iter().flatten().any(|one| one["name"] == webhook)
    };
    list["items"].as_array().into_iter().flatten().filter(has_it).filter_map(|one| one["metadata"]["name"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_that_does_not_answer_is_recognised() {
        let admission =
            "Internal error occurred: failed calling webhook \"vpet.example.com\": failed to call webhook: no route";
        assert_eq!(Silent::read(admission), Some(Silent::Admission("vpet.example.com")));
        let conversion = "conversion webhook for example.com/v1, Kind=Pet failed: Post \"https://x\": refused";
        assert_eq!(Silent::read(conversion), Some(Silent::Conversion));
        // One that answered has said why.
        assert_eq!(Silent::read("admission webhook \"vpet.example.com\" denied the request: no"), None);
    }

    #[test]
    fn the_configuration_is_named_with_its_deletion() {
        let list = json!({"items": [
            {"metadata": {"name": "pets"}, "webhooks": [{"name": "a.example.com"}, {"name": "b.example.com"}]},
            {"metadata": {"name": "others"}, "webhooks": [{"name": "a.example.com"}]},
            {"metadata": {"name": "empty"}},
        ]});
        assert_eq!(with_webhook(&list, "b.example.com").collect::<Vec<_>>(), ["pets"]);
        let said = of_admission("b.example.com", &["validatingwebhookconfiguration/pets".to_owned()]);
        assert_eq!(
            said,
            "The webhook is registered by validatingwebhookconfiguration/pets: start the operator that serves it, or take it \
             away with `kubectl delete validatingwebhookconfiguration/pets`; then run this command again"
        );
        assert!(of_admission("b.example.com", &[]).contains("that has \"b.example.com\""));
    }
}
