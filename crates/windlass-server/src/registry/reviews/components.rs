//! Component statuses: the parts of a control plane, all of them in this process and so all well.

use http::StatusCode;
use serde_json::{Value, json};
use windlass_store::Entry;

use super::answer;
use crate::answer::ListMeta;
use crate::codec::write;
use crate::context::{Answer, Context};
use crate::request::Verb;
use crate::status::{Qualified, Status};

/// The parts that upstream reports on.
const COMPONENTS: [&str; 3] = ["controller-manager", "etcd-0", "scheduler"];

/// Answers GET and LIST.
pub(super) async fn serve(context: &mut Context) -> Result<Answer, Status> {
    context.warnings.push("v1 ComponentStatus is deprecated in v1.19+".to_owned());
    if context.verb != Verb::Get {
        let entry = |name: &'static str| Entry {
            key: name.into(),
            value: write::to_vec(&status(context, name)).into(),
            created: 0,
            modified: 1,
        };
        let entries = COMPONENTS.into_iter().map(entry).collect();
        let warnings = std::mem::take(&mut context.warnings);
        return Ok(Answer::List { entries, meta: ListMeta::default(), warnings });
    }
    let Some(name) = COMPONENTS.into_iter().find(|known| *known == context.name()) else {
        return Err(Status::not_found(Qualified { group: "", name: "componentstatus" }, context.name()));
    };
    let stored = context.unsaved(&status(context, name)).await?;
    Ok(context.answer(StatusCode::OK, stored))
}

fn status(context: &Context, name: &str) -> Value {
    let condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    answer(context, json!({"name": name}), [("conditions", json!([condition]))])
}
