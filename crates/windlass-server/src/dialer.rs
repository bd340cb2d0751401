//! Connections of the server to addresses that the machine itself does not reach: pods and Services in a network of their own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures::future::BoxFuture;
use tokio::net::TcpStream;

/// Connects to addresses of a cluster's own network, which the machine has no route to.
///
/// ```
/// use std::net::SocketAddr;
/// use windlass_server::dialer::{Dialer, Dialing};
///
/// /// Pods whose ports are all served by one program of this machine.
/// struct Everything(SocketAddr);
///
/// impl Dialer for Everything {
///     fn dial(&self, address: SocketAddr) -> Option<Dialing> {
///         let target = self.0;
///         (!address.ip().is_loopback()).then(|| Box::pin(tokio::net::TcpStream::connect(target)) as Dialing)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
/// let server = windlass_server::Server::builder().start().await?;
/// server.set_dialer(Everything("127.0.0.1:8443".parse()?));
/// # server.stop().await?;
/// # Ok(()) }
/// ```
pub trait Dialer: Send + Sync + 'static {
    /// A connection to an address of the network; `None` if the machine itself reaches the address.
    fn dial(&self, address: SocketAddr) -> Option<Dialing>;
}

/// A connection that is being made.
pub type Dialing = BoxFuture<'static, io::Result<TcpStream>>;

/// The dialer of a server, if it has one. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Dial {
    dialer: Arc<ArcSwapOption<Box<dyn Dialer>>>,
}

impl Dial {
    pub(crate) fn set(&self, dialer: Box<dyn Dialer>) {
        self.dialer.store(Some(Arc::new(dialer)));
    }

    /// A connection to an address of the cluster's network; `None` if it is not one.
    pub(crate) fn inside(&self, address: SocketAddr) -> Option<Dialing> {
        self.dialer.load().as_ref()?.dial(address)
    }

    /// A connection to an address, wherever it is. Small messages that wait for their answer are sent at once.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = match self.inside(address) {
            Some(dialing) => dialing.await?,
            None => TcpStream::connect(address).await?,
        };
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

/// A system error in C's words, which Go shows too.
pub(crate) fn system(error: &io::Error) -> String {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::ConnectionReset => "connection reset by peer".into(),
        ErrorKind::BrokenPipe => "broken pipe".into(),
        ErrorKind::HostUnreachable => "no route to host".into(),
        ErrorKind::NetworkUnreachable => "network is unreachable".into(),
        ErrorKind::TimedOut => "connection timed out".into(),
        ErrorKind::UnexpectedEof => "EOF".into(),
        // What is left is `Invalid argument (os error 22)`, which C and Go write as `invalid argument`.
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or_default().to_lowercase()
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Leads every address but loopback to one listener.
    struct To(SocketAddr);

    impl Dialer for To {
        fn dial(&self, address: SocketAddr) -> Option<Dialing> {
            let target = self.0;
            (!address.ip().is_loopback()).then(|| Box::pin(TcpStream::connect(target)) as Dialing)
        }
    }

    #[tokio::test]
    async fn addresses_of_the_network_are_reached_through_the_dialer() -> anyhow::Result<()> {
        let (inside, outside) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let dial = Dial::default();
        let pod: SocketAddr = "10.244.0.2:9443".parse()?;
        assert!(dial.inside(pod).is_none());
        dial.set(Box::new(To(inside.local_addr()?)));
        assert_eq!(dial.connect(pod).await?.peer_addr()?, inside.local_addr()?);
        assert_eq!(dial.connect(outside.local_addr()?).await?.peer_addr()?, outside.local_addr()?);
        Ok(())
    }
}
