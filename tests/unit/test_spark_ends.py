"""The ends of a submission, and the log of a driver on its Worker: the pure parts."""

from __future__ import annotations

from itertools import product

import pytest

from common.model.failures import FailureReason
from worker.runners.spark_outcome import (
    ENDS,
    Exit,
    Place,
    Verdict,
    exit_code,
    outcome,
    place_of,
    verdict_of,
    with_applications,
)
from worker.spark.managers.base import AppState
from worker.spark.managers.worker_log import tag_in, without_command

TAG = "orcaflow-0123456789ab-7"

# Columns are the verdicts: succeeded, failed, killed, live, gone, never seen, unknown.
_OWN = """
zero   ok    EXIT_CODE  KILLED  ok         ok         ok             ok
other  EXIT_CODE  EXIT_CODE  KILLED  EXIT_CODE  EXIT_CODE  SUBMIT_FAILED  EXIT_CODE
none   EXIT_CODE  EXIT_CODE  EXIT_CODE  EXIT_CODE  EXIT_CODE  EXIT_CODE  EXIT_CODE
"""
_CLUSTER = """
zero   ok  EXIT_CODE  KILLED  EXIT_CODE  KILLED  SUBMIT_FAILED  EXIT_CODE
other  ok  EXIT_CODE  KILLED  EXIT_CODE  KILLED  SUBMIT_FAILED  EXIT_CODE
none   ok  EXIT_CODE  KILLED  EXIT_CODE  KILLED  SUBMIT_FAILED  EXIT_CODE
"""
_STANDALONE_CLUSTER = """
zero   ok  EXIT_CODE  KILLED  EXIT_CODE  KILLED  EXIT_CODE      EXIT_CODE
other  ok  EXIT_CODE  KILLED  EXIT_CODE  KILLED  SUBMIT_FAILED  EXIT_CODE
none   ok  EXIT_CODE  KILLED  EXIT_CODE  KILLED  SUBMIT_FAILED  EXIT_CODE
"""
EXPECTED = {
    Place.LOCAL: _OWN,
    Place.STANDALONE_CLIENT: _OWN,
    Place.STANDALONE_CLUSTER: _STANDALONE_CLUSTER,
    Place.YARN_CLIENT: _OWN,
    Place.YARN_CLUSTER: _CLUSTER,
    Place.KUBERNETES_CLIENT: _OWN,
    Place.KUBERNETES_CLUSTER: _CLUSTER,
}
CODES = {Exit.ZERO: (0,), Exit.OTHER: (1, 255, -9), Exit.NONE: (None,)}


def expected(place: Place, kind: Exit, verdict: Verdict) -> FailureReason | None:
    lines = [line.split() for line in EXPECTED[place].strip().splitlines()]
    cells = next(words for words in lines if words[0] == kind.name.lower())
    word = cells[1 + list(Verdict).index(verdict)]
    return None if word == "ok" else FailureReason(word)


@pytest.mark.parametrize("place", Place)
@pytest.mark.parametrize(("kind", "verdict"), list(product(Exit, Verdict)))
def test_an_end_follows_from_place_exit_and_verdict(
    place: Place, kind: Exit, verdict: Verdict
) -> None:
    for code in CODES[kind]:
        ended = outcome(place, code, verdict, manager="it")
        assert ended.failure is expected(place, kind, verdict)
        assert (exit_code(code, ended) == 0) == (ended.failure is None)
        assert (ended.sentence == "") == (ended.failure is None)
        assert "{" not in ended.sentence


def test_there_is_a_cell_for_every_end() -> None:
    for place, kind in product(Place, Exit):
        assert set(ENDS[place][kind]) == set(Verdict)


@pytest.mark.parametrize("place", [each for each in Place if each.in_cluster])
@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.SUCCEEDED])
def test_in_the_cluster_an_exit_code_of_0_alone_is_not_a_success(
    place: Place, verdict: Verdict
) -> None:
    assert outcome(place, 0, verdict, manager="it").failure is not None


def test_a_driver_of_our_own_that_failed_passes_its_exit_code_on() -> None:
    ended = outcome(Place.YARN_CLIENT, -9, Verdict.KILLED, manager="YARN")
    assert ended.sentence == "the application was killed, says YARN; its driver ended with signal 9"
    assert exit_code(-9, ended) == 137
    failed = outcome(Place.LOCAL, 3, Verdict.UNKNOWN, manager="nobody")
    assert (failed.sentence, exit_code(3, failed)) == ("the driver ended with exit code 3", 3)


def test_a_place_follows_from_manager_and_mode() -> None:
    assert place_of("standalone", in_cluster=True) is Place.STANDALONE_CLUSTER
    assert place_of("local", in_cluster=False) is Place.LOCAL
    assert [each for each in Place if each.in_cluster] == [
        Place.STANDALONE_CLUSTER,
        Place.YARN_CLUSTER,
        Place.KUBERNETES_CLUSTER,
    ]


def test_a_live_state_is_not_an_end() -> None:
    assert {state for state in AppState if verdict_of(state) is Verdict.LIVE} == {
        AppState.WAITING,
        AppState.RUNNING,
    }


@pytest.mark.parametrize(
    ("driver", "application", "both"),
    [
        (Verdict.SUCCEEDED, AppState.SUCCEEDED, Verdict.SUCCEEDED),
        (Verdict.SUCCEEDED, AppState.FAILED, Verdict.FAILED),
        (Verdict.SUCCEEDED, AppState.KILLED, Verdict.KILLED),
        (Verdict.FAILED, AppState.SUCCEEDED, Verdict.FAILED),
        (Verdict.FAILED, AppState.KILLED, Verdict.KILLED),
        (Verdict.KILLED, AppState.SUCCEEDED, Verdict.KILLED),
        (Verdict.UNKNOWN, AppState.SUCCEEDED, Verdict.UNKNOWN),
    ],
)
def test_a_driver_in_a_standalone_cluster_succeeds_only_with_its_application(
    driver: Verdict, application: AppState, both: Verdict
) -> None:
    assert with_applications(driver, [application]) is both
    assert with_applications(driver, []) is driver


# The log of a driver on its Worker.

COMMAND = (
    'Launch Command: "/usr/bin/java" "-cp" "/spark/jars/*" "-Dspark.app.name=x"'
    f' "-Dspark.orcaflow.attempt={TAG}" "org.apache.spark.deploy.worker.DriverWrapper"'
    ' "spark://Worker@h:1" "/srv/spark/driver-20260102030405-0001/job.jar" "Job"'
)
LINE = f"\n{'=' * 40}\n\n"


def test_a_driver_s_command_has_its_tag() -> None:
    log = f'{COMMAND} "an argument"{LINE}it began\n'
    assert tag_in(log) == TAG
    assert without_command(log) == "it began\n"
    assert without_command(log[50:]) == "it began\n"
    assert without_command("it began\n") == "it began\n"


@pytest.mark.parametrize(
    ("log", "tag"),
    [
        ("", None),
        ("it began\n", None),
        # The program prints after the Worker, which writes the command first.
        (f"\n{COMMAND}", None),
        # Its arguments may be anything.
        (COMMAND.replace(TAG, "") + f' "-Dspark.orcaflow.attempt={TAG}"', ""),
        (COMMAND.replace("-Dspark.orcaflow.attempt", "-Dspark.other"), ""),
        (COMMAND.replace('"-cp"', '"-Dspark.orcaflow.attempt=another"'), ""),
    ],
)
def test_a_tag_is_read_from_the_command_alone(log: str, tag: str | None) -> None:
    assert tag_in(log) == tag
