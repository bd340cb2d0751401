//! Compiles the protocol definitions with a compiler written in Rust: building needs no `protoc`.

use std::{env, fs, path::PathBuf};

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    println!("cargo:rerun-if-changed=proto");

    let descriptors = protox::compile(["petstore.proto"], ["proto"]).context("proto/petstore.proto is invalid")?;

    // Kept beside the generated code so that the server can describe itself over gRPC reflection.
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    fs::write(out_dir.join("petstore.bin"), protox::prost::Message::encode_to_vec(&descriptors))
        .context("cannot write the descriptor set")?;

    tonic_prost_build::configure().compile_fds(descriptors).context("cannot generate code")
}
