//! The users as which the parts of a cluster act: those of a kubeadm cluster, with the rights that the default roles of
//! kube-apiserver give them.
//!
//! | part | user |
//! |---|---|
//! | watches and events of controllers | `system:kube-controller-manager` |
//! | what a controller writes | the ServiceAccount that `--use-service-account-credentials` gives it |
//! | the scheduler | `system:kube-scheduler` |
//! | a node | `system:node:NAME` in the group `system:nodes` |
//! | what etcd and cluster add-ons do upstream | `system:apiserver`, which may do everything |

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use windlass::events::ReportingHost;
use windlass_node::ActingNode;
use windlass_server::authn::{MASTERS, User};
use windlass_server::{Server, Service};

/// The ServiceAccounts of controllers in `kube-system`, by the name that a controller has here. Others act as
/// `system:kube-controller-manager`, as upstream's token controller does.
const ACCOUNTS: &[(&str, &str)] = &[
    ("clusterrole-aggregation-controller", "clusterrole-aggregation-controller"),
    ("csrapproving", "certificate-controller"),
    ("csrcleaner", "certificate-controller"),
    ("csrsigning", "certificate-controller"),
    ("cronjob-controller", "cronjob-controller"),
    ("daemonset-controller", "daemon-set-controller"),
    ("deployment-controller", "deployment-controller"),
    ("disruption-controller", "disruption-controller"),
    ("endpoint-controller", "endpoint-controller"),
    ("endpoint-slice-controller", "endpointslice-controller"),
    ("endpoint-slice-mirroring-controller", "endpointslicemirroring-controller"),
    ("ephemeral-volume-controller", "ephemeral-volume-controller"),
    ("garbage-collector-controller", "generic-garbage-collector"),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
    ("job-controller", "job-controller"),
    ("local-path-provisioner", "persistent-volume-binder"),
    ("namespace-controller", "namespace-controller"),
    ("node-lifecycle-controller", "node-controller"),
    ("persistentvolume-binder-controller", "persistent-volume-binder"),
    ("persistentvolume-protection-controller", "pv-protection-controller"),
    ("persistentvolume-reclaim-controller", "persistent-volume-binder"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection-controller"),
    ("pod-garbage-collector-controller", "pod-garbage-collector"),
    ("replicaset-controller", "replicaset-controller"),
    ("replication-controller", "replication-controller"),
    ("resourcequota-controller", "resourcequota-controller"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("service-cidr-controller", "service-cidrs-controller"),
    ("serviceaccount-controller", "service-account-controller"),
    ("statefulset-controller", "statefulset-controller"),
    ("taint-eviction-controller", "node-controller"),
    ("ttl-after-finished-controller", "ttl-after-finished-controller"),
    ("validatingadmissionpolicy-status", "validatingadmissionpolicy-status-controller"),
];
/// Controllers of the pods' network. In other clusters they are add-ons, with roles that their manifests bring along.
const ADD_ONS: [&str; 3] = ["ingress", "network", "service-load-balancer"];
/// Gives nodes their pod ranges upstream.
const NODE_CONTROLLER: &str = "node-controller";

/// Makes clients that reach a server inside this process.
#[derive(Clone)]
pub(crate) struct Identities {
    service: Service,
}

impl Identities {
    pub(crate) fn new(server: &Server) -> Self {
        Self { service: server.service() }
    }

    fn client(&self, user: User) -> kube::Client {
        kube::Client::new(self.service.as_user(user), "default")
    }

    /// Watches what controllers look at, and writes their events.
    pub(crate) fn controller_manager(&self) -> kube::Client {
        self.client(User::new("system:kube-controller-manager", []))
    }

    /// Makes the requests of one controller; `None` if they are the controller manager's.
    pub(crate) fn controller(&self, name: &str) -> Option<kube::Client> {
        if ADD_ONS.contains(&name) {
            return Some(self.server());
        }
        Some(self.client(account_user(Self::account(name)?)))
    }

    /// The ServiceAccount that a controller acts as, if it has one.
    pub(crate) fn account(controller: &str) -> Option<&'static str> {
        ACCOUNTS.iter().find(|(known, _)| *known == controller).map(|(_, account)| *account)
    }

    pub(crate) fn scheduler(&self) -> kube::Client {
        self.client(User::new("system:kube-scheduler", []))
    }

    /// May do everything, for what no component of a real cluster asks the API for.
    pub(crate) fn server(&self) -> kube::Client {
        self.client(User::new("system:apiserver", [MASTERS.to_owned()]))
    }

    /// Makes the requests of all nodes, each in its node's name. Those that name no node are the node controller's.
    pub(crate) fn nodes(&self) -> kube::Client {
        let service = self.service.as_user(account_user(NODE_CONTROLLER));
        kube::Client::new(Nodes { service }, "default")
    }
}

fn account_user(account: &str) -> User {
    let groups = ["system:serviceaccounts".to_owned(), "system:serviceaccounts:kube-system".to_owned()];
    User::new(format!("system:serviceaccount:kube-system:{account}"), groups)
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
        let extensions = request.extensions();
        let host = || extensions.get::<ReportingHost>().map(|ReportingHost(host)| host);
        match extensions.get::<ActingNode>().map(|ActingNode(node)| node).or_else(host) {
            Some(node) => {
                let groups = ["system:nodes".to_owned()];
                self.service.as_user(User::new(format!("system:node:{node}"), groups)).call(request)
            }
            None => self.service.call(request),
        }
    }
}
