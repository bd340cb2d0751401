//! Network namespaces: made, kept under a path, found again, and sockets that are made inside of them.
//!
//! A thread that enters a namespace never comes back: work inside of one is done by threads that are made for it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use tokio::sync::oneshot;

/// The namespace of the thread that opens it.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace. It lives as long as this, a path that it is [kept](Self::keep) under, or a process in it does.
#[derive(Debug, Clone)]
pub struct NetworkNamespace {
    file: Arc<File>,
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl NetworkNamespace {
    /// A new one, with nothing but a loopback link that is down. Needs `CAP_SYS_ADMIN`.
    pub fn create() -> io::Result<Self> {
        in_thread(|| {
            // Only the function that also unshares file descriptors is not safe, and this does not.
            #[allow(deprecated, reason = "its replacement is `unsafe`, for flags that are not used here")]
            rustix::thread::unshare(UnshareFlags::NEWNET)?;
            Self::current()
        })
    }

    /// That of the calling thread.
    pub fn current() -> io::Result<Self> {
        Ok(Self { file: Arc::new(File::open(OWN)?) })
    }

    /// The one that is kept under a path; `None` if nothing is.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // A file that was made for the purpose, but that nothing is mounted on.
        let is_namespace = file.metadata()?.dev() == File::open(OWN)?.metadata()?.dev();
        Ok(is_namespace.then(|| Self { file: Arc::new(file) }))
    }

    /// Whether both are the same namespace.
    pub fn is(&self, other: &Self) -> io::Result<bool> {
        let (own, other) = (self.file.metadata()?, other.file.metadata()?);
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    /// Keeps the namespace under a path until [`forget`](Self::forget), also when this process has ended.
    pub fn keep(&self, path: &Path) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(path)?;
        let this = self.clone();
        // The kernel only mounts a namespace from the place where it shows it, so a thread goes there.
        let bound = self.run(move || {
            let result = mount_bind(OWN, path);
            drop(this);
            result
        })?;
        if bound.is_err() {
            let _ = fs::remove_file(path);
        }
        Ok(bound?)
    }

    /// Keeps what is under a path no longer. Whether there was anything.
    pub fn forget(path: &Path) -> io::Result<bool> {
        match unmount(path, UnmountFlags::DETACH) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Calls a function in the namespace, in a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// A thread in the namespace that makes sockets.
    pub fn sockets(&self) -> io::Result<Sockets> {
        let (sender, receiver) = mpsc::channel::<Job>();
        let (namespace, (started, result)) = (self.clone(), mpsc::channel());
        std::thread::Builder::new().name("network-sockets".to_owned()).stack_size(256 << 10).spawn(move || {
            let entered = namespace.enter();
            drop(namespace);
            let runs = entered.is_ok();
            // The other side waits for this.
            let _ = started.send(entered);
            while let Some(job) = receiver.recv().ok().filter(|_| runs) {
                job();
            }
        })?;
        result.recv().map_err(io::Error::other)??;
        Ok(Sockets { sender })
    }
}

fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread in a network namespace panicked")))
    })
}

type Job = Box<dyn FnOnce() + Send>;

/// Makes sockets inside a network namespace. What is made can be used by any thread. Clones share the thread, which ends with
/// the last of them.
#[derive(Debug, Clone)]
pub struct Sockets {
    sender: mpsc::Sender<Job>,
}

impl Sockets {
    /// Calls a function in the namespace. The function must not block.
    pub async fn make<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, made) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The caller may have given up.
            let _ = sender.send(make());
        });
        self.sender.send(job).map_err(|_| io::Error::other("the thread that makes sockets has ended"))?;
        made.await.map_err(io::Error::other)?
    }

    /// A connection from inside the namespace.
    pub async fn connect(&self, address: std::net::SocketAddr) -> io::Result<tokio::net::TcpStream> {
        let socket = self
            .make(move || {
                let domain = socket2::Domain::for_address(address);
                let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            })
            .await?;
        let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A listener inside the namespace.
    pub async fn listen(&self, address: std::net::SocketAddr) -> io::Result<tokio::net::TcpListener> {
        let listener = self.make(move || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        tokio::net::TcpListener::from_std(listener.await?)
    }

    /// A UDP socket inside the namespace.
    pub async fn udp(&self, address: std::net::SocketAddr) -> io::Result<tokio::net::UdpSocket> {
        let socket = self.make(move || {
            let socket = std::net::UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        tokio::net::UdpSocket::from_std(socket.await?)
    }
}
