//! Answers for containers that are not there, as kwok's objects say: from files, by programs on the host, and by connections
//! to other addresses.
//!
//! An object in a pod's namespace with the pod's name comes first, then those for the whole cluster that select the pod. A
//! pod without any is answered for by the simulation.
//!
//! These objects reach files and programs of the machine, with the rights of the process that runs the cluster: a user who may
//! create them may do the same.

mod log_file;
mod process;

use bytes::Bytes;
use futures::future::FutureExt as _;
use futures::stream::BoxStream;
use tokio::net::TcpStream;
use windlass::cache::Lister;
use windlass::{Manager, ObjectKey};
use windlass_node::runtime::{Connection, ExecOptions, LogOptions, Operation, PodSandbox, RuntimeError, Session};
use windlass_node::simulation::Console;

use crate::objects::{
    Attach, ClusterAttach, ClusterExec, ClusterLogs, ClusterPortForward, Exec, Logs, ObjectSelector, PortForward,
};

/// Kwok's objects about containers, as a manager watches them.
pub struct Objects {
    logs: Lister<Logs>,
    cluster_logs: Lister<ClusterLogs>,
    execs: Lister<Exec>,
    cluster_execs: Lister<ClusterExec>,
    attaches: Lister<Attach>,
    cluster_attaches: Lister<ClusterAttach>,
    forwards: Lister<PortForward>,
    cluster_forwards: Lister<ClusterPortForward>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    /// The objects that a manager watches.
    pub fn new(manager: &Manager) -> Self {
        Self {
            logs: manager.lister(),
            cluster_logs: manager.lister(),
            execs: manager.lister(),
            cluster_execs: manager.lister(),
            attaches: manager.lister(),
            cluster_attaches: manager.lister(),
            forwards: manager.lister(),
            cluster_forwards: manager.lister(),
        }
    }
}

/// A pod's name, as messages and keys have it.
struct Target {
    namespace: String,
    name: String,
}

impl Target {
    fn of(pod: &PodSandbox) -> Self {
        let meta = &pod.pod.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { namespace: text(&meta.namespace), name: text(&meta.name) }
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }

    fn is_selected(&self, selector: Option<&ObjectSelector>) -> bool {
        selector.is_none_or(|selector| selector.matches(&self.namespace, &self.name))
    }
}

/// What is said for one container or port among what is said for several: for it by name, else for all others.
fn find<T: Clone>(items: &[T], names: impl Fn(&T) -> bool, is_for_all: impl Fn(&T) -> bool) -> Option<T> {
    items.iter().find(|item| names(item)).or_else(|| items.iter().find(|item| is_for_all(item))).cloned()
}

/// What the objects say about a pod: `None` if there is none, and an error if there are some but not for this.
fn said<T: Clone>(
    own: Option<Vec<T>>,
    for_cluster: impl Iterator<Item = Vec<T>>,
    find: impl Fn(&[T]) -> Option<T>,
    missing: impl Fn() -> String,
) -> Option<Result<T, RuntimeError>> {
    if let Some(own) = own {
        return Some(find(&own).ok_or_else(|| RuntimeError::NotFound(missing())));
    }
    for_cluster.into_iter().find_map(|items| find(&items)).map(Ok)
}

impl Console for Objects {
    fn logs(
        &self,
        pod: &PodSandbox,
        container: &str,
        options: &LogOptions,
    ) -> Option<Operation<BoxStream<'static, Bytes>>> {
        let target = Target::of(pod);
        let own = self.logs.get(&target.key()).map(|object| object.spec.logs.clone());
        let all = self.cluster_logs.list();
        let for_cluster = all.iter().filter(|object| target.is_selected(object.spec.selector.as_ref()));
        let log = said(
            own,
            for_cluster.map(|object| object.spec.logs.clone()),
            |items| {
                find(
                    items,
                    |item| item.containers.iter().any(|name| name == container),
                    |item| item.containers.is_empty(),
                )
            },
            || {
                format!(
                    "log target not found for container {container:?} in pod \"{}/{}\"",
                    target.namespace, target.name
                )
            },
        )?;
        let log = match log {
            Ok(log) => log,
            Err(error) => return Some(Operation::Done(Err(error))),
        };
        let file = if options.previous { log.previous_logs_file } else { log.logs_file };
        let mut options = options.clone();
        options.follow &= log.follow != Some(false);
        Some(Operation::Pending(log_file::open(file.unwrap_or_default(), options).boxed()))
    }

    fn exec(&self, pod: &PodSandbox, container: &str, command: &ExecOptions) -> Option<Operation<Session>> {
        let target = Target::of(pod);
        let own = self.execs.get(&target.key()).map(|object| object.spec.execs.clone());
        let all = self.cluster_execs.list();
        let for_cluster = all.iter().filter(|object| target.is_selected(object.spec.selector.as_ref()));
        let exec = said(
            own,
            for_cluster.map(|object| object.spec.execs.clone()),
            |items| {
                find(
                    items,
                    |item| item.containers.iter().any(|name| name == container),
                    |item| item.containers.is_empty(),
                )
            },
            || {
                format!(
                    "exec target not found for container {container:?} in pod \"{}/{}\"",
                    target.namespace, target.name
                )
            },
        )?;
        let started = exec.and_then(|exec| match exec.local {
            Some(local) => process::start(&local, command),
            None => Err(RuntimeError::Unsupported("not set local exec".to_owned())),
        });
        Some(Operation::Done(started))
    }

    fn attach(&self, pod: &PodSandbox, container: &str, _: bool) -> Option<Operation<Session>> {
        let target = Target::of(pod);
        let own = self.attaches.get(&target.key()).map(|object| object.spec.attaches.clone());
        let all = self.cluster_attaches.list();
        let for_cluster = all.iter().filter(|object| target.is_selected(object.spec.selector.as_ref()));
        let attach = said(
            own,
            for_cluster.map(|object| object.spec.attaches.clone()),
            |items| {
                find(
                    items,
                    |item| item.containers.iter().any(|name| name == container),
                    |item| item.containers.is_empty(),
                )
            },
            || {
                format!(
                    "attaches target not found for container {container:?} in pod \"{}/{}\"",
                    target.namespace, target.name
                )
            },
        )?;
        Some(match attach {
            Ok(attach) => Operation::Pending(log_file::attach(attach.logs_file.unwrap_or_default()).boxed()),
            Err(error) => Operation::Done(Err(error)),
        })
    }

    fn port(&self, pod: &PodSandbox, port: u16) -> Option<Operation<Box<dyn Connection>>> {
        let target = Target::of(pod);
        let own = self.forwards.get(&target.key()).map(|object| object.spec.forwards.clone());
        let all = self.cluster_forwards.list();
        let for_cluster = all.iter().filter(|object| target.is_selected(object.spec.selector.as_ref()));
        let forward = said(
            own,
            for_cluster.map(|object| object.spec.forwards.clone()),
            |items| find(items, |item| item.ports.contains(&port), |item| item.ports.is_empty()),
            || format!("forward not found for port {port} in pod \"{}/{}\"", target.namespace, target.name),
        )?;
        let forward = match forward {
            Ok(forward) => forward,
            Err(error) => return Some(Operation::Done(Err(error))),
        };
        if !forward.command.is_empty() {
            return Some(Operation::Done(process::connect(&forward.command)));
        }
        let Some(to) = forward.target else {
            return Some(Operation::Done(Err(RuntimeError::Unsupported("no target or command".to_owned()))));
        };
        Some(Operation::Pending(
            async move {
                let stream = TcpStream::connect((to.address.as_str(), to.port)).await.map_err(|error| {
                    RuntimeError::NotFound(format!("failed to dial {}:{}: {error}", to.address, to.port))
                })?;
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream) as Box<dyn Connection>)
            }
            .boxed(),
        ))
    }
}
