//! Talks to a pod's parent.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use windlass_node::runtime::RuntimeError;

use crate::spec::{ContainerState, Event, Message, Reply, Request, Stage};
use crate::wire;

/// How many events may wait.
const EVENTS: usize = 256;

/// A connection to a pod's parent.
pub(super) struct Client {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    gone: watch::Receiver<bool>,
}

#[derive(Default)]
struct Waiting {
    replies: HashMap<u64, oneshot::Sender<(Reply, Vec<OwnedFd>)>>,
    execs: HashMap<u64, oneshot::Sender<i32>>,
}

/// A command that runs in a container.
pub(super) struct Running {
    pub(super) exit: oneshot::Receiver<i32>,
}

impl Client {
    /// Connects to the parent of the pod in a directory. Containers that end are told until the parent ends.
    pub(super) fn connect(dir: &Path) -> io::Result<(Self, mpsc::Receiver<ContainerState>)> {
        let socket = Arc::new(super::session::watched(wire::connect(dir)?)?);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (events, received) = mpsc::channel(EVENTS);
        let (end, gone) = watch::channel(false);
        let reader = Reader { socket: Arc::clone(&socket), waiting: Arc::clone(&waiting), events };
        tokio::spawn(async move {
            reader.run().await;
            let _ = end.send(true);
        });
        Ok((Self { socket, waiting, next: AtomicU64::new(1), gone }, received))
    }

    /// Whether the parent has ended.
    pub(super) fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    /// Waits until the parent has ended.
    pub(super) async fn gone(&self) {
        let mut gone = self.gone.clone();
        let _ = gone.wait_for(|gone| *gone).await;
    }

    /// Asks for something.
    pub(super) async fn ask(
        &self,
        request: Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), RuntimeError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (send, receive) = oneshot::channel();
        self.waiting.lock().replies.insert(number, send);
        self.send(&(number, request), files).await?;
        match receive.await {
            Ok((Reply::Failed { message, stage }, _)) => Err(match stage {
                Stage::Config => RuntimeError::Config(message),
                Stage::Create => RuntimeError::Create(message),
                Stage::Start => RuntimeError::Start(message),
                Stage::NotFound => RuntimeError::NotFound(message),
            }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(ended()),
        }
    }

    /// Starts a command in a container.
    pub(super) async fn exec(&self, container: &str, files: &[BorrowedFd<'_>]) -> Result<Running, RuntimeError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let ((send, receive), (send_exit, exit)) = (oneshot::channel(), oneshot::channel());
        {
            let mut waiting = self.waiting.lock();
            waiting.replies.insert(number, send);
            waiting.execs.insert(number, send_exit);
        }
        self.send(&(number, Request::Exec { container: container.to_owned() }), files).await?;
        match receive.await {
            Ok((Reply::Failed { message, stage }, _)) => {
                self.waiting.lock().execs.remove(&number);
                Err(if stage == Stage::NotFound {
                    RuntimeError::NotFound(message)
                } else {
                    RuntimeError::Start(message)
                })
            }
            Ok(_) => Ok(Running { exit }),
            Err(_) => Err(ended()),
        }
    }

    async fn send(&self, request: &(u64, Request), files: &[BorrowedFd<'_>]) -> Result<(), RuntimeError> {
        loop {
            let mut ready = self.socket.writable().await.map_err(|_| ended())?;
            match ready.try_io(|socket| wire::send(socket.get_ref().as_fd(), request, files)) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => return Err(RuntimeError::Create(format!("cannot reach the pod's parent: {error}"))),
                Err(_would_block) => {}
            }
        }
    }
}

fn ended() -> RuntimeError {
    RuntimeError::Create("the pod's parent process has ended".to_owned())
}

struct Reader {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Mutex<Waiting>>,
    events: mpsc::Sender<ContainerState>,
}

impl Reader {
    async fn run(self) {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { break };
            let received = match ready.try_io(|socket| wire::receive::<Message>(socket.get_ref().as_fd())) {
                Ok(Ok(Some(received))) => received,
                Ok(Ok(None) | Err(_)) => break,
                Err(_would_block) => continue,
            };
            match received {
                (Message::Reply(number, reply), files) => {
                    if let Some(waits) = self.waiting.lock().replies.remove(&number) {
                        let _ = waits.send((reply, files));
                    }
                }
                (Message::Event(Event::ExecExited { request, code }), _) => {
                    if let Some(waits) = self.waiting.lock().execs.remove(&request) {
                        let _ = waits.send(code);
                    }
                }
                (Message::Event(Event::Exited(state)), _) => {
                    if self.events.send(state).await.is_err() {
                        break;
                    }
                }
            }
        }
        // No request waits for ever.
        *self.waiting.lock() = Waiting::default();
    }
}
