#!/usr/bin/env python3
"""Measures a clean debug build of a scaffolded operator with its tests, in CPU seconds.

    cargo build && tests/dev/build.py [--windlass target/debug/windlass] [--target DIR]

Creates a project with one kind, fetches its dependencies (in the versions of this repository's Cargo.lock), and builds it
in an empty target directory: `cargo build`, then `cargo test --workspace --no-run`. Prints the CPU time of both and the
number of packages. Fails if both together take more than half of what an operator with one test took before (511 CPU
seconds). CPU time grows on a loaded machine as well: run it on an idle one.
"""

import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

BEFORE = 511
ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windlass", default="target/debug/windlass")
    parser.add_argument("--target", help="an empty directory to build in; a temporary one by default")
    args = parser.parse_args()
    windlass = str(pathlib.Path(args.windlass).resolve())
    with tempfile.TemporaryDirectory(prefix="windlass-build-") as scratch:
        target = pathlib.Path(args.target or os.path.join(scratch, "target")).resolve()
        if target.exists() and any(target.iterdir()):
            sys.exit(f"{target} is not empty")
        project = pathlib.Path(scratch, "guestbook")
        create(windlass, project)
        # A profile or flags of the caller would build something else.
        env = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_PROFILE_") and name != "RUSTFLAGS"}
        env["CARGO_TARGET_DIR"] = str(target)
        cargo(project, env, "fetch")
        print(f"load average {os.getloadavg()[0]:.1f}")
        build = cargo(project, env, "build", "--offline")
        tests = cargo(project, env, "test", "--offline", "--workspace", "--no-run")
        print(f"cargo build: {build:.0f} CPU seconds")
        print(f"then cargo test --workspace --no-run: {tests:.0f} CPU seconds")
        print(f"both: {build + tests:.0f} CPU seconds, at most {BEFORE / 2:.0f} are allowed")
        print(f"packages: {packages(project, env, '-e', 'normal')}, with those for builds and tests "
              f"{packages(project, env, '--workspace', '-e', 'normal,build,dev')}")
        if build + tests > BEFORE / 2:
            sys.exit("FAILED: more than half of the time before")


def create(windlass, project):
    project.mkdir(parents=True)
    for command in ("init --domain my.domain", "create api --group webapp --version v1 --kind Guestbook --resource --controller"):
        subprocess.run([windlass, *command.split()], cwd=project, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    shutil.copy(ROOT / "Cargo.lock", project)


def cargo(project, env, *arguments):
    """Runs cargo, and returns the CPU time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["cargo", *arguments, "--quiet"], cwd=project, env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def packages(project, env, *arguments):
    command = ["cargo", "tree", "--offline", "--prefix", "none", *arguments]
    lines = subprocess.run(command, cwd=project, env=env, check=True, capture_output=True, text=True).stdout.splitlines()
    return len({line.removesuffix(" (*)") for line in lines if line})


if __name__ == "__main__":
    main()
