//! What runs in pods is reached through the server: output, commands, ports, and requests that are passed on.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tower::ServiceExt as _;
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::body::Body;
use windlass_server::streams::{
    Access, AttachOptions, Connection, ExecOptions, LogOptions, PodStreams, PodTarget, Process, StreamError,
};

use crate::client::{create, get, post, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Programs that are there in every container.
struct Programs;

impl PodStreams for Programs {
    fn has_node(&self, node: &str) -> bool {
        node == "n"
    }

    fn check(&self, pod: &PodTarget, access: Access) -> Result<(), StreamError> {
        match pod.container.as_str() {
            "stopped" => {
                Err(StreamError::internal(format!("container not found ({:?}) for {access:?}", pod.container)))
            }
            _ => Ok(()),
        }
    }

    fn logs(
        &self,
        pod: &PodTarget,
        options: &LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, StreamError>> {
        let said = format!("{}/{} {options:?}\n", pod.name, pod.container);
        let is_there = !options.previous;
        async move {
            if is_there {
                Ok(stream::iter([Bytes::from(said), Bytes::from("more\n")]).boxed())
            } else {
                Err(StreamError::bad_request("previous terminated container \"c\" in pod \"p\" not found"))
            }
        }
        .boxed()
    }

    fn exec(&self, _: &PodTarget, options: &ExecOptions) -> BoxFuture<'static, Result<Process, StreamError>> {
        let options = options.clone();
        async move {
            let (stdin, mut input) = tokio::io::duplex(1 << 10);
            let (mut output, stdout) = tokio::io::duplex(1 << 10);
            let (mut errors, stderr) = tokio::io::duplex(1 << 10);
            let (resize, mut sizes) = mpsc::channel(4);
            let command = options.command.join(" ");
            let exit = async move {
                match options.command.first().map(String::as_str) {
                    Some("cat") => {
                        let _ = tokio::io::copy(&mut input, &mut output).await;
                        Ok(0)
                    }
                    Some("size") => {
                        let size = match options.size {
                            Some(size) => Some(size),
                            None => sizes.recv().await,
                        };
                        let _ = output.write_all(format!("{size:?}").as_bytes()).await;
                        Ok(0)
                    }
                    Some("fail") => {
                        let _ = errors.write_all(b"sorry\n").await;
                        Ok(7)
                    }
                    _ => Err(StreamError::internal(format!("there is no program {command:?}"))),
                }
            };
            Ok(Process {
                stdin: Some(Box::new(stdin)),
                stdout: Some(Box::new(stdout)),
                stderr: Some(Box::new(stderr)),
                resize: Some(resize),
                exit: exit.boxed(),
            })
        }
        .boxed()
    }

    fn attach(&self, _: &PodTarget, _: &AttachOptions) -> BoxFuture<'static, Result<Process, StreamError>> {
        let stdout = Box::new(&b"attached\n"[..]);
        async {
            Ok(Process { stdin: None, stdout: Some(stdout), stderr: None, resize: None, exit: async { Ok(1) }.boxed() })
        }
        .boxed()
    }

    fn port(&self, pod: &PodTarget, port: u16) -> BoxFuture<'static, Result<Box<dyn Connection>, StreamError>> {
        let name = pod.name.clone();
        async move {
            let (client, mut server) = tokio::io::duplex(1 << 16);
            match port {
                // Sends back what it gets.
                7 => drop(tokio::spawn(async move {
                    let (mut reader, mut writer) = tokio::io::split(server);
                    let _ = tokio::io::copy(&mut reader, &mut writer).await;
                    let _ = writer.shutdown().await;
                })),
                80 => drop(tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    let read = server.read(&mut request).await.unwrap();
                    let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
                    let first = request.lines().next().unwrap_or_default().to_owned();
                    let is_clean = !request.contains("authorization") && !request.contains("impersonate");
                    let body = format!("{name}: {first} {is_clean}");
                    let head =
                        format!("HTTP/1.1 201 Created\r\nx-pod: {name}\r\ncontent-length: {}\r\n\r\n", body.len());
                    server.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                })),
                _ => return Err(StreamError::internal("connection refused")),
            }
            Ok(Box::new(client) as Box<dyn Connection>)
        }
        .boxed()
    }
}

/// A server with a pod `p` on the node `n`, with the containers `c` and `stopped`.
async fn with_pod() -> Server {
    let server = start().await;
    let programs: Arc<dyn PodStreams> = Arc::new(Programs);
    server.add_pod_streams(&programs);
    create(&server, "/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
    send(&server, Method::PATCH, "/api/v1/nodes/n/status", &status).await;
    let containers = json!([{"name": "c", "image": "i"}, {"name": "stopped", "image": "i"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": containers}});
    create(&server, PODS, &pod).await;
    let status = json!({"status": {"podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]}});
    send(&server, Method::PATCH, &format!("{PODS}/p/status"), &status).await;
    server
}

#[tokio::test]
async fn output_is_streamed_with_the_options_asked_for() {
    let server = with_pod().await;
    let path = format!("{PODS}/p/log?container=c&follow=true&tailLines=5&limitBytes=9&timestamps=true");
    let response = crate::client::get_with(&server, &path, &[]).await;
    assert_eq!(response.headers()["content-type"], "text/plain");
    let said = String::from_utf8(response.body().to_vec()).unwrap();
    assert!(
        said.starts_with("p/c LogOptions { follow: true, previous: false, since: None, timestamps: true"),
        "{said}"
    );
    assert!(said.ends_with("tail: Some(5), limit: Some(9) }\nmore\n"), "{said}");
    let previous = get(&server, &format!("{PODS}/p/log?container=c&previous=true")).await;
    let expected = "previous terminated container \"c\" in pod \"p\" not found";
    assert_eq!((previous.code, previous.message()), (400, expected));
    server.stop().await.unwrap();
}

/// The client's end of a WebSocket.
struct WebSocket {
    stream: TokioIo<hyper::upgrade::Upgraded>,
    buffer: BytesMut,
}

impl WebSocket {
    async fn open(server: &Server, path: &str, protocol: &str) -> Result<(Self, String), (u16, String)> {
        let mut response = upgrade(server, User::admin(), path, protocol).await;
        if response.status() != 101 {
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            return Err((code, String::from_utf8_lossy(&body).into_owned()));
        }
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let chosen =
            response.headers().get("sec-websocket-protocol").map_or("", |value| value.to_str().unwrap()).to_owned();
        let stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        Ok((Self { stream, buffer: BytesMut::new() }, chosen))
    }

    async fn send(&mut self, payload: &[u8]) {
        let mut frame = vec![0x82];
        match payload.len() {
            length @ 0..126 => frame.push(0x80 | length as u8),
            length => {
                frame.push(0x80 | 0x7e);
                frame.extend((length as u16).to_be_bytes());
            }
        }
        frame.extend([1, 2, 3, 4]);
        frame.extend(payload.iter().zip([1, 2, 3, 4].into_iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.stream.write_all(&frame).await.unwrap();
    }

    /// The next message; `None` after the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let [first, second, ..] = *self.buffer {
                let (head, length) = match second {
                    126 if self.buffer.len() >= 4 => {
                        (4, usize::from(u16::from_be_bytes([self.buffer[2], self.buffer[3]])))
                    }
                    126 => (usize::MAX / 2, 0),
                    length => (2, usize::from(length)),
                };
                if self.buffer.len() >= head + length {
                    self.buffer.advance(head);
                    let payload = self.buffer.split_to(length).freeze();
                    return (first != 0x88).then_some(payload);
                }
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Everything up to the end, by channel.
    async fn rest(&mut self) -> [String; 4] {
        let mut said = [const { String::new() }; 4];
        while let Some(message) = self.next().await {
            said[usize::from(message[0]) % 48].push_str(&String::from_utf8_lossy(&message[1..]));
        }
        said
    }
}

async fn upgrade(server: &Server, user: User, path: &str, protocol: &str) -> Response<Body> {
    let request = Request::get(path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", protocol)
        .body(Empty::<Bytes>::new())
        .unwrap();
    server.service_as(user).oneshot(request).await.unwrap()
}

fn exec(query: &str) -> String {
    format!("{PODS}/p/exec?container=c&stdout=true&stderr=true&{query}")
}

#[tokio::test]
async fn input_comes_back_and_can_be_ended() {
    let server = with_pod().await;
    let (mut client, chosen) =
        WebSocket::open(&server, &exec("stdin=true&command=cat"), "v4.channel.k8s.io, v5.channel.k8s.io")
            .await
            .unwrap();
    assert_eq!(chosen, "v5.channel.k8s.io");
    assert_eq!(client.next().await.unwrap(), [1].as_slice());
    let large = vec![b'x'; 20_000];
    client.send(&[&[0], large.as_slice()].concat()).await;
    let mut back = 0;
    while back < large.len() {
        let message = client.next().await.unwrap();
        assert_eq!(message[0], 1);
        back += message.len() - 1;
    }
    client.send(&[255, 0]).await;
    let [_, _, errors, status] = client.rest().await;
    assert_eq!((errors.as_str(), status.as_str()), ("", "{\"metadata\":{},\"status\":\"Success\"}"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn exit_codes_and_failures_are_told() {
    let server = with_pod().await;
    let (mut client, _) = WebSocket::open(&server, &exec("command=fail"), "v4.channel.k8s.io").await.unwrap();
    let [_, _, errors, status] = client.rest().await;
    assert_eq!(errors, "sorry\n");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        (&status["reason"], &status["details"]["causes"][0]["message"]),
        (&json!("NonZeroExitCode"), &json!("7"))
    );

    let (mut client, _) =
        WebSocket::open(&server, &exec("command=no&command=such"), "v5.channel.k8s.io").await.unwrap();
    let [.., status] = client.rest().await;
    assert!(status.contains("error executing command in container: there is no program \\\"no such\\\""), "{status}");

    // Versions without statuses say it in words, and base64 is text.
    let (mut client, chosen) = WebSocket::open(&server, &exec("command=fail"), "base64.channel.k8s.io").await.unwrap();
    assert_eq!(chosen, "base64.channel.k8s.io");
    let [_, _, errors, words] = client.rest().await;
    assert_eq!(errors, "c29ycnkK");
    assert!(words.starts_with("Y29tbWFuZCB0ZXJtaW5hdGVk"), "{words}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_terminal_has_a_size() {
    let server = with_pod().await;
    let (mut client, _) = WebSocket::open(&server, &exec("tty=true&command=size"), "v4.channel.k8s.io").await.unwrap();
    client.send(b"\x04{\"Width\":80,\"Height\":24}\n").await;
    let [_, output, ..] = client.rest().await;
    assert_eq!(output, "Some((80, 24))");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_attaches_to_the_main_process() {
    let server = with_pod().await;
    let path = format!("{PODS}/p/attach?container=c&stdout=true");
    let (mut client, _) = WebSocket::open(&server, &path, "v4.channel.k8s.io").await.unwrap();
    let [_, output, _, status] = client.rest().await;
    assert_eq!((output.as_str(), status.as_str()), ("attached\n", "{\"metadata\":{},\"status\":\"Success\"}"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn containers_that_do_not_run_are_refused() {
    let server = with_pod().await;
    let path = format!("{PODS}/p/exec?container=stopped&stdout=true&command=cat");
    let refused = WebSocket::open(&server, &path, "v4.channel.k8s.io").await.err().unwrap();
    assert_eq!(refused, (500, "container not found (\"stopped\") for Exec".to_owned()));
    // The fifth version is told after the upgrade.
    let (mut client, _) = WebSocket::open(&server, &path, "v5.channel.k8s.io").await.unwrap();
    let [.., status] = client.rest().await;
    assert!(status.contains("unable to upgrade connection: container not found (\\\"stopped\\\")"), "{status}");
    let refused =
        WebSocket::open(&server, &format!("{PODS}/p/exec?container=c&command=cat"), "v4.channel.k8s.io").await;
    assert_eq!(refused.err().unwrap(), (400, "you must specify at least 1 of stdin, stdout, stderr".to_owned()));
    assert_eq!(WebSocket::open(&server, &exec("command=cat"), "unknown").await.err().unwrap().0, 403);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_websocket_needs_the_right_to_create() {
    let server = with_pod().await;
    let rule = json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    create(&server, &format!("{roles}/roles"), &json!({"metadata": {"name": "r"}, "rules": [rule]})).await;
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    create(&server, &format!("{roles}/rolebindings"), &binding).await;
    let jane = || User::new("jane", []);
    let refused = upgrade(&server, jane(), &exec("command=cat"), "v4.channel.k8s.io").await;
    assert_eq!(refused.status(), 403);
    let change = json!({"rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]});
    send(&server, Method::PATCH, &format!("{roles}/roles/r"), &change).await;
    let allowed = upgrade(&server, jane(), &exec("command=cat"), "v4.channel.k8s.io").await;
    assert_eq!(allowed.status(), 101);
    drop(allowed);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn ports_are_forwarded_over_channels() {
    let server = with_pod().await;
    let path = format!("{PODS}/p/portforward?ports=7&ports=9");
    let (mut client, _) = WebSocket::open(&server, &path, "v4.channel.k8s.io").await.unwrap();
    client.send(b"\x00hello").await;
    let mut said = vec![Vec::new(); 4];
    while said[0].len() < 7 || said[3].len() < 50 {
        let message = client.next().await.unwrap();
        said[usize::from(message[0])].extend_from_slice(&message[1..]);
    }
    assert_eq!(said[0], b"\x07\x00hello");
    assert_eq!(said[1], b"\x07\x00");
    let error = String::from_utf8_lossy(&said[3][2..]).into_owned();
    assert!(error.starts_with("error forwarding port 9 to pod p_default, uid "), "{error}");
    assert!(error.ends_with(": connection refused"), "{error}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn requests_are_passed_on_to_pods_and_services() {
    let server = with_pod().await;
    // Headers that impersonate are not passed on.
    let headers = [("impersonate-user", "kubernetes-admin"), ("impersonate-group", "system:masters")];
    let response = crate::client::get_with(&server, &format!("{PODS}/p:80/proxy/a%20b?c=d"), &headers).await;
    let said = String::from_utf8(response.body().to_vec()).unwrap();
    assert_eq!((response.status().as_u16(), said.as_str()), (201, "p: get /a%20b?c=d http/1.1 true"));
    assert_eq!(response.headers()["x-pod"], "p");
    let redirected = crate::client::get_with(&server, &format!("{PODS}/p:80/proxy"), &[]).await;
    assert_eq!(
        (redirected.status().as_u16(), redirected.headers()["location"].to_str().unwrap()),
        (301, &*format!("{PODS}/p:80/proxy/"))
    );
    let refused = get(&server, &format!("{PODS}/p:81/proxy/")).await;
    let expected = "error trying to reach service: dial tcp 10.1.0.1:81: connection refused";
    assert_eq!((refused.code, refused.message()), (503, expected));

    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 8080, "name": "web"}]}});
    create(&server, "/api/v1/namespaces/default/services", &service).await;
    let slice = json!({
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
        "ports": [{"name": "web", "port": 80, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.1.0.1"], "targetRef": {"kind": "Pod", "namespace": "default", "name": "p"}}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    assert_eq!(post(&server, slices, &slice).await.code, 201);
    let path = "/api/v1/namespaces/default/services/s:web/proxy/x";
    let response = crate::client::get_with(&server, path, &[]).await;
    assert_eq!(response.body(), "p: get /x http/1.1 true".as_bytes());
    server.stop().await.unwrap();
}

/// Each warning is a header, and a client in the same process reads them over a connection of its own.
#[tokio::test]
async fn an_upgrade_is_answered_with_a_hundred_warnings() {
    let server = Server::builder().start().await.unwrap();
    let mut map = json!({"metadata": {"name": "m"}});
    for i in 0..200 {
        map[format!("x{i}")] = json!(1);
    }
    let request = Request::post("/api/v1/namespaces/default/configmaps?fieldValidation=Warn")
        .header("content-type", "application/json")
        .header("upgrade", "websocket")
        .header("connection", "upgrade");
    let body = Full::<Bytes>::from(serde_json::to_vec(&map).unwrap());
    let answer = server.service().oneshot(request.body(body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers().get_all("warning").iter().count(), 100);
}
