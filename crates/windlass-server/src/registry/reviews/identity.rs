//! Who am I, and whose token is this: SelfSubjectReview and TokenReview.

use serde_json::{Map, Value, json};

use super::{answer, user_info};
use crate::authn::{self, ISSUER};
use crate::context::Context;
use crate::object;
use crate::status::Status;
use crate::validation::access::Access as _;

/// The user as the server sees them.
pub(super) fn myself(context: &Context) -> Value {
    let metadata = json!({"creationTimestamp": object::time(context.now)});
    answer(context, metadata, [("status", json!({"userInfo": user_info(&context.user)}))])
}

/// A review must be about some token.
pub(super) fn check_token(review: &Value) -> Result<(), Status> {
    if review.at("spec").text("token").is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(())
}

/// Who the token in a review stands for.
pub(super) async fn token(context: &Context, mut review: Value) -> Value {
    let spec = review.at("spec");
    let token = spec.text("token");
    let mut audiences: Vec<String> = spec.texts("audiences").into_iter().map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let mut status = Map::new();
    match authn::token_user(&context.api, token, &audiences).await {
        Ok(authenticated) => {
            status.insert("authenticated".into(), true.into());
            status.insert("user".into(), user_info(&authenticated.user));
            status.insert("audiences".into(), authenticated.audiences.into());
        }
        Err(why) => {
            status.insert("user".into(), json!({}));
            status.insert("error".into(), why.into());
        }
    }
    review["status"] = status.into();
    review
}
