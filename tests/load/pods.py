#!/usr/bin/env python3
"""Measures pods that run, checks the targets, and prints Markdown for docs/performance.md. Needs a static busybox.

    sudo tests/load/pods.py [--binary FILE] [--runtime container|process|container,process] [--parts P,P] [--starts N]

Parts: `starts` (pods created one after the other: the time from the request to the watch event that has the pod Running),
`together` (100 pods at once until all are Running, and the memory of their parents), `many` (200 pods on the node, all
Running at the same time, each answering a command, then all deleted with nothing left), `memory` (the whole cluster with ten
pods, beside the workloads), `forward` (bytes from a pod through `kubectl port-forward`), `service` (what a Service adds to a
connection; with root and containers only).

Memory is the proportional set size. The image is in the store of this machine. Ends with 1 if a target is missed or
something is left behind, and with 2 if nothing could be measured. Without root, containers run in a user namespace.
"""

import argparse
import ctypes
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from cluster import ROOT, Cluster, create_namespace

PODS = "/api/v1/namespaces/pods/pods"
PARTS = ["starts", "together", "many", "memory", "forward", "service"]
# Milliseconds from the request to Running, at the 99th percentile.
START = {"container": 150, "process": 50}
TOGETHER_SECONDS = 5
PARENT_MB = 6
CLUSTER_MB = 150
FORWARD_MB_PER_SECOND = 300
SERVICE_MS = 1
FORWARDED = 1 << 30


class Report:
    """The table, and what of it misses its target."""

    def __init__(self):
        self.missed = []
        print("| what | target | measured | |\n|---|---|---|---|", flush=True)

    def row(self, what, measured, target="", is_met=True):
        print(f"| {what} | {target} | {measured} | {'' if not target else 'ok' if is_met else 'MISSED'} |", flush=True)
        if not is_met:
            self.missed.append(what)


def main():
    args = arguments()
    report = Report()
    for runtime in args.runtime.split(","):
        with running(args, runtime) as (cluster, directory):
            create_namespace(cluster, "pods")
            bench = Bench(args, runtime, cluster, directory, report)
            for part in args.parts.split(","):
                getattr(bench, part)()
            processes = bench.parents()
        left = [pid for pid in processes if is_parent(pid, directory)]
        report.row(f"{runtime}: processes left after the end", len(left), "0", not left)
        mounts = Path("/proc/self/mounts").read_text()
        report.row(f"{runtime}: mounts left after the end", mounts.count(directory), "0", directory not in mounts)
    print(f"\nload {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {args.binary}")
    if report.missed:
        sys.exit("targets missed: " + "; ".join(report.missed))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/dist/windlass", help="the windlass to measure")
    parser.add_argument("--runtime", default="container,process", help="what runs the pods (default: both, in turn)")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, in this order (default: all)")
    parser.add_argument("--starts", type=int, default=100, help="how many pods start one after the other")
    parser.add_argument("--together", type=int, default=100, help="how many pods start at once")
    parser.add_argument("--many", type=int, default=200, help="how many pods the node has")
    parser.add_argument("--busybox", type=Path, default=Path("/usr/bin/busybox"), help="a static busybox")
    parser.add_argument("--kubectl", default=os.environ.get("KUBECTL", "kubectl"), help="the kubectl that forwards ports")
    parser.add_argument("--timeout", type=int, default=300, help="seconds after which something awaited has failed")
    args = parser.parse_args()
    args.binary = args.binary.resolve()
    for name, given, known in (("parts", args.parts, PARTS), ("runtime", args.runtime, START)):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"--{name}: {', '.join(sorted(unknown))}: use some of {', '.join(known)}")
    if not args.binary.exists():
        give_up(f"{args.binary} is missing; run: cargo build --profile dist")
    if not args.busybox.exists() or b"/lib64/ld-linux" in args.busybox.read_bytes():
        give_up(f"{args.busybox} is not a static busybox (Debian: busybox-static)")
    if "forward" in args.parts and not shutil.which(args.kubectl):
        give_up("there is no kubectl; leave the part `forward` out, or name one by --kubectl")
    return args


def give_up(why):
    print(why, file=sys.stderr)
    sys.exit(2)


@contextmanager
def running(args, runtime):
    with tempfile.TemporaryDirectory(prefix="windlass-pods-") as directory:
        env = {**os.environ, "HOME": directory, "WINDLASS_HOME": f"{directory}/clusters",
               "KUBECONFIG": f"{directory}/kubeconfig"}
        os.makedirs(f"{directory}/files/bin")
        shutil.copy(args.busybox, f"{directory}/files/bin/busybox")
        build = [args.binary, "image", "build", f"{directory}/files", "--tag", "busybox:v1", "--entrypoint", "/bin/busybox"]
        built = subprocess.run(build, env=env, cwd=directory, capture_output=True, text=True)
        if built.returncode:
            give_up(built.stderr)
        command = [args.binary, "up", "--foreground", "--listen", "127.0.0.1:0", "--runtime", runtime, "--egress", "off",
                   "--kubeconfig", f"{directory}/kubeconfig", "--data-dir", f"{directory}/data"]
        if runtime == "container":
            command += ["--ingress", "127.0.0.1:0", "--ingress-tls", "127.0.0.1:0"]
        with open(f"{directory}/log", "w+") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
            try:
                if not process.stdout.readline().startswith("ready"):
                    process.wait()
                    log.seek(0)
                    give_up(f"{args.binary} does not start:\n{log.read()}")
                yield Cluster(process, directory, args.timeout), directory
            finally:
                # Pods outlive a cluster that is killed, so it is asked to stop, whatever happened.
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                subprocess.run([args.binary, "down"], env=env, capture_output=True)


class Watch:
    """When pods were first seen Running, by name, and where."""

    def __init__(self, cluster, timeout):
        self.seen, self.uids, self.addresses, self.gone = {}, {}, {}, set()
        self.changed, self.timeout = threading.Condition(), timeout
        threading.Thread(target=self.follow, args=(cluster,), daemon=True).start()

    def follow(self, cluster):
        try:
            for event in cluster.watch(PODS):
                self.note(time.monotonic(), event)
        except (OSError, ValueError):
            pass  # The cluster has ended.

    def note(self, now, event):
        pod = event["object"]
        name = pod["metadata"]["name"]
        with self.changed:
            if event["type"] == "DELETED":
                self.gone.add(name)
            elif pod["status"].get("phase") == "Running":
                self.seen.setdefault(name, now)
                self.uids[name], self.addresses[name] = pod["metadata"]["uid"], pod["status"].get("podIP")
            self.changed.notify_all()

    def wait(self, what, condition):
        with self.changed:
            if not self.changed.wait_for(condition, timeout=self.timeout):
                sys.exit(f"not within {self.timeout} s: {what}")


class Bench:
    """One cluster, and what is measured of it."""

    def __init__(self, args, runtime, cluster, directory, report):
        self.args, self.runtime, self.cluster, self.directory, self.report = args, runtime, cluster, directory, report
        self.watch = Watch(cluster, args.timeout)

    def row(self, what, *rest):
        self.report.row(f"{self.runtime}: {what}", *rest)

    def create(self, name, script=None):
        container = {"name": "main", "image": "busybox:v1", "args": ["sleep", "100000"]}
        if script:
            container["args"] = ["sh", "-c", script]
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        self.cluster.request("POST", PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})

    def await_running(self, names):
        self.watch.wait(f"{len(names)} pods run", lambda: all(name in self.watch.seen for name in names))

    def delete(self, names):
        for name in names:
            self.cluster.request("DELETE", f"{PODS}/{name}")
        self.watch.wait(f"{len(names)} pods are gone", lambda: all(name in self.watch.gone for name in names))

    def parents(self):
        """The parents of pods: this program, started again with a directory of this cluster."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if is_parent(pid, self.directory)]

    def starts(self):
        took = []
        for number in range(self.args.starts):
            name = f"start-{number}"
            before = time.monotonic()
            self.create(name)
            self.await_running([name])
            took.append((self.watch.seen[name] - before) * 1000)
            self.delete([name])
        took.sort()
        p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
        self.row(f"a pod, from the request to Running, {len(took)} one after the other",
                 f"median {statistics.median(took):.0f} ms, p99 {p99:.0f} ms", f"p99 {START[self.runtime]} ms",
                 p99 <= START[self.runtime])

    def together(self):
        count = self.args.together
        empty = proportional(self.cluster.process.pid)
        names = [f"together-{number}" for number in range(count)]
        before, cpu = time.monotonic(), self.cluster.cpu()
        for name in names:
            self.create(name)
        self.await_running(names)
        took = max(self.watch.seen[name] for name in names) - before
        self.row(f"{count} pods at once, until all are Running",
                 f"{took:.2f} s ({self.cluster.cpu() - cpu:.2f} s of CPU of the cluster)", f"{TOGETHER_SECONDS} s",
                 took <= TOGETHER_SECONDS)
        parents = [proportional(pid) for pid in self.parents()]
        grown = max(proportional(self.cluster.process.pid) - empty, 0) / count / 1000
        mean = statistics.mean(parents) / 1000
        self.row(f"memory of ours for each of {len(parents)} pods",
                 f"{mean:.2f} MB for its parent, {grown:.2f} MB more in the cluster's process", f"{PARENT_MB} MB",
                 len(parents) == count and mean + grown <= PARENT_MB)
        self.delete(names)

    def many(self):
        count = self.args.many
        names = [f"many-{number}" for number in range(count)]
        before = time.monotonic()
        for name in names:
            self.create(name)
        self.await_running(names)
        took = max(self.watch.seen[name] for name in names) - before
        pods = self.cluster.request("GET", PODS)["items"]
        restarts = sum(one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses", []))
        run = sum(pod["status"].get("phase") == "Running" for pod in pods if pod["metadata"]["name"] in names)
        parents = len(self.parents())
        self.row(f"{count} pods on the node", f"{run} Running after {took:.1f} s, {restarts} restarts, {parents} parents",
                 f"{count} Running", (run, restarts, parents) == (count, 0, count))
        before = time.monotonic()
        self.delete(names)
        took = time.monotonic() - before
        # A process that has ended is seen until it was waited for.
        deadline = time.monotonic() + 10
        while (left := self.parents()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.row(f"{count} pods deleted", f"{took:.1f} s, {len(left)} parents left", "0 left", not left)

    def memory(self):
        empty = proportional(self.cluster.process.pid)
        names = [f"ten-{number}" for number in range(10)]
        for name in names:
            self.create(name)
        self.await_running(names)
        own = proportional(self.cluster.process.pid) / 1000
        parents = sum(proportional(pid) for pid in self.parents()) / 1000
        self.row("memory of the cluster with 10 pods, beside the workloads",
                 f"{own + parents:.0f} MB: the process {own:.0f} MB (without pods {empty / 1000:.0f} MB), "
                 f"10 parents {parents:.0f} MB", f"{CLUSTER_MB} MB", own + parents <= CLUSTER_MB)
        self.delete(names)

    def forward(self):
        # A pod of processes has the ports of the machine.
        port = free_port()
        blocks = FORWARDED >> 16
        self.create("zeros", f"while true; do busybox nc -l -p {port} -e busybox dd if=/dev/zero bs=65536 count={blocks}; done")
        self.await_running(["zeros"])
        command = [self.args.kubectl, "--kubeconfig", f"{self.directory}/kubeconfig", "-n", "pods", "port-forward", "pod/zeros",
                   f":{port}"]
        env = {**os.environ, "HOME": self.directory}
        forwarding = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        try:
            line = forwarding.stdout.readline()
            local = int(line.split(" -> ")[0].rsplit(":", 1)[1])
            speed = max(self.receive(local) for _ in range(3))
        finally:
            forwarding.kill()
            forwarding.wait()
        self.row("bytes from a pod by `kubectl port-forward`, the best of 3", f"{speed:.0f} MB/s",
                 f"{FORWARD_MB_PER_SECOND} MB/s", speed >= FORWARD_MB_PER_SECOND)
        self.delete(["zeros"])

    def receive(self, port):
        deadline = time.monotonic() + self.args.timeout
        while True:
            with socket.create_connection(("127.0.0.1", port), timeout=self.args.timeout) as stream:
                received, buffer, started = 0, bytearray(1 << 20), time.monotonic()
                while count := stream.recv_into(buffer):
                    received += count
            if received == FORWARDED:
                return received / 1e6 / (time.monotonic() - started)
            # The program of the connection before may not have been started again yet.
            if received or time.monotonic() > deadline:
                sys.exit(f"{received} of {FORWARDED} bytes arrived")

    def service(self):
        if self.runtime != "container" or os.geteuid() != 0:
            print(f"SKIPPED: {self.runtime}: what a Service adds is measured from inside a pod's network, by root")
            return
        self.create("server", "exec busybox httpd -f -p 8080 -h /")
        self.create("client")
        ports = [{"port": 80, "targetPort": 8080}]
        made = self.cluster.request("POST", "/api/v1/namespaces/pods/services",
                                    {"metadata": {"name": "server"}, "spec": {"selector": {"app": "server"}, "ports": ports}})
        self.await_running(["server", "client"])
        [client] = [pid for pid in self.parents() if self.watch.uids["client"].encode() in command_line(pid)[2]]
        targets = [(self.watch.addresses["server"], 8080), (made["spec"]["clusterIP"], 80)]
        direct, balanced = in_network_of(client, lambda: connections(targets, self.args.timeout))
        added = balanced - direct
        self.row("a connection to a pod, and to its Service", f"median {direct:.3f} ms and {balanced:.3f} ms",
                 f"{SERVICE_MS} ms added", added <= SERVICE_MS)
        self.delete(["server", "client"])


def connections(targets, timeout):
    """The median time of a connection to each target, which are used in turn."""
    took, deadline = [[] for _ in targets], time.monotonic() + timeout
    while len(took[-1]) < 1000:
        for target, times in zip(targets, took):
            started = time.monotonic()
            try:
                socket.create_connection(target, timeout=10).close()
            except OSError:
                # The Service gets its endpoint, and the server its socket, after the pod runs.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
                break
            times.append((time.monotonic() - started) * 1000)
    return [statistics.median(times) for times in took]


def in_network_of(pid, work):
    """What work returns in the network of another process: only a thread goes there."""
    result = []

    def enter():
        with open(f"/proc/{pid}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0:
                result.append(work())
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if not result:
        sys.exit("the network of a pod cannot be entered")
    return result[0]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def is_parent(pid, directory):
    line = command_line(pid)
    return len(line) > 2 and line[1] == b"pod-parent" and line[2].startswith(directory.encode())


def proportional(pid):
    """Kilobytes of memory, of which shared pages count in part."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1])


if __name__ == "__main__":
    main()
