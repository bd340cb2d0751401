#!/usr/bin/env python3
"""Attacks a server and prints how a well-behaved client fares meanwhile, as a Markdown table.

    tests/load/attacks.py [--binary FILE] [--seconds N] [--attacks A,A]

Each attack has a server of its own, `windlass up --foreground --ephemeral` on a free port of 127.0.0.1. While it runs,
another process reads a small object again and again over a connection that it keeps, and now and then over a new one.
It does the same without an attack beforehand, to compare with. The attack runs in a process of its own as well, so
that server and processor are all that is shared; the reading process has a higher priority where the system allows it
(for root), so that its own waiting for the processor is not counted.

The server's memory is taken before (after a tenth of the attack for two seconds, and the reads to compare with, so
that code is loaded and history is filled), at its peak, and once it is within 20 % of before or a minute has passed.

Exits with 1 if a read took more than 50 ms (99th percentile), a new connection was refused, or memory did not return
to within 20 % of before.
"""

import argparse
import base64
import http.client
import json
import multiprocessing
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LARGE = 1_400_000
SLOWEST_MS = 50
GROWTH = 1.2
SETTLE_SECONDS = 60
REHEARSAL_SECONDS = 2
PRIORITY = -10
FORK = multiprocessing.get_context("fork")


def main():
    args = arguments()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print("| | GET without, p50 | p99 | GET during, p50 | p99 | longest | new connections, longest | refused "
          "| memory before | peak | after |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    failed = []
    for name in args.attacks.split(","):
        row, problems = run(args, name, ATTACKS[name])
        print(row, flush=True)
        failed += [f"{name}: {problem}" for problem in problems]
    for problem in failed:
        print(f"FAILED {problem}")
    sys.exit(1 if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/windlass", help="the windlass to attack")
    parser.add_argument("--seconds", type=float, default=10, help="how long each attack lasts (default: 10)")
    parser.add_argument("--attacks", default=",".join(ATTACKS), help="which attacks, in this order (default: all)")
    args = parser.parse_args()
    if unknown := set(args.attacks.split(",")) - set(ATTACKS):
        parser.error(f"--attacks: {', '.join(sorted(unknown))}: use some of {', '.join(ATTACKS)}")
    if not args.binary.exists():
        sys.exit(f"{args.binary} is missing; run: cargo build --release")
    return args


# The server and its clients.

class Server:
    """A running server and what its clients need."""

    def __init__(self, binary, directory, files):
        kubeconfig = f"{directory}/kubeconfig"
        command = [binary, "up", "--foreground", "--ephemeral", "--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig]
        limit = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        self.log = open(f"{directory}/log", "w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, preexec_fn=limit)
        if not self.process.stdout.readline().startswith("ready"):
            sys.exit(f"{binary} does not start: {Path(directory, 'log').read_text()}")
        text = Path(kubeconfig).read_text()
        field = lambda name: re.search(rf"{name}:\s*(?:>-\s*)?(\S+)", text).group(1)
        self.port = int(field("server").rsplit(":", 1)[1])
        for name in ("certificate-authority-data", "client-certificate-data", "client-key-data"):
            Path(directory, name).write_bytes(base64.b64decode(field(name)))
        self.anonymous = ssl.create_default_context(cafile=f"{directory}/certificate-authority-data")
        self.admin = ssl.create_default_context(cafile=f"{directory}/certificate-authority-data")
        self.admin.load_cert_chain(f"{directory}/client-certificate-data", f"{directory}/client-key-data")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def connect(self, context=None, timeout=30):
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context or self.admin, timeout=timeout)

    def stream(self, context=None, timeout=30):
        """A connection below HTTP."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout)
        return (context or self.admin).wrap_socket(plain, server_hostname="127.0.0.1")

    def send(self, method, path, body=None, content_type="application/json", connection=None, ok=True):
        connection = connection or self.connect()
        if not isinstance(body, (bytes, type(None))):
            body = json.dumps(body).encode()
        connection.request(method, path, body, {"Content-Type": content_type})
        response = connection.getresponse()
        answer = response.read()
        if ok and response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:300]}")
        return response.status, answer

    def nobody(self):
        """The token of an account without any right."""
        self.send("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "nobody"}})
        path = "/api/v1/namespaces/default/serviceaccounts/nobody/token"
        return json.loads(self.send("POST", path, {"spec": {}})[1])["status"]["token"]

    def memory(self):
        """The resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+) kB", status).group(1)) * 1024 / 1e6


def large(name):
    """An object with as many values as fit, which is what takes long to decode."""
    data = {f"key-{n:06}": "value" for n in range(LARGE // 21)}
    return {"metadata": {"name": name}, "data": data}


# Attacks: `prepare` is done before memory is taken, `attack` runs for a while in a process of its own, first with a
# tenth of the `clients`, then with all of them.

class TableWatches:
    """50 watches of Tables while large objects change."""
    clients, objects = 50, 4

    def prepare(self, server):
        for n in range(self.objects):
            server.send("POST", CONFIG_MAPS, large(f"large-{n}"))
        for _ in range(12):  # As many versions as history holds.
            self.change(server)

    def change(self, server):
        for n in range(self.objects):
            patch = {"metadata": {"annotations": {"at": str(time.time())}}}
            server.send("PATCH", f"{CONFIG_MAPS}/large-{n}", patch, "application/merge-patch+json")

    def attack(self, server, until):
        seen = []

        def watch():
            connection = server.connect(timeout=60)
            connection.request("GET", f"{CONFIG_MAPS}?watch=true", headers={"Accept": TABLE})
            response = connection.getresponse()
            count = 0
            while time.monotonic() < until and response.readline():
                count += 1
            seen.append(count)

        for _ in range(self.clients):
            threading.Thread(target=watch, daemon=True).start()
        while time.monotonic() < until:
            self.change(server)


class DeleteCollection:
    """Collections of large objects are deleted."""
    objects = 30

    def prepare(self, server):
        self.round(server)

    def round(self, server):
        for n in range(self.objects):
            server.send("POST", CONFIG_MAPS, large(f"large-{n}"), ok=False)  # The rehearsal may have left some.
        server.send("DELETE", f"{CONFIG_MAPS}?fieldSelector=metadata.name!=bystander")

    def attack(self, server, until):
        while time.monotonic() < until:
            self.round(server)


class HalfHeads:
    """Connections that send half of a head and then nothing."""
    files, clients = None, 500

    def prepare(self, server):
        pass

    def head(self, n):
        return b"GET /version HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * (n % 2 * 200_000)

    def attack(self, server, until):
        streams = []
        while time.monotonic() < until:
            if len(streams) == self.clients:
                time.sleep(0.1)
                continue
            try:
                stream = server.stream(server.anonymous)
                stream.sendall(self.head(len(streams)))
                streams.append(stream)
            except OSError:
                time.sleep(0.01)


class IdleConnections(HalfHeads):
    """Connections that do nothing, at a server that may open 256 files."""
    files, clients = 256, 400

    def head(self, n):
        return b""


class HalfBodies:
    """An administrator's requests that send half of a body and then nothing."""
    clients, path, size = 300, CONFIG_MAPS, LARGE

    def prepare(self, server):
        self.headers = ""

    def attack(self, server, until):
        head = f"POST {self.path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{self.headers}"
        head = f"{head}content-length: {self.size}\r\n\r\n".encode()

        def send(context):
            while time.monotonic() < until:
                try:
                    stream = server.stream(context, timeout=5)
                    stream.sendall(head + b" " * self.sent())
                    stream.settimeout(max(until - time.monotonic(), 0.1))
                    stream.recv(1 << 16)  # Refused, or nothing until the time is up.
                    stream.close()
                except OSError:
                    time.sleep(0.01)

        threads = [threading.Thread(target=send, args=(self.context(server),)) for _ in range(self.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def context(self, server):
        return server.admin

    def sent(self):
        return self.size // 2


class WithheldBytes(HalfBodies):
    """400 bodies of an account without any right, each without its last byte."""
    clients, path, size = 400, REVIEWS, 2_900_000

    def prepare(self, server):
        self.headers = f"authorization: Bearer {server.nobody()}\r\n"

    def context(self, server):
        return server.anonymous

    def sent(self):
        return self.size - 1


class AliasBombs:
    """YAML whose aliases make 30 MB of 109 KB."""

    def prepare(self, server):
        anchor = "x" * 100_000
        entries = "".join(f"  k{n}: *a\n" for n in range(300))
        self.body = f"kind: ConfigMap\napiVersion: v1\nmetadata:\n  generateName: bomb-\ndata:\n  k: &a {anchor}\n{entries}"

    def attack(self, server, until):
        connection = server.connect()
        while time.monotonic() < until:
            server.send("POST", CONFIG_MAPS, self.body.encode(), "application/yaml", connection, ok=False)


class GrowingPatches:
    """Patches that double an object."""

    def prepare(self, server):
        server.send("POST", CONFIG_MAPS, {"metadata": {"name": "growing"}, "data": {"a": "x" * 100_000}})

    def attack(self, server, until):
        connection = server.connect()
        n = 0
        while time.monotonic() < until:
            copies = [{"op": "copy", "from": "/data/a", "path": f"/data/{n}-{copy}"} for copy in range(200)]
            server.send("PATCH", f"{CONFIG_MAPS}/growing", copies, "application/json-patch+json", connection, ok=False)
            n += 1


class Nothing:
    """No attack, to compare with."""

    def prepare(self, server):
        pass

    def attack(self, server, until):
        time.sleep(max(until - time.monotonic(), 0))


ATTACKS = {
    "nothing": Nothing, "table-watches": TableWatches, "deletecollection": DeleteCollection, "half-heads": HalfHeads,
    "half-bodies": HalfBodies, "idle-connections": IdleConnections, "withheld-bytes": WithheldBytes,
    "alias-bombs": AliasBombs, "growing-patches": GrowingPatches,
}


# The measurement.

def run(args, name, kind):
    attack = kind()
    with tempfile.TemporaryDirectory(prefix="windlass-attacks-") as directory:
        server = Server(args.binary, directory, getattr(kind, "files", None))
        try:
            server.send("POST", CONFIG_MAPS, {"metadata": {"name": "bystander"}, "data": {"a": "b"}})
            attack.prepare(server)
            return measure(args, name, attack, server)
        finally:
            server.stop()


def measure(args, name, attack, server):
    clients = getattr(attack, "clients", 0)
    attack.clients = clients // 10
    together(server, REHEARSAL_SECONDS, attack)
    attack.clients = clients
    (undisturbed, _, _), _ = together(server, args.seconds)
    before = server.memory()
    (reads, connects, refused), peak = together(server, args.seconds, attack)
    settled = time.monotonic() + SETTLE_SECONDS
    while server.memory() > before * GROWTH and time.monotonic() < settled:
        time.sleep(0.2)
    after = server.memory()
    p99 = percentile(reads, 99)
    row = [name, *(f"{percentile(undisturbed, share):.1f} ms" for share in (50, 99)),
           *(f"{percentile(reads, share):.1f} ms" for share in (50, 99)), f"{max(reads):.0f} ms",
           f"{max(connects, default=float('nan')):.0f} ms", str(refused),
           *(f"{megabytes:.0f} MB" for megabytes in (before, peak, after))]
    problems = []
    if p99 > SLOWEST_MS:
        problems.append(f"a read takes {p99:.1f} ms")
    if refused:
        problems.append(f"{refused} new connections failed")
    if after > before * GROWTH:
        problems.append(f"{after:.0f} MB are left of {peak:.0f} MB, {before:.0f} MB were before")
    return f"| {' | '.join(row)} |", problems


def percentile(values, share):
    return sorted(values)[len(values) * share // 100]


def together(server, seconds, attack=None):
    """Reads for a while, with an attack or without: what `behave` sends, and the most memory that was seen."""
    until = time.monotonic() + seconds
    receive, send = FORK.Pipe(duplex=False)
    processes = [FORK.Process(target=behave, args=(server, until, send))]
    if attack:
        processes.append(FORK.Process(target=attack.attack, args=(server, until)))
    for process in processes:
        process.start()
    peak = 0
    while time.monotonic() < until:
        peak = max(peak, server.memory())
        time.sleep(0.05)
    found = receive.recv()
    for process in processes:
        process.join(5)
        process.kill()
        process.join()
    return found, peak


def behave(server, until, send):
    """Reads over one connection, and now and then over a new one. Sends how long that took, in milliseconds."""
    try:
        os.nice(PRIORITY)
    except PermissionError:
        pass
    reads, connects, refused = [], [], 0
    connection, path = server.connect(), f"{CONFIG_MAPS}/bystander"
    next_connect = 0
    while time.monotonic() < until:
        started = time.perf_counter()
        try:
            server.send("GET", path, connection=connection)
            reads.append((time.perf_counter() - started) * 1000)
        except (OSError, http.client.HTTPException):
            # A connection may be closed while it is idle; clients connect again, and that counts.
            connection = server.connect()
        if time.monotonic() > next_connect:
            next_connect = time.monotonic() + 0.2
            started = time.perf_counter()
            try:
                new = server.connect()
                server.send("GET", "/version", connection=new)
                new.close()
                connects.append((time.perf_counter() - started) * 1000)
            except (OSError, http.client.HTTPException):
                refused += 1
        time.sleep(0.002)
    send.send((reads, connects, refused))


if __name__ == "__main__":
    main()
