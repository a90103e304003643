"""Gathers the facts of a chaos run: rows, lines of tasks, `/proc`, names of znodes.

Reads and judges nothing. It asks no daemon.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg2

from common.config import Config
from operations.daemons import Kind
from operations.members import registry
from tests.faults.facts import Attempt, Entry, Facts, Instance, Line, Running
from tests.faults.people import People

_MARK, _HOME = b"ORCAFLOW_TASK_INSTANCE_ID=", b"ORCAFLOW_HOME="

_COUNTED = {
    "instances": "t_ds_process_instance",
    "attempts": "t_ds_task_instance",
    "attempts lost with their worker": "t_ds_task_instance WHERE state = 8",
    "attempts killed": "t_ds_task_instance WHERE state = 9",
    "runs taken over": "t_ds_command_ledger WHERE command_type = 2 AND outcome = 1",
    "commands dropped": "t_ds_command_ledger WHERE outcome = 2",
    "commands refused": "t_ds_command_ledger WHERE outcome = 3",
}


def gathered(
    config: Config, dsn: str, people: People, lines: Path, addresses: Sequence[str]
) -> Facts:
    """Return the facts as they are now; `addresses` are those of the workers."""
    queued, claimed, kills = _znodes(config, addresses)
    names = {number: name for name, number in people.definitions.items()}
    db = psycopg2.connect(dsn, connect_timeout=10)
    # A run that begins between two of the statements would have attempts and no row.
    db.set_session(isolation_level="REPEATABLE READ", readonly=True)
    try:
        return Facts(
            asked=tuple(people.asked),
            unsure=people.unsure,
            unsure_stops=tuple(people.unsure_stops),
            queued=queued,
            claimed=claimed,
            kills=kills,
            ledger=tuple(
                Entry(command_id=command, outcome=outcome)
                for command, outcome in _rows(
                    db,
                    "SELECT command_id, outcome FROM t_ds_command_ledger"
                    # Masters write commands for themselves, and people wait for none of them.
                    " WHERE command_type NOT IN (2, 10, 11)",
                )
            ),
            refused=tuple(
                command
                for (command,) in _rows(
                    db,
                    "SELECT command_id FROM t_ds_error_command"
                    " WHERE command_type NOT IN (2, 10, 11)",
                )
            ),
            commands=tuple(row[0] for row in _rows(db, "SELECT id FROM t_ds_command")),
            slots=tuple(
                row[0]
                for row in _rows(
                    db, "SELECT task_id FROM t_ds_task_group_queue WHERE status IN (-1, 1)"
                )
            ),
            instances=tuple(
                Instance(
                    id=row[0],
                    definition=names[row[1]],
                    state=row[2],
                    wanted=row[3],
                    has_ended=row[4],
                    command_id=row[5],
                    parent=row[6],
                    root=row[7],
                )
                for row in _rows(
                    db,
                    "SELECT id, process_definition_id, state, wanted_state, end_time IS NOT NULL,"
                    " command_id, parent_task_instance_id, root_id FROM t_ds_process_instance",
                )
            ),
            attempts=tuple(
                Attempt(
                    id=row[0],
                    instance=row[1],
                    name=row[2],
                    state=row[3],
                    type=row[4],
                    number=row[5],
                    is_valid=row[6] == 1,
                    is_settled=row[7],
                    is_lost=row[8],
                    retries=row[9],
                    max_retries=row[10],
                )
                for row in _rows(
                    db,
                    "SELECT id, process_instance_id, name, state, task_type, attempt, flag, settled,"
                    " lost_at IS NOT NULL, retry_times, max_retry_times FROM t_ds_task_instance",
                )
            ),
            lines=_lines(lines),
            running=tuple(running(config.home)),
        )
    finally:
        db.close()


def counted(dsn: str) -> dict[str, int]:
    """Return figures about what has happened."""
    db = psycopg2.connect(dsn, connect_timeout=10)
    try:
        return {
            name: _rows(db, f"SELECT count(*) FROM {where}")[0][0]
            for name, where in _COUNTED.items()
        }
    finally:
        db.close()


def running(home: Path) -> list[Running]:
    """Return the processes of attempts of this home, wherever they have gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # It has ended meanwhile.
        if _HOME + bytes(home) + b"\0" in environment and _MARK in environment:
            attempt = environment.partition(_MARK)[2].partition(b"\0")[0]
            found.append(Running(pid=int(entry.name), attempt=int(attempt)))
    return found


def processes(home: Path) -> list[int]:
    """Return all processes that know this home by environment or arguments, but for this one's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            texts = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if any(bytes(home) in text for text in texts):
            found.append(int(entry.name))
    return found


def _znodes(
    config: Config, addresses: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    with registry(config) as opened:
        queued = tuple(str(each) for each in opened.task_queue.entries())
        claimed = tuple(str(each) for each in sorted(opened.task_queue.claimed()))
        kills = tuple(
            str(each) for address in addresses for each in opened.kill_queue.asked(address)
        )
    return queued, claimed, kills


def _lines(path: Path) -> tuple[Line, ...]:
    if not path.exists():
        return ()
    words = (line.split() for line in path.read_text().splitlines())
    return tuple(
        Line(word=word, attempt=int(attempt), number=int(number)) for word, attempt, number in words
    )


def _rows(db: Any, statement: str) -> list[tuple[Any, ...]]:
    with db.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def address(config: Config, kind: Kind, port: int) -> str:
    """Return the address of a daemon as the registry names it."""
    host = config.master.host if kind is Kind.MASTER else config.worker.host
    return f"{host}:{port}"
