"""Draws the faults and requests of a seed: a list of timed actions, the same for ever.

Pure. Each daemon and server has a *lane*: its actions follow each other, while those of other lanes
go on. The people's lane holds requests, among them short fits of many at once. An action names no
row: its `pick`, between 0 and 1, chooses among those that are there when its time comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

SESSION_SECONDS = 4.0
"""The sessions of the daemons. Absences are drawn around it and around the failover's grace."""

PEOPLE, POSTGRES, ZOOKEEPER = "people", "postgres", "zookeeper"


class Deed(StrEnum):
    """The kinds of actions."""

    KILL = "kill -9"
    STAY_DEAD = "kill -9 for good"
    FREEZE = "SIGSTOP"
    RESTART = "graceful stop"
    KILL_BACKEND = "kill -9 of a backend"
    STOP_AT_ONCE = "immediate stop"
    WIPE = "kill -9 and loss of all data"

    RUN = "run"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    RERUN = "rerun"
    RERUN_FAILED = "rerun of what failed"


REQUESTS = (Deed.RUN, Deed.STOP, Deed.PAUSE, Deed.RESUME, Deed.RERUN, Deed.RERUN_FAILED)

_OF_DAEMONS = (Deed.KILL, Deed.KILL, Deed.KILL, Deed.FREEZE, Deed.FREEZE, Deed.RESTART)
_OF_POSTGRES = (Deed.KILL, Deed.KILL_BACKEND, Deed.STOP_AT_ONCE, Deed.FREEZE, Deed.RESTART)
_OF_ZOOKEEPER = (Deed.KILL, Deed.KILL, Deed.FREEZE, Deed.WIPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One fault or request. A fault is over after `lasts` seconds, unless it is for good."""

    at: float
    target: str
    deed: Deed
    lasts: float = 0.0
    definition: str = ""
    pick: float = 0.0
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The actions of a seed, in the order of their times."""

    seed: int
    seconds: float
    masters: int
    workers: int
    actions: tuple[Action, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The lanes."""
        return tuple(dict.fromkeys(action.target for action in self.actions))

    def lane(self, target: str) -> tuple[Action, ...]:
        return tuple(action for action in self.actions if action.target == target)


def plan(
    seed: int, seconds: float, definitions: tuple[str, ...], *, masters: int = 2, workers: int = 3
) -> Plan:
    """Draw what happens in so many seconds; one master and one worker at least come back."""
    random = Random(f"chaos {seed}")
    daemons = [f"master-{n}" for n in range(masters)] + [f"worker-{n}" for n in range(workers)]
    lost = _lost_for_good(random, seconds, masters, workers)
    actions: list[Action] = []
    for daemon in daemons:
        actions += _faults(Random(f"{seed} {daemon}"), daemon, seconds, _OF_DAEMONS, rest=12)
        if daemon in lost:
            end = random.uniform(0.4, 0.9) * seconds
            actions = [each for each in actions if each.target != daemon or each.at < end]
            actions.append(Action(at=end, target=daemon, deed=Deed.STAY_DEAD))
    for server, deeds in ((POSTGRES, _OF_POSTGRES), (ZOOKEEPER, _OF_ZOOKEEPER)):
        actions += _faults(Random(f"{seed} {server}"), server, seconds, deeds, rest=25)
    actions += _requests(Random(f"{seed} {PEOPLE}"), seconds, definitions)
    return Plan(
        seed=seed,
        seconds=seconds,
        masters=masters,
        workers=workers,
        actions=tuple(sorted(actions, key=lambda each: (each.at, each.target))),
    )


def _lost_for_good(random: Random, seconds: float, masters: int, workers: int) -> frozenset[str]:
    """Choose the daemons that stay dead: often none, and never the last of their kind."""
    found = []
    if masters > 1 and random.random() < 0.3:
        found.append(f"master-{random.randrange(masters)}")
    found += [f"worker-{n}" for n in range(1, workers) if random.random() < 0.3]
    return frozenset(found)


def _faults(
    random: Random, target: str, seconds: float, deeds: tuple[Deed, ...], *, rest: float
) -> Iterator[Action]:
    """Yield a first fault before half of the time is over, and further ones after pauses."""
    at = random.uniform(0.05, 0.5) * min(seconds, 2 * rest)
    while at < seconds:
        deed = random.choice(deeds)
        lasts = 0.0 if deed is Deed.KILL_BACKEND else _absence(random)
        yield Action(at=at, target=target, deed=deed, lasts=lasts, pick=random.random())
        at += lasts + random.uniform(0.2, 1.8) * rest


def _absence(random: Random) -> float:
    """Draw a time that is nothing, shorter than a session, or enough for a failover."""
    return random.choice(
        (
            random.uniform(0, 0.5),
            random.uniform(0.5, SESSION_SECONDS),
            random.uniform(SESSION_SECONDS, SESSION_SECONDS + 6),
            random.uniform(SESSION_SECONDS + 6, SESSION_SECONDS + 14),
        )
    )


def _requests(random: Random, seconds: float, definitions: tuple[str, ...]) -> Iterator[Action]:
    # Each definition runs once at least, and early enough to meet faults.
    for definition in definitions:
        at = random.uniform(0, 0.3 * seconds)
        yield Action(at=at, target=PEOPLE, deed=Deed.RUN, definition=definition)
    at = 0.0
    while True:
        at += random.choice((random.uniform(0, 0.2), random.uniform(0.2, 2.5)))
        if at >= seconds:
            return
        deed = random.choice((Deed.RUN, Deed.RUN, Deed.RUN, *REQUESTS))
        yield Action(
            at=at,
            target=PEOPLE,
            deed=deed,
            definition=random.choice(definitions) if deed is Deed.RUN else "",
            pick=random.random(),
            times=random.choice((1, 1, 1, 3)),
        )
