"""A library has one door, and pure modules can't wait, read the clock or draw."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, modules

DOORS = {
    # The embedded server has to be claimed before any registry can use it.
    "kazoo": ("common/registry/", "common/embedded/zookeeper_rights.py"),
    # SQL tasks open connections of their own, in processes of their own.
    "sqlalchemy": ("common/store/", "sql/migrations/", "worker/runners/database.py"),
    "httpx": (
        "worker/runners/http.py",
        "worker/spark/managers/rest.py",
        "api/oidc/provider.py",
    ),
    # The broker program imports the client before it drops its access to files.
    "confluent_kafka": ("common/kafka_topic.py", "master/broker_program.py"),
    "joserfc": ("api/oidc/id_token.py",),
    "msgspec": ("worker/spark/streaming/json_fields.py",),
    "httpcore": ("worker/runners/http.py",),
    "networkx": ("common/dag.py",),
    "croniter": ("common/cron/",),
    "psutil": ("common/host.py",),
    # A process of its own, and a command that shows rows.
    "pyarrow": (
        "common/log_store/program.py",
        "common/dataset_program.py",
        "worker/spark/streaming/batches.py",
        "worker/spark/streaming/kafka_source.py",
        # Rows of Arrow bolts, and all rows on their way between components.
        *("common/topology/components.py", "common/topology/rows.py", "common/topology/trial.py"),
        *("orcaflow/spouts.py", "worker/spark/topology/"),
    ),
    "pyspark": ("worker/spark/",),
    "pydantic": (
        "api/grant_answers.py",
        *("common/config/reading.py", "api/answers.py", "api/lane.py"),
        *("api/people_answers.py", "api/cluster_answers.py"),
        *("api/complement_answers.py", "api/schedule_answers.py"),
        *("api/datasource_answers.py", "api/environment_answers.py"),
    ),
    "pydantic_core": ("common/config/reading.py",),
    "annotated_types": ("common/config/settings.py", "common/spark_config.py"),
    # The superuser repairs a role of the embedded server. No store connects as that role.
    "psycopg2": ("common/store/", "common/embedded/postgres_reader.py"),
    "grpc": ("worker/spark/session/prototype.py",),
    "typer": ("orcaflow/cli/",),
    "rich": ("orcaflow/cli/screens/",),
    "tenacity": (
        "common/kafka_topic.py",
        "master/broker_program.py",
        "common/store/connect.py",
        "worker/spark/managers/rest.py",
    ),
    "setproctitle": ("master/server.py", "worker/server.py", "api/server.py"),
    "tzlocal": ("common/config/zone.py",),
    "alembic": ("common/store/", "sql/migrations/"),
    "cryptography": ("common/datasource_keys.py",),
    "argon2": ("operations/passwords.py",),
    "fastapi": ("api/",),
    "starlette": (
        "api/problems.py",
        "api/app.py",
        "api/handling.py",
        "api/dolphinscheduler/serving.py",
        "api/druid/serving.py",
        "api/console/serving.py",
    ),
    "uvicorn": ("api/connections.py", "api/server.py"),
    "jinja2": ("api/console/rendering.py",),
    "yaml": ("common/strict_yaml.py",),
    "prometheus_client": ("common/runtime/metrics.py", "common/runtime/health.py"),
}


_IMPORT = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)


@cache
def importers(library: str) -> list[str]:
    """The modules that import the library, as paths from the root."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in modules(*PACKAGES)
        if library in imported(path)
    )


@cache
def imported(path: Path) -> frozenset[str]:
    """The packages that a module imports."""
    return frozenset(_IMPORT.findall(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("library", "doors"), DOORS.items(), ids=DOORS)
def test_a_library_has_one_door(library: str, doors: tuple[str, ...]) -> None:
    others = [path for path in importers(library) if not path.startswith(doors)]
    assert others == []


@pytest.mark.parametrize(("library", "doors"), DOORS.items(), ids=DOORS)
def test_every_door_is_used(library: str, doors: tuple[str, ...]) -> None:
    found = importers(library)
    assert [door for door in doors if not any(path.startswith(door) for path in found)] == []


def test_three_modules_change_the_account_of_a_process() -> None:
    changes = re.compile(r"\b(extra_groups|initgroups|setgroups|set(res|re|e)?[ug]id)[=(]")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in modules(*PACKAGES)
        if changes.search(path.read_text(encoding="utf-8"))
    ]
    # The first starts the embedded PostgreSQL and the second drops rights. Neither runs a task.
    assert found == [
        "common/embedded/as_account.py",
        "common/least_rights.py",
        "worker/processes/tenant_start.py",
    ]


def test_a_worker_daemon_imports_nothing_that_only_its_tasks_need() -> None:
    code = (
        "import sys, worker.server;"
        " from worker.launching.base import TaskTypes; TaskTypes().make_built_in();"
        " print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "worker.tasks.sql" in loaded
    unwanted = {
        "httpx",
        "httpcore",
        "pyarrow",
        "pyspark",
        "confluent_kafka",
        "rich",
        "worker.runners",
    }
    assert not unwanted.intersection(loaded)


@pytest.mark.parametrize("runner", ["http", "spark_submit"])
def test_a_task_imports_no_command_line_of_a_library(runner: str) -> None:
    code = f"import sys, worker.runners.{runner}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "httpx" in loaded
    assert not {"click", "pygments", "rich"}.intersection(loaded)


def test_an_api_server_imports_what_a_login_provider_takes_with_the_first_log_in() -> None:
    code = (
        "import sys, api.server; from api.app import build;"
        "from common.config import ApiConfig, Config, OidcConfig;"
        "there = OidcConfig(issuer='https://login.example', client_id='orcaflow');"
        "here = ApiConfig(url='https://orcaflow.example', http_host='127.0.0.1');"
        "build(Config(oidc=there, api=here), None, version='1'); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "api.oidc.client" in loaded
    assert not {"api.oidc.provider", "httpx", "joserfc"}.intersection(loaded)


def test_a_command_at_the_database_imports_nothing_that_only_a_server_needs() -> None:
    code = (
        "import sys; from orcaflow.cli.app import main;"
        " main(['instance', 'list', '--state', 'nonsense']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "operations.instances" in loaded
    assert not {"orcaflow.remote", "httpx", "http.client", "pydantic"}.intersection(loaded)


def test_nothing_in_the_engine_iterates_over_a_set() -> None:
    # Behaviour that depends on the order of a set differs from process to process.
    made = re.compile(r"\b(set|frozenset)\(|\{[^:{}]+ for ")
    for path in sorted((ROOT / "master" / "engine").glob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not made.search(line.split("#")[0]), f"{path.name}: {line}"
