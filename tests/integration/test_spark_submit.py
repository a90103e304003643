"""spark-submit by its runner, against a YARN that answers like the real one."""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.states import TaskState
from common.spark_config import SparkConfig
from tests.integration.managers.bench import CLUSTER, OOM, Bench, yarn_tags
from tests.integration.managers.server import TROUBLES
from tests.integration.managers.yarn import FakeYarn
from worker.spark.managers.tags import Tags

pytestmark = pytest.mark.waits_long


@pytest.fixture
def yarn() -> Iterator[FakeYarn]:
    with FakeYarn() as yarn:
        yield yarn


@pytest.fixture
def bench(tmp_path: Path, yarn: FakeYarn) -> Iterator[Bench]:
    spark = SparkConfig(yarn_urls=yarn.url, history_url="http://history:18080")
    bench = Bench(tmp_path, spark=spark, fake_url=yarn.url)
    yield bench
    yarn.trouble = ""
    bench.close()


def app_id(number: int = 1) -> str:
    return f"application_1700000000000_{number:04}"


# In the cluster.


def test_an_application_in_the_cluster_is_followed_to_its_end(bench: Bench, yarn: FakeYarn) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    yarn.end_all()
    end = bench.host.end_of(1)
    assert end.state is TaskState.SUCCESS, bench.log()
    facts = bench.facts()
    assert facts.application_ids == (app_id(),)
    assert facts.ui_link == f"{yarn.url}/proxy/{app_id()}/"
    assert facts.history_link == f"http://history:18080/history/{app_id()}"
    assert f"application {app_id()} is SUCCEEDED" in bench.log()


def test_spark_submit_is_gone_long_before_the_application(bench: Bench, yarn: FakeYarn) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    runner = bench.runner()
    bench.host.until(lambda: not children_of(runner))
    assert yarn.live()
    bench.kill()


def test_an_application_that_waits_says_what_for(bench: Bench, yarn: FakeYarn) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    app = yarn.apps[app_id()]
    app.state, app.diagnostics = "ACCEPTED", "[Mon Nov 30 2026] The queue is full."
    bench.host.until(lambda: bench.facts().progress.waiting == "The queue is full.")
    assert f"application {app_id()} waits: The queue is full." in bench.log()
    app.state = "RUNNING"
    bench.host.until(lambda: not bench.facts().progress.waiting)
    assert bench.facts().waited
    bench.kill()


def test_an_application_that_shows_up_late_is_waited_for(bench: Bench, yarn: FakeYarn) -> None:
    yarn.shows_after = 3.0
    bench.begin()
    bench.wait_for("is RUNNING")
    yarn.end_all()
    assert bench.host.end_of(1).state is TaskState.SUCCESS, bench.log()
    assert bench.submissions() == 1


def test_how_far_an_application_has_come_is_told(bench: Bench, yarn: FakeYarn) -> None:
    yarn.pages = {
        "jobs": [{"jobId": 0, "status": "RUNNING"}],
        "stages": [
            {"stageId": 0, "status": "COMPLETE", "numTasks": 4, "numCompleteTasks": 4},
            {"stageId": 1, "status": "ACTIVE", "numTasks": 6, "numCompleteTasks": 2},
        ],
        "allexecutors": [
            {"id": "driver", "totalDuration": 9},
            {"id": "1", "totalDuration": 2_500, "peakMemoryMetrics": {"JVMHeapMemory": 77}},
        ],
    }
    bench.begin()
    bench.host.until(lambda: bench.facts().progress.tasks_done == 6)
    assert bench.facts().progress.stages_running == 1
    yarn.end_all()
    bench.host.end_of(1)
    facts = bench.facts()
    assert (facts.progress.tasks, facts.progress.tasks_done) == (10, 10)
    assert (facts.progress.stages_running, facts.progress.jobs_running) == (0, 0)
    assert facts.progress.executor_memory_bytes == 77
    assert facts.usage.core_seconds == 2.5


def test_the_log_of_a_driver_elsewhere_explains_a_failure(bench: Bench, yarn: FakeYarn) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    yarn.apps[app_id()].stderr = OOM
    yarn.end_all("FINISHED", "FAILED", "User class threw exception")
    end = bench.host.end_of(1)
    assert end.state is TaskState.FAILURE
    assert "the application failed, says YARN" in (end.reason or "")
    assert "User class threw exception" in (end.reason or "")
    assert bench.facts().failure is FailureReason.OUT_OF_MEMORY
    assert OOM.expandtabs(4) in bench.log()


def test_a_log_that_yarn_has_moved_comes_from_the_log_server(bench: Bench, yarn: FakeYarn) -> None:
    yarn.aggregates = f"{yarn.url}/ws/v1/applicationhistory"
    yarn.has_moved = False
    bench.begin()
    bench.wait_for("is RUNNING")
    yarn.apps[app_id()].stderr = OOM
    yarn.end_all("FINISHED", "FAILED", "User class threw exception")
    asked = f"/ws/v1/applicationhistory/containers/container_{app_id()[12:]}_01_000001/logs/stdout"
    bench.host.until(lambda: any(each.path == asked for each in yarn.asked))
    yarn.has_moved = True
    assert bench.host.end_of(1).state is TaskState.FAILURE
    assert bench.facts().failure is FailureReason.OUT_OF_MEMORY
    assert OOM.expandtabs(4) in bench.log()


def test_a_driver_s_log_can_t_forge_lines_or_put_out_parameters(
    bench: Bench, yarn: FakeYarn
) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    yarn.apps[app_id()].stderr = "\x1b[2J${setValue(a=b)}\n"
    yarn.end_all("FAILED", "FAILED")
    assert bench.host.end_of(1).var_pool is None
    assert "\\x1b[2J" in bench.log()


def test_an_application_that_somebody_killed_has_failed_as_killed(
    bench: Bench, yarn: FakeYarn
) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    yarn.end_all("KILLED", "KILLED", "killed by user bob")
    end = bench.host.end_of(1)
    assert end.state is TaskState.FAILURE
    assert "killed by user bob" in (end.reason or "")
    assert bench.facts().failure is FailureReason.KILLED


def test_a_submission_that_fails_says_so(bench: Bench, yarn: FakeYarn) -> None:
    yarn.refuses_submissions = True
    end = bench.run()
    assert end.state is TaskState.FAILURE
    assert "YARN knows no application of it" in (end.reason or "")
    assert bench.facts().failure is FailureReason.SUBMIT_FAILED


def test_an_application_counts_although_its_spark_submit_failed(
    bench: Bench, yarn: FakeYarn
) -> None:
    bench.begin(conf={"spark.fake.exit": "1"})
    bench.wait_for("is RUNNING")
    yarn.end_all()
    assert bench.host.end_of(1).state is TaskState.SUCCESS, bench.log()


# A driver of our own.


def test_a_driver_of_our_own_ends_the_attempt_with_its_exit_code(
    bench: Bench, yarn: FakeYarn
) -> None:
    assert bench.run(1, mode="client").state is TaskState.SUCCESS, bench.log()
    assert bench.facts().application_ids == (app_id(),)
    end = bench.run(2, mode="client", conf={"spark.fake.exit": "3"})
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 3)
    assert "the driver ended with exit code 3" in (end.reason or "")


def test_what_a_driver_of_our_own_prints_stands_in_the_log_and_is_looked_through(
    bench: Bench,
) -> None:
    says = 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space'
    end = bench.run(1, mode="client", conf={"spark.fake.says": says, "spark.fake.exit": "1"})
    assert says in bench.log()
    assert bench.facts().failure is FailureReason.OUT_OF_MEMORY
    assert "the driver ended with exit code 1" in (end.reason or "")


def test_yarn_s_word_explains_what_no_log_can(bench: Bench, yarn: FakeYarn) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    why = "AM Container exited with exitCode: -104. Container killed by YARN for exceeding memory limits."
    yarn.end_all("FAILED", "FAILED", why)
    end = bench.host.end_of(1)
    assert bench.facts().failure is FailureReason.OUT_OF_MEMORY
    assert "exitCode: -104" in (end.reason or "")
    assert "the driver's log may be at" in bench.log()


def test_a_program_that_makes_no_application_may_succeed(bench: Bench, yarn: FakeYarn) -> None:
    submit = bench.home / "spark" / "bin" / "spark-submit"
    submit.write_text("#!/bin/sh\necho nothing to do\n")
    assert bench.run(1, mode="client").state is TaskState.SUCCESS, bench.log()


def test_a_driver_that_never_made_an_application_failed_to_submit(
    bench: Bench, yarn: FakeYarn
) -> None:
    yarn.refuses_submissions = True
    end = bench.run(1, mode="client")
    assert "before there was an application" in (end.reason or "")
    assert bench.facts().failure is FailureReason.SUBMIT_FAILED


def test_an_application_that_outlives_its_driver_is_ended(bench: Bench, yarn: FakeYarn) -> None:
    submit = bench.home / "spark" / "bin" / "spark-submit"
    real = submit.read_text()
    # As if the driver died without taking leave: its application never hears of it.
    submit.write_text(real.replace("exec ", "").replace('"$@"', '"$@" --deploy-mode cluster'))
    end = bench.run(1, mode="client")
    assert end.state is TaskState.SUCCESS, bench.log()
    assert not yarn.live()
    assert "its driver is gone, but an application still runs" in bench.log()


# What spark-submit is given.


def test_settings_are_gone_from_the_disk_when_they_have_been_read(
    bench: Bench, yarn: FakeYarn
) -> None:
    file = bench.host.directory(1) / "spark_1_2_1.conf"
    gate = bench.home / "gate"
    conf = {"spark.fake.gate": str(gate), "spark.hadoop.fs.s3a.secret.key": "hunter2"}
    bench.begin(conf=conf)
    bench.wait_for("spark-submit was started")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "spark.hadoop.fs.s3a.secret.key = hunter2" in file.read_text()
    gate.touch()
    bench.wait_for("is RUNNING")
    bench.host.until(lambda: not file.exists())
    bench.kill()
    assert "hunter2" not in bench.log()
    assert not list(bench.host.directory(1).glob("*.json.reason"))


def test_the_installation_s_defaults_are_read_and_the_task_s_settings_win(
    bench: Bench, yarn: FakeYarn
) -> None:
    folder = bench.home / "spark" / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(
        "spark.of.theirs = 1\nspark.fake.runs = 9\nspark.yarn.maxAppAttempts = 3"
    )
    file = bench.host.directory(1) / "spark_1_2_1.conf"
    bench.begin(conf={"spark.fake.runs": "1", "spark.fake.gate": str(bench.home / "gate")})
    bench.wait_for("spark-submit was started")
    lines = file.read_text().splitlines()
    assert "spark.of.theirs = 1" in lines
    assert lines.index("spark.fake.runs = 9") < lines.index("spark.fake.runs = 1")
    assert "spark.yarn.maxAppAttempts = 1" not in lines
    bench.kill()


def test_the_checksum_of_what_ran_stands_in_the_log(bench: Bench, yarn: FakeYarn) -> None:
    (bench.home / "job.py").write_text("print(1)\n")
    bench.begin()
    bench.wait_for("is RUNNING")
    bench.kill()
    digest = hashlib.sha256(b"print(1)\n").hexdigest()
    assert f"job.py: 9 bytes, sha256 {digest}" in bench.log()


def test_spark_submit_does_not_outlive_its_runner(bench: Bench, yarn: FakeYarn) -> None:
    bench.begin(conf={"spark.fake.before": "60", "spark.fake.stubborn": "1"})
    bench.wait_for("spark-submit was started")
    runner = bench.runner()
    (child,) = children_of(runner)
    os.kill(runner, signal.SIGKILL)
    # Before the supervisor, which nobody drives here, could have done anything about it.
    bench.host.until(lambda: not Path(f"/proc/{child}/cmdline").exists() or is_zombie(child))


# Asking YARN.


@pytest.mark.parametrize("trouble", TROUBLES)
def test_nothing_is_submitted_while_the_manager_can_t_be_asked(
    bench: Bench, yarn: FakeYarn, trouble: str
) -> None:
    yarn.trouble = trouble
    bench.begin()
    bench.wait_for("YARN can't be asked")
    assert bench.submissions() == 0
    yarn.trouble = ""
    bench.wait_for("YARN answers again")
    bench.wait_for("is RUNNING")
    yarn.end_all()
    assert bench.host.end_of(1).state is TaskState.SUCCESS, bench.log()
    assert bench.submissions() == 1


@pytest.mark.parametrize("trouble", TROUBLES)
def test_an_application_is_not_lost_while_its_manager_can_t_be_asked(
    bench: Bench, yarn: FakeYarn, trouble: str
) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    yarn.trouble = trouble
    bench.wait_for("YARN can't be asked")
    yarn.trouble = ""
    yarn.end_all()
    assert bench.host.end_of(1).state is TaskState.SUCCESS, bench.log()


def test_a_standby_is_passed_over(tmp_path: Path, yarn: FakeYarn) -> None:
    with FakeYarn() as standby, FakeYarn() as silent:
        standby.active, silent.active = yarn.url, ""
        spark = SparkConfig(yarn_urls=f"{silent.url},{standby.url},{yarn.url}")
        bench = Bench(tmp_path, spark=spark, fake_url=yarn.url)
        bench.begin()
        bench.wait_for("is RUNNING")
        bench.kill()
        assert not yarn.live()
        bench.close()


def test_a_redirect_to_another_host_is_not_followed(tmp_path: Path, yarn: FakeYarn) -> None:
    with FakeYarn() as standby:
        standby.active = yarn.url
        bench = Bench(tmp_path, spark=SparkConfig(yarn_urls=standby.url), fake_url=yarn.url)
        bench.begin()
        bench.wait_for("which isn't configured")
        assert not yarn.asked
        bench.close()


# Earlier attempts.


def test_an_application_of_a_lost_attempt_is_taken_up_and_nothing_is_submitted(
    bench: Bench, yarn: FakeYarn
) -> None:
    left = yarn.submit(yarn_tags(bench.tag(1)))
    bench.begin(2, lost_attempts=(1,))
    bench.wait_for(f"re-attached to application {left.id} of task instance 1", 2)
    yarn.end_all()
    assert bench.host.end_of(2).state is TaskState.SUCCESS, bench.log(2)
    assert bench.facts(2).application_ids == (left.id,)
    assert bench.submissions(2) == 0


def test_a_lost_attempt_s_application_that_has_ended_counts_too(
    bench: Bench, yarn: FakeYarn
) -> None:
    yarn.submit(yarn_tags(bench.tag(1)))
    yarn.end_all("FINISHED", "FAILED", "it divided by zero")
    end = bench.run(2, lost_attempts=(1,))
    assert end.state is TaskState.FAILURE
    assert "it divided by zero" in (end.reason or "")
    assert bench.submissions(2) == 0


def test_what_was_killed_with_a_lost_attempt_is_submitted_anew(
    bench: Bench, yarn: FakeYarn
) -> None:
    yarn.submit(yarn_tags(bench.tag(1)))
    yarn.end_all("KILLED", "KILLED")
    bench.begin(2, lost_attempts=(1,))
    bench.wait_for(f"application {app_id(2)} is RUNNING", 2)
    assert bench.submissions(2) == 1
    bench.kill(2)


def test_what_ended_with_its_tag_before_it_began_is_not_its_own(
    bench: Bench, yarn: FakeYarn
) -> None:
    # As after a database was restored, which numbers attempts again; or somebody else's.
    yarn.submit(yarn_tags(bench.tag(1)))
    yarn.end_all()
    bench.begin(1)
    bench.wait_for(f"application {app_id(2)} is RUNNING")
    assert bench.submissions() == 1
    yarn.end_all("FINISHED", "FAILED")
    assert bench.host.end_of(1).state is TaskState.FAILURE
    assert bench.facts().application_ids == (app_id(2),)


def test_what_runs_with_its_tag_before_it_began_is_ended_first(
    bench: Bench, yarn: FakeYarn
) -> None:
    left = yarn.submit(yarn_tags(bench.tag(1)))
    bench.begin(1)
    bench.wait_for(f"application {app_id(2)} is RUNNING")
    assert left.state == "KILLED"
    bench.kill(1)
    assert not yarn.live(), bench.log()


def test_a_stop_is_heard_whichever_thread_the_kernel_gives_it_to(
    bench: Bench, yarn: FakeYarn
) -> None:
    bench.begin()
    bench.wait_for("is RUNNING")
    runner = bench.runner()
    others = [int(thread.name) for thread in Path(f"/proc/{runner}/task").iterdir()]
    others.remove(runner)
    tgkill = ctypes.CDLL(None, use_errno=True).tgkill
    assert tgkill(runner, others[0], signal.SIGTERM) == 0
    bench.host.until(lambda: not yarn.live())
    assert bench.host.end_of(1).state is TaskState.FAILURE


def test_a_driver_of_our_own_is_not_taken_for_what_bore_its_tag_before(
    bench: Bench, yarn: FakeYarn
) -> None:
    yarn.submit(yarn_tags(bench.tag(1)))
    yarn.end_all("FAILED", "FAILED")
    assert bench.run(1, mode="client").state is TaskState.SUCCESS, bench.log()
    assert bench.facts().application_ids == (app_id(2),)


def test_a_stop_waits_for_its_own_although_another_bore_its_tag(
    bench: Bench, yarn: FakeYarn
) -> None:
    yarn.submit(yarn_tags(bench.tag(1)))
    yarn.end_all()
    yarn.shows_after = 1.0
    bench.begin(1)
    bench.wait_for("the application is there")
    bench.kill(1)
    assert not yarn.live(), bench.log()


def test_of_two_lost_applications_one_is_followed_and_the_other_ended(
    bench: Bench, yarn: FakeYarn
) -> None:
    older, newer = (yarn.submit(yarn_tags(bench.tag(number))) for number in (1, 2))
    bench.begin(3, lost_attempts=(2, 1))
    bench.wait_for(f"re-attached to application {newer.id}", 3)
    assert [each.id for each in yarn.live()] == [newer.id]
    assert older.state == "KILLED"
    bench.kill(3)


def test_a_lost_driver_that_was_a_process_of_its_worker_is_ended_first(
    bench: Bench, yarn: FakeYarn
) -> None:
    left = yarn.submit(yarn_tags(bench.tag(1)))
    end = bench.run(2, mode="client", lost_attempts=(1,))
    assert end.state is TaskState.SUCCESS, bench.log(2)
    assert left.state == "KILLED"
    assert bench.submissions(2) == 1


def test_what_a_failed_attempt_left_is_ended_before_the_next_is_submitted(
    bench: Bench, yarn: FakeYarn
) -> None:
    left = yarn.submit(yarn_tags(bench.tag(1)))
    bench.begin(2, ended_attempts=(1,))
    bench.wait_for(f"application {app_id(2)} is RUNNING", 2)
    assert left.state == "KILLED"
    bench.kill(2)


def test_what_a_lost_attempt_brings_into_being_late_is_ended(bench: Bench, yarn: FakeYarn) -> None:
    bench.begin(2, lost_attempts=(1,))
    bench.wait_for("is RUNNING", 2)
    late = yarn.submit(yarn_tags(bench.tag(1)))
    bench.host.until(lambda: late.state == "KILLED")
    assert [each.id for each in yarn.live()] == [app_id(1)]
    bench.kill(2)


def test_other_people_s_applications_are_left_alone(bench: Bench, yarn: FakeYarn) -> None:
    others = [yarn.submit(tags) for tags in ("", "theirs", "orcaflow-ffffffffffff-1")]
    bench.begin()
    bench.wait_for("is RUNNING")
    bench.kill()
    assert all(each.state == "RUNNING" for each in others)


def test_x102_an_application_with_a_guessed_tag_is_nobody_s(bench: Bench, yarn: FakeYarn) -> None:
    guessed = Tags(cluster=CLUSTER, key="guessed")
    forged = [f"orcaflow-{CLUSTER}-{number}" for number in (1, 2)]
    forged += [guessed.of(number) for number in (1, 2)]
    others = [yarn.submit(yarn_tags(tag)) for tag in forged]
    bench.begin(2, lost_attempts=(1,))
    bench.wait_for("is RUNNING", 2)
    assert bench.submissions(2) == 1
    bench.kill(2)
    assert all(each.state == "RUNNING" for each in others)


def test_t82_an_id_that_a_driver_prints_is_nobody_s_application(
    bench: Bench, yarn: FakeYarn
) -> None:
    other = yarn.submit("theirs")
    says = f"Submitted application {other.id}"
    # It fails, so that whatever it has left is ended too.
    conf = {"spark.fake.says": says, "spark.fake.exit": "1"}
    assert bench.run(1, mode="client", conf=conf).state is TaskState.FAILURE
    assert says in bench.log()
    assert bench.facts().application_ids == (app_id(2),)
    bench.begin(2)
    bench.wait_for("is RUNNING", 2)
    bench.kill(2)
    assert yarn.live() == [other]


def children_of(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (thread / "children").read_text().split()]
    return found


def is_zombie(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
