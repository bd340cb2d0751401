#!/usr/bin/env python3
"""Measures pods that run in containers, and prints Markdown for docs/performance.md. Needs root and a static busybox.

    tests/load/pods.py [--binary FILE] [--starts N] [--together N]

One after the other, `--starts` pods are created: the time from the request to the watch event that has the pod Running. Then
`--together` pods at once, until all are Running. Then what the cluster and the parents of its pods take of memory
(proportional set size), without pods and with ten. The image is in the store of this machine.
"""

import argparse
import os
import shutil
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/dist/windlass", help="the windlass to measure")
    parser.add_argument("--starts", type=int, default=100, help="how many pods start one after the other")
    parser.add_argument("--together", type=int, default=100, help="how many pods start at once")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("pods run in containers only for root")
    with running(args) as cluster:
        create_namespace(cluster, "pods")
        watch = Watch(cluster)
        print("| what | measured |\n|---|---|")
        starts(cluster, watch, args.starts)
        together(cluster, watch, args.together)
        memory(cluster, watch)


@contextmanager
def running(args):
    with tempfile.TemporaryDirectory(prefix="windlass-pods-") as directory:
        env = {**os.environ, "HOME": directory, "WINDLASS_HOME": f"{directory}/clusters",
               "KUBECONFIG": f"{directory}/kubeconfig"}
        os.makedirs(f"{directory}/files/bin")
        shutil.copy("/usr/bin/busybox", f"{directory}/files/bin/busybox")
        build = [args.binary, "image", "build", f"{directory}/files", "--tag", "busybox:v1", "--entrypoint", "/bin/busybox"]
        subprocess.run(build, check=True, env=env, cwd=directory, capture_output=True)
        command = [args.binary, "up", "--foreground", "--listen", "127.0.0.1:0", "--runtime", "container", "--egress", "off",
                   "--ingress", "127.0.0.1:0", "--ingress-tls", "127.0.0.1:0", "--kubeconfig", f"{directory}/kubeconfig",
                   "--data-dir", f"{directory}/data"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        try:
            if not process.stdout.readline().startswith("ready"):
                sys.exit(f"{args.binary} does not start")
            yield Cluster(process, directory, 600)
        finally:
            process.terminate()
            process.wait()


class Watch:
    """When pods were first seen Running, by name."""

    def __init__(self, cluster):
        self.seen, self.gone, self.changed = {}, set(), threading.Condition()
        threading.Thread(target=self.follow, args=(cluster,), daemon=True).start()

    def follow(self, cluster):
        for event in cluster.watch(PODS):
            now, pod = time.monotonic(), event["object"]
            name = pod["metadata"]["name"]
            with self.changed:
                if event["type"] == "DELETED":
                    self.gone.add(name)
                elif pod["status"].get("phase") == "Running":
                    self.seen.setdefault(name, now)
                self.changed.notify_all()

    def wait(self, condition):
        with self.changed:
            if not self.changed.wait_for(condition, timeout=600):
                sys.exit("not in time")


def create(cluster, name):
    container = {"name": "main", "image": "busybox:v1", "args": ["sleep", "100000"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    cluster.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})


def delete(cluster, watch, names):
    for name in names:
        cluster.request("DELETE", f"{PODS}/{name}")
    watch.wait(lambda: all(name in watch.gone for name in names))


def starts(cluster, watch, count):
    took = []
    for number in range(count):
        name = f"start-{number}"
        before = time.monotonic()
        create(cluster, name)
        watch.wait(lambda name=name: name in watch.seen)
        took.append((watch.seen[name] - before) * 1000)
        delete(cluster, watch, [name])
    took.sort()
    at = lambda share: took[min(len(took) - 1, int(len(took) * share))]
    print(f"| a pod, from the request to Running, {count} one after the other | median {statistics.median(took):.0f} ms, "
          f"p99 {at(0.99):.0f} ms |")


def together(cluster, watch, count):
    names = [f"together-{number}" for number in range(count)]
    before, cpu = time.monotonic(), cluster.cpu()
    for name in names:
        create(cluster, name)
    watch.wait(lambda: all(name in watch.seen for name in names))
    took = max(watch.seen[name] for name in names) - before
    print(f"| {count} pods at once, until all are Running | {took:.2f} s ({cluster.cpu() - cpu:.2f} s of CPU) |")
    parents = [proportional(pid) for pid in children(cluster)]
    print(f"| memory of the parent of a pod, {len(parents)} pods | {statistics.mean(parents) / 1000:.2f} MB |")
    delete(cluster, watch, names)


def memory(cluster, watch):
    empty = proportional(cluster.process.pid)
    names = [f"ten-{number}" for number in range(10)]
    for name in names:
        create(cluster, name)
    watch.wait(lambda: all(name in watch.seen for name in names))
    own = proportional(cluster.process.pid)
    parents = sum(proportional(pid) for pid in children(cluster))
    print(f"| memory of the cluster with 10 pods: the process and 10 parents, beside the workloads | "
          f"{own / 1000:.0f} + {parents / 1000:.1f} MB (process without pods: {empty / 1000:.0f} MB) |")


def children(cluster):
    """The parents of pods: this program, started again."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
                stat = (entry / "stat").read_text().rsplit(") ", 1)[1].split()
            except OSError:
                continue
            if len(line) > 1 and line[1] == b"pod-parent" and int(stat[1]) == cluster.process.pid:
                found.append(int(entry.name))
    return found


def proportional(pid):
    """Kilobytes of memory, of which shared pages count in part."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1])


if __name__ == "__main__":
    main()
