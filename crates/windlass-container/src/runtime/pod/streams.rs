//! How a pod is reached: its output, commands in its containers, and its ports.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use windlass_node::probes::Target;
use windlass_node::runtime::{Connection, ExecOptions, LogOptions, RuntimeError, Session};

use super::{PodHandle, create};
use crate::network::NetworkNamespace;
use crate::runtime::client::Client;
use crate::runtime::logs;
use crate::runtime::session::{Stream, pipe, terminal};
use crate::spec::{PodConfig, ProcessConfig, Request};
use crate::wire;

impl PodHandle {
    pub(in crate::runtime) fn logs(
        &self,
        container: &str,
        options: &LogOptions,
    ) -> Result<BoxStream<'static, Bytes>, RuntimeError> {
        let containers = self.containers.lock();
        let known = containers.get(container);
        let known = known.ok_or_else(|| RuntimeError::NotFound(format!("container {container:?} was not started")))?;
        let attempt = if options.previous { known.attempt - 1 } else { known.attempt };
        let path = self.dir.log(container, attempt);
        if options.previous && !path.exists() {
            let message = format!("previous terminated container {container:?} in pod not found");
            return Err(RuntimeError::NotFound(message));
        }
        let ended = (!options.previous).then(|| known.ended.subscribe());
        logs::read(path, options.clone(), ended).map_err(|error| RuntimeError::NotFound(error.to_string()))
    }

    pub(super) async fn running(&self) -> Result<Arc<Client>, RuntimeError> {
        let client = self.client.lock().await.clone();
        let client = client.filter(|client| !client.is_gone());
        client.ok_or_else(|| RuntimeError::NotFound("the pod does not run".to_owned()))
    }

    /// Runs a command to its end: its exit code, and what it wrote.
    pub(in crate::runtime) async fn run(
        &self,
        container: &str,
        command: Vec<String>,
    ) -> Result<(i32, String), RuntimeError> {
        let options = ExecOptions { command, ..ExecOptions::default() };
        let mut session = self.exec(container, &options).await?;
        let mut output = Vec::new();
        for stream in [&mut session.stdout, &mut session.stderr].into_iter().flatten() {
            let _ = (&mut **stream).take(10 << 10).read_to_end(&mut output).await;
        }
        let code = session.exit.await?;
        Ok((code, String::from_utf8_lossy(&output).into_owned()))
    }

    pub(in crate::runtime) async fn exec(
        &self,
        container: &str,
        options: &ExecOptions,
    ) -> Result<Session, RuntimeError> {
        let client = self.running().await?;
        // Everything else is as the container's own process has it.
        let process = ProcessConfig {
            arguments: options.command.clone(),
            terminal: options.terminal,
            ..ProcessConfig::default()
        };
        let content = wire::content(&process).map_err(create)?;
        if options.terminal {
            let (shown, used) = terminal(options.size).map_err(create)?;
            let running = client.exec(container, &[content.as_fd(), used.as_fd()]).await?;
            drop(used);
            let stream = Stream::new(shown).map_err(create)?;
            return Ok(Session {
                stdin: options.stdin.then(|| Box::new(stream.clone()) as _),
                stdout: Some(Box::new(stream.clone())),
                stderr: None,
                resize: Some(resizes(stream)),
                exit: Box::pin(exit(running.exit)),
            });
        }
        let null = || fs::File::open("/dev/null").map(OwnedFd::from);
        let (input, stdin) = if options.stdin {
            let (read, write) = pipe().map_err(create)?;
            (read, Some(Stream::new(write).map_err(create)?))
        } else {
            (null().map_err(create)?, None)
        };
        let ((out, out_writer), (err, err_writer)) = (pipe().map_err(create)?, pipe().map_err(create)?);
        let files = [content.as_fd(), input.as_fd(), out_writer.as_fd(), err_writer.as_fd()];
        let running = client.exec(container, &files).await?;
        drop((input, out_writer, err_writer));
        Ok(Session {
            stdin: stdin.map(|stdin| Box::new(stdin) as _),
            stdout: Some(Box::new(Stream::new(out).map_err(create)?)),
            stderr: Some(Box::new(Stream::new(err).map_err(create)?)),
            resize: None,
            exit: Box::pin(exit(running.exit)),
        })
    }

    pub(in crate::runtime) async fn attach(&self, container: &str, on_terminal: bool) -> Result<Session, RuntimeError> {
        let client = self.running().await?;
        let ((out, out_writer), (err, err_writer)) = (pipe().map_err(create)?, pipe().map_err(create)?);
        let request = Request::Attach { container: container.to_owned() };
        let (_, mut files) = client.ask(request, &[out_writer.as_fd(), err_writer.as_fd()]).await?;
        drop((out_writer, err_writer));
        let input = (!files.is_empty()).then(|| files.remove(0));
        let input = input.map(Stream::new).transpose().map_err(create)?;
        let ended = self.containers.lock().get(container).map(|known| known.ended.subscribe());
        let exit = async move {
            if let Some(mut ended) = ended {
                let _ = ended.wait_for(|ended| *ended).await;
            }
            Ok(0)
        };
        Ok(Session {
            resize: input.clone().filter(|_| on_terminal).map(resizes),
            stdin: input.map(|input| Box::new(input) as _),
            stdout: Some(Box::new(Stream::new(out).map_err(create)?)),
            stderr: if on_terminal { None } else { Some(Box::new(Stream::new(err).map_err(create)?)) },
            exit: Box::pin(exit),
        })
    }

    /// Connects to an address from inside the pod's network.
    pub(in crate::runtime) async fn connect_to(&self, ip: IpAddr, port: u16) -> Result<Box<dyn Connection>, String> {
        let client = self.running().await.map_err(|error| error.to_string())?;
        let asked = client.ask(Request::Socket { v6: ip.is_ipv6() }, &[]).await;
        let (_, mut files) = asked.map_err(|error| error.to_string())?;
        if files.is_empty() {
            return Err("the pod's parent gave no socket".to_owned());
        }
        let socket = tokio::net::TcpSocket::from_std_stream(files.remove(0).into());
        let address = SocketAddr::new(ip, port);
        let connected = socket.connect(address).await;
        let connected = connected.map_err(|error| format!("dial tcp {address}: connect: {}", words(&error)))?;
        let _ = connected.set_nodelay(true);
        Ok(Box::new(connected))
    }

    /// The address by which the pod's own ports are reached from inside its network.
    pub(in crate::runtime) fn own_address(&self, inner_network_has_it: bool) -> IpAddr {
        let ip = *self.ip.lock();
        ip.filter(|_| inner_network_has_it).unwrap_or_else(|| IpAddr::from([127, 0, 0, 1]))
    }

    /// Whether the pod's network has the pod's address.
    pub(in crate::runtime) fn has_address(&self) -> bool {
        let text = fs::read(self.dir.config()).unwrap_or_default();
        serde_json::from_slice::<PodConfig>(&text)
            .is_ok_and(|config| matches!(config.network, NetworkNamespace::Path(_)))
    }
}

/// A container that is probed.
pub(super) struct Probed {
    pub(super) pod: Weak<PodHandle>,
    pub(super) container: String,
}

impl Target for Probed {
    fn exec(&self, command: Vec<String>) -> BoxFuture<'static, Result<(i32, String), String>> {
        let (pod, container) = (self.pod.clone(), self.container.clone());
        Box::pin(async move {
            let pod = pod.upgrade().ok_or("the pod is gone")?;
            pod.run(&container, command).await.map_err(|error| error.to_string())
        })
    }

    fn connect(&self, host: Option<String>, port: u16) -> BoxFuture<'static, Result<Box<dyn Connection>, String>> {
        let pod = self.pod.clone();
        Box::pin(async move {
            let pod = pod.upgrade().ok_or("the pod is gone")?;
            let ip = match host {
                None => pod.own_address(pod.has_address()),
                Some(host) => host.parse().map_err(|_| format!("{host:?} is not an address"))?,
            };
            pod.connect_to(ip, port).await
        })
    }
}

pub(in crate::runtime) fn target(pod: &Arc<PodHandle>, container: &str) -> impl Target + use<> {
    Probed { pod: Arc::downgrade(pod), container: container.to_owned() }
}

fn resizes(stream: Stream) -> mpsc::Sender<(u16, u16)> {
    let (send, mut receive) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some((columns, rows)) = receive.recv().await {
            stream.resize(columns, rows);
        }
    });
    send
}

/// A system error as C and Go write it, without its number.
fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

async fn exit(receiver: tokio::sync::oneshot::Receiver<i32>) -> Result<i32, RuntimeError> {
    receiver.await.map_err(|_| RuntimeError::NotFound("the pod has ended".to_owned()))
}
