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
//! A user who is not root runs all of that in a [user namespace](user_namespace).
//!
//! No part of this needs `unsafe`: processes are started by the standard library, and set themselves up after that.

#![cfg(target_os = "linux")]

pub mod cgroup;
pub mod network;
pub mod user_namespace;

mod init;
mod overlay;
mod parent;
mod runtime;
mod spec;
mod wire;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

pub use runtime::{Containers, Options, Tokens};
pub use spec::Isolation;
pub use user_namespace::UserNamespace;

/// What containers do without on this machine, each with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Why the files of images are copied for each container.
    pub overlays: Option<String>,
    /// Why pods have no network beyond their own.
    pub nftables: Option<String>,
}

/// Whether containers can run here, and what they do without; why not otherwise. Tries it in another process: `program` is one
/// with [`entry`]. A user who is not root has to [enter](UserNamespace::enter) a user namespace before containers run.
pub fn probe(program: &Path) -> Result<Missing, String> {
    let output = Command::new(program).arg(spec::PROBE).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match (output.status.success(), said.is_empty()) {
        (true, _) => Ok(Missing::parse(&said)),
        (false, true) => Err("namespaces cannot be tried".to_owned()),
        (false, false) => Err(said),
    }
}

impl Missing {
    /// Reads what a probe has written: a line for each thing, `NAME WHY`.
    fn parse(said: &str) -> Self {
        let why = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(|why| why.trim().to_owned());
        Self { overlays: why(spec::NO_OVERLAYS), nftables: why(spec::NO_NFTABLES) }
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
        spec::PROBE => Some(parent::probe(&arguments)),
        user_namespace::KEEPER => Some(user_namespace::run(&arguments)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_say_what_is_missing() {
        assert_eq!(Missing::parse(""), Missing::default());
        let found = Missing::parse("no-nftables Invalid argument (os error 22)\n");
        assert_eq!((found.overlays, found.nftables.as_deref()), (None, Some("Invalid argument (os error 22)")));
    }
}
