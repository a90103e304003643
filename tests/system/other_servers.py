"""Tasks that connect to other servers, the servers, and the places where their password could show."""

from __future__ import annotations

import contextlib
import json
import os
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.system.cluster import PrivateCluster

SECRET = "hunter2-s3cr3t"


def a_data_source(cluster: PrivateCluster, params: object, *, kind: int = 1) -> int:
    text = params if isinstance(params, str) else json.dumps(params)
    ((source,),) = cluster.rows(
        "INSERT INTO t_ds_datasource (name, type, connection_params)"
        " VALUES (%s, %s, %s) RETURNING id",
        f"source {time.monotonic_ns()}",
        kind,
        text,
    )
    return int(source)


def an_address(address: str, **more: object) -> dict[str, object]:
    return {"address": address, "database": "d", "user": "u", "password": SECRET, **more}


def an_sql_task(source: object, sql: str = "SELECT 1", **more: object) -> dict[str, object]:
    params = {"type": "POSTGRESQL", "datasource": source, "sqlType": "0", "sql": sql, **more}
    return {"name": "t", "type": "SQL", "params": params}


def an_http_task(url: str, **more: object) -> dict[str, object]:
    return {"name": "t", "type": "HTTP", "params": {"url": url, "httpMethod": "GET", **more}}


def a_procedure_task(source: object, method: str) -> dict[str, object]:
    return {"name": "t", "type": "PROCEDURE", "params": {"datasource": source, "method": method}}


def places_that_show(cluster: PrivateCluster, home: Path, text: str) -> list[str]:
    """The places where a text shows: logs, artefacts, tables of reasons, arguments of processes."""
    places = []
    # Directories of attempts go meanwhile, which `rglob` would raise for and this walk passes over.
    for folder, _, names in (each for part in ("logs", "tasks") for each in os.walk(home / part)):
        for path in (Path(folder) / name for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and text.encode() in path.read_bytes():
                    places.append(str(path))
    for table, column in (
        ("t_ds_task_instance", "reason"),
        ("t_ds_process_instance", "state_reason"),
        ("t_ds_error_command", "message"),
        ("t_ds_alert", "content"),
    ):
        found = cluster.rows(f"SELECT 1 FROM {table} WHERE {column} LIKE %s", f"%{text}%")
        places += [f"{table}.{column}" for _ in found]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                shown = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue  # It has ended, or is none of ours.
            if text.encode() in shown:
                places.append(str(entry))
    return places


def postgres_address(cluster: PrivateCluster) -> str:
    parts = dict(part.split("=", 1) for part in cluster.dsn.split())
    return f"{parts['host']}:{parts['port']}"


class Redirects(BaseHTTPRequestHandler):
    """Sends every request to the place that its query names."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", unquote(urlsplit(self.path).query))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


def sources_that_lead_nowhere(
    cluster: PrivateCluster,
) -> dict[str, tuple[dict[str, object], str]]:
    """Tasks on data sources that can't be used, and the cause that each has to name."""
    closed = "jdbc:postgresql://127.0.0.1:1"
    url = {"url": f"postgresql://u:{SECRET}@127.0.0.1:1/d"}
    return {
        "no source": (an_sql_task(2**31 - 1), "params.datasource must be the id"),
        "missing source": (an_sql_task(99_999), "the project has no data source 99999"),
        "hostile id": (an_sql_task("1; DROP TABLE x"), "params.datasource must be the id"),
        "no JSON": (an_sql_task(a_data_source(cluster, f"{{{SECRET}")), "is not valid JSON"),
        "closed": (an_sql_task(a_data_source(cluster, an_address(closed))), "Connection refused"),
        "closed by URL": (an_sql_task(a_data_source(cluster, url)), "Connection refused"),
        "wrong password": (
            an_sql_task(
                a_data_source(cluster, an_address(f"jdbc:postgresql://{postgres_address(cluster)}"))
            ),
            "can't be reached",
        ),
        "loads code": (
            an_sql_task(a_data_source(cluster, an_address(f"{closed}/d?socketFactory=evil.Code"))),
            "'socketFactory' is not allowed",
        ),
        "reads files": (
            an_sql_task(a_data_source(cluster, an_address(closed, other="passfile=/etc/passwd"))),
            "'passfile' is not allowed",
        ),
        "hostile host": (
            an_sql_task(a_data_source(cluster, an_address(f"jdbc:postgresql://a b@{SECRET}/x"))),
            "data source",
        ),
        "other driver": (
            an_sql_task(a_data_source(cluster, {"url": f"nodriver://u:{SECRET}@h/d"})),
            "nodriver",
        ),
        "procedure": (
            a_procedure_task(
                a_data_source(cluster, an_address(closed)), "f(); DROP TABLE t_ds_command"
            ),
            "params.method must be the name of a procedure",
        ),
    }


def forbidden_requests(away: str) -> dict[str, tuple[dict[str, object], str]]:
    """HTTP tasks that go where none may, some by a redirect `away`, and the cause of each refusal."""
    header = {"prop": "X-A", "value": "a\r\nX-B: b", "httpParametersType": "HEADERS"}
    given = [{"prop": "v", "direct": "IN", "type": "VARCHAR", "value": "a\nX-B: b"}]
    return {
        "file": (an_http_task("file:///etc/passwd"), "must begin with http:// or https://"),
        "gopher": (an_http_task("gopher://127.0.0.1:70/_x"), "must begin with http:// or https://"),
        "no host": (an_http_task("http://"), "names no host"),
        "line end": (an_http_task("http://127.0.0.1/\r\nX-B: b"), "blank or a control character"),
        "header": (an_http_task(away, httpParams=[header]), "the value of X-A has a line end"),
        "header by a parameter": (
            an_http_task(away, httpParams=[{**header, "value": "${v}"}], localParams=given),
            "the value of X-A has a line end",
        ),
        "metadata": (an_http_task("http://169.254.169.254/latest"), "may not connect to"),
        "metadata as a number": (an_http_task("http://2852039166/latest"), "may not connect to"),
        "metadata as IPv6": (
            an_http_task("http://[::ffff:169.254.169.254]/"),
            "may not connect to",
        ),
        "redirect to metadata": (
            an_http_task(f"{away}http://169.254.169.254/"),
            "may not connect to",
        ),
        "redirect to a file": (an_http_task(f"{away}file:///etc/passwd"), "redirected to file://"),
        "redirect for ever": (an_http_task(f"{away}/?/"), "more than 5 redirects"),
        "closed": (an_http_task(f"http://u:{SECRET}@127.0.0.1:1/?token={SECRET}"), "refused"),
    }
