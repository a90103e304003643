"""The frame of every test of bad input: nothing but the input itself may be affected.

After each test a good definition runs to its end, the daemons are the processes that they were, no
command is left over, and a task that ran before the first mistake runs still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.system.cluster import PrivateCluster, a_task, until

RUNNING, STOP, FAILURE, SUCCESS = 1, 5, 6, 7


def good_definition(cluster: PrivateCluster) -> int:
    """A definition that runs and succeeds."""
    return cluster.define("good", [a_task("first", "echo good"), a_task("last", "true", "first")])


def begin_bystander(cluster: PrivateCluster) -> int:
    """A process instance that runs all the time."""
    instance = cluster.begin(cluster.define("bystander", [a_task("patient", "sleep 3600")]))
    cluster.await_task(instance, 1)
    return instance


@contextmanager
def nothing_else_is_touched(cluster: PrivateCluster, good: int, bystander: int) -> Iterator[None]:
    columns = ("id", "state", "pid", "host", "worker_incarnation", "start_time", "wanted_state")
    before = cluster.pids(), cluster.tasks_of(bystander, *columns)
    yield
    assert cluster.await_end(cluster.begin(good)) == SUCCESS
    assert (cluster.pids(), cluster.tasks_of(bystander, *columns)) == before
    assert cluster.rows("SELECT id FROM t_ds_command") == []


def refusal(cluster: PrivateCluster, command_id: int) -> str:
    """The message in the error table for a command, once it is there."""
    found: list[tuple[str]] = []

    def is_there() -> bool:
        found[:] = cluster.rows(
            "SELECT message FROM t_ds_error_command WHERE command_id = %s", command_id
        )
        return bool(found)

    until(is_there)
    (message,) = found[0]
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a cluster to a command: `state` is None if it was refused with the `text`.

    Else the text is made of the reasons of the instance and of its attempts.
    """

    state: int | None
    text: str


def answers(cluster: PrivateCluster, documents: Mapping[str, object]) -> dict[str, Answer]:
    """Type all these definitions and a command for each, and wait for what becomes of them.

    A text is the definition's JSON as it is; anything else are its tasks.
    """
    commands: dict[str, tuple[int, int]] = {}
    for name, document in documents.items():
        tasks = document if isinstance(document, str) else _listed(document)
        definition = cluster.define(name, tasks)
        commands[name] = definition, cluster.put(definition)
    found: dict[str, Answer] = {}

    def are_there() -> bool:
        for name, (definition, command) in commands.items():
            if name not in found and (answer := _answer(cluster, definition, command)):
                found[name] = answer
        return len(found) == len(commands)

    try:
        until(are_there)
    except AssertionError as error:
        stuck = [name for name in commands if name not in found]
        for name in stuck:
            ask_to_stop(cluster, cluster.last_instance(commands[name][0]))
        raise AssertionError(f"neither refused nor ended: {stuck}") from error
    return found


def ask_to_stop(cluster: PrivateCluster, instance_id: int) -> None:
    cluster.rows(
        "UPDATE t_ds_process_instance SET wanted_state = 5, wanted_at = now()"
        " WHERE id = %s AND end_time IS NULL",
        instance_id,
    )


def unsaid(
    found: Mapping[str, Answer], wanted: Mapping[str, tuple[int | None, Sequence[str]]]
) -> dict[str, Answer]:
    """The answers that are not in the state wanted, or lack a text that they should say."""
    return {
        name: found[name]
        for name, (state, says) in wanted.items()
        if found[name].state != state or not all(each in found[name].text for each in says)
    }


def _listed(document: object) -> Sequence[object]:
    return document if isinstance(document, list) else [document]


def _answer(cluster: PrivateCluster, definition_id: int, command_id: int) -> Answer | None:
    refused = cluster.rows(
        "SELECT message FROM t_ds_error_command WHERE command_id = %s", command_id
    )
    if refused:
        return Answer(state=None, text=refused[0][0])
    ended = cluster.rows(
        "SELECT p.state, coalesce(p.state_reason, '') || coalesce((SELECT string_agg("
        "  ' | ' || name || ': ' || coalesce(reason, ''), '' ORDER BY id)"
        "  FROM t_ds_task_instance WHERE process_instance_id = p.id), '')"
        " FROM t_ds_process_instance p"
        " WHERE p.process_definition_id = %s AND p.end_time IS NOT NULL",
        definition_id,
    )
    return Answer(state=ended[0][0], text=ended[0][1]) if ended else None
