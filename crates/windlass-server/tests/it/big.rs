//! Definitions as large as real ones get.

use serde_json::json;

use crate::big_crd::{DEFINITIONS, OBJECTS, definition, platform};
use crate::client::{create, get, post, start};

#[tokio::test]
async fn a_definition_of_a_megabyte_serves_once_created() {
    let crd = definition();
    assert!(crd.to_string().len() > 1 << 20, "{}", crd.to_string().len());
    let server = start().await;
    create(&server, DEFINITIONS, &crd).await;
    let made = create(&server, OBJECTS, &platform("full", 4)).await;
    let deepest = (0..9).fold(&made["spec"], |part, _| &part["part0"]);
    assert_eq!(deepest["name"], "part-9");
    assert_eq!(deepest["mode"], "Auto", "defaults reach the twelfth level");

    let mut wrong = platform("wrong", 1);
    let part = (0..9).fold(&mut wrong["spec"], |part, _| &mut part["part0"]);
    part["mode"] = json!("Sideways");
    part["rules"] = json!([{"key": "a"}, {"key": "a"}]);
    let refused = post(&server, OBJECTS, &wrong).await;
    assert_eq!(refused.code, 422);
    let deep = format!("spec{}", ".part0".repeat(9));
    for words in [
        format!("{deep}.mode: Unsupported value: \"Sideways\""),
        format!("{deep}.rules[1]: Duplicate value: {{\"key\":\"a\"}}"),
    ] {
        assert!(refused.message().contains(&words), "{words}: {}", refused.message());
    }
    let mut wrong = platform("wrong", 1);
    wrong["spec"]["part0"]["minimum"] = json!(10);
    let refused = post(&server, OBJECTS, &wrong).await;
    assert!(refused.message().ends_with(": the minimum is the smaller one"), "{}", refused.message());
    let openapi = get(&server, "/openapi/v3/apis/big.example.com/v1").await;
    assert!(openapi.body["components"]["schemas"]["com.example.big.v1.Platform"].is_object());
    server.stop().await.unwrap();
}
