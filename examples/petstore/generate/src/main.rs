//! Generates `src/service/generated` from `proto`, with a protobuf compiler written in Rust: no `protoc` is needed.
//!
//! The result is part of the source, so that the pet store and its operator build without a compiler for protobuf. With
//! `--check` nothing is written: the command fails if a file differs.
//!
//! ```sh
//! cargo run --manifest-path generate/Cargo.toml
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use protox::prost::Message as _;

fn main() -> Result<()> {
    let check = std::env::args().any(|argument| argument == "--check");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, wanted) in generate(&root.join("proto"))? {
        let path = root.join("src/service/generated").join(&name);
        let problem = || path.display().to_string();
        if check {
            let found = fs::read(&path).with_context(problem)?;
            ensure!(found == wanted, "{} is out of date: run petstore-generate without --check", problem());
        } else {
            fs::write(&path, wanted).with_context(problem)?;
        }
    }
    Ok(())
}

/// The files by their names.
fn generate(definitions: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let descriptors = protox::compile(["petstore.proto"], [definitions]).context("proto/petstore.proto is invalid")?;
    let mut files = BTreeMap::new();
    // For gRPC reflection: the server describes itself with it.
    files.insert("petstore.bin".to_owned(), descriptors.encode_to_vec());
    let directory = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .out_dir(directory.path())
        .compile_fds(descriptors)
        .context("cannot generate code")?;
    for entry in fs::read_dir(directory.path())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().replace("r#", "");
        files.insert(name, fs::read(entry.path())?);
    }
    Ok(files)
}
