//! `exec` and `attach`: a process at one end, a client at the other.
//!
//! Which streams there are and how a failure is told depends on the protocol; see `remotecommand` of upstream's
//! `cri-streaming`, and `streamtranslator.go` of its API server for the fifth version.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::channels::Channels;
use super::spdy::{Outgoing, Outlet, PROTOCOL_ERROR, Stream};
use super::{Access, Process, StreamError, spdy, websocket};

/// How long a client may take to open the streams that it asked for, as upstream's `DefaultStreamCreationTimeout`.
pub(crate) const STREAMS_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take to close its end after everything was said.
pub(crate) const LINGER: Duration = Duration::from_secs(5);
/// How much of a process' output is sent at once.
const PIECE: usize = 32 << 10;
/// A terminal's size is said in fewer bytes.
const SIZE_LIMIT: usize = 1 << 10;
/// How long a command waits for the size of its terminal. kubectl sends it as soon as it is connected; a program that looks
/// once when it starts, as `stty size`, would otherwise see none. Other clients may never send it.
const FIRST_SIZE_TIMEOUT: Duration = Duration::from_millis(200);

/// The channels of a WebSocket.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// Starts the process that a client asked for, on a terminal of this size if it is known.
pub(crate) type Start = Box<dyn FnOnce(Option<(u16, u16)>) -> BoxFuture<'static, Result<Process, StreamError>> + Send>;

/// What a client asked for.
pub(crate) struct Command {
    pub(crate) access: Access,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) terminal: bool,
    pub(crate) start: Start,
}

/// How the end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A failure in words, before exit codes were told.
    Words,
    /// A `Status`, from the fourth version on.
    Status,
    /// The same as the API server tells it when it translates the fifth version.
    Translated,
}

/// How it ended.
pub(crate) enum End {
    Code(i32),
    /// It could not be started or waited for.
    Failed(StreamError),
    /// The container was not reached: the fifth version tells that after the upgrade.
    Unreached(StreamError),
}

/// What a client is told on the error stream; nothing if there is nothing to tell.
fn told(format: Format, access: Access, command: &[String], end: &End) -> Bytes {
    let words = match end {
        End::Code(0) => String::new(),
        End::Code(_) if access == Access::Attach => String::new(),
        End::Code(code) if format == Format::Translated => {
            format!("command terminated with non-zero exit code: command terminated with exit code {code}")
        }
        End::Code(code) => {
            let command = command.join(" ");
            format!("command terminated with non-zero exit code: error executing command [{command}], exit code {code}")
        }
        End::Failed(error) => {
            let what = if access == Access::Attach { "attaching to" } else { "executing command in" };
            let told = format!("Internal error occurred: error {what} container: {error}");
            // The API server passes it on as an error of its own.
            if format == Format::Translated { format!("Internal error occurred: {told}") } else { told }
        }
        End::Unreached(error) => format!("Internal error occurred: unable to upgrade connection: {error}"),
    };
    if format == Format::Words {
        return words.into();
    }
    let status = match end {
        _ if words.is_empty() => json!({"metadata": {}, "status": "Success"}),
        End::Code(code) => json!({
            "metadata": {}, "status": "Failure", "message": words, "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        End::Failed(_) | End::Unreached(_) => {
            let cause = words.strip_prefix("Internal error occurred: ").unwrap_or(&words);
            json!({
                "metadata": {}, "status": "Failure", "message": words, "reason": "InternalError",
                "details": {"causes": [{"message": cause}]}, "code": 500,
            })
        }
    };
    status.to_string().into()
}

/// Where the output of a process goes.
enum Sink {
    Channel(Channels, u8),
    Stream(Outlet, u32),
}

impl Sink {
    async fn send(&self, bytes: Bytes) -> bool {
        match self {
            Self::Channel(channels, number) => channels.send(*number, &bytes).await,
            Self::Stream(outlet, id) => outlet.data(*id, bytes, false).await,
        }
    }

    /// There is no more. WebSockets have no way to tell the client.
    async fn finish(&self) {
        if let Self::Stream(outlet, id) = self {
            outlet.data(*id, Bytes::new(), true).await;
        }
    }
}

/// The client's end.
struct Ends {
    stdin: Option<mpsc::Receiver<Bytes>>,
    resize: Option<mpsc::Receiver<Bytes>>,
    stdout: Option<Sink>,
    stderr: Option<Sink>,
    error: Sink,
    format: Format,
}

/// Runs a process for a client until it ends, and tells how it ended.
async fn run(command: Command, ends: Ends) {
    let mut resize = ends.resize.map(Sizes::new);
    let size = match &mut resize {
        Some(sizes) if command.terminal && command.access == Access::Exec => {
            tokio::time::timeout(FIRST_SIZE_TIMEOUT, sizes.next()).await.ok().flatten()
        }
        _ => None,
    };
    let end = match (command.start)(size).await {
        Ok(process) => conduct(process, ends.stdin, resize, ends.stdout.as_ref(), ends.stderr.as_ref()).await,
        Err(error) => End::Failed(error),
    };
    for output in [&ends.stdout, &ends.stderr].into_iter().flatten() {
        output.finish().await;
    }
    let told = told(ends.format, command.access, &command.argv, &end);
    if !told.is_empty() {
        ends.error.send(told).await;
    }
    ends.error.finish().await;
}

async fn conduct(
    process: Process,
    stdin: Option<mpsc::Receiver<Bytes>>,
    resize: Option<Sizes>,
    stdout: Option<&Sink>,
    stderr: Option<&Sink>,
) -> End {
    let Process { stdin: input, stdout: output, stderr: errors, resize: sizes, exit } = process;
    let output = async { tokio::join!(copy(output, stdout), copy(errors, stderr), exit).2 };
    // What the client sends ends before or after the process does; neither waits for the other.
    let input = async {
        tokio::join!(feed(stdin, input), follow(resize, sizes));
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        exit = output => match exit {
            Ok(code) => End::Code(code),
            Err(error) => End::Failed(error),
        },
        never = input => match never {},
    }
}

/// Passes on what a process writes.
async fn copy(output: Option<Box<dyn AsyncRead + Send + Unpin>>, sink: Option<&Sink>) {
    let Some(mut output) = output else { return };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE);
        // A terminal whose other end is closed gives an error instead of its end.
        match output.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let piece = buffer.split().freeze();
        if let Some(sink) = sink
            && !sink.send(piece).await
        {
            return;
        }
    }
}

/// Passes on what a client sends, and tells the process when there is no more.
async fn feed(stdin: Option<mpsc::Receiver<Bytes>>, input: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    let Some(mut stdin) = stdin else { return };
    if let Some(mut input) = input {
        while let Some(bytes) = stdin.recv().await {
            let written: io::Result<()> = async {
                input.write_all(&bytes).await?;
                input.flush().await
            }
            .await;
            if written.is_err() {
                break;
            }
        }
        let _ = input.shutdown().await;
    }
    // It is not read any more, but it must not hold up what else the client sends.
    while stdin.recv().await.is_some() {}
}

/// Passes on the sizes of a client's terminal.
async fn follow(resize: Option<Sizes>, sizes: Option<mpsc::Sender<(u16, u16)>>) {
    let Some(mut resize) = resize else { return };
    while let Some(size) = resize.next().await {
        if let Some(sizes) = &sizes {
            let _ = sizes.send(size).await;
        }
    }
}

/// The sizes that a client's terminal has, one after the other.
struct Sizes {
    inbox: mpsc::Receiver<Bytes>,
    /// What has arrived of the next one.
    text: Vec<u8>,
    ready: VecDeque<(u16, u16)>,
}

impl Sizes {
    fn new(inbox: mpsc::Receiver<Bytes>) -> Self {
        Self { inbox, text: Vec::new(), ready: VecDeque::new() }
    }

    /// The next size; `None` once the client sends no more. Cancel-safe.
    async fn next(&mut self) -> Option<(u16, u16)> {
        loop {
            if let Some(size) = self.ready.pop_front() {
                return Some(size);
            }
            let bytes = self.inbox.recv().await?;
            self.text.extend_from_slice(&bytes);
            self.ready.extend(take_sizes(&mut self.text));
        }
    }
}

/// The sizes that are complete in a text of JSON objects; what is left is the start of another one.
fn take_sizes(text: &mut Vec<u8>) -> Vec<(u16, u16)> {
    let mut objects = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let mut sizes = Vec::new();
    let mut used = 0;
    let mut is_broken = false;
    loop {
        match objects.next() {
            Some(Ok(size)) => {
                let side = |name: &str| size.get(name)?.as_u64()?.try_into().ok();
                sizes.extend(side("Width").zip(side("Height")));
                used = objects.byte_offset();
            }
            Some(Err(error)) => {
                is_broken = !error.is_eof();
                break;
            }
            None => break,
        }
    }
    text.drain(..used);
    if is_broken || text.len() > SIZE_LIMIT {
        text.clear();
    }
    sizes
}

/// Serves a client over the channels of a WebSocket. `unreached` says why there is nothing to run.
pub(crate) async fn over_websocket(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    protocol: super::upgrade::Subprotocol,
    command: Command,
    unreached: Option<StreamError>,
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = websocket::Reader::new(reader);
    let (channels, mut outbox) = Channels::new(protocol.base64);
    let (stdin_sender, stdin) = mpsc::channel(8);
    let (resize_sender, resize) = mpsc::channel(8);
    let format = match (protocol.closes, protocol.statuses) {
        (true, _) => Format::Translated,
        (false, true) => Format::Status,
        (false, false) => Format::Words,
    };
    let mut inboxes = [(STDIN, Some(stdin_sender)), (RESIZE, Some(resize_sender))];
    if !command.stdin {
        inboxes[0].1 = None;
    }
    let reading = super::channels::read(&mut reader, &channels, protocol, &mut inboxes);
    let session = async {
        let first = [(command.stdout, STDOUT), (command.stderr, STDERR)].into_iter().find(|(asked, _)| *asked);
        // Tells the client that the connection is there.
        channels.send(first.map_or(ERROR, |(_, number)| number), &[]).await;
        if let Some(error) = unreached {
            channels.send(ERROR, &told(format, command.access, &command.argv, &End::Unreached(error))).await;
            return;
        }
        let sink = |asked: bool, number| asked.then(|| Sink::Channel(channels.clone(), number));
        let ends = Ends {
            stdin: command.stdin.then_some(stdin),
            resize: Some(resize),
            stdout: sink(command.stdout, STDOUT),
            stderr: sink(command.stderr, STDERR),
            error: Sink::Channel(channels.clone(), ERROR),
            format,
        };
        run(command, ends).await;
    };
    let writing = super::channels::write(&mut writer, &mut outbox);
    tokio::select! {
        _ = reading => return,
        _ = writing => return,
        () = session => {}
    }
    // What is left is sent, then the end; the client closes the connection.
    outbox.close();
    let rest = async {
        super::channels::write(&mut writer, &mut outbox).await?;
        websocket::write(&mut writer, &websocket::close()).await?;
        writer.shutdown().await
    };
    let drain = async { while let Ok(Some(_)) = reader.next().await {} };
    let _ = tokio::time::timeout(LINGER, async { tokio::join!(rest, drain) }).await;
}

/// The versions of the protocol over SPDY, the first that the client names is used.
pub(crate) const VERSIONS: [&str; 4] =
    ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

/// Serves a client over the streams of a SPDY connection.
pub(crate) async fn over_spdy(stream: impl AsyncRead + AsyncWrite + Unpin + Send, version: &str, command: Command) {
    let (reader, writer) = tokio::io::split(stream);
    let spdy::Connection { reading, mut writing, mut streams, outlet } = spdy::Connection::new(reader, writer);
    let resizes = command.terminal && matches!(version, "v4.channel.k8s.io" | "v3.channel.k8s.io");
    let format = if version == "v4.channel.k8s.io" { Format::Status } else { Format::Words };
    let mut reading = std::pin::pin!(reading.run());
    let session = async move {
        let asked = [command.stdin, command.stdout, command.stderr, resizes];
        let Some(opened) = open(&mut streams, &outlet, asked).await else { return };
        let refuse = async {
            while let Some(stream) = streams.recv().await {
                outlet.send(Outgoing::Reset { id: stream.id, status: PROTOCOL_ERROR }).await;
            }
            std::future::pending::<()>().await;
        };
        let ends = opened.into_ends(&outlet, format);
        tokio::select! {
            () = run(command, ends) => {}
            () = refuse => {}
        }
    };
    tokio::select! {
        _ = &mut reading => return,
        _ = writing.run() => return,
        () = session => {}
    }
    // What is left is sent, then the end; the client closes the connection.
    let _ = tokio::time::timeout(LINGER, async { tokio::join!(writing.finish(), reading) }).await;
}

/// The streams of one session.
#[derive(Default)]
struct Opened {
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
    error: Option<Stream>,
}

impl Opened {
    fn into_ends(self, outlet: &Outlet, format: Format) -> Ends {
        let sink = |stream: Option<Stream>| stream.map(|stream| Sink::Stream(outlet.clone(), stream.id));
        Ends {
            stdin: self.stdin.map(|stream| stream.inbox),
            resize: self.resize.map(|stream| stream.inbox),
            stdout: sink(self.stdout),
            stderr: sink(self.stderr),
            // Streams have odd numbers: this one is not there.
            error: sink(self.error).unwrap_or_else(|| Sink::Stream(outlet.clone(), 0)),
            format,
        }
    }
}

/// Waits for all streams that the client asked for. `None` if they do not come.
async fn open(streams: &mut mpsc::Receiver<Stream>, outlet: &Outlet, asked: [bool; 4]) -> Option<Opened> {
    let mut missing = 1 + asked.into_iter().filter(|asked| *asked).count();
    let mut opened = Opened::default();
    let deadline = Instant::now() + STREAMS_TIMEOUT;
    while missing > 0 {
        let stream = tokio::time::timeout_at(deadline, streams.recv()).await.ok()??;
        let place = match stream.header("streamtype") {
            "stdin" => &mut opened.stdin,
            "stdout" => &mut opened.stdout,
            "stderr" => &mut opened.stderr,
            "resize" => &mut opened.resize,
            "error" => &mut opened.error,
            _ => {
                outlet.send(Outgoing::Reset { id: stream.id, status: PROTOCOL_ERROR }).await;
                continue;
            }
        };
        outlet.send(Outgoing::Reply(stream.id)).await;
        if place.replace(stream).is_none() {
            missing -= 1;
        }
    }
    Some(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_arrive_in_pieces() {
        let check = |text: &str, expected: &[(u16, u16)], rest: &str| {
            let mut text = text.as_bytes().to_vec();
            assert_eq!(take_sizes(&mut text), expected);
            assert_eq!(String::from_utf8_lossy(&text).trim(), rest);
        };
        check("{\"Width\":80,\"Height\":24}\n", &[(80, 24)], "");
        check("{\"Width\":80,\"Height\":24}{\"Width\":1", &[(80, 24)], "{\"Width\":1");
        check("{\"Width\":800000,\"Height\":24}", &[], "");
        check("nonsense", &[], "");
    }

    #[test]
    fn an_end_is_told_in_upstreams_words() {
        let command = ["sh".to_owned(), "-c".to_owned()];
        let told = |format, end| {
            let told = told(format, Access::Exec, &command, &end);
            serde_json::from_slice::<Value>(&told).map_or_else(
                |_| String::from_utf8_lossy(&told).into_owned(),
                |status| {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    format!("{}|{}|{}", text(&status["status"]), text(&status["reason"]), text(&status["message"]))
                },
            )
        };
        let exits = "command terminated with non-zero exit code: error executing command [sh -c], exit code 3";
        assert_eq!(told(Format::Words, End::Code(0)), "");
        assert_eq!(told(Format::Words, End::Code(3)), exits);
        assert_eq!(told(Format::Status, End::Code(0)), "Success||");
        assert_eq!(told(Format::Status, End::Code(3)), format!("Failure|NonZeroExitCode|{exits}"));
        assert_eq!(
            told(Format::Translated, End::Code(3)),
            "Failure|NonZeroExitCode|command terminated with non-zero exit code: command terminated with exit code 3"
        );
        let failed = || End::Failed(StreamError::internal("no such file"));
        let why = "Internal error occurred: error executing command in container: no such file";
        assert_eq!(told(Format::Status, failed()), format!("Failure|InternalError|{why}"));
        assert_eq!(told(Format::Translated, failed()), format!("Failure|InternalError|Internal error occurred: {why}"));
    }
}
