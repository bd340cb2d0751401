//! A whole network against a real API server: needs root, or a user namespace. Ports of the machine are on loopback.

#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, PostParams};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::task::AbortOnDropHandle;
use windlass_server::Server;

use super::*;
use crate::cluster::tests::is_forbidden;
use crate::dns::message::{Name, Type, question, read_answer};
use crate::namespace::NetworkNamespace;

/// Answers every connection with its name, as a web server would.
fn answer(listener: TcpListener, name: &'static str) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{name}", name.len());
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.shutdown().await;
            // Until the client has read everything and closes.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }))
}

/// What a connection is answered with.
async fn body(stream: io::Result<TcpStream>, request: &str) -> io::Result<String> {
    let mut stream = stream?;
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned())
}

const GET: &str = "GET /hello HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Tries until something is as wanted: rules follow objects in their own time.
async fn until<T, F: Future<Output = Option<T>>>(attempt: impl Fn() -> F) -> T {
    let trying = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), trying).await.expect("it becomes so")
}

async fn resolve(pod: &Sockets, name: &str) -> Option<Vec<IpAddr>> {
    let socket = pod.udp((Ipv4Addr::UNSPECIFIED, 0).into()).await.ok()?;
    socket.send_to(&question(5, &Name::parse(name)?, Type::A), "10.96.0.10:53").await.ok()?;
    let mut buffer = [0; 512];
    let received = tokio::time::timeout(Duration::from_secs(1), socket.recv(&mut buffer)).await.ok()?.ok()?;
    read_answer(&buffer[..received]).map(|(_, _, addresses)| addresses)
}

async fn create<K>(client: &kube::Client, object: Value) -> anyhow::Result<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let api = Api::<K>::namespaced(client.clone(), "default");
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

#[tokio::test]
async fn pods_services_names_and_ingresses_work_together() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let api_server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut options = NetworkOptions::new(Options::new("whole", directory.path()));
    options.api_server = Some(api_server.local_addr()?);
    options.http = Some((Ipv4Addr::LOCALHOST, 0).into());
    options.expose = true;
    let network = match Network::start(options).await {
        Err(StartError::Network(error)) if is_forbidden(&error) => {
            eprintln!("SKIPPED: networks cannot be made here: {error}");
            return Ok(());
        }
        network => network?,
    };
    let _api_server = answer(api_server, "api");

    let server = Server::builder().start().await?;
    let client = kube::Client::new(server.service(), "default");
    let mut manager = Manager::builder(client.clone()).name("network").check_permissions(false).build()?;
    network.add_to(&mut manager)?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));

    // Two pods: a web server and a client.
    let pod = |number: u8| cluster::Pod {
        uid: format!("uid-{number}"),
        namespace: "default".to_owned(),
        name: format!("web-{number}"),
        address: Some([10, 244, 0, number].into()),
        ..cluster::Pod::default()
    };
    let host_port = HostPort { protocol: Protocol::Tcp, port: 8088, pod_port: 8080 };
    let web = network.attach(pod(2), vec![host_port]).await?;
    assert_eq!(web.resolv_conf.lines().nth(1), Some("nameserver 10.96.0.10"));
    let inside = |path: &PathBuf| NetworkNamespace::open(path).ok().flatten().expect("a namespace").sockets();
    let web = inside(&web.namespace)?;
    let _web = answer(web.listen("0.0.0.0:8080".parse()?).await?, "web");
    let pod = inside(&network.attach(pod(3), Vec::new()).await?.namespace)?;

    // The API server, by the address of its Service.
    let text = until(|| async { body(pod.connect("10.96.0.1:443".parse().ok()?).await, GET).await.ok() }).await;
    assert_eq!(text, "api");

    let spec = serde_json::json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    let service: Service = create(&client, serde_json::json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let own: IpAddr = service.spec.and_then(|spec| spec.cluster_ip).expect("an address").parse()?;
    let labels = serde_json::json!({crate::services::SERVICE_NAME: "web"});
    let slice = serde_json::json!({
        "metadata": {"name": "web-1", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.2"]}], "ports": [{"name": "http", "port": 8080}],
    });
    create::<EndpointSlice>(&client, slice).await?;

    // Its name, and its address.
    let name = "web.default.svc.cluster.local";
    let found = until(|| async { resolve(&pod, name).await.filter(|found| !found.is_empty()) }).await;
    assert_eq!(found, [own]);
    let to_service = || async { body(pod.connect((own, 80).into()).await, GET).await.ok() };
    assert_eq!(until(to_service).await, "web");
    assert_eq!(
        until(|| async { body(pod.connect("172.18.0.2:8088".parse().ok()?).await, GET).await.ok() }).await,
        "web"
    );

    // From the machine: by the load balancer's address, and through an Ingress.
    let services = Api::<Service>::namespaced(client.clone(), "default");
    let balancer = until(|| async {
        let status = services.get("web").await.ok()?.status?.load_balancer?.ingress?;
        status.first()?.ip.clone()?.parse::<IpAddr>().ok()
    })
    .await;
    assert!(balancer.is_loopback());
    // Ports below 1024 are the administrator's, who this test need not be.
    let reached = until(|| async {
        match TcpStream::connect((balancer, 80)).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !may_listen_on_80().await => Some(None),
            stream => body(stream, GET).await.ok().map(Some),
        }
    })
    .await;
    assert!(reached.is_none_or(|text| text == "web"));
    let backend = serde_json::json!({"service": {"name": "web", "port": {"name": "http"}}});
    let paths = serde_json::json!([{"path": "/hello", "pathType": "Prefix", "backend": backend}]);
    let spec = serde_json::json!({"ingressClassName": "windlass", "rules": [{"http": {"paths": paths}}]});
    create::<Ingress>(&client, serde_json::json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let http = network.addresses().http.expect("it listens");
    let through_ingress = || async {
        let text = body(TcpStream::connect(http).await, GET).await.ok()?;
        (text == "web").then_some(())
    };
    until(through_ingress).await;

    network.detach("uid-2").await?;
    stop.cancel();
    running.await??;
    drop(network);
    cluster::remove(directory.path(), "whole")?;
    assert_eq!(cluster::leftovers(directory.path(), "whole")?, []);
    server.stop().await?;
    Ok(())
}

async fn may_listen_on_80() -> bool {
    let refused = TcpListener::bind((Ipv4Addr::new(127, 11, 22, 33), 80)).await;
    !refused.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}
