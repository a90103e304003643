"""spark-submit on Kubernetes, and Kubernetes healthy and faulty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.states import TaskState
from tests.integration.managers.bench import CLUSTER, OOM, TAGS, labels
from tests.integration.managers.grounds import Ground
from tests.integration.managers.kubernetes import FakeKubernetes
from tests.integration.managers.server import TROUBLES
from worker.spark.managers.base import AppState, ManagerError, ManagerRefusedError
from worker.spark.managers.kubernetes import KubernetesManager
from worker.spark.managers.rest import HASTY

TAG = TAGS.of(7)


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[FakeKubernetes]:
    with FakeKubernetes() as kubernetes:
        yield kubernetes


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path, "kubernetes")
    yield ground
    ground.close()


def manager(fake: FakeKubernetes, home: Path, token: str = "a-token") -> KubernetesManager:
    (home / "token").write_text(token)
    return KubernetesManager(
        fake.url, namespaces=["jobs"], token_file=str(home / "token"), limits=HASTY
    )


def pods(ground: Ground) -> FakeKubernetes:
    assert isinstance(ground.fake, FakeKubernetes)
    return ground.fake


def test_an_application_is_followed_and_its_log_explains_a_failure(ground: Ground) -> None:
    fake = pods(ground)
    ground.bench.begin()
    ground.bench.wait_for("is RUNNING")
    (driver,) = fake.live()
    fake.logs[driver] = OOM
    fake.end("Failed", reason="Error", exitCode=1)
    end = ground.bench.host.end_of(1)
    assert end.state is TaskState.FAILURE
    assert "java.lang.OutOfMemoryError" in ground.bench.log()
    assert ground.bench.facts().failure is FailureReason.OUT_OF_MEMORY
    assert ground.bench.facts().application_ids == (f"spark-{1:032x}",)


def test_an_application_that_ends_well_ends_the_attempt_well(ground: Ground) -> None:
    ground.bench.begin()
    ground.bench.wait_for("is RUNNING")
    ground.end_well()
    assert ground.bench.host.end_of(1).state is TaskState.SUCCESS, ground.bench.log()


def test_a_pod_that_somebody_deleted_was_killed(ground: Ground) -> None:
    ground.bench.begin()
    ground.bench.wait_for("is RUNNING")
    with pods(ground).lock:
        pods(ground).pods.clear()
    end = ground.bench.host.end_of(1)
    assert end.state is TaskState.FAILURE
    assert ground.bench.facts().failure is FailureReason.KILLED


def test_the_token_is_seen_by_nobody(ground: Ground) -> None:
    ground.bench.begin()
    ground.bench.wait_for("is RUNNING")
    runner = Path(f"/proc/{ground.bench.runner()}")
    seen = (runner / "cmdline").read_bytes() + (runner / "environ").read_bytes()
    assert b"a-token" not in seen
    ground.bench.kill()
    assert "a-token" not in ground.bench.log()


def test_an_application_is_a_driver_with_its_executors(
    kubernetes: FakeKubernetes, tmp_path: Path
) -> None:
    app_id = kubernetes.submit(labels(TAG))
    executor = {**labels(TAG), "spark-role": "executor", "spark-app-selector": app_id}
    kubernetes.add("exec-1", executor)
    kubernetes.submit(labels(TAGS.of(8)))
    kubernetes.submit({"orcaflow-attempt": "somebody-s", "orcaflow-cluster": CLUSTER})
    asked = manager(kubernetes, tmp_path)
    (found,) = asked.with_tag(TAG)
    assert (found.id, found.state) == (app_id, AppState.RUNNING)
    assert len(asked.with_prefix(TAGS.prefix)) == 2
    asked.kill(found)
    assert [name for name in kubernetes.live() if "exec-1" in name] == []
    assert asked.with_tag(TAG) == []


def test_a_driver_that_runs_elsewhere_leaves_executors_to_be_ended(
    kubernetes: FakeKubernetes, tmp_path: Path
) -> None:
    executor = {**labels(TAG), "spark-role": "executor", "spark-app-selector": "spark-x"}
    kubernetes.add("exec-1", executor)
    asked = manager(kubernetes, tmp_path)
    (found,) = asked.with_tag(TAG)
    assert found.state is AppState.RUNNING
    assert asked.log(found) == ""
    asked.kill(found)
    assert kubernetes.live() == []


def test_a_pod_that_is_being_deleted_still_lives(
    kubernetes: FakeKubernetes, tmp_path: Path
) -> None:
    kubernetes.dies_after = 60
    kubernetes.submit(labels(TAG))
    asked = manager(kubernetes, tmp_path)
    asked.kill(asked.with_tag(TAG)[0])
    assert asked.with_tag(TAG)[0].state is AppState.RUNNING


def test_a_pod_that_can_t_start_says_why(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    kubernetes.submit(labels(TAG))
    (pod,) = kubernetes.pods.values()
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    (found,) = manager(kubernetes, tmp_path).with_tag(TAG)
    assert found.state is AppState.WAITING
    assert found.diagnostics == "ImagePullBackOff no such image"


def test_a_token_is_read_anew_for_each_request(kubernetes: FakeKubernetes, tmp_path: Path) -> None:
    asked = manager(kubernetes, tmp_path, token="old")
    with pytest.raises(ManagerRefusedError, match="401"):
        asked.with_tag(TAG)
    (tmp_path / "token").write_text("a-token\n")
    assert asked.with_tag(TAG) == []


@pytest.mark.parametrize("content", [None, "two\nlines", "ü"])
def test_a_token_file_that_is_none_is_told_of(
    kubernetes: FakeKubernetes, tmp_path: Path, content: str | None
) -> None:
    asked = manager(kubernetes, tmp_path)
    (tmp_path / "token").unlink()
    if content is not None:
        (tmp_path / "token").write_text(content, encoding="utf-8")
    with pytest.raises(ManagerRefusedError, match=r"spark\.kubernetes_token_file"):
        asked.with_tag(TAG)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_bad_answer_is_none(kubernetes: FakeKubernetes, tmp_path: Path, trouble: str) -> None:
    kubernetes.trouble = trouble
    with pytest.raises(ManagerError):
        manager(kubernetes, tmp_path).with_tag(TAG)


def test_another_namespace_is_refused_and_not_empty(
    kubernetes: FakeKubernetes, tmp_path: Path
) -> None:
    kubernetes.namespace = "elsewhere"
    with pytest.raises(ManagerRefusedError):
        manager(kubernetes, tmp_path).with_tag(TAG)
