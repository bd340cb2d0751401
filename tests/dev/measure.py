#!/usr/bin/env python3
"""Measures the inner loop: from a saved file to the new operator's first reconcile.

    cargo build && tests/dev/measure.py [--windlass target/debug/windlass] [--runs 5] [--project DIR]

Creates a project with one kind in a temporary directory (or uses one that was created before), runs `windlass dev -o
json` on a cluster of its own, edits the reconciler again and again, and prints for each edit how long the compiler and
everything else took. Fails if the rest is more than 300 ms in the median, or if a process outlives `windlass dev` that
was killed. Cargo takes dependencies from its cache or from the registry; nothing else needs a network.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MARK = "the cluster is as the spec asks"
REST_LIMIT = 0.3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windlass", default="target/debug/windlass")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--project", help="a directory; created if it has no PROJECT file")
    args = parser.parse_args()
    windlass = str(pathlib.Path(args.windlass).resolve())
    with tempfile.TemporaryDirectory(prefix="windlass-dev-") as scratch:
        project = pathlib.Path(args.project or os.path.join(scratch, "guestbook")).resolve()
        env = dict(os.environ, WINDLASS_HOME=os.path.join(scratch, "home"), KUBECONFIG=os.path.join(scratch, "kubeconfig"))
        if not (project / "PROJECT").exists():
            create(windlass, project, env)
        try:
            measure(windlass, project, env, args.runs)
        finally:
            subprocess.run([windlass, "down", "--purge"], env=env, stdout=subprocess.DEVNULL)


def create(windlass, project, env):
    project.mkdir(parents=True, exist_ok=True)
    for command in ("init --domain my.domain", "create api --group webapp --version v1 --kind Guestbook --resource --controller"):
        subprocess.run([windlass, *command.split()], cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)


class Dev:
    """`windlass dev`, and the events that it prints."""

    def __init__(self, windlass, project, env):
        # Ports are free ones: other operators may run here.
        command = [windlass, "dev", "-o", "json", "--", "--health-probe-bind-address=0"]
        self.process = subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, text=True)

    def wait_for(self, name, failures=("buildFailed", "definitionsFailed", "samplesFailed")):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] in failures:
                sys.exit(f"{event}")
            if event["event"] == name:
                return event
        sys.exit(f"windlass dev ended before {name}")


def measure(windlass, project, env, runs):
    source = project / "src/controller/guestbook.rs"
    original = source.read_text()
    dev = Dev(windlass, project, env)
    dev.wait_for("ready")
    rows = []
    try:
        for number in range(runs):
            text = original.replace(MARK, f"{MARK} ({time.time_ns()})")
            saved = time.monotonic()
            source.write_text(text)
            event = dev.wait_for("reconciling")
            seen = time.monotonic() - saved
            rows.append((event["compilerSeconds"], seen - event["compilerSeconds"], seen))
            print(f"{number + 1}: compiler {rows[-1][0]:.2f} s, the rest {rows[-1][1] * 1000:.0f} ms, total {seen:.2f} s"
                  f"  ({', '.join(event['files'])})", flush=True)
    finally:
        source.write_text(original)
    compiler, rest, total = (statistics.median(column) for column in zip(*rows))
    print(f"median of {runs}: compiler {compiler:.2f} s, the rest {rest * 1000:.0f} ms, total {total:.2f} s")
    dev.process.send_signal(signal.SIGKILL)
    dev.process.wait()
    left = orphans(project)
    if left:
        sys.exit(f"left behind: {left}")
    print("nothing was left behind after SIGKILL")
    if rest > REST_LIMIT:
        sys.exit(f"the rest takes more than {REST_LIMIT * 1000:.0f} ms")


def orphans(project):
    """The operator's processes that are still there a few seconds later."""
    until = time.monotonic() + 10
    while True:
        left = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes().split(b"\0")
                where = os.readlink(process / "cwd")
            except OSError:
                continue
            # The cluster stays, on purpose.
            if where == str(project) and int(process.name) != os.getpid() and b"up" not in line:
                left.append(b" ".join(line).decode(errors="replace"))
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


if __name__ == "__main__":
    main()
