//! Pods of containers, without a container engine: [`Containers`], a [`Runtime`](windlass_node::Runtime).
//!
//! Each pod has one small process, its *parent*: the same program, started again as `pod-parent`. It lives in the pod's
//! network, IPC and host name namespaces, has the pod's secrets in a file system in memory that only the pod sees, and
//! starts containers as its children. It has one thread and survives the process that started it, which finds it
//! again by a socket in the pod's directory. See docs/design/0007-containers.md.
//!
//! ```text
//! windlass up                 Containers: images, volumes, hooks, what is decided
//!   └ pod-parent              spec.rs: what they say to each other over a socket
//!       └ container-init      becomes the container's program: mounts, user, capabilities, exec
//! ```
//!
//! No part of this needs `unsafe`: processes are started by the standard library, and set themselves up after that.

#![cfg(target_os = "linux")]

pub mod cgroup;
pub mod network;

mod init;
mod parent;
mod runtime;
mod spec;
mod wire;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

pub use runtime::{Containers, Options, Tokens};
pub use spec::Isolation;

/// Whether containers can run here; why not otherwise. Tries it in another process: `program` is one with [`entry`].
pub fn probe(program: &Path) -> Result<(), String> {
    // A parent could not return from a process namespace that it makes for a child: its own one is not its user's.
    if !rustix::process::geteuid().is_root() {
        return Err("only root can run them yet".to_owned());
    }
    let output = Command::new(program).arg(spec::PROBE).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match (output.status.success(), said.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err("namespaces cannot be tried".to_owned()),
        (false, false) => Err(said),
    }
}

/// Runs what this program is when it was started by itself as a part of a pod. `None` for every other command line.
/// To be called before anything else, while the process has one thread.
pub fn entry() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next()?;
    let arguments: Vec<String> = arguments.collect();
    match role.as_str() {
        spec::PARENT => Some(parent::run(&arguments)),
        spec::INIT => Some(init::run(&arguments)),
        spec::PAUSE => Some(parent::pause()),
        spec::PROBE => Some(parent::probe()),
        _ => None,
    }
}
