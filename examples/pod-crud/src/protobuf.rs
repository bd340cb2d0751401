// SPDX-License-Identifier: Apache-2.0

//! Which objects have a shorter encoding than JSON.
//!
//! API servers can send the kinds of Kubernetes as protobuf, which Go programs use
//! (`config.ContentType = "application/vnd.kubernetes.protobuf"`). They cannot do so with custom resources, whose fields have
//! no numbers. The Rust client always asks for JSON: nothing has to be configured, and nothing differs between kinds. Here
//! the requests are made by hand, to show what a server answers.

use http::Request;
use windlass::kube::client::Body;
use windlass::kube::{Client, Error};

/// What Go programs ask for: protobuf if there is one, else JSON.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";

/// The encoding that the server chooses for what is at a path, as a content type.
pub async fn content_type(client: &Client, path: &str) -> Result<String, Error> {
    let request = Request::get(path).header("Accept", ACCEPT).body(Body::empty()).map_err(Error::HttpError)?;
    let response = client.send(request).await?;
    let content_type = response.headers().get("Content-Type").and_then(|value| value.to_str().ok());
    Ok(content_type.unwrap_or_default().to_owned())
}
