//! The identities of nodes: one client makes the requests of all of them, each in its node's name.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use windlass_node::ActingNode;
use windlass_server::authn::{MASTERS, User};
use windlass_server::{Server, Service};

/// A client for a node agent. Requests that name no node are made as `system:kube-controller-manager`: pod ranges are
/// given to nodes by a controller.
pub(crate) fn client(server: &Server) -> kube::Client {
    let controller = User::new("system:kube-controller-manager", [MASTERS.to_owned()]);
    kube::Client::new(Nodes { service: server.service_as(controller) }, "default")
}

/// A service whose caller is the node that a request names.
#[derive(Clone)]
struct Nodes {
    service: Service,
}

impl tower::Service<Request<Body>> for Nodes {
    type Response = Response<windlass_server::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match request.extensions().get::<ActingNode>() {
            Some(ActingNode(node)) => {
                let groups = ["system:nodes".to_owned(), MASTERS.to_owned()];
                self.service.as_user(User::new(format!("system:node:{node}"), groups)).call(request)
            }
            None => self.service.call(request),
        }
    }
}
