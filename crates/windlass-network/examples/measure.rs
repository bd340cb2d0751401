//! Measures connections inside a cluster's network: directly to a pod, through a Service that the kernel forwards, and
//! through a proxy in userspace in the kernel's place. Needs root; all traffic is in namespaces that it makes.
//!
//! ```sh
//! cargo run --release -p windlass-network --example measure
//! ```

#![allow(clippy::print_stdout, reason = "it is a command")]

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("network namespaces are a thing of Linux");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use serde_json::json;
    use windlass_network::cluster::{self, ClusterNetwork, Options, Pod};
    use windlass_network::forward::Forwarder;
    use windlass_network::namespace::NetworkNamespace;
    use windlass_network::rules::Layout;
    use windlass_network::services::Service;
    use windlass_network::{Directory, ServiceName};

    const CONNECTIONS: usize = 3000;
    const BYTES: usize = 2 << 30;

    pub(super) fn main() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let measured = measure(directory.path());
        cluster::remove(directory.path(), "measure")?;
        anyhow::ensure!(cluster::leftovers(directory.path(), "measure")?.is_empty(), "something is left behind");
        measured
    }

    fn measure(directory: &std::path::Path) -> anyhow::Result<()> {
        let started = Instant::now();
        let network = ClusterNetwork::open(Options::new("measure", directory))?;
        println!("network of a cluster: {:?}", started.elapsed());
        let started = Instant::now();
        let server = attach(&network, 2)?;
        println!("first pod: {:?}", started.elapsed());
        let client = attach(&network, 3)?;
        let mut times = Vec::new();
        for number in 4..104 {
            let started = Instant::now();
            attach(&network, number)?;
            times.push(started.elapsed());
        }
        times.sort();
        println!("100 more pods, each: median {:?}, p99 {:?}", times[50], times[98]);

        let listener = server.run(|| TcpListener::bind("0.0.0.0:8080"))??;
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                std::thread::spawn(move || serve(stream));
            }
        });

        let mut all = Directory::default();
        for number in 0..1000_u32 {
            let name = ServiceName::new("default", format!("web-{number}"));
            let [.., third, fourth] = (number + 7).to_be_bytes();
            all.set(&name, Some(service(Ipv4Addr::new(10, 96, third, fourth), &[[10, 244, 0, 2]])?));
        }
        let layout = Layout { services: "10.96.0.0/12".parse().ok(), ..Layout::default() };
        let started = Instant::now();
        network.apply(&all, &layout)?;
        println!("rules of 1000 Services: {:?}", started.elapsed());
        let name = ServiceName::new("default", "web-0");
        let more = service(Ipv4Addr::new(10, 96, 0, 7), &[[10, 244, 0, 2], [10, 244, 0, 9]])?;
        let mut changed = all.clone();
        changed.set(&name, Some(more));
        let started = Instant::now();
        network.apply(&changed, &layout)?;
        println!("change of one of them: {:?}", started.elapsed());
        network.apply(&all, &layout)?;

        // The same in userspace: a proxy inside the cluster's namespace.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let sockets = network.sockets().clone();
        let pod: SocketAddr = "10.244.0.2:8080".parse()?;
        let proxy = runtime.block_on(async {
            let listener = network.sockets().listen("172.18.0.2:0".parse()?).await?;
            let connect = move |_: &tokio::net::TcpStream| {
                let sockets = sockets.clone();
                async move { sockets.connect(pod).await }
            };
            anyhow::Ok(Forwarder::tcp(listener, connect)?)
        })?;

        let targets =
            [("pod", pod), ("Service, kernel", "10.96.0.7:80".parse()?), ("Service, userspace", proxy.address())];
        println!("{:<20} {:>12} {:>12} {:>12}", "connection to", "median", "p99", "GB/s");
        for (name, target) in targets {
            let times = client.run(move || connections(target))??;
            let speed = client.run(move || throughput(target))??;
            println!("{name:<20} {:>12?} {:>12?} {speed:>12.2}", times[times.len() / 2], times[times.len() * 99 / 100]);
        }
        Ok(())
    }

    fn attach(network: &ClusterNetwork, number: u8) -> anyhow::Result<NetworkNamespace> {
        let attachment = network.attach(&Pod {
            uid: format!("uid-{number}"),
            namespace: "default".to_owned(),
            name: format!("pod-{number}"),
            address: Some([10, 244, 0, number].into()),
            ..Pod::default()
        })?;
        NetworkNamespace::open(&attachment.namespace)?.ok_or_else(|| anyhow::anyhow!("the namespace is not there"))
    }

    fn service(address: Ipv4Addr, pods: &[[u8; 4]]) -> anyhow::Result<Service> {
        let endpoints: Vec<_> = pods.iter().map(|pod| json!({"addresses": [Ipv4Addr::from(*pod)]})).collect();
        let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 8080}]});
        let service = json!({"spec": {"clusterIP": address, "ports": [{"port": 80}]}});
        Ok(Service::new(&serde_json::from_value(service)?, [&serde_json::from_value(slice)?]))
    }

    /// Answers a byte with a byte; after a zero it only reads.
    fn serve(mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut first = [0; 1];
        while let Ok(1) = stream.read(&mut first) {
            if first[0] == 0 {
                let mut buffer = vec![0; 1 << 20];
                while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
                let _ = stream.write_all(&[1]);
                return;
            }
            if stream.write_all(&first).is_err() {
                return;
            }
        }
    }

    /// How long it takes to connect and to get the first byte.
    fn connections(target: SocketAddr) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..CONNECTIONS {
            let started = Instant::now();
            let mut stream = TcpStream::connect(target)?;
            stream.set_nodelay(true)?;
            stream.write_all(&[1])?;
            stream.read_exact(&mut [0])?;
            times.push(started.elapsed());
        }
        times.sort();
        Ok(times)
    }

    /// Gigabytes per second over one connection.
    fn throughput(target: SocketAddr) -> anyhow::Result<f64> {
        let mut stream = TcpStream::connect(target)?;
        let buffer = vec![0; 1 << 20];
        let started = Instant::now();
        for _ in 0..BYTES / buffer.len() {
            stream.write_all(&buffer)?;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        stream.read_exact(&mut [0])?;
        Ok(BYTES as f64 / 1e9 / started.elapsed().as_secs_f64())
    }
}
