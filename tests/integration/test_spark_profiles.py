"""A real Spark host and its profiles: some that change, and some that no server starts with."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.spark_host import (
    GOOD,
    LONG_JOB,
    SparkHost,
    a_profile,
    environ,
    lives,
    spark_host,
    until,
)

pytestmark = pytest.mark.slow

PROXIES = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
"""Those of nobody."""

TOKYO = a_profile(conf={"spark.sql.session.timeZone": "Asia/Tokyo"})
PROFILES = {
    "default": TOKYO,
    "missing-jar": a_profile(jars="/no/such/driver.jar"),
    "malformed-package": a_profile(packages="not-a-coordinate"),
    "unreachable": a_profile(master="spark://127.0.0.1:1", start_timeout_seconds=6),
    "mistyped": a_profile(conf={"spark.sql.session.timeZone": "Mars/Phobos"}),
    "cramped": a_profile(driver_memory="64m"),
}

# The tests share a server wherever their profiles differ in what a server does not begin with.


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jar of the profile `default` of `changing`, which is there when a test begins."""
    return tmp_path_factory.mktemp("jar") / "driver.jar"


@pytest.fixture(scope="module")
def changing_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHost]:
    home = tmp_path_factory.mktemp("changing")
    conf = home / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.ui.enabled false\nspark.ui.killEnabled false\n"
    )
    with spark_host(home, seen={"SPARK_CONF_DIR": str(conf), **PROXIES}) as made:
        yield made


@pytest.fixture
def changing(changing_host: SparkHost, jar: Path) -> Iterator[SparkHost]:
    """A host of an odd installation: its files and proxies would keep sessions from being closed."""
    with zipfile.ZipFile(jar, "w"):
        pass
    yield changing_host
    changing_host.kill_proxies()


def test_who_waits_for_a_server_of_a_profile_that_is_mended_gets_one_of_the_mended(
    changing: SparkHost, jar: Path
) -> None:
    changing.follow({"default": a_profile(master="spark://127.0.0.1:1")})
    attempt = changing.start(GOOD).told("waiting for a session")
    until(changing.servers)
    changing.follow({"default": a_profile(jars=str(jar))})
    assert (attempt.end(), attempt.values) == (0, [55]), attempt.output
    until(lambda: len(folders_of_servers(changing)) == 1)


def test_no_setting_of_the_installation_and_no_proxy_keeps_a_session_from_being_closed(
    changing: SparkHost, jar: Path
) -> None:
    changing.follow({"default": a_profile(jars=str(jar))})
    attempt = changing.start(f"{GOOD}\nwait()", environment=PROXIES).ready()
    attempt.process.kill()
    attempt.end()
    until(lambda: changing.is_quiet)
    # Of each open session there is a link; the tests that follow have room for one.
    until(lambda: not any(each.is_symlink() for each in changing.directory.glob("server-*/*")))
    assert changing.run(GOOD, environment=PROXIES)[0] == 0
    attempt = changing.start(LONG_JOB, environment=PROXIES)
    until(changing.running_jobs)
    attempt.process.terminate()
    assert attempt.end() == 143
    assert changing.running_jobs() == []
    assert "may still run" not in attempt.output


def test_who_waits_for_a_second_server_that_cannot_start_gets_a_session_of_the_first(
    changing: SparkHost, jar: Path
) -> None:
    changing.follow({"default": a_profile(jars=str(jar), max_sessions=1, max_servers=2)})
    first = changing.start("wait()").ready()
    before = len(refusals(changing))
    jar.unlink()
    second = changing.start("tell(1)").told("waiting for a session")
    until(lambda: len(refusals(changing)) > before)
    first.go_on()
    assert (first.end(), second.end(), second.values) == (0, 0, [1]), second.output
    assert len(refusals(changing)) == before + 1


def refusals(host: SparkHost) -> list[object]:
    """The failed starts of servers, from the host's log."""
    return [each for each in host.log() if each["message"] == "no server"]


def test_tasks_beyond_a_profiles_sessions_wait_and_get_their_turn(
    changing: SparkHost, jar: Path
) -> None:
    changing.follow({"default": a_profile(jars=str(jar), max_sessions=1, max_servers=1)})
    first = changing.start(f"{GOOD}\nwait()").ready()
    others = [changing.start(GOOD) for _ in range(2)]
    for each in others:
        each.told("waiting for a session of Spark profile default")
    assert len(changing.servers()) == 1
    assert not any(each.pids for each in others)
    first.go_on()
    assert [each.end() for each in (first, *others)] == [0, 0, 0]

    # A daemon comes back with another profile: who has a session keeps it.
    old = changing.servers()
    kept = changing.start(f"{GOOD}\nwait()\n{GOOD}").ready()
    changing.follow({"default": TOKYO})
    code, attempt = changing.run("tell(spark.conf.get('spark.sql.session.timeZone'))")
    assert (code, attempt.values) == (0, ["Asia/Tokyo"])
    assert set(old) < set(changing.servers())
    kept.go_on()
    assert (kept.end(), kept.values) == (0, [55, 55])
    until(lambda: not any(lives(pid) for pid in old))
    assert b"ORCAFLOW_EXECUTE_PATH=\0" not in environ(changing.pid)


def test_a_task_that_waits_ends_when_it_is_told_to(changing: SparkHost) -> None:
    changing.follow(PROFILES)
    attempt = changing.start("pass", profile="unreachable").told("waiting for a session")
    attempt.process.terminate()
    assert attempt.end() == 143
    # The server that was started for it is given up by itself.
    until(lambda: changing.servers("unreachable") == [])


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ("missing-jar", "there is no file /no/such/driver.jar"),
        ("malformed-package", "Provided Maven Coordinates must be in the form"),
        ("unreachable", "its master is spark://127.0.0.1:1"),
        ("mistyped", "Mars/Phobos"),
        ("cramped", "Insufficient driver memory"),
    ],
)
def test_a_server_that_cannot_start_is_explained(
    changing: SparkHost, profile: str, says: str
) -> None:
    changing.follow(PROFILES)
    code, attempt = changing.run("pass", profile=profile)
    assert (code, attempt.failure) == (1, "SUBMIT_FAILED")
    assert says in attempt.reason
    assert f"profile {profile}" in attempt.reason
    assert len(attempt.reason) < 400
    assert changing.servers(profile) == []


def test_a_computer_without_java_is_told_what_to_set(tmp_path: Path) -> None:
    with spark_host(tmp_path, seen={"JAVA_HOME": "/no/such/java"}) as host:
        for _ in range(2):
            code, attempt = host.run("pass")
            assert (code, attempt.failure) == (1, "SUBMIT_FAILED")
            assert "there is no java in /no/such/java" in attempt.reason


def test_an_unknown_profile_is_refused_with_those_that_there_are(changing: SparkHost) -> None:
    changing.follow(PROFILES)
    code, attempt = changing.run("pass", profile="big")
    assert (code, attempt.failure) == (1, "CONFIGURATION")
    assert "no Spark profile 'big'" in attempt.reason
    assert "default" in attempt.reason


# It comes last of those that need the host.
def test_a_host_that_stops_leaves_no_folder_of_a_server(changing: SparkHost) -> None:
    assert changing.works()
    assert folders_of_servers(changing)
    changing.stop()
    assert folders_of_servers(changing) == []


def folders_of_servers(host: SparkHost) -> list[Path]:
    return list(host.directory.glob("server-*"))
