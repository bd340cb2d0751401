#!/usr/bin/env python3
"""The official Python client with a pod that runs: logs, exec with input, a terminal and exit codes, and port-forward.

The kubeconfig is the one that `KUBECONFIG` names; the image `clients/web:v1` must be in the store of the machine. Run by
tests/clients/run.
"""

import time

from kubernetes import client, config, watch
from kubernetes.stream import portforward, stream

NAME = "python"


def main():
    config.load_kube_config()
    core = client.CoreV1Api()
    container = {"name": "main", "image": "clients/web:v1", "args": ["httpd", "-f", "-p", "8080", "-h", "/www"]}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    core.create_namespaced_pod("default", {"metadata": {"name": NAME}, "spec": spec})
    try:
        await_running(core)
        check_exec(core)
        check_terminal(core)
        check_port_forward(core)
    finally:
        core.delete_namespaced_pod(NAME, "default")


def await_running(core):
    events = watch.Watch()
    for event in events.stream(core.list_namespaced_pod, "default", field_selector=f"metadata.name={NAME}",
                               timeout_seconds=120):
        if event["object"].status.phase == "Running":
            events.stop()
            return
    raise AssertionError("the pod does not run")


def connect(core, command, **options):
    return stream(core.connect_get_namespaced_pod_exec, NAME, "default", container="main", command=command,
                  stdout=True, stderr=True, _preload_content=False, **options)


def check_exec(core):
    said = stream(core.connect_get_namespaced_pod_exec, NAME, "default", container="main", stdin=False, tty=False,
                  command=["busybox", "echo", "hello"], stdout=True, stderr=True)
    assert said == "hello\n", said
    session = connect(core, ["busybox", "sh", "-c", "read line; echo got $line; echo bad >&2; exit 7"], stdin=True, tty=False)
    session.write_stdin("this\n")
    session.run_forever(timeout=60)
    assert session.read_stdout() == "got this\n" and session.read_stderr() == "bad\n"
    assert session.returncode == 7, session.returncode


def check_terminal(core):
    session = connect(core, ["busybox", "sh"], stdin=True, tty=True)
    session.write_channel(4, '{"Width": 99, "Height": 33}')
    seen, deadline = "", time.monotonic() + 60
    while "33 99" not in seen and time.monotonic() < deadline:
        session.write_stdin("busybox stty size\n")
        session.update(timeout=1)
        seen += session.read_stdout() if session.peek_stdout() else ""
    assert "33 99" in seen, seen
    session.close()


def check_port_forward(core):
    forward = portforward(core.connect_get_namespaced_pod_portforward, NAME, "default", ports="8080")
    connection = forward.socket(8080)
    connection.sendall(b"GET /index.html HTTP/1.0\r\nhost: localhost\r\n\r\n")
    answer = b""
    while piece := connection.recv(4096):
        answer += piece
    assert b"hello from a pod" in answer, answer
    assert forward.error(8080) is None, forward.error(8080)


if __name__ == "__main__":
    main()
    print("the Python client: ok")
