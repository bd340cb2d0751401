#!/usr/bin/env python3
"""Measures a whole cluster: controllers, scheduler and simulated nodes, and prints Markdown for docs/performance.md.

    tests/load/cluster.py [--binary FILE] [--parts P,P] [--pods N,N] [--ephemeral] [--idle SECONDS] [--runs N]

Parts: `deployment` (a Deployment of 100 replicas until it is Available), `namespace` (1,000 objects of a namespace until
it is gone), `scale` (pods of Deployments until all are Ready, and until all are gone, ten on each simulated node), `idle`
(what a cluster with ten nodes and nothing to do uses). Each part starts `windlass up --foreground` on a fresh data
directory and reads from /proc how much CPU time and memory the whole process took. Everything is awaited with watches;
the script itself needs little of the machine.

It exits with 1 if a target is missed, and says which (`--no-targets` only prints). The targets are for 2 idle cores:
Deployment 1 s, namespace 2 s, idle 1 % of a core; with 100,000 pods 120 s from the start until they and their nodes are
Ready, 2 GB, and 60 s until all are gone; the CPU time per pod with the most pods at most 1.5 times that with the fewest.
"""

import argparse
import base64
import http.client
import json
import os
import re
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["deployment", "namespace", "scale", "idle"]
REPLICAS = 100
PODS_PER_NODE = 10
PODS_PER_NAMESPACE = 10_000
DEPLOYMENTS = "/apis/apps/v1/deployments"

# What the whole cluster has to achieve on 2 idle cores.
DEPLOYMENT_SECONDS = 1
NAMESPACE_SECONDS = 2
IDLE_CORE = 0.01
LARGE = 100_000
LARGE_READY_SECONDS = 120
LARGE_MEMORY_MB = 2_000
LARGE_GONE_SECONDS = 60
LINEAR = 1.5

missed = []


def main():
    args = arguments()
    for part in args.parts.split(","):
        {"deployment": deployment, "namespace": namespace, "scale": scale, "idle": idle}[part](args)
    for what in missed:
        print(f"MISSED: {what}", file=sys.stderr)
    if missed and args.targets:
        sys.exit(1)


def target(what, value, limit, unit):
    if value > limit:
        missed.append(f"{what}: {value:.3g} {unit}, the target is {limit:g} {unit}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/dist/windlass", help="the windlass to measure")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, in this order (default: all)")
    parser.add_argument("--pods", default="1000,10000,100000", help="how many pods `scale` has")
    parser.add_argument("--ephemeral", action="store_true", help="measure the memory engine, not the durable one")
    parser.add_argument("--idle", type=int, default=180, help="how many seconds `idle` takes (default: 180)")
    parser.add_argument("--runs", type=int, default=5, help="how often `deployment` and `namespace` measure (default: 5)")
    parser.add_argument("--no-targets", dest="targets", action="store_false", help="exit with 0 if a target is missed")
    parser.add_argument("--timeout", type=int, default=900, help="seconds after which something awaited has failed")
    args = parser.parse_args()
    if unknown := set(args.parts.split(",")) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))}: use some of {', '.join(PARTS)}")
    if not args.binary.exists():
        sys.exit(f"{args.binary} is missing; run: cargo build --profile dist")
    return args


class Cluster:
    """A running `windlass up`, and requests to it."""

    def __init__(self, process, directory, timeout):
        self.process, self.timeout, self.local = process, timeout, threading.local()
        text = Path(f"{directory}/kubeconfig").read_text()
        files = {}
        for field in ("certificate-authority-data", "client-certificate-data", "client-key-data"):
            files[field] = f"{directory}/{field}"
            encoded = re.search(rf"{field}:\s*(?:>-\s*)?\"?([A-Za-z0-9+/=]+)", text).group(1)
            Path(files[field]).write_bytes(base64.b64decode(encoded))
        self.address = re.search(r"server: *\"?https://([^\s\"]+)", text).group(1)
        self.context = ssl.create_default_context(cafile=files["certificate-authority-data"])
        self.context.load_cert_chain(files["client-certificate-data"], files["client-key-data"])

    def connect(self):
        return http.client.HTTPSConnection(self.address, context=self.context, timeout=self.timeout)

    def request(self, method, path, body=None, missing=False):
        # The server closes connections that were not used for a while, as during a long wait.
        idle = time.monotonic() - getattr(self.local, "used", 0)
        if not hasattr(self.local, "connection") or idle > 30:
            self.local.connection = self.connect()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self.local.connection.request(method, path, json.dumps(body) if body else None, headers)
        response = self.local.connection.getresponse()
        content = response.read()
        self.local.used = time.monotonic()
        if missing and response.status == 404:
            return None
        if response.status not in (200, 201, 202):
            sys.exit(f"{method} {path}: {response.status} {content[:300]}")
        return json.loads(content)

    def count(self, path):
        page = self.request("GET", f"{path}?limit=1")
        return len(page["items"]) + page["metadata"].get("remainingItemCount", 0)

    def watch(self, path, version="0"):
        """The events of a watch, from what there is at the beginning on."""
        connection = self.connect()
        connection.request("GET", f"{path}?watch=true&resourceVersion={version}")
        response = connection.getresponse()
        while line := response.readline():
            yield json.loads(line)
        sys.exit(f"the watch of {path} ended")

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, name):
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1000

    def await_nodes(self, count):
        """Nodes are registered in order: the last one is asked for, then all are counted."""
        def is_ready(node):
            conditions = node["status"].get("conditions", [])
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        for name in (f"node-{count - 1}", None):
            while True:
                if name is None:
                    nodes = self.request("GET", "/api/v1/nodes?resourceVersion=0")["items"]
                else:
                    nodes = [self.request("GET", f"/api/v1/nodes/{name}", missing=True)]
                if all(node and is_ready(node) for node in nodes) and len(nodes) >= (1 if name else count):
                    break
                time.sleep(0.05 if count <= 100 else 0.5)

    def await_deployments(self, count, is_done):
        done, events = set(), 0
        for event in self.watch(DEPLOYMENTS):
            events += 1
            key = (event["object"]["metadata"]["namespace"], event["object"]["metadata"]["name"])
            if is_done(event["object"]):
                done.add(key)
            else:
                done.discard(key)
            if len(done) == count:
                return events

    def await_no_namespace(self, names):
        left = set(names)
        for event in self.watch("/api/v1/namespaces"):
            if event["type"] == "DELETED":
                left.discard(event["object"]["metadata"]["name"])
            if not left:
                return


@contextmanager
def running(args, nodes):
    with tempfile.TemporaryDirectory(prefix="windlass-cluster-") as directory:
        command = [args.binary, "up", "--foreground", "--listen", "127.0.0.1:0", "--nodes", str(nodes)]
        command += ["--kubeconfig", f"{directory}/kubeconfig"]
        command += ["--ephemeral"] if args.ephemeral else ["--data-dir", f"{directory}/data"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   env={**os.environ, "HOME": directory})
        try:
            if not process.stdout.readline().startswith("ready"):
                sys.exit(f"{args.binary} does not start")
            yield Cluster(process, directory, args.timeout)
        finally:
            process.terminate()
            process.wait()


def create_namespace(cluster, name):
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    # Pods are refused until it is there.
    while cluster.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default", missing=True) is None:
        time.sleep(0.01)


def create_deployment(cluster, namespace, name, replicas):
    labels = {"app": name}
    container = {"name": "web", "image": "registry.example/web:1", "ports": [{"containerPort": 8080}],
                 "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    cluster.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", {
        "metadata": {"name": name}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })


def is_available(deployment):
    wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
    counts = (status.get(field, 0) for field in ("readyReplicas", "availableReplicas", "updatedReplicas"))
    conditions = status.get("conditions", [])
    return all(count == wanted for count in counts) and any(
        one["type"] == "Available" and one["status"] == "True" for one in conditions)


def timed(work):
    started = time.monotonic()
    work()
    return time.monotonic() - started


def spread(values):
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def deployment(args):
    with running(args, 10) as cluster:
        cluster.await_nodes(10)
        took, cpu = [], []
        for run in range(args.runs):
            create_namespace(cluster, f"run-{run}")
            before = cluster.cpu()
            def until_available():
                create_deployment(cluster, f"run-{run}", "web", REPLICAS)
                cluster.await_deployments(1, is_available)
            took.append(timed(until_available))
            cpu.append(cluster.cpu() - before)
            cluster.request("DELETE", f"/api/v1/namespaces/run-{run}")
            cluster.await_no_namespace([f"run-{run}"])
        print(f"Deployment of {REPLICAS} replicas Available: {spread(took)}, CPU {spread(cpu)}, {args.runs} runs")
        target(f"Deployment of {REPLICAS} replicas", statistics.median(took), DEPLOYMENT_SECONDS, "s")


def namespace(args):
    with running(args, 10) as cluster:
        cluster.await_nodes(10)
        took, cpu, counts = [], [], set()
        for run in range(args.runs):
            name = f"run-{run}"
            create_namespace(cluster, name)
            counts.add(fill(cluster, name))
            before = cluster.cpu()
            def until_gone():
                cluster.request("DELETE", f"/api/v1/namespaces/{name}")
                cluster.await_no_namespace([name])
            took.append(timed(until_gone))
            cpu.append(cluster.cpu() - before)
        print(f"namespace of {'/'.join(map(str, sorted(counts)))} objects gone: {spread(took)}, CPU {spread(cpu)}, "
              f"{args.runs} runs")
        target("namespace", statistics.median(took), NAMESPACE_SECONDS, "s")


def fill(cluster, namespace):
    """About 1,000 objects of twelve kinds, of which 100 are running pods; returns how many."""
    core, base = f"/api/v1/namespaces/{namespace}", f"/namespaces/{namespace}"
    def many(path, count, body):
        for i in range(count):
            cluster.request("POST", path, {"metadata": {"name": f"x-{i}"}, **body})
    many(f"{core}/configmaps", 290, {"data": {"key": "value" * 20}})
    many(f"{core}/secrets", 200, {"stringData": {"key": "value" * 20}})
    many(f"{core}/serviceaccounts", 50, {})
    many(f"{core}/services", 50, {"spec": {"selector": {"app": "web-0"}, "ports": [{"port": 80}]}})
    many(f"/apis/rbac.authorization.k8s.io/v1{base}/roles", 80, {"rules": []})
    many(f"/apis/coordination.k8s.io/v1{base}/leases", 80, {})
    many(f"/apis/networking.k8s.io/v1{base}/networkpolicies", 40, {"spec": {"podSelector": {}}})
    for i in range(10):
        create_deployment(cluster, namespace, f"web-{i}", 10)
    cluster.await_deployments(10, is_available)
    kinds = [f"{core}/{kind}" for kind in ("configmaps", "secrets", "serviceaccounts", "services", "endpoints", "pods")]
    kinds += [f"/apis/{group}{base}/{kind}" for group, kind in (
        ("rbac.authorization.k8s.io/v1", "roles"), ("coordination.k8s.io/v1", "leases"),
        ("networking.k8s.io/v1", "networkpolicies"), ("apps/v1", "deployments"), ("apps/v1", "replicasets"),
        ("discovery.k8s.io/v1", "endpointslices"))]
    return sum(cluster.count(kind) for kind in kinds)


def scale(args):
    print("| pods | nodes | nodes Ready | pods Ready | CPU | CPU per pod | memory | at the peak | per pod | "
          "deleted | CPU | CPU per pod |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = sorted(measure_scale(args, pods) for pods in map(int, args.pods.split(",")))
    (fewest, *first), (most, *last) = rows[0], rows[-1]
    if fewest < most:
        names = ("created", "deleted")
        ratios = {name: last[i] / first[i] for i, name in enumerate(names)}
        print(f"\nCPU time per pod with {most:,} pods compared with {fewest:,}: "
              + ", ".join(f"{ratio:.2f} times when {name}" for name, ratio in ratios.items()), flush=True)
        for name, ratio in ratios.items():
            target(f"CPU time per pod {name}, {most:,} compared with {fewest:,}", ratio, LINEAR, "times")


def measure_scale(args, pods):
    """Prints a row, and returns the number of pods and the CPU time for each when they were created and deleted."""
    nodes = max(pods // PODS_PER_NODE, 1)
    started = time.monotonic()
    with running(args, nodes) as cluster:
        cluster.await_nodes(nodes)
        nodes_ready, empty, before = time.monotonic() - started, cluster.memory("VmRSS"), cluster.cpu()
        deployments = pods // REPLICAS
        per_namespace = PODS_PER_NAMESPACE // REPLICAS
        names = [f"load-{i}" for i in range(-(-deployments // per_namespace))]

        def until_ready():
            for name in names:
                create_namespace(cluster, name)
            for i in range(deployments):
                create_deployment(cluster, names[i // per_namespace], f"web-{i}", REPLICAS)
            cluster.await_deployments(deployments, is_available)
        took = timed(until_ready)
        cpu, rss = cluster.cpu() - before, cluster.memory("VmRSS")
        made = cluster.count("/api/v1/pods")
        if made != deployments * REPLICAS:
            sys.exit(f"{made} pods instead of {deployments * REPLICAS}")
        before = cluster.cpu()

        def until_gone():
            for name in names:
                cluster.request("DELETE", f"/api/v1/namespaces/{name}")
            cluster.await_no_namespace(names)
        gone = timed(until_gone)
        deleted = cluster.cpu() - before
        peak, each = cluster.memory("VmHWM"), 1e6 / made
        print(f"| {made:,} | {nodes:,} | {nodes_ready:.1f} s | {took:.1f} s | {cpu:.1f} s | {cpu * each:.0f} us | "
              f"{rss:.0f} MB | {peak:.0f} MB | {(rss - empty) * 1e3 / made:.1f} KB | {gone:.1f} s | {deleted:.1f} s | "
              f"{deleted * each:.0f} us |", flush=True)
        if made >= LARGE:
            target(f"{nodes:,} nodes and {made:,} pods Ready", nodes_ready + took, LARGE_READY_SECONDS, "s")
            target(f"{made:,} pods gone", gone, LARGE_GONE_SECONDS, "s")
            target(f"memory with {made:,} pods", peak, LARGE_MEMORY_MB, "MB")
        return made, cpu * each, deleted * each


def idle(args):
    with running(args, 10) as cluster:
        cluster.await_nodes(10)
        time.sleep(10)  # Controllers look around before the cluster is idle.
        before, memory = cluster.cpu(), cluster.memory("VmRSS")
        time.sleep(args.idle)
        used = cluster.cpu() - before
        print(f"idle with 10 nodes for {args.idle} s: {used:.2f} s of CPU, {used / args.idle:.2%} of a core; "
              f"memory {memory:.1f} MB, then {cluster.memory('VmRSS'):.1f} MB")
        target("idle", used / args.idle * 100, IDLE_CORE * 100, "% of a core")


if __name__ == "__main__":
    main()
