"""The arithmetic of a bench: from the samples of several runs to a figure with its target.

Pure. A *sample* is one measured number, a *figure* the median of one number a run, with its unit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The limit of a figure: at most `limit`, or at least that."""

    limit: float
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the result. Floors have no target: they show the limits of the machine."""

    name: str
    unit: str
    values: tuple[float, ...]
    target: Target | None = None

    @property
    def median(self) -> float:
        return percentile(self.values, 50)

    @property
    def is_met(self) -> bool:
        """True if the median reaches the target, or there is none."""
        return self.target is None or self.target.is_met(self.median)

    def line(self) -> str:
        """The figure as a line of JSON."""
        return json.dumps(
            {
                "name": self.name,
                "median": _short(self.median),
                "min": _short(min(self.values)),
                "max": _short(max(self.values)),
                "unit": self.unit,
                "runs": len(self.values),
                "values": [_short(value) for value in self.values],
                "target": None if self.target is None else str(self.target),
                "met": None if self.target is None else self.is_met,
            }
        )


def against_floor(
    name: str,
    unit: str,
    values: Sequence[float],
    floors: Sequence[float],
    *,
    limit: Target | None = None,
    target: Target | None = None,
) -> list[Figure]:
    """A figure, its floor of the same runs, and their proportion, of which `limit` is the target."""
    return [
        Figure(name=name, unit=unit, values=tuple(values), target=target),
        Figure(name=f"floor.{name}", unit=unit, values=tuple(floors)),
        Figure(
            name=f"{name}_of_floor",
            unit="x",
            values=tuple(value / floor for value, floor in zip(values, floors, strict=True)),
            target=limit,
        ),
    ]


def percentile(samples: Sequence[float], share: float) -> float:
    """The value below which `share` per cent of the samples lie, interpolated between two."""
    if not samples:
        raise ValueError("there are no samples")
    ordered = sorted(samples)
    place = (len(ordered) - 1) * share / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def gaps(ends: Sequence[float], starts: Sequence[float]) -> list[float]:
    """From the end of each but the last to the start of its successor."""
    if len(ends) != len(starts):
        raise ValueError(f"{len(ends)} ends and {len(starts)} starts")
    return [start - end for end, start in zip(ends, starts[1:], strict=False)]


def rate(count: int, seconds: float) -> float:
    """The rate per second."""
    if seconds <= 0:
        raise ValueError("no time has passed")
    return count / seconds


def _short(value: float) -> float:
    """Round to three digits after the point; the rest is noise."""
    return round(value, 3)
