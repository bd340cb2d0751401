//! The processes of a pod, for the tests of this crate.

fn main() -> std::process::ExitCode {
    windlass_container::entry().unwrap_or(std::process::ExitCode::FAILURE)
}
