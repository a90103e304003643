"""The faults that a seed brings, the traits of its definitions, and the pace of its people.

A seed draws its options first, so that most seeds are about one or two kinds of fault and a failing
one can be described in a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Chances of each fault: at one commit, at one registry operation, or in one step of a loop.

    `acts`: how many times people do something besides starting runs, all that they can think of or
    `kinds` alone. `shapes` are those of the definitions, all if empty; `pools`, `serial` and
    `minutes` are the chances that a part of a definition needs a pool, is serial, or waits.
    For the time of `registry_away` ZooKeeper answers nobody, and may come back without its data.
    `cut_off` is the chance that ZooKeeper is out of reach for one daemon, `isolate` that PostgreSQL
    is, too. `starts`: how many runs people start at least and at most; `schedules`: how many there are at
    most. `complements` is the chance that an intent for a complement is one for many dates. For the
    time of an `outage` no daemon runs; `clock_jumps`: how often somebody sets the wall clock an
    hour forward or back.
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
    cut_off: float = 0.0
    isolate: float = 0.0
    registry_away: timedelta = timedelta()
    failing_tasks: float = 0.0
    pause_before: tuple[str, ...] = (
        "take",
        "fire",
        "advance",
        "save",
        "claim",
        "report",
        "decide",
        "release",
        "time_out",
        "propagate_intents",
        "look at owners",
        "look at the registry",
    )
    acts: int = 0
    kinds: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    pools: float = 0.0
    locks: float = 0.0
    serial: float = 0.0
    minutes: float = 0.0
    starts: tuple[int, int] = (2, 4)
    complements: float = 0.1
    schedules: int = 0
    outage: timedelta = timedelta()
    clock_jumps: int = 0

    def __str__(self) -> str:
        chosen = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return ", ".join(f"{name}={chance}" for name, chance in chosen.items() if chance)

    @property
    def spares_workers(self) -> bool:
        """True if every worker lives, acts in time and reaches the tables all the time."""
        return not (
            self.crash_at_commit
            or self.crash_at_registry
            or self.no_answer
            or self.freeze
            or self.pause
            or self.expire
            or self.wipe_registry
            or self.cut_off
            or self.isolate
            or self.outage
        )


def draw(random: Random) -> Options:
    """The options of a seed; each kind of fault occurs in about half of them."""

    def sometimes(*chances: float) -> float:
        return random.choice((0.0, *chances))

    # Runs that wait for minutes would distort the checks of fires, and so of clock jumps.
    minutes = random.choice((0.0, 0.0, 0.0, 1.0))
    schedules = 0 if minutes else random.choice((0, 0, 3))
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
        # Drawn apart, so that the other faults of a seed stay as they were.
        locks=Random(str(random.getstate()[1][:2])).choice((0.0, 0.5)),
        serial=random.choice((0.0, 0.0, 0.5, 1.0)),
        minutes=minutes,
        schedules=schedules,
        outage=timedelta(hours=random.choice((0, 0, 1, 3)) if schedules else 0),
        clock_jumps=random.choice((0, 0, 1, 2)) if schedules else 0,
        complements=sometimes(0.5, 1.0),
        cut_off=random.choice((0.0, 0.0, 0.0, 0.005)),
        isolate=random.choice((0.0, 0.0, 0.0, 0.005)),
        registry_away=timedelta(seconds=random.choice((0, 0, 0, 3, 12, 60))),
    )
