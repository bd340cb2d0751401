#!/usr/bin/env python3
"""Measures what one user notices of another that loads the server fully, as a Markdown table.

    tests/load/fairness.py [--binary FILE] [--seconds N] [--workers N]

Two service accounts may do everything, and are limited as any other user: their requests wait for seats of the priority
level `workload-low`. One runs the load generator (`../shared/bench/apibench`) with many connections at once. The other
reads an object again and again, and creates and deletes one now and then, over one connection. It does the same on the
idle server beforehand, to compare with.

Exits with 1 if a read took 25 ms or more (99th percentile) or a write failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from attacks import CONFIG_MAPS, PRIORITY, ROOT, Server

SLOWEST_MS = 25
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def main():
    args = arguments()
    generator = build(args.generator)
    failed = []
    print("| | GET p50 | p99 | longest | writes | failed | p99 | load: requests/s | refused (429) |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        server = Server(args.binary, directory, None)
        try:
            quiet, noisy = account(server, "quiet"), account(server, "noisy")
            server.send("POST", CONFIG_MAPS, {"metadata": {"name": "bystander"}, "data": {"a": "b"}})
            idle = measure(server, quiet, time.monotonic() + args.seconds / 2)
            print(row("idle server", idle, None, 0), flush=True)
            kubeconfig = write_kubeconfig(server, directory, noisy)
            for phases in ("get", "patch", "list"):
                load = Load(generator, kubeconfig, args.workers, phases)
                load.prepare()
                before = rejected(server)
                load.start()
                measured = measure(server, quiet, time.monotonic() + args.seconds)
                rate = load.stop()
                print(row(f"load: {phases}", measured, rate, rejected(server) - before), flush=True)
                reads, writes, errors = measured
                if percentile(reads, 99) >= SLOWEST_MS:
                    failed.append(f"{phases}: reads take {percentile(reads, 99):.1f} ms")
                if errors or not writes:
                    failed.append(f"{phases}: {len(errors)} writes failed, such as {errors[:1]}")
        finally:
            server.stop()
    for problem in failed:
        print(f"FAILED {problem}")
    sys.exit(1 if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/windlass", help="the windlass to load")
    parser.add_argument("--generator", type=Path, default=ROOT.parent / "shared/bench/apibench",
                        help="the load generator's crate (default: ../shared/bench/apibench)")
    parser.add_argument("--seconds", type=float, default=10, help="how long each load lasts (default: 10)")
    parser.add_argument("--workers", type=int, default=100, help="the load's connections (default: 100)")
    args = parser.parse_args()
    if not args.binary.exists():
        sys.exit(f"{args.binary} is missing; run: cargo build --release")
    if not args.generator.exists():
        sys.exit(f"SKIPPED: the load generator {args.generator} is not there")
    return args


def build(crate):
    target = ROOT / "target/apibench"
    subprocess.run(["cargo", "build", "--quiet", "--release", "--manifest-path", crate / "Cargo.toml",
                    "--target-dir", target], check=True)
    return target / "release/apibench"


def account(server, name):
    """The token of a service account that may do everything."""
    server.send("POST", ACCOUNTS, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    server.send("POST", BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    return json.loads(server.send("POST", f"{ACCOUNTS}/{name}/token", {"spec": {}})[1])["status"]["token"]


def write_kubeconfig(server, directory, token):
    path = Path(directory, "noisy.kubeconfig")
    cluster = {"server": f"https://127.0.0.1:{server.port}",
               "certificate-authority": f"{directory}/certificate-authority-data"}
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "c", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}))
    return path


class Load:
    """The load generator, again and again until it is stopped."""

    def __init__(self, generator, kubeconfig, workers, phases):
        self.command = [generator, "--kubeconfig", kubeconfig, "--workers", str(workers), "--objects", "5000",
                        "--namespace", f"bench-{phases}", "--phases"]
        self.phases, self.results, self.process, self.stopped = phases, [], None, False

    def prepare(self):
        subprocess.run([*self.command, "create"], check=True, stdout=subprocess.DEVNULL)

    def start(self):
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopped:
            self.process = subprocess.Popen([*self.command, self.phases], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                            text=True, preexec_fn=lambda: os.nice(5))
            output, _ = self.process.communicate()
            self.results += [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def stop(self):
        """Ends it. Returns how many requests a second it made; `None` if not even one phase was done."""
        self.stopped = True
        if self.process:
            self.process.terminate()
        self.thread.join()
        seconds = sum(result["secs"] for result in self.results)
        return sum(result["ops"] for result in self.results) / seconds if seconds else None


def measure(server, token, until):
    """What reads and writes took, in ms, and the writes that failed."""
    result = []
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.nice(PRIORITY)
        except PermissionError:
            pass
        os.write(writer, json.dumps(user(server, token, until)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = json.loads(pipe.read())
    os.waitpid(child, 0)
    return result


def user(server, token, until):
    reads, writes, errors = [], [], []
    connection = server.connect(server.anonymous)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def send(method, path, body=None):
        started = time.monotonic()
        connection.request(method, path, body and json.dumps(body), headers)
        response = connection.getresponse()
        response.read()
        return response.status, (time.monotonic() - started) * 1000

    number = 0
    while time.monotonic() < until:
        status, took = send("GET", f"{CONFIG_MAPS}/bystander")
        reads.append(took if status == 200 else 1e6)
        number += 1
        if number % 10 == 0:
            for method, path, body in [("POST", CONFIG_MAPS, {"metadata": {"name": "mine"}}),
                                       ("DELETE", f"{CONFIG_MAPS}/mine", None)]:
                status, took = send(method, path, body)
                (writes if status < 300 else errors).append(took if status < 300 else status)
        time.sleep(0.002)
    return reads, writes, errors


def rejected(server):
    _, text = server.send("GET", "/metrics")
    lines = [line for line in text.decode().splitlines()
             if line.startswith("apiserver_flowcontrol_rejected_requests_total{")]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * percent // 100)]


def row(name, measured, rate, refused):
    reads, writes, errors = measured
    ms = lambda values, percent: f"{percentile(values, percent):.1f} ms" if values else ""
    return (f"| {name} | {ms(reads, 50)} | {ms(reads, 99)} | {max(reads):.1f} ms | {len(writes)} | {len(errors)} "
            f"| {ms(writes, 99)} | {'' if rate is None else f'{rate:,.0f}'} | {refused} |")


if __name__ == "__main__":
    main()
