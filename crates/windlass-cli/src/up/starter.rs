//! The command that starts a cluster in the background, as the cluster's process sees it.
//!
//! Until the command has recorded the cluster, no other command can find it, so it must not outlive the command, however
//! that ends. Standard input is a pipe whose other end only the command has: it writes to it once it has recorded the
//! cluster, and the system closes it when the command ends. A line of output says that this was heard.

use std::io;
use std::os::fd::AsFd as _;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use crate::output;

/// Written by the command once the cluster is recorded.
pub(super) const RECORDED: &[u8] = b"\n";
/// What a line begins with that the command prints for the user.
pub(super) const NOTE: &str = "note ";

pub(super) struct Starter {
    /// None once the cluster is recorded.
    pipe: Option<Receiver>,
}

impl Starter {
    /// For a cluster that need not be recorded.
    pub(super) fn none() -> Self {
        Self { pipe: None }
    }

    pub(super) fn at_standard_input() -> io::Result<Self> {
        Ok(Self { pipe: Some(Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?) })
    }

    /// Says something to the user, also by the command that started this process.
    pub(super) fn note(&self, text: &str) {
        output::note(text);
        if self.pipe.is_some() {
            output::line(format_args!("{NOTE}{}", text.replace('\n', " ")));
        }
    }

    /// Waits until the command has ended without having recorded the cluster, forever if it has. Cancel-safe.
    pub(super) async fn gone(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            if !matches!(pipe.read(&mut [0]).await, Ok(1)) {
                return;
            }
            self.pipe = None;
            output::line("recorded");
        }
        std::future::pending::<()>().await;
    }
}
