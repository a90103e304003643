"""A process with pages such as Spark's, and a worker's port that fetches them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from common.clock import SystemClock
from common.log_access import LogGuard
from common.model.spark import SparkFacts
from common.page_access import PATH
from common.runtime.health import HealthServer, Problem
from worker.page_server import PageServer
from worker.processes.attempt_processes import MARKER

_PROGRAM = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/stages/":
            self.send_response(302)
            self.send_header("Location", query)
            self.end_headers()
            return
        self.send_response(404 if path == "/storage/" else 200)
        self.send_header("Content-Type", "text/html;charset=utf-8")
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Content-Security-Policy", "default-src *")
        self.end_headers()
        size = 9_000_000 if path == "/executors/" else 0
        head = b"<html><head></head>" if path == "/stages/stage/" else b""
        told = json.dumps([self.path, dict(self.headers)]).encode()
        self.wfile.write(head + told + b" " * size)

    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", 0), Pages)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Attempts:
    """The attempts of a worker, which all have the account of the tests."""

    def __init__(self) -> None:
        self.facts: dict[int, Path] = {}

    def facts_files(self) -> Mapping[int, Path]:
        return self.facts

    def uid_of(self, task_instance_id: int) -> int | None:
        return os.geteuid() if task_instance_id in self.facts else None

    def write_link(self, task: int, directory: Path, link: str) -> None:
        """Write the link of an attempt with this directory into its facts."""
        self.facts[task] = directory / "facts"
        self.facts[task].write_text(SparkFacts(ui_link=link).to_json())


@contextmanager
def a_driver(directory: Path, *, is_of_attempt: bool) -> Iterator[int]:
    """Run a driver in this directory; yield the port of its pages."""
    environment = {**os.environ, MARKER: str(directory)}
    if not is_of_attempt:
        del environment[MARKER]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def a_page_server(attempts: Attempts, servers: Path, key: bytes, cluster: str) -> Iterator[str]:
    """Serve pages at a worker's port; yield its address."""

    class Daemon:
        def problems(self) -> list[Problem]:
            return []

    guard = LogGuard(key, cluster=cluster)
    port = HealthServer(Daemon(), host="127.0.0.1", port=0)
    port.add(PATH, PageServer(attempts, servers, guard=guard, clock=SystemClock()).answer)
    port.start()
    try:
        yield f"127.0.0.1:{port.port}"
    finally:
        port.stop()


def seen_by(body: bytes) -> tuple[str, dict[str, str]]:
    """Return the path and the headers that a driver has been sent."""
    path, headers = json.loads(body)
    return path, {name.lower(): value for name, value in headers.items()}
