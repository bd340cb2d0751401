//! Ends pods, and removes what they leave.

use std::fs;
use std::io;
use std::time::Duration;

use super::PodHandle;
use crate::cgroup::Cgroups;
use crate::spec::{LOGS, PodDir, Request};
use crate::wire;

/// How long a pod's parent may take to end everything.
const SHUTDOWN: Duration = Duration::from_secs(10);

impl PodHandle {
    /// Ends everything of the pod.
    pub(in crate::runtime) async fn shut_down(&self) {
        let client = self.client.lock().await.take();
        if let Some(client) = client.filter(|client| !client.is_gone()) {
            let _ = tokio::time::timeout(SHUTDOWN, async {
                let _ = client.ask(Request::Shutdown, &[]).await;
                client.gone().await;
            })
            .await;
        }
        self.containers.lock().clear();
    }
}

/// Ends what is left of a pod, and removes its directory.
pub(in crate::runtime) fn destroy(dir: &PodDir, cgroups: &Cgroups, uid: &str) {
    end_parent(dir);
    cgroups.remove(uid);
    remove_dir(&dir.0);
}

/// Ends what is left of a pod, and removes everything but its output.
pub(in crate::runtime) fn retire(dir: &PodDir, cgroups: &Cgroups, uid: &str) {
    end_parent(dir);
    cgroups.remove(uid);
    for entry in fs::read_dir(&dir.0).into_iter().flatten().flatten().filter(|entry| entry.file_name() != LOGS) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_dir(&entry.path());
        } else {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Ends the parent of a pod, and its containers with it.
pub(in crate::runtime) fn end_parent(dir: &PodDir) {
    if let Ok(socket) = wire::connect(&dir.0) {
        let _ = wire::send(&socket, &(0_u64, Request::Shutdown), &[]);
        // It has ended when the socket does.
        let mut fds = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
        for _ in 0..2 {
            let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            if !matches!(wire::receive::<serde_json::Value>(&socket), Ok(Some(_))) {
                break;
            }
        }
    }
}

/// Removes a directory, also what modes forbid to remove.
fn remove_dir(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for _ in 0..3 {
        match fs::remove_dir_all(dir) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => open_up(dir),
        }
    }
    tracing::warn!(dir = %dir.display(), "the directory of a pod cannot be removed");

    fn open_up(dir: &std::path::Path) {
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open_up(&entry.path());
            }
        }
    }
}
