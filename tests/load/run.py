#!/usr/bin/env python3
"""Measures the API server under load and prints a Markdown table for docs/performance.md.

    tests/load/run.py [--binary FILE] [--objects N] [--phases P,P] [--ephemeral] [--runs N]
                      [--reference KUBECONFIG --reference-pids PID,PID]

Starts `windlass up --foreground` on a fresh data directory, runs the phases of the load generator one after the
other and reads from /proc how much CPU time and memory the server took for each. With several runs the best
throughput, the least CPU and the largest memory of all are printed: a busy machine only ever makes it worse.

With --reference the same phases run against another server first, for example kube-apiserver with etcd, which is expected
to run on this machine already. Its CPU time is that of the given processes together. The table then has both, and how many
times faster and cheaper Windlass is.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHASES = ["create", "get", "list", "patch", "watch", "delete"]


def main():
    args = arguments()
    generator = build_generator(args.generator)
    references = [run_reference(args, generator) for _ in range(args.runs if args.reference else 0)]
    results = [run(args, generator) for _ in range(args.runs)]
    print_table(args, results, references)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/dist/windlass", help="the windlass to measure")
    parser.add_argument("--objects", type=int, default=5000, help="how many ConfigMaps (default: 5000)")
    parser.add_argument("--phases", default=",".join(PHASES), help="which phases, in this order (default: all)")
    parser.add_argument("--ephemeral", action="store_true", help="measure the memory engine, not the durable one")
    parser.add_argument("--runs", type=int, default=1, help="how often to measure (default: once)")
    parser.add_argument("--generator", type=Path, default=ROOT.parent / "shared/bench/apibench",
                        help="the load generator's crate (default: ../shared/bench/apibench)")
    parser.add_argument("--reference", type=Path, metavar="KUBECONFIG", help="another server to compare with")
    parser.add_argument("--reference-pids", default="", metavar="PID,PID", help="the processes of that server")
    args = parser.parse_args()
    if bool(args.reference) != bool(args.reference_pids):
        parser.error("--reference and --reference-pids need each other")
    try:
        args.reference_pids = [int(pid) for pid in args.reference_pids.split(",") if pid]
    except ValueError:
        parser.error("--reference-pids: expected numbers with commas between them")
    if unknown := set(args.phases.split(",")) - set(PHASES):
        parser.error(f"--phases: {', '.join(sorted(unknown))}: use some of {', '.join(PHASES)}")
    for needed, how in ((args.binary, "run: cargo build --profile dist"), (args.generator / "Cargo.toml", "give --generator")):
        if not needed.exists():
            sys.exit(f"{needed} is missing; {how}")
    return args


def build_generator(crate):
    target = ROOT / "target/apibench"
    subprocess.run(["cargo", "build", "--quiet", "--release", "--target-dir", target], cwd=crate, check=True)
    return target / "release/apibench"


def run_reference(args, generator):
    pids, phases = args.reference_pids, {}
    for phase in args.phases.split(","):
        measure(args, generator, args.reference, pids, phase, phases)
    return {"phases": phases, "peak_kb": sum(memory(pid, "VmHWM") for pid in pids)}


def run(args, generator):
    with tempfile.TemporaryDirectory(prefix="windlass-load-") as temporary:
        kubeconfig = f"{temporary}/kubeconfig"
        command = [args.binary, "up", "--foreground", "--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig]
        command += ["--ephemeral"] if args.ephemeral else ["--data-dir", f"{temporary}/data"]
        started = time.monotonic()
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            if not server.stdout.readline().startswith("ready"):
                sys.exit(f"{args.binary} does not start")
            result = {"ready_ms": (time.monotonic() - started) * 1000}
            time.sleep(3)  # Controllers look around before the cluster is idle.
            result["idle_kb"] = memory(server.pid, "VmRSS")
            result["phases"] = {}
            for phase in args.phases.split(","):
                measure(args, generator, kubeconfig, [server.pid], phase, result["phases"])
            result["peak_kb"] = memory(server.pid, "VmHWM")
            return result
        finally:
            server.terminate()
            server.wait()


def measure(args, generator, kubeconfig, pids, phase, into):
    before = sum(map(cpu_seconds, pids))
    command = [generator, "--kubeconfig", kubeconfig, "--objects", str(args.objects), "--phases", phase]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu = sum(map(cpu_seconds, pids)) - before
    rows = [json.loads(line) for line in output.splitlines()]
    if any(row.get("errors") for row in rows):
        sys.exit(f"{phase}: requests failed: {output}")
    # What was asked for in a phase shares its CPU: the deliveries of a watch contain the writes that cause them.
    counted = [row for row in rows if row["phase"] != "watch_writes"]
    operations = sum(row.get("ops") or row.get("delivered", 0) for row in counted)
    for row in counted:
        into[row["phase"]] = {**row, "cpu_us": cpu / max(operations, 1) * 1e6}


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid, name):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


def best(results, phase):
    """Operations per second, the p99 in milliseconds and the microseconds of server CPU for each."""
    rows = [result["phases"][phase] for result in results]
    rate = max(row.get("ops_per_s") or row.get("deliveries_per_s") for row in rows)
    return rate, min(row["p99_us"] for row in rows) / 1000, min(row["cpu_us"] for row in rows)


def print_table(args, results, references):
    engine = "memory" if args.ephemeral else "durable"
    print(f"{args.objects} ConfigMaps, {engine} engine, best of {args.runs}\n")
    if references:
        print("| | reference: per second | p99 | server CPU each | Windlass: per second | p99 | server CPU each |"
              " times faster | times less CPU |\n|---|---|---|---|---|---|---|---|---|")
    else:
        print("| | per second | p99 | server CPU each |\n|---|---|---|---|")
    for phase in results[0]["phases"]:
        rate, p99, cpu = best(results, phase)
        cells = f"{rate:,.0f} | {p99:.1f} ms | {cpu:,.0f} us"
        if references:
            rate_there, p99_there, cpu_there = best(references, phase)
            there = f"{rate_there:,.0f} | {p99_there:.1f} ms | {cpu_there:,.0f} us"
            cells = f"{there} | {cells} | {rate / rate_there:.1f} | {cpu_there / cpu:.1f}"
        print(f"| {phase} | {cells} |")
    ready = min(result["ready_ms"] for result in results)
    idle, peak = (max(result[key] for result in results) / 1000 for key in ("idle_kb", "peak_kb"))
    print(f"\nready after {ready:.0f} ms, {idle:.0f} MB idle, {peak:.0f} MB at the peak")
    if references:
        print(f"the reference: {max(one['peak_kb'] for one in references) / 1000:.0f} MB at the peak")


main()
