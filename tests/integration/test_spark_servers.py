"""A Spark host whose server, fork or computer fails at a bad moment."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.integration.spark_scene import scene
from worker.spark.host.pool import ServerState

if TYPE_CHECKING:
    from tests.integration.spark_stage import Stage


@scene
def test_a_server_that_dies_during_its_last_health_check_harms_no_host(stage: Stage) -> None:
    server = stage.server()
    server.failures, server.look_at = 2, 0.0
    stage.turn()
    assert stage.forks.are_probing
    server.process.stop(now=True)
    stage.until(lambda: stage.died)
    assert stage.forks.are_probing
    stage.until(lambda: not stage.forks.are_probing, each_turn=30)
    assert stage.errors == []


@scene
def test_a_silent_server_is_killed_after_three_health_checks(stage: Stage) -> None:
    server = stage.server()
    server.look_at = 0.0
    stage.until(lambda: stage.died, each_turn=5)
    assert server.failures == 3


@scene
def test_a_host_that_can_fork_no_probe_does_not_blame_its_servers(stage: Stage) -> None:
    server = stage.server()
    server.look_at = 0.0
    with stage.without_files():
        for _ in range(10):
            stage.now += 5
            stage.turn()
    assert (server.failures, server.stopping_since) == (0, None)
    stage.until(lambda: stage.forks.are_probing, each_turn=5)


@scene
def test_a_session_is_closed_when_a_probe_can_be_forked_again(stage: Stage) -> None:
    server, asked = stage.server(), stage.task()
    stage.tasks.start(asked.task, server)
    with stage.without_files():
        stage.until(lambda: asked.task.exit_code is not None)
        for _ in range(20):
            stage.now += 5
            stage.turn()
    assert asked.told() == []
    assert server.state is ServerState.READY
    stage.until(lambda: stage.forks.are_probing, each_turn=5)


@scene
def test_a_session_that_cannot_be_closed_drains_its_server_and_is_told(stage: Stage) -> None:
    server, asked = stage.server(), stage.task()
    stage.tasks.start(asked.task, server)
    stage.until(lambda: not stage.tasks, each_turn=0.5)
    assert (server.state, server.given) == (ServerState.DRAINING, 1)
    said, code = asked.told()
    assert said.startswith("say Spark may still run something of it")
    assert code == "exit 1"


@scene
def test_a_task_whose_server_has_lost_its_directory_is_refused_alone(stage: Stage) -> None:
    server, asked = stage.server(), stage.task()
    shutil.rmtree(server.process.directory)
    stage.tasks.start(asked.task, server)
    (told,) = asked.told()
    assert told == "error SUBMIT_FAILED no process could be made: No such file or directory"
    assert not stage.tasks
    assert not server.sessions


@scene
def test_what_a_server_leaves_behind_is_removed_after_all_who_wait_were_told(stage: Stage) -> None:
    directory = stage.server().process.directory
    (directory / "local").mkdir()
    (directory / "local" / "shuffle").write_bytes(b"much")
    stage.servers.stop_all()
    stage.until(lambda: stage.died)
    ((_, had_files),) = stage.died
    assert had_files
    stage.until(lambda: not stage.forks.are_probing)
    assert not directory.exists()
