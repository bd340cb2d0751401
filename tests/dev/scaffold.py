#!/usr/bin/env python3
"""Measures scaffolding: `windlass init` and `windlass create api`, each in a new process.

    cargo build && tests/dev/scaffold.py [--windlass target/debug/windlass] [--runs 30]

Does both in new directories again and again, and prints the wall time and the CPU time of a pair. Fails if the median
of the wall time is more than 100 ms. The wall time contains two waits for the disk: run it on an idle machine.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT = 0.1
COMMANDS = (
    "init --domain my.domain",
    "create api --group webapp --version v1 --kind Guestbook --resource --controller",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windlass", default="target/debug/windlass")
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    windlass = str(pathlib.Path(args.windlass).resolve())
    walls, cpus = [], []
    with tempfile.TemporaryDirectory(prefix="windlass-scaffold-") as scratch:
        # The first pair reads the program from the disk, and is not counted.
        for number in range(args.runs + 1):
            project = pathlib.Path(scratch, str(number), "guestbook")
            project.mkdir(parents=True)
            wall, cpu = pair(windlass, project)
            if number > 0:
                walls.append(wall)
                cpus.append(cpu)
    print(f"load average {os.getloadavg()[0]:.1f}, {args.runs} times `init` and `create api`")
    for name, values in (("wall time", walls), ("CPU time", cpus)):
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name}: median {middle * 1000:.0f} ms ({low * 1000:.0f} to {high * 1000:.0f} ms)")
    if statistics.median(walls) > LIMIT:
        sys.exit(f"FAILED: more than {LIMIT * 1000:.0f} ms in the median")


def pair(windlass, project):
    """Wall time and CPU time of both commands."""
    cpu, wall = cpu_of_children(), time.monotonic()
    for command in COMMANDS:
        subprocess.run([windlass, *command.split()], cwd=project, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.monotonic() - wall, cpu_of_children() - cpu


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
