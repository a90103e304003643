"""The command line of a Connect server. The program in its place exits at once."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from worker.spark.host.connect_server import (
    ConnectServer,
    MakeCommand,
    ServerPlan,
    scratch_of,
)
from worker.spark.jvm.java_command import Command, NoSparkError


class Started:
    """A server of a master, with the command that it was to be started with."""

    def __init__(
        self,
        directory: Path,
        master: str,
        *,
        conf: Mapping[str, str] | None = None,
        jars: str = "",
        **seen: str,
    ) -> None:
        self.server = a_server(directory, self._command, master, conf=conf, jars=jars, **seen)
        self.server.process.wait()

    def _command(
        self, conf: Mapping[str, str], directory: Path, environment: Mapping[str, str]
    ) -> Command:
        self.conf, self.environment = conf, environment
        return Command(argv=("/bin/true",), environment=environment, archive=None)


def a_server(
    directory: Path,
    command: MakeCommand,
    master: str = "local[2]",
    *,
    conf: Mapping[str, str] | None = None,
    jars: str = "",
    **seen: str,
) -> ConnectServer:
    plan = ServerPlan(
        profile="default",
        revision="1",
        master=master,
        conf=conf or {},
        jars=jars,
        packages="",
        driver_memory="1g",
        python=sys.executable,
        start_timeout=60,
    )
    return ConnectServer(
        plan,
        key=1,
        directory=directory,
        command=command,
        environment=seen,
        proxy=("ask",),
    )


@pytest.mark.parametrize("seen", [{}, {"SPARK_LOCAL_IP": "10.0.0.1"}])
def test_a_server_without_executors_elsewhere_is_reached_from_here_alone(
    tmp_path: Path, seen: dict[str, str]
) -> None:
    made = Started(tmp_path / "server", "local[2]", conf={}, **seen)
    assert made.conf["spark.driver.host"] == "127.0.0.1"
    assert made.conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert made.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert made.server.ui_link.startswith("http://127.0.0.1:")


def test_executors_elsewhere_reach_the_driver_of_a_server(tmp_path: Path) -> None:
    made = Started(tmp_path / "server", "spark://there:7077")
    assert "spark.driver.host" not in made.conf
    assert "spark.driver.bindAddress" not in made.conf
    assert "SPARK_LOCAL_IP" not in made.environment
    assert made.conf["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert made.server.ui_link.startswith("http://127.0.0.1:")


def test_a_host_of_several_addresses_says_which_one(tmp_path: Path) -> None:
    made = Started(tmp_path / "server", "spark://there:7077", SPARK_LOCAL_IP="10.0.0.1")
    assert made.environment["SPARK_LOCAL_IP"] == "10.0.0.1"
    assert made.server.ui_link.startswith("http://10.0.0.1:")


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()


def no_java(*_: object) -> Command:
    raise NoSparkError("there is no java")


def never_ends(_conf: object, _directory: object, environment: Mapping[str, str]) -> Command:
    return Command(argv=("/bin/sleep", "600"), environment=environment, archive=None)


def test_a_server_whose_command_cannot_be_made_leaves_no_file_behind(tmp_path: Path) -> None:
    with pytest.raises(NoSparkError):
        a_server(tmp_path / "server", no_java)
    assert list(tmp_path.iterdir()) == []


def test_a_server_whose_end_nobody_would_see_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    before = children()
    monkeypatch.setattr(os, "pidfd_open", too_many)
    with pytest.raises(OSError, match="Too many open files"):
        a_server(tmp_path / "server", never_ends)
    assert children() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "jars", ["local:/opt/driver.jar", "hdfs:/driver.jar", "s3a://bucket/driver.jar", "/no/such/*"]
)
def test_jars_that_only_spark_can_find_are_left_to_it(tmp_path: Path, jars: str) -> None:
    Started(tmp_path / "server", "local[2]", jars=jars)


@pytest.mark.parametrize("jars", ["/no/such.jar", "file:/no/such.jar", "file:///no/such.jar"])
def test_a_jar_of_this_computer_has_to_be_there(tmp_path: Path, jars: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"spark\.profiles\.default\.jars: .* /no/such.jar"):
        Started(tmp_path / "server", "local[2]", jars=jars)


@pytest.fixture
def spark_home(tmp_path: Path) -> str:
    """An installation with the libraries of the filter before Spark's pages."""
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("jjwt-api", "jjwt-impl", "jjwt-jackson"):
        (jars / f"{name}-0.13.0.jar").touch()
    return str(jars.parent)


def test_a_server_closes_no_session_of_a_task_that_is_busy_without_spark(
    tmp_path: Path, spark_home: str
) -> None:
    made = Started(tmp_path / "server", "local[2]", SPARK_HOME=spark_home)
    assert made.conf["spark.connect.session.manager.defaultSessionTimeout"] == "-1"


def test_no_file_of_the_installation_takes_the_pages_away_that_sessions_are_closed_by(
    tmp_path: Path, spark_home: str
) -> None:
    made = Started(
        tmp_path / "server", "local[2]", conf={"spark.ui.retainedJobs": "7"}, SPARK_HOME=spark_home
    )
    assert made.conf["spark.ui.retainedJobs"] == "7"
    pages = ("spark.ui.enabled", "spark.ui.killEnabled", "spark.ui.threadDumpsEnabled")
    assert [made.conf[key] for key in pages] == ["true"] * 3
    assert made.conf["spark.ssl.ui.enabled"] == "false"


def test_the_pages_want_a_token_of_this_server_alone(tmp_path: Path, spark_home: str) -> None:
    one, other = (
        Started(tmp_path / name, "spark://there:7077", SPARK_HOME=spark_home) for name in ("a", "b")
    )
    assert one.conf["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    assert one.server.page_token
    assert one.server.page_token != other.server.page_token


def test_a_spark_that_knows_no_token_offers_no_kill_on_its_pages(tmp_path: Path) -> None:
    made = Started(tmp_path / "server", "local[2]", conf={"spark.ui.killEnabled": "true"})
    assert (made.server.page_token, made.conf["spark.ui.killEnabled"]) == ("", "false")
    assert "spark.ui.filters" not in made.conf


def test_a_server_wants_a_secret_of_its_own_where_spark_makes_one(tmp_path: Path) -> None:
    assert Started(tmp_path / "a", "local[2]").conf["spark.authenticate"] == "true"
    assert "spark.authenticate" not in Started(tmp_path / "b", "spark://there:7077").conf
    chosen = Started(tmp_path / "c", "local[2]", conf={"spark.authenticate": "false"})
    assert chosen.conf["spark.authenticate"] == "false"


def test_all_temporary_files_of_a_server_are_below_its_own_directory(tmp_path: Path) -> None:
    made = Started(tmp_path / "server", "spark://there:7077", TMPDIR="/tmp")
    scratch = scratch_of(tmp_path / "server")
    assert scratch.is_dir()
    assert made.environment["TMPDIR"] == str(scratch)
    assert Path(made.environment["SPARK_LOCAL_DIRS"]).parent == tmp_path / "server"
