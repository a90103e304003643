"""Each rule of the checker finds the violation that it is for, and none in a history that is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.faults.checker import RULES, violations
from tests.faults.facts import Asked, Attempt, Entry, Facts, Instance, Line, Running
from tests.faults.workload import workload

DEFINITIONS = workload("lines")


def lines(*texts: str) -> tuple[Line, ...]:
    """`begin 11` and the like, of first attempts; `begin 11 2` of a second."""
    split = [text.split() for text in texts]
    return tuple(
        Line(word=word, attempt=int(attempt), number=int(more[0]) if more else 1)
        for word, attempt, *more in split
    )


GOOD = Facts(
    asked=(Asked(command_id=1, command_type=0, definition="long"),),
    ledger=(Entry(command_id=1, outcome=1),),
    instances=(Instance(id=1, definition="long", state=7, command_id=1),),
    attempts=(
        Attempt(id=11, instance=1, name="a", state=7),
        Attempt(id=12, instance=1, name="b", state=7),
    ),
    lines=lines("begin 11", "end 11", "begin 12", "end 12"),
)
"""One run of two tasks, which succeeded."""


def changed(facts: Facts, place: str, index: int, **changes: Any) -> Facts:
    """The facts with another row at this place."""
    rows = list(getattr(facts, place))
    rows[index] = replace(rows[index], **changes)
    return replace(facts, **{place: tuple(rows)})


def more(facts: Facts, **rows: Any) -> Facts:
    """The facts with further rows."""
    return replace(facts, **{place: (*getattr(facts, place), *new) for place, new in rows.items()})


def a_run(
    number: int,
    definition: str,
    state: int,
    *attempts: Attempt,
    written: tuple[str, ...] = (),
    **columns: Any,
) -> Facts:
    """A second run beside the good one, with its command."""
    instance = Instance(id=number, definition=definition, state=state, command_id=number)
    return more(
        GOOD,
        asked=(Asked(command_id=number, command_type=0, definition=definition),),
        ledger=(Entry(command_id=number, outcome=1),),
        instances=(replace(instance, **columns),),
        attempts=attempts,
        lines=lines(*written),
    )


RETRIED = a_run(
    2,
    "retries",
    7,
    Attempt(id=21, instance=2, name="a", state=6, is_valid=False, max_retries=2),
    Attempt(id=22, instance=2, name="a", state=8, number=2, is_valid=False, max_retries=2),
    Attempt(id=23, instance=2, name="a", state=7, number=3, retries=1, max_retries=2),
    Attempt(id=24, instance=2, name="b", state=7),
    # The lost attempt's process ran on beside its successor.
    written=(
        *("begin 21", "fail 21", "begin 22 2", "begin 23 3", "fail 22 2", "end 23 3"),
        *("begin 24", "end 24"),
    ),
)
STOPPED = more(
    a_run(2, "long", 5, Attempt(id=21, instance=2, name="a", state=9), wanted=5),
    asked=(Asked(command_id=3, command_type=9, instance=2),),
    ledger=(Entry(command_id=3, outcome=1),),
    lines=lines("begin 21"),
)
PAUSED = a_run(2, "long", 3, Attempt(id=21, instance=2, name="a", state=3), wanted=3)
FAILED = a_run(
    2,
    "failing",
    6,
    Attempt(id=21, instance=2, name="a", state=7),
    Attempt(id=22, instance=2, name="b", state=6, is_valid=False, max_retries=1),
    Attempt(id=23, instance=2, name="b", state=6, number=2, retries=1, max_retries=1),
    written=("begin 21", "begin 22", "end 21", "fail 22", "begin 23 2", "fail 23 2"),
)
MENDED = a_run(
    2,
    "branching",
    7,
    Attempt(id=21, instance=2, name="check", state=6),
    Attempt(id=22, instance=2, name="decide", state=6, type="CONDITIONS"),
    Attempt(id=23, instance=2, name="mend", state=7),
    Attempt(id=24, instance=2, name="join", state=7),
    written=("begin 21", "fail 21", "begin 23", "end 23", "begin 24", "end 24"),
)
NESTED = more(
    a_run(
        2,
        "parent",
        7,
        Attempt(id=21, instance=2, name="a", state=7),
        Attempt(id=22, instance=2, name="s", state=7, type="SUB_PROCESS"),
        Attempt(id=23, instance=2, name="b", state=7),
        written=("begin 21", "end 21", "begin 31", "end 31", "begin 32", "end 32"),
    ),
    instances=(Instance(id=3, definition="child", state=7, parent=22, root=2),),
    attempts=(
        Attempt(id=31, instance=3, name="a", state=7),
        Attempt(id=32, instance=3, name="b", state=7),
    ),
    lines=lines("begin 23", "end 23"),
)
DISCARDED = changed(a_run(2, "alone", 5), "ledger", 1, outcome=2)
STOPPED_IN_LINE = more(
    a_run(2, "in_turn", 5),
    asked=(Asked(command_id=3, command_type=9, instance=2),),
    ledger=(Entry(command_id=3, outcome=1),),
)
STOPPED_IN_LINE_AGAIN = more(
    a_run(
        2,
        "in_turn",
        5,
        Attempt(id=21, instance=2, name="a", state=7),
        Attempt(id=22, instance=2, name="b", state=3, is_valid=False),
        written=("begin 21", "end 21"),
    ),
    asked=(
        Asked(command_id=3, command_type=8, instance=2),
        Asked(command_id=4, command_type=3, instance=2),
        Asked(command_id=5, command_type=9, instance=2),
    ),
    ledger=tuple(Entry(command_id=number, outcome=1) for number in (3, 4, 5)),
)
"""It was paused between its tasks, resumed while another run was live, and stopped in the line."""
NARROW = a_run(
    2,
    "narrow",
    7,
    *(Attempt(id=21 + n, instance=2, name=f"p{n}", state=7) for n in range(4)),
    written=(
        *("begin 21", "begin 22", "end 21", "begin 23", "end 22", "end 23", "begin 24", "end 24"),
    ),
)
DROPPED = more(
    GOOD,
    asked=(Asked(command_id=2, command_type=0, definition="long"),),
    ledger=(Entry(command_id=2, outcome=2),),
)
REFUSED = replace(changed(DROPPED, "ledger", 1, outcome=3), refused=(2,))
UNSURE = replace(
    more(
        a_run(2, "long", 5, wanted=5),
    ),
    asked=GOOD.asked,
    unsure=1,
)


@pytest.mark.parametrize(
    "facts",
    [
        *(GOOD, RETRIED, STOPPED, PAUSED, FAILED, MENDED, NESTED, DISCARDED, NARROW, DROPPED),
        *(REFUSED, UNSURE, STOPPED_IN_LINE, STOPPED_IN_LINE_AGAIN),
    ],
)
def test_nothing_is_wrong_with_a_right_history(facts: Facts) -> None:
    assert violations(facts, DEFINITIONS) == []


PLANTED: dict[str, tuple[str, Facts]] = {
    "a lost command": ("commands", replace(GOOD, ledger=(), instances=(), attempts=(), lines=())),
    "a command that was taken twice": (
        "commands",
        more(GOOD, ledger=(Entry(command_id=1, outcome=1),)),
    ),
    "a refusal without a reason": ("commands", replace(REFUSED, refused=())),
    "an acknowledged command without an instance": (
        "instances begun",
        replace(GOOD, instances=(), attempts=(), lines=()),
    ),
    "a command that begins two instances": (
        "instances begun",
        more(GOOD, instances=(Instance(id=2, definition="alone", state=5, command_id=1),)),
    ),
    "a dropped command that begins an instance": (
        "instances begun",
        more(DROPPED, instances=(Instance(id=2, definition="alone", state=5, command_id=2),)),
    ),
    "an instance that nobody asked for": ("instances begun", replace(UNSURE, unsure=0)),
    "a child without a parent": ("children", changed(NESTED, "instances", 2, parent=99)),
    "a child of a task that is none": ("children", changed(NESTED, "instances", 2, parent=21)),
    "two children of one node": (
        "children",
        more(NESTED, instances=(replace(NESTED.instances[2], id=4, state=5, wanted=5),)),
    ),
    "an instance that goes on for ever": ("ends", changed(GOOD, "instances", 0, state=1)),
    "an instance without a time of its end": (
        "ends",
        changed(GOOD, "instances", 0, has_ended=False),
    ),
    "an attempt that is queued for ever": ("ends", changed(GOOD, "attempts", 1, state=0)),
    "an end that nobody took into account": (
        "ends",
        changed(GOOD, "attempts", 1, is_settled=False),
    ),
    "a lost attempt that nobody looks for": ("ends", changed(RETRIED, "attempts", 3, is_lost=True)),
    "an attempt that is begun twice": ("begun once", more(GOOD, lines=lines("begin 12"))),
    "a process without a row": ("begun once", more(GOOD, lines=lines("begin 99"))),
    "a paused attempt that was begun": ("begun once", more(PAUSED, lines=lines("begin 21"))),
    "an attempt that runs under another number": (
        "begun once",
        changed(GOOD, "attempts", 0, number=2),
    ),
    "a number that is missing": ("numbers", changed(RETRIED, "attempts", 4, number=4)),
    "a retry too many": ("numbers", changed(RETRIED, "attempts", 4, retries=3)),
    "two valid attempts": ("one success", changed(RETRIED, "attempts", 3, is_valid=True)),
    "a success whose process was cut off": (
        "one success",
        replace(GOOD, lines=lines("begin 11", "end 11", "begin 12")),
    ),
    "a failure that is the worker's": (
        "one success",
        replace(FAILED, lines=tuple(each for each in FAILED.lines if each.attempt != 23)),
    ),
    "a success that lacks a task": ("states", replace(GOOD, attempts=GOOD.attempts[:1])),
    "a failure of a run whose tasks are good": ("states", changed(GOOD, "instances", 0, state=6)),
    "a failure that no task has caused": (
        "states",
        replace(changed(GOOD, "instances", 0, state=6), attempts=GOOD.attempts[:1]),
    ),
    "a stop that nobody wanted": ("states", changed(STOPPED, "instances", 1, wanted=None)),
    "a stop in line that nobody wanted": (
        "states",
        replace(STOPPED_IN_LINE, asked=STOPPED_IN_LINE.asked[:2]),
    ),
    "a pause that nobody wanted": ("states", changed(PAUSED, "instances", 1, wanted=None)),
    "a success of both branches": (
        "states",
        more(
            MENDED,
            attempts=(Attempt(id=25, instance=2, name="load", state=7),),
            lines=lines("begin 25", "end 25"),
        ),
    ),
    "a kill that nobody asked for": ("kills", replace(STOPPED, asked=STOPPED.asked[:2])),
    "a task that begins before its turn": (
        "order",
        replace(GOOD, lines=lines("begin 12", "end 12", "begin 11", "end 11")),
    ),
    "a former attempt that ends beside its successor": (
        "order",
        replace(
            FAILED,
            lines=lines("begin 21", "end 21", "begin 22", "begin 23 2", "fail 22", "fail 23 2"),
        ),
    ),
    "a pool that is too full": (
        "together",
        replace(
            NARROW,
            lines=lines(
                *("begin 21", "begin 22", "begin 23", "end 21", "end 22", "end 23"),
                *("begin 24", "end 24", "begin 11", "end 11", "begin 12", "end 12"),
            ),
        ),
    ),
    "two runs of a serial definition at once": (
        "together",
        more(
            a_run(2, "in_turn", 5, Attempt(id=21, instance=2, name="a", state=7), wanted=5),
            asked=(Asked(command_id=3, command_type=0, definition="in_turn"),),
            ledger=(Entry(command_id=3, outcome=1),),
            instances=(Instance(id=3, definition="in_turn", state=5, wanted=5, command_id=3),),
            attempts=(Attempt(id=31, instance=3, name="a", state=7),),
            lines=lines("begin 21", "begin 31", "end 21", "end 31"),
        ),
    ),
    "a process": ("leftovers", replace(GOOD, running=(Running(pid=4711, attempt=11),))),
    "a queue entry": ("leftovers", replace(GOOD, queued=("2_1_2_11_-1",))),
    "a claim": ("leftovers", replace(GOOD, claimed=("11",))),
    "a kill": ("leftovers", replace(GOOD, kills=("127.0.0.1:1234-11",))),
    "a slot of a pool": ("leftovers", replace(GOOD, slots=(11,))),
    "a command": ("leftovers", replace(GOOD, commands=(5,))),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_violation_is_found_by_its_rule(planted: str) -> None:
    rule, facts = PLANTED[planted]
    assert any(each.startswith(f"{rule}: ") for each in violations(facts, DEFINITIONS))


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, _ in PLANTED.values()} == set(RULES)


def test_a_kill_whose_request_got_no_answer_is_nobody_s_mistake() -> None:
    unsure = replace(STOPPED, asked=STOPPED.asked[:2], ledger=STOPPED.ledger[:2], unsure_stops=(2,))
    assert violations(unsure, DEFINITIONS) == []
