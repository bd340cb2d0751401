//! Starts the parent of a pod, with what it needs in the pod's directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use tokio::io::AsyncReadExt as _;
use windlass_node::runtime::RuntimeError;
use windlass_node::volumes::{Mounted, Volume};

use super::{MESSAGE, PodHandle, sandbox};
use crate::network::{Attachment, HostNetwork, NetworkError, NetworkNamespace, NetworkedPod, PodNetwork as _};
use crate::runtime::client::Client;
use crate::runtime::{Inner, plan};
use crate::spec::{Isolation, PARENT, PodConfig};
use crate::user_namespace::UserNamespace;

impl PodHandle {
    /// Starts the parent of the pod.
    pub(super) async fn launch(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<Arc<Client>, RuntimeError> {
        let volumes = self.volumes.lock().clone();
        let volumes = volumes.ok_or_else(|| sandbox("the volumes of the pod are not known"))?;
        let spec = self.spec();
        if let Some(why) = plan::unmountable(&spec, &volumes) {
            return Err(sandbox(why));
        }
        let hostname = plan::hostname(&self.pod.lock());
        let attached = self.join_network(inner).await.map_err(sandbox)?;
        let (network, resolv_conf) = (attached.namespace, attached.resolv_conf);
        let config = PodConfig {
            hostname: hostname.clone(),
            isolation: inner.options.isolation,
            user_namespace: inner.options.isolation == Isolation::Namespaces && UserNamespace::is_entered(),
            network,
            host_ipc: spec.host_ipc == Some(true),
            host_pid: spec.host_pid == Some(true),
            share_pid: spec.share_process_namespace == Some(true),
            memory: memory_volumes(&volumes),
            sysctls: plan::sysctls(&spec).map_err(sandbox)?,
        };
        self.prepare(&config, &spec, &hostname, &resolv_conf, &volumes).map_err(sandbox)?;
        let mut command = tokio::process::Command::new(&inner.options.program);
        command.arg(PARENT).arg(&self.dir.0).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| sandbox(format!("cannot start the pod's parent: {error}")))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = stdout.take(MESSAGE).read_to_string(&mut said).await;
        }
        // It outlives this process; as long as both run, its end is noticed here.
        tokio::spawn(async move { child.wait().await });
        if said != crate::parent::LISTENING {
            return Err(sandbox(if said.is_empty() { "the pod's parent ended at once" } else { &said }));
        }
        let (client, exits) = Client::connect(&self.dir.0).map_err(sandbox)?;
        let client = Arc::new(client);
        self.relay(inner, exits);
        let tokens = self.write_volumes(inner, &client, &volumes).await?;
        self.renew(inner, tokens);
        Ok(client)
    }

    /// Gives the pod its network, or the one that it has already.
    async fn join_network(&self, inner: &Inner) -> Result<Attachment, NetworkError> {
        let spec = self.spec();
        let wanted = NetworkedPod {
            uid: self.uid(),
            namespace: self.text(|pod| pod.metadata.namespace.clone()),
            name: self.text(|pod| pod.metadata.name.clone()),
            node: self.node.to_string(),
            ip: *self.ip.lock(),
            dns_policy: spec.dns_policy.clone().unwrap_or_default(),
            dns_config: spec.dns_config.clone(),
            host_ports: host_ports(&spec),
        };
        if inner.options.isolation == Isolation::None {
            return HostNetwork.attach(&wanted).await;
        }
        if spec.host_network == Some(true) {
            return inner.options.network.attach_to_host(&wanted).await;
        }
        let attached = inner.options.network.attach(&wanted).await?;
        if attached.ip.is_some() {
            *self.ip.lock() = attached.ip;
        }
        Ok(attached)
    }

    /// Says to the network again what a pod that runs already has of it.
    pub(in crate::runtime) async fn rejoin_network(&self, inner: &Inner) {
        if let Err(error) = self.join_network(inner).await {
            tracing::warn!(pod = %self.uid(), %error, "a pod has lost its network");
        }
    }

    /// Writes what the parent needs into the pod's directory.
    pub(super) fn prepare(
        &self,
        config: &PodConfig,
        spec: &PodSpec,
        hostname: &str,
        resolv_conf: &str,
        volumes: &Mounted,
    ) -> io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        fs::DirBuilder::new().recursive(true).mode(0o711).create(&self.dir.0)?;
        let _ = fs::remove_file(self.dir.0.join("control"));
        for dir in ["etc", "volumes", "containers", "logs", "memory", "root"] {
            fs::create_dir_all(self.dir.0.join(dir))?;
        }
        // Without a network the pod's address leads nowhere, also from inside.
        let has_network = config.network != NetworkNamespace::Loopback;
        let ip = self.ip.lock().filter(|_| has_network).or(Some(IpAddr::from([127, 0, 0, 1])));
        fs::write(self.dir.etc("hosts"), plan::hosts(spec, hostname, ip))?;
        fs::write(self.dir.etc("hostname"), format!("{hostname}\n"))?;
        fs::write(self.dir.etc("resolv.conf"), resolv_conf)?;
        let group = spec.security_context.as_ref().and_then(|context| context.fs_group);
        let group = group.and_then(|group| u32::try_from(group).ok());
        for (name, volume) in &volumes.volumes {
            if matches!(volume, Volume::EmptyDir { medium, .. } if medium != "Memory") {
                let path = self.dir.volume(name);
                fs::create_dir_all(&path)?;
                let mode = if group.is_some() { 0o2777 } else { 0o777 };
                if group.is_some() {
                    // Only root may give files away; others own them anyway.
                    let _ = std::os::unix::fs::chown(&path, None, group);
                }
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
        }
        fs::write(self.dir.config(), serde_json::to_vec(config)?)
    }
}

fn memory_volumes(volumes: &Mounted) -> BTreeMap<String, Option<u64>> {
    let memory = volumes.volumes.iter().filter_map(|(name, volume)| match volume {
        Volume::EmptyDir { medium, limit } if medium == "Memory" => {
            Some((name.clone(), limit.and_then(|limit| u64::try_from(limit).ok())))
        }
        _ => None,
    });
    memory.collect()
}

fn host_ports(spec: &PodSpec) -> Vec<(u16, u16, String)> {
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let mapped = ports.filter_map(|port| {
        let host = u16::try_from(port.host_port?).ok()?;
        let own = u16::try_from(port.container_port).ok()?;
        Some((host, own, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())))
    });
    mapped.collect()
}
