"""Notifications when rows change."""

from __future__ import annotations

from common.model.decisions import (
    FinishProcess,
)
from common.model.states import (
    ProcessState,
    TaskState,
)
from common.store.listen import Channel, read_task_report
from tests.conformance.store_tables import (
    LATER,
    Tables,
    a_command,
    a_run,
    a_stop,
    always,
    an_end,
    claim,
    end,
    finish,
    kill,
    save,
    submit,
    take,
)


def ended_attempts(notifications: list[tuple[str, str]]) -> list[tuple[object, ...]]:
    """The notifications of ended attempts; asserts that there are no others."""
    assert {channel for channel, _ in notifications} == {Channel.TASK}
    reports = [read_task_report(payload) for _, payload in notifications]
    return [
        (
            one.process_instance_id,
            one.task_instance_id,
            one.name,
            one.attempt,
            one.state,
            one.end_time,
        )
        for one in reports
    ]


def test_each_change_that_somebody_waits_for_is_called_out(db: Tables) -> None:
    owned = a_run(db)
    run_id = owned.process_instance_id
    assert db.notifications() == [(Channel.COMMAND, "")]
    a, b = submit(db, owned, "a", "b")
    claim(db, [a])
    assert db.notifications() == []
    end(db, an_end(a))
    assert ended_attempts(db.notifications()) == [(run_id, a, "a", 1, TaskState.SUCCESS, LATER)]
    save(db, owned, finish("a"))
    assert db.notifications() == []
    save(db, owned, kill("b"))
    assert [attempt[:5] for attempt in ended_attempts(db.notifications())] == [
        (run_id, b, "b", 1, TaskState.KILL)
    ]
    a_command(db, command_type=9)
    take(db, always(a_stop(owned)))
    assert db.notifications() == [(Channel.COMMAND, ""), (Channel.WANTED, str(run_id))]
    save(db, owned, FinishProcess(state=ProcessState.STOP))
    assert db.notifications() == [(Channel.PROCESS, str(run_id))]
