#!/usr/bin/env python3
"""Measures how long a small GET takes while a collection of large objects is deleted.

    tests/load/deletecollection.py [--binary FILE] [--objects N] [--kib N] [--ephemeral] [--form F]

Starts `windlass up --foreground` on a fresh data directory, creates ControllerRevisions of the given size, and deletes
them in one request while another process reads a namespace over its own connection. Prints the percentiles of these
reads before and during the delete.
"""

import argparse
import base64
import http.client
import json
import multiprocessing
import re
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = "/apis/apps/v1/namespaces/default/controllerrevisions"
FORMS = {
    "json": "application/json",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "protobuf": "application/vnd.kubernetes.protobuf",
}


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="windlass-delete-") as temporary:
        kubeconfig = f"{temporary}/kubeconfig"
        command = [args.binary, "up", "--foreground", "--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig]
        command += ["--ephemeral"] if args.ephemeral else ["--data-dir", f"{temporary}/data"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            if not server.stdout.readline().startswith("ready"):
                sys.exit(f"{args.binary} does not start")
            measure(args, credentials(kubeconfig, temporary))
        finally:
            server.terminate()
            server.wait()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/windlass", help="the windlass to measure")
    parser.add_argument("--objects", type=int, default=100, help="how many objects (default: 100)")
    parser.add_argument("--kib", type=int, default=1400, help="how large each is, in KiB (default: 1400)")
    parser.add_argument("--ephemeral", action="store_true", help="measure the memory engine, not the durable one")
    parser.add_argument("--form", choices=FORMS, default="json", help="the form of the answer (default: json)")
    return parser.parse_args()


def credentials(kubeconfig, directory):
    text = Path(kubeconfig).read_text()
    files = {}
    for field in ("certificate-authority-data", "client-certificate-data", "client-key-data"):
        files[field] = f"{directory}/{field}"
        encoded = re.search(rf"{field}:\s*(?:>-\s*)?\"?([A-Za-z0-9+/=]+)", text).group(1)
        Path(files[field]).write_bytes(base64.b64decode(encoded))
    address = re.search(r"server: *\"?https://([^\s\"]+)", text).group(1)
    return address, files


def connect(address, files):
    context = ssl.create_default_context(cafile=files["certificate-authority-data"])
    context.load_cert_chain(files["client-certificate-data"], files["client-key-data"])
    return http.client.HTTPSConnection(address, context=context)


def request(connection, method, path, body=None, accept="application/json"):
    headers = {"Content-Type": "application/json", "Accept": accept}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    response = connection.getresponse()
    content = response.read()
    if response.status not in (200, 201):
        sys.exit(f"{method} {path}: {response.status} {content[:300]}")
    return len(content)


def measure(args, server):
    connection = connect(*server)
    # Many values, as an object of one long text is quick to read.
    item = {"name": "x" * 20, "value": "y" * 20, "number": 1}
    count = args.kib * 1024 // (len(json.dumps(item, separators=(",", ":"))) + 1)
    for i in range(args.objects):
        body = {"metadata": {"name": f"large-{i}"}, "revision": 1, "data": {"items": [item] * count}}
        request(connection, "POST", COLLECTION, body)
    time.sleep(3)
    ours, theirs = multiprocessing.Pipe()
    reader = multiprocessing.Process(target=read, args=(server, theirs))
    reader.start()
    time.sleep(5)
    ours.send("during")
    started = time.monotonic()
    size = request(connection, "DELETE", COLLECTION, accept=FORMS[args.form])
    took = time.monotonic() - started
    ours.send("after")
    time.sleep(5)
    ours.send("stop")
    waits = ours.recv()
    reader.join()
    print(f"{args.objects} objects of {args.kib} KiB deleted in {took:.1f} s, answer of {size / 1e6:.0f} MB\n")
    print("| GET | reads | p50 | p99 | longest |\n|---|---|---|---|---|")
    for phase, values in waits.items():
        values.sort()
        at = lambda share: values[min(int(len(values) * share), len(values) - 1)] * 1000
        print(f"| {phase} | {len(values)} | {at(0.5):.1f} ms | {at(0.99):.1f} ms | {at(1):.1f} ms |")


def read(server, pipe):
    """Reads one after the other until told to stop; keeps how long each read took by phase."""
    connection = connect(*server)
    waits = {"before": [], "during": [], "after": []}
    phase = "before"
    while phase != "stop":
        started = time.monotonic()
        request(connection, "GET", "/api/v1/namespaces/default")
        took = time.monotonic() - started
        # A read that was under way when the phase changed counts for the later one.
        while pipe.poll():
            phase = pipe.recv()
        waits.get(phase, []).append(took)
        time.sleep(0.002)
    pipe.send(waits)


main()
