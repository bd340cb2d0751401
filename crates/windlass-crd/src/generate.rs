//! From a type to its schema.
//!
//! The schema is made twice: of what the type reads, which is what definitions are about, and of what it writes, which
//! says whether a field is ever written as `null`.

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

use crate::structural::Converter;

/// The structural schema of a type, as `crd()` has it.
///
/// ```
/// #[derive(schemars::JsonSchema)]
/// struct Spec {
///     /// How many.
///     replicas: i32,
/// }
///
/// let schema = windlass_crd::schema::<Spec>().to_value();
/// assert_eq!(schema["properties"]["replicas"]["description"], "How many.");
/// ```
pub fn schema<T: JsonSchema + ?Sized>() -> Schema {
    let (read, definitions) = described::<T>(Contract::Deserialize);
    let (written, _) = described::<T>(Contract::Serialize);
    Schema::from(Converter::new(&definitions).root(&read, &written))
}

/// The schema as `schemars` makes it, and the definitions that recursive types refer to.
fn described<T: JsonSchema + ?Sized>(contract: Contract) -> (Value, Map<String, Value>) {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.contract = contract;
    });
    let mut generator = settings.into_generator();
    let schema = T::json_schema(&mut generator).to_value();
    (schema, generator.take_definitions(false))
}
