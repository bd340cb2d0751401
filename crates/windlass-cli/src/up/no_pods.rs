//! Pods are simulated where there are no containers: everywhere but on Linux.

use anyhow::{Result, ensure};
use kube::Client;
use windlass_cluster::Machine;

use crate::args::{PodRuntime, Up};
use crate::home::Home;
use crate::output;

/// There are none.
pub(crate) enum Pods {}

/// There is none.
pub(crate) struct Place {
    pub(crate) note: Option<String>,
    never: Pods,
}

pub(crate) fn enter(args: &Up, _: &Home) -> Result<Option<Place>> {
    ensure!(
        matches!(args.runtime, PodRuntime::Simulated | PodRuntime::Auto),
        "pods run on Linux only; use --runtime simulated or auto"
    );
    if args.runtime == PodRuntime::Auto {
        output::note("pods are simulated, because they run on Linux only");
    }
    Ok(None)
}

pub(crate) fn of(place: Place, _: &Home) -> Result<Pods> {
    Ok(place.never)
}

pub(crate) fn have_network() -> bool {
    false
}

pub(crate) fn clean_up(_: &Home, _: bool) -> Result<()> {
    Ok(())
}

impl Pods {
    pub(crate) fn machine(&self) -> Machine {
        match *self {}
    }

    pub(crate) async fn start_network(&mut self, _: &Up) -> Result<()> {
        match *self {}
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn set_api_server(&self, _: Option<std::net::SocketAddr>) {
        match *self {}
    }

    pub(crate) fn ingress(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) async fn forget_others(&self, _: Client) -> Result<()> {
        match *self {}
    }

    pub(crate) fn give_up(&self) {
        match *self {}
    }

    pub(crate) fn end(&self) {
        match *self {}
    }
}
