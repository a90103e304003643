"""Which faults a seed brings, and when.

A seed draws its options first, so that most seeds are about one or two kinds of fault and a failing
one can be told in a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Chances of each fault: at one commit, at one registry operation, or in one step of a loop."""

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
    stop: float = 0.0
    failing_tasks: float = 0.0
    pause_before: tuple[str, ...] = ("save", "claim", "report")

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
        stop=sometimes(0.2),
        failing_tasks=sometimes(0.15, 0.4),
    )
