"""A real Spark host with real Connect servers: what tasks share, and what they never feel.

It is the host of all modules that only run tasks, and the last of them, since its tests end servers.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.spark_host import (
    ANOTHER,
    GOOD,
    LONG_JOB,
    Attempt,
    SparkHost,
    command,
    kill,
    late_jobs_end,
    lives,
    memory_mb,
    spark_host,
    until,
)
from worker.spark.session.sharing import ISOLATED

pytestmark = pytest.mark.slow

ENDLESS_UDF = """
import time
from pyspark.sql.functions import udf
def endless(n):
    time.sleep(36_000)
spark.range(2).select(udf(endless, "long")("id")).collect()
"""


@pytest.fixture(scope="module")
def host(warm: SparkHost) -> SparkHost:
    return warm


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the host serves nobody, and runs nothing."""
    yield
    if "host" in request.fixturenames:
        made: SparkHost = request.getfixturevalue("host")
        made.kill_proxies()
        until(lambda: made.is_quiet)


def together(*attempts: Attempt) -> list[int]:
    """Have all of them wait at the same time, and go on."""
    for each in attempts:
        each.ready()
    for each in attempts:
        each.go_on()
    return [each.end() for each in attempts]


# What tasks don't share


def test_tasks_at_the_same_time_dont_see_each_others_views_and_settings(host: SparkHost) -> None:
    script = """
    spark.range({n}).createOrReplaceTempView("mine")
    spark.conf.set("spark.sql.shuffle.partitions", "{n}")
    wait()
    tell(spark.table("mine").count(), spark.conf.get("spark.sql.shuffle.partitions"))
    """
    few, many = (host.start(script.format(n=n)) for n in (3, 5))
    assert together(few, many) == [0, 0]
    assert (few.values, many.values) == ([3, "3"], [5, "5"])


def test_what_one_task_imports_or_patches_is_not_there_for_the_next(host: SparkHost) -> None:
    code, _ = host.run(
        """
        import builtins, colorsys, math, pyspark.sql.functions
        math.pi = 3
        builtins.left = "behind"
        pyspark.sql.functions.col = None
        os.environ["LEFT"] = "behind"
        sys.path.append("/left/behind")
        """
    )
    found, seen = host.run(
        """
        from math import pi
        from pyspark.sql.functions import col
        tell("colorsys" in sys.modules, pi, "left" in dir(__builtins__), col is None)
        tell("LEFT" in os.environ, "/left/behind" in sys.path)
        """
    )
    assert (code, found) == (0, 0)
    assert seen.values == [False, 3.141592653589793, False, False, False, False]


def test_no_two_tasks_draw_the_same_random_numbers(host: SparkHost) -> None:
    script = """
    import random, numpy
    tell(random.random(), float(numpy.random.rand()), float(numpy.random.default_rng().random()))
    """
    (_, one), (_, other) = host.run(script), host.run(script)
    assert len({*one.values, *other.values}) == 6


def test_a_task_has_its_proxys_environment_directory_and_arguments(host: SparkHost) -> None:
    code, attempt = host.run(
        """
        with open("/proc/self/environ", "rb") as file:
            marker = [each for each in file.read().split(b"\\0") if b"EXECUTE_PATH" in each]
        tell(dict(os.environ), os.getcwd(), sys.argv, [each.decode() for each in marker])
        tell(sys.stdin.read(), os.getsid(0) == os.getpid(), __name__, __file__)
        """,
        arguments=["--day", "it's one; word"],
        environment={"MINE": "naïve ✓", "PYTHONPATH": "/nowhere"},
    )
    assert code == 0
    environment, directory, argv, marker, *rest = attempt.values
    script = str(attempt.folder / "script.py")
    assert environment["MINE"] == "naïve ✓"
    assert environment["PYTHONPATH"] == "/nowhere"
    assert not {"SPARK_HOME", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"} & environment.keys()
    assert directory == str(attempt.folder)
    assert argv == [script, "--day", "it's one; word"]
    assert marker == [f"ORCAFLOW_EXECUTE_PATH={attempt.folder}"]
    assert rest == ["", True, "__main__", script]


def test_no_open_file_of_the_host_comes_into_a_task(host: SparkHost) -> None:
    attempt = host.start("wait()").ready()
    (task,) = (pid for pid in attempt.pids)
    theirs, own = links(host.pid), links(task)
    attempt.go_on()
    assert attempt.end() == 0
    shared = {each for each in theirs & own if each.startswith(("socket:", "pipe:", "/"))}
    # On one pipe the host hears what became of the task's sessions.
    (_pipe,) = shared - {"/dev/null"}
    assert _pipe.startswith("pipe:")


def links(pid: int) -> set[str]:
    """The targets of a process's descriptors."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except FileNotFoundError:
            continue  # It was closed meanwhile.
    return found


# How tasks end


@pytest.mark.parametrize(
    ("script", "code", "failure", "says"),
    [
        ("pass", 0, None, ""),
        ("exit()", 0, None, ""),
        ("exit(3)", 3, "EXIT_CODE", "exit code 3"),
        ("sys.exit('no orders today')", 1, "EXIT_CODE", "no orders today"),
        ("os._exit(5)", 5, None, ""),
        ("sys.stdout = open('/dev/null', 'w'); sys.stdout.close()", 0, None, ""),
        ("sys.stdout = sys.stderr = None; exit(3)", 3, "EXIT_CODE", ""),
        ("1 / 0", 1, "PYTHON_ERROR", "ZeroDivisionError: division by zero"),
        ("import no_such_module", 1, "PYTHON_ERROR", "No module named 'no_such_module'"),
        ("open('no such file')", 1, "PYTHON_ERROR", "No such file or directory: 'no such file'"),
        ("def (:", 1, "PYTHON_ERROR", "SyntaxError"),
        ("spark.table('no_such_table').show()", 1, "ANALYSIS_ERROR", "`no_such_table`"),
        ("os.kill(os.getpid(), 9)", 137, None, ""),
        ("import ctypes; ctypes.string_at(0)", 139, None, ""),
    ],
    ids=lambda value: value if isinstance(value, str) and "(" in value else "",
)
def test_a_task_ends_with_its_own_exit_code_and_says_why(
    host: SparkHost, script: str, code: int, failure: str | None, says: str
) -> None:
    found, attempt = host.run(script)
    assert (found, attempt.failure) == (code, failure), attempt.output
    assert says in attempt.reason


def test_a_traceback_begins_in_the_authors_script(host: SparkHost) -> None:
    _, attempt = host.run("def broken():\n    return 1 / 0\nbroken()")
    assert "Traceback (most recent call last):\n  File " in attempt.output
    files = re.findall(r'File "([^"]+)"', attempt.output)
    assert set(files) == {str(attempt.folder / "script.py")}


def test_a_syntax_error_needs_no_session(host: SparkHost) -> None:
    code, attempt = host.run("spark.range(1).createOrReplaceTempView('here')\nif")
    assert code == 1
    assert "application_ids" not in attempt.facts or attempt.facts["application_ids"] == []


def test_a_child_that_a_task_leaves_behind_keeps_nobody_waiting(host: SparkHost) -> None:
    code, attempt = host.run(
        """
        import time
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        """
    )
    assert code == 0
    left = attempt.pids
    # As the worker does, which knows it by its marker.
    for pid in left:
        kill(pid)
    assert len(left) == 1
    assert host.works()


# Sessions


def test_a_script_that_stops_its_session_succeeds(host: SparkHost) -> None:
    code, attempt = host.run("tell(spark.range(3).count())\nspark.stop()")
    assert (code, attempt.values) == (0, [3])


def test_a_builder_gives_the_tasks_own_session_and_starts_no_java(host: SparkHost) -> None:
    code, attempt = host.run(
        """
        from pyspark.sql import SparkSession
        builder = SparkSession.builder.appName("mine").master("local[4]")
        own = builder.config("spark.sql.shuffle.partitions", 7).getOrCreate()
        tell(own is spark, spark.conf.get("spark.sql.shuffle.partitions"), own.range(4).count())
        tell(SparkSession.getActiveSession() is spark, SparkSession.active() is spark)
        """
    )
    assert (code, attempt.values) == (0, [True, "7", 4, True, True]), attempt.output


def test_a_builder_gives_a_new_session_after_the_first_was_stopped(host: SparkHost) -> None:
    code, attempt = host.run(
        f"""
        from pyspark.sql import SparkSession
        first = spark.session_id
        spark.range(1).createOrReplaceTempView("gone")
        spark.stop()
        spark = SparkSession.builder.getOrCreate()
        tell(spark.session_id != first, spark.catalog.tableExists("gone"))
        {GOOD.replace(chr(10), chr(10) + "        ")}
        """
    )
    assert (code, attempt.values) == (0, [True, False, 55]), attempt.output


def test_sessions_that_a_script_makes_are_its_own_and_have_udfs(host: SparkHost) -> None:
    code, attempt = host.run(
        """
        from pyspark.sql import SparkSession
        from pyspark.sql.functions import udf
        spark.range(1).createOrReplaceTempView("mine")
        for each in (spark.newSession(), spark.cloneSession(), SparkSession.builder.create()):
            tell(each.catalog.tableExists("mine"))
            tell(each.range(2).select(udf(lambda n: n + 1, "long")("id")).collect()[1][0])
        """
    )
    assert (code, attempt.values) == (0, [False, 2, True, 2, False, 2]), attempt.output


def test_a_script_may_make_more_sessions_than_its_host_has_room_to_hear_of(
    host: SparkHost,
) -> None:
    attempt = host.start(
        """
        names = {fd: f"/proc/self/fd/{fd}" for fd in range(3, 100)}
        pipes = [fd for fd, name in names.items()
                 if os.path.exists(name) and os.readlink(name).startswith("pipe:")]
        (told,) = pipes
        usual = os.get_blocking(told)
        os.set_blocking(told, False)
        try:
            while True:
                os.write(told, b"as if it were a session\\n")
        except BlockingIOError:
            os.set_blocking(told, usual)
        tell(spark.newSession().range(3).count())
        """
    )
    assert (attempt.end(), attempt.values) == (0, [3]), attempt.output


@pytest.mark.parametrize("script", ["spark.sparkContext", "spark.range(1).rdd.count()"])
def test_what_needs_a_driver_of_its_own_is_told_so(host: SparkHost, script: str) -> None:
    code, attempt = host.run(script)
    assert (code, attempt.failure) == (1, "UNSUPPORTED"), attempt.output
    assert "profile: classic" in attempt.reason


def test_a_spark_context_starts_no_java_machine_in_a_task(host: SparkHost) -> None:
    code, attempt = host.run("from pyspark import SparkContext\nSparkContext.getOrCreate()")
    assert code == 1
    assert "profile: classic" in attempt.reason


# Tasks that are killed


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("session", ["spark", "spark.newSession()"])
def test_when_a_task_proxy_is_killed_its_task_and_its_jobs_are_gone(
    host: SparkHost, number: signal.Signals, session: str
) -> None:
    attempt = host.start(f"spark = {session}\n{LONG_JOB}")
    until(host.running_jobs)
    attempt.process.send_signal(number)
    assert attempt.end() == (-signal.SIGKILL if number is signal.SIGKILL else 143)
    until(lambda: attempt.pids == [])
    until(lambda: host.running_jobs() == [])
    assert host.works()


def test_a_job_that_begins_in_a_session_after_it_was_closed_is_killed(host: SparkHost) -> None:
    attempt = host.start(LONG_JOB)
    until(host.running_jobs)
    (place,) = host.places_of_jobs()
    elsewhere = place.beside(str(uuid.uuid4()))
    assert not late_jobs_end(elsewhere)
    assert late_jobs_end(elsewhere, [place.session_id])
    assert attempt.end() == 1
    assert not late_jobs_end(place)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_at_whatever_moment_a_task_proxy_is_killed_nothing_of_its_task_goes_on(
    host: SparkHost, number: signal.Signals
) -> None:
    assert host.works()
    moments: list[Callable[[Attempt], object]] = [
        lambda _: True,
        lambda attempt: attempt.pids,
        lambda attempt: attempt.says("ready"),
        lambda _: host.running_jobs(),
    ]
    script = f"print('ready', flush=True)\n{LONG_JOB}"
    for is_now in moments * 3:
        attempt = host.start(script)
        until(lambda is_now=is_now, attempt=attempt: is_now(attempt))  # type: ignore[misc]
        attempt.process.send_signal(number)
        assert attempt.end() in (-number, 128 + number)
        until(lambda: host.is_quiet)
    # A job that is begun late is begun within this.
    assert host.works()
    assert host.running_jobs() == []


def test_a_task_has_the_niceness_of_its_proxy(host: SparkHost) -> None:
    code, attempt = host.run(
        """
        tell(os.getpriority(os.PRIO_PROCESS, 0), os.umask(0))
        tell(int(open("/proc/self/oom_score_adj").read()))
        """,
        through=(
            "/bin/sh",
            "-c",
            'umask 0027; echo 300 >/proc/self/oom_score_adj; exec nice -n 7 "$@"',
            "sh",
        ),
    )
    niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + 7, 19)
    assert (code, attempt.values) == (0, [niceness, 0o027, 300])


def test_a_task_and_its_udfs_have_the_limits_of_its_proxy(host: SparkHost) -> None:
    code, attempt = host.run(
        """
        import resource
        from pyspark.sql.functions import udf
        def limits(_):
            return str([resource.getrlimit(resource.RLIMIT_DATA), resource.getrlimit(resource.RLIMIT_NPROC)])
        tell(limits(0), spark.range(1).select(udf(limits, "string")("id")).first()[0])
        """,
        through=(
            "/bin/sh",
            "-c",
            'ulimit -d 4000000; ulimit -u 20000 || ulimit -p 20000; exec "$@"',
            "sh",
        ),
    )
    expected = str([(4_000_000 << 10, 4_000_000 << 10), (20_000, 20_000)])
    assert (code, attempt.values) == (0, [expected, expected]), attempt.output


def test_a_task_that_ignores_a_signal_to_end_ends_with_its_proxy(host: SparkHost) -> None:
    attempt = host.start(
        """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
        wait()
        wait()
        """
    ).ready()
    attempt.process.terminate()
    attempt.told("no")
    assert attempt.pids
    attempt.process.kill()
    until(lambda: attempt.pids == [])


# UDFs


def test_the_pythons_of_a_sessions_udfs_end_with_it(host: SparkHost) -> None:
    attempt = host.start(f"{GOOD}\nwait()").ready()
    # Its own process, the Python for its UDFs with a worker, and who stands for it.
    assert len(host.pythons()) >= 4
    attempt.go_on()
    assert attempt.end() == 0
    until(lambda: host.pythons() == [])


def test_a_udf_that_crashes_its_python_fails_its_own_task_alone(host: SparkHost) -> None:
    neighbour = host.start(f"{GOOD}\nwait()\n{GOOD}").ready()
    code, attempt = host.run(
        """
        import ctypes
        from pyspark.sql.functions import udf
        spark.range(2).select(udf(lambda n: ctypes.string_at(0), "string")("id")).collect()
        """
    )
    assert (code, attempt.failure) == (1, "PYTHON_ERROR"), attempt.output
    assert "the Python process of a UDF crashed" in attempt.reason
    neighbour.go_on()
    assert (neighbour.end(), neighbour.values) == (0, [55, 55])


def test_an_endless_udf_ends_with_its_task(host: SparkHost) -> None:
    attempt = host.start(ENDLESS_UDF)
    until(lambda: len(host.pythons()) >= 4 and host.running_jobs())
    attempt.process.kill()
    until(lambda: host.pythons() == [])
    until(lambda: host.running_jobs() == [])


def test_a_profile_with_another_interpreter_has_its_tasks_and_udfs_there(
    host: SparkHost,
) -> None:
    attempt = host.start(
        """
        from pyspark.sql.functions import udf
        where = udf(lambda n: __import__("sys").executable, "string")
        tell(sys.executable, spark.range(1).select(where("id")).first()[0])
        wait()
        """,
        profile="apart",
    ).ready()
    assert attempt.values == [ANOTHER, ANOTHER]
    assert any("pyspark.daemon" in command(pid) for pid in host.pythons())
    attempt.go_on()
    assert attempt.end() == 0
    until(lambda: host.pythons() == [])


# Servers


# The next test needs no seed, and the server that it leaves has one.
def test_a_server_that_has_lost_its_seed_gives_isolated_sessions(host: SparkHost) -> None:
    # No script should do this; a server may have reasons of its own.
    lost = host.start(
        """
        import gc
        [prototype] = {each.prototype for each in gc.get_objects() if type(each).__name__ == "Place"}
        client = spark.client
        own, client._session_id, client._server_session_id = client._session_id, prototype, None
        client.release_session()
        client._session_id, client._server_session_id = own, None
        """
    )
    assert (lost.end(), lost.values) == (0, []), lost.output
    code, after = host.run(f'tell(spark.conf.get("{ISOLATED}"))')
    assert (code, after.values) == (0, ["true"])
    assert host.works()


def test_a_dead_server_fails_exactly_its_own_tasks(host: SparkHost) -> None:
    assert host.works(profile="apart")
    lost = [host.start(f"wait()\n{GOOD}").ready() for _ in range(2)]
    spared = host.start(f"{GOOD}\nwait()\n{GOOD}", profile="apart").ready()
    (server,) = host.servers("default")
    kill(server)
    for attempt in lost:
        assert (attempt.end(), attempt.failure) == (1, "SERVER_LOST")
        assert attempt.reason == "the Spark server of profile default has died (signal 9)"
    spared.go_on()
    assert (spared.end(), spared.values) == (0, [55, 55])
    assert host.works()
    assert server not in host.servers()


def test_a_server_whose_heap_is_full_is_replaced_and_says_so(host: SparkHost) -> None:
    code, attempt = host.run(
        """
        # Long strings: the heap is full soon, and not collected time and again before.
        long = "repeat(cast(id as string), 100000)"
        spark.range(0, 10**8, 1, 2).selectExpr(f"collect_list({long})").collect()
        """
    )
    assert (code, attempt.failure) == (1, "OUT_OF_MEMORY"), attempt.output
    assert "driver_memory" in attempt.reason
    assert host.works()


# The host


def test_tasks_that_print_a_gigabyte_dont_grow_the_host(host: SparkHost) -> None:
    reading, writing = os.pipe()
    read: list[int] = []

    def drain() -> None:
        while part := os.read(reading, 1 << 20):
            read.append(len(part))

    reader = threading.Thread(target=drain)
    reader.start()
    before = memory_mb(host.pid)
    attempt = host.start('for _ in range(1024):\n    print("x" * (1 << 20))', stdout=writing)
    os.close(writing)
    assert attempt.end() == 0
    reader.join()
    os.close(reading)
    assert sum(read) >= 1 << 30
    assert memory_mb(host.pid) - before < 10


def test_fifty_tasks_leave_nothing_behind(host: SparkHost) -> None:
    assert host.works()
    until(lambda: host.pythons() == [])

    def left() -> object:
        # What a server keeps below that is Spark's own business.
        return host.family(), host.open_files(), sorted(host.directory.glob("*/*"))

    before = left()
    scripts = ["tell(spark.range(1).count())", "os._exit(0)", "spark.newSession().range(1).count()"]
    for number in range(50):
        code, attempt = host.run(scripts[number % len(scripts)])
        assert code == 0, attempt.output
    until(lambda: left() == before)


def test_nonsense_from_a_task_proxy_harms_nobody(host: SparkHost) -> None:
    neighbour = host.start(f"wait()\n{GOOD}").ready()
    frames = [
        b"\xff" * 100,
        b"\0\0\0\0",
        b"\0\0\0\x10follow\0/\x001\0{bad}",
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    for frame in frames:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(host.loop.address)
            link.sendall(frame)
            assert link.recv(100) == b""
    for intent in ('{"profiles": {"default": {}}}', '{"profiles": 5}', "[]", "null", "{"):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(host.loop.address)
            body = f"follow\0/\x001\0{intent}".encode()
            link.sendall(len(body).to_bytes(4, "big") + body)
            assert link.recv(100) == b""
    neighbour.go_on()
    assert (neighbour.end(), neighbour.values) == (0, [55])


def test_a_host_whose_socket_is_gone_ends_by_itself(tmp_path: Path) -> None:
    with spark_host(tmp_path) as host:
        pid = host.pid
        Path(host.loop.address).unlink()
        until(lambda: not lives(pid))


# It comes last, so that no other test needs the servers that it costs.
def test_when_the_host_is_killed_the_kernel_ends_all_that_it_has_started(host: SparkHost) -> None:
    attempts = [host.start(f"{GOOD}\nwait()").ready(), host.start(ENDLESS_UDF)]
    until(lambda: len(host.pythons()) >= 8 and host.running_jobs())
    family, servers = host.family(), host.servers()
    assert servers
    kill(host.pid)
    for attempt in attempts:
        assert (attempt.end(), attempt.failure) == (1, "SERVER_LOST")
        assert "Spark host has died" in attempt.reason
    until(lambda: not any(lives(pid) for pid in family))
    # The daemon sees to the next one.
    host.await_link()
    assert list(host.directory.glob("server-*")) == []
