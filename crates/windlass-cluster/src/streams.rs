//! Leads the API server's requests for the output, commands and ports of pods to the node agent that runs them.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use windlass_kwok::metric::Metrics;
use windlass_node::access::{AccessError, PodAccess, Purpose};
use windlass_node::runtime;
use windlass_server::streams::{
    Access, AttachOptions, Connection, ExecOptions, LogOptions, PodStreams, PodTarget, Process, StreamError,
};

/// The pods of one agent.
pub(crate) struct AgentStreams {
    access: PodAccess,
    /// What kwok's objects say that nodes measure.
    metrics: Option<Metrics>,
}

impl AgentStreams {
    pub(crate) fn new(access: PodAccess, metrics: Option<Metrics>) -> Self {
        Self { access, metrics }
    }
}

impl PodStreams for AgentStreams {
    fn has_node(&self, node: &str) -> bool {
        self.access.has_node(node)
    }

    fn metrics(&self, node: &str, path: &str) -> Option<String> {
        self.metrics.as_ref()?.page(node, path)
    }

    fn check(&self, target: &PodTarget, access: Access) -> Result<(), StreamError> {
        let purpose = match access {
            Access::Exec => Purpose::Exec,
            Access::Attach => Purpose::Attach,
            Access::Port => Purpose::Port,
        };
        PodAccess::check(&*pod(target)?, &target.container, purpose).map_err(|error| failure(&error))
    }

    fn logs(
        &self,
        target: &PodTarget,
        options: &LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, bytes::Bytes>, StreamError>> {
        let (access, target) = (self.access.clone(), target.clone());
        let options = runtime::LogOptions {
            follow: options.follow,
            previous: options.previous,
            since: options.since,
            timestamps: options.timestamps,
            tail: options.tail,
            limit: options.limit,
        };
        async move {
            let output = access.logs(pod(&target)?, &target.container, &options).await;
            // A kubelet answers whatever goes wrong with a bad request.
            output.map_err(|error| StreamError::bad_request(error.to_string()))
        }
        .boxed()
    }

    fn exec(&self, target: &PodTarget, options: &ExecOptions) -> BoxFuture<'static, Result<Process, StreamError>> {
        let (access, target) = (self.access.clone(), target.clone());
        let ExecOptions { command, stdin, terminal, size } = options.clone();
        let options = runtime::ExecOptions { command, stdin, terminal, size };
        async move {
            let session =
                access.exec(pod(&target)?, &target.container, &options).await.map_err(|error| failure(&error))?;
            Ok(process(session))
        }
        .boxed()
    }

    fn attach(&self, target: &PodTarget, options: &AttachOptions) -> BoxFuture<'static, Result<Process, StreamError>> {
        let (access, target, terminal) = (self.access.clone(), target.clone(), options.terminal);
        async move {
            let session =
                access.attach(pod(&target)?, &target.container, terminal).await.map_err(|error| failure(&error))?;
            Ok(process(session))
        }
        .boxed()
    }

    fn port(&self, target: &PodTarget, port: u16) -> BoxFuture<'static, Result<Box<dyn Connection>, StreamError>> {
        let (access, target) = (self.access.clone(), target.clone());
        async move {
            let connection = access.port(pod(&target)?, port).await.map_err(|error| failure(&error))?;
            Ok(Box::new(connection) as Box<dyn Connection>)
        }
        .boxed()
    }
}

/// The pod as the agent knows pods.
fn pod(target: &PodTarget) -> Result<Arc<Pod>, StreamError> {
    let pod = serde_json::from_value(target.object.clone());
    pod.map(Arc::new).map_err(|error| StreamError::internal(format!("the pod cannot be read: {error}")))
}

fn failure(error: &AccessError) -> StreamError {
    StreamError::internal(error.to_string())
}

fn process(session: runtime::Session) -> Process {
    let runtime::Session { stdin, stdout, stderr, resize, exit } = session;
    let exit = exit.map(|exit| exit.map_err(|error| StreamError::internal(error.to_string()))).boxed();
    Process { stdin, stdout, stderr, resize, exit }
}
