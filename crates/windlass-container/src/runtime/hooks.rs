//! Lifecycle hooks: what runs right after a container's start, and before its end.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use windlass_node::probes::Action;
use windlass_node::runtime::{ContainerEvent, Hook, RuntimeError};

use super::Inner;
use super::client::Client;
use super::pod::{Known, PodHandle, target};

impl PodHandle {
    /// Runs the hook after a start. A container whose hook fails is killed.
    pub(super) async fn post_start(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        client: &Client,
        container: &Container,
        attempt: i32,
    ) -> Result<(), RuntimeError> {
        let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.post_start.as_ref());
        let Some(hook) = hook else { return Ok(()) };
        let Err(error) = self.hook(container, hook).await else { return Ok(()) };
        tracing::warn!(pod = %self.uid(), container = %container.name, %error, "a postStart hook failed");
        self.hook_failed(inner, container, attempt, Hook::PostStart).await;
        self.signal(client, &container.name, attempt, 9).await;
        Ok(())
    }

    /// Runs the hook before the end.
    pub(super) async fn pre_stop(self: &Arc<Self>, inner: &Inner, container: &Container, attempt: i32) {
        let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.pre_stop.as_ref());
        let Some(hook) = hook else { return };
        if let Err(error) = self.hook(container, hook).await {
            tracing::warn!(pod = %self.uid(), container = %container.name, %error, "a preStop hook failed");
            self.hook_failed(inner, container, attempt, Hook::PreStop).await;
        }
    }

    /// Tells the agent.
    async fn hook_failed(&self, inner: &Inner, container: &Container, attempt: i32, hook: Hook) {
        let known = self.known().get(&container.name).filter(|known| known.attempt == attempt).map(Known::index);
        if let Some(index) = known {
            // The channel is closed when the agent has ended.
            let _ = inner.events.send(self.event(index, attempt, ContainerEvent::HookFailed(hook))).await;
        }
    }

    async fn hook(self: &Arc<Self>, container: &Container, hook: &LifecycleHandler) -> Result<(), String> {
        let action = if let Some(exec) = &hook.exec {
            Action::Exec(exec.command.clone().unwrap_or_default())
        } else if let Some(http) = &hook.http_get {
            Action::http(http, container)
        } else if let Some(sleep) = &hook.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
            return Ok(());
        } else {
            return Ok(());
        };
        action.ask(&target(self, &container.name)).await
    }
}
