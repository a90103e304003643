"""Which faults a seed brings, what its definitions are like, and how busy its people are.

A seed draws its options first, so that most seeds are about one or two kinds of fault and a failing
one can be told in a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Chances of each fault: at one commit, at one registry operation, or in one step of a loop.

    `acts`: how many times people do something besides starting runs, all that they can think of or
    `kinds` alone. `shapes` are those of the definitions, all if empty; `pools`, `serial` and
    `minutes` are the chances that a part of a definition needs a pool, is serial, or waits.
    """

    crash_at_commit: float = 0.0
    crash_at_registry: float = 0.0
    no_answer: float = 0.0
    freeze: float = 0.0
    pause: float = 0.0
    expire: float = 0.0
    lose_notice: float = 0.0
    repeat_notice: float = 0.0
    repeat_report: float = 0.0
    wipe_registry: float = 0.0
    failing_tasks: float = 0.0
    pause_before: tuple[str, ...] = (
        "save",
        "claim",
        "report",
        "decide",
        "release",
        "time_out",
        "pass_wishes_on",
    )
    acts: int = 0
    kinds: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    pools: float = 0.0
    serial: float = 0.0
    minutes: float = 0.0

    def __str__(self) -> str:
        chosen = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return ", ".join(f"{name}={chance}" for name, chance in chosen.items() if chance)


def draw(random: Random) -> Options:
    """The options of a seed; each kind of fault is there in about half of them."""

    def sometimes(*chances: float) -> float:
        return random.choice((0.0, *chances))

    return Options(
        crash_at_commit=sometimes(0.02, 0.1),
        crash_at_registry=sometimes(0.01, 0.05),
        no_answer=sometimes(0.02, 0.1),
        freeze=sometimes(0.01, 0.03),
        pause=sometimes(0.02, 0.1),
        expire=sometimes(0.005),
        lose_notice=sometimes(0.3, 1.0),
        repeat_notice=sometimes(0.3),
        repeat_report=sometimes(0.1, 0.5),
        wipe_registry=random.choice((0.0, 0.0, 0.0, 0.002)),
        failing_tasks=sometimes(0.15, 0.4),
        acts=random.choice((0, 3, 6, 12)),
        pools=sometimes(0.6),
        serial=random.choice((0.0, 0.0, 0.5, 1.0)),
        minutes=random.choice((0.0, 0.0, 0.0, 1.0)),
    )
