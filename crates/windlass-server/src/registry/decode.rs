//! Bodies become objects: decoded, typed against the kind's schema, complaints gathered.

use serde_json::Value;

use super::Context;
use crate::catalog::Behaviour;
use crate::codec::negotiate::{self, Format};
use crate::codec::{self, Expected, body};
use crate::options::FieldValidation;
use crate::status::Status;

/// The object in the body, of the kind that the path names.
pub(super) fn object(context: &mut Context, validation: FieldValidation) -> Result<Value, Status> {
    let expected = Expected::from(&context.served.resource);
    decode_as(context, expected, validation)
}

fn content_type(context: &Context) -> Option<&str> {
    context.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok())
}

fn decode_as(context: &Context, expected: Expected<'_>, validation: FieldValidation) -> Result<Value, Status> {
    let _ = validation;
    let format = negotiate::body_format(content_type(context), expected.custom)?;
    let decoded = codec::decode_body(&context.body, format, expected)?;
    Ok(decoded.value)
}
