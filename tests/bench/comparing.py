"""Compares figures with those that an earlier run has written. Pure.

A figure has *moved* if its samples and the former ones don't overlap: the change is then greater
than the spread of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.figures import Figure, percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A figure now and before; `ratio` is that of the medians, None if the former was 0."""

    name: str
    unit: str
    before: float
    now: float
    ratio: float | None
    moved: bool

    def __str__(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} x"
        verdict = "moved" if self.moved else "within the spread"
        return (
            f"{self.name:32} {self.before:10.2f} → {self.now:10.2f} {self.unit:12} {ratio:>8}"
            f"  {verdict}"
        )


def former_values(lines: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Read what `--json` wrote: the samples by the figure's name; `ValueError` if it is none."""
    found: dict[str, tuple[float, ...]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            figure = json.loads(line)
            values = figure.get("values", (figure["min"], figure["median"], figure["max"]))
            found[str(figure["name"])] = tuple(float(value) for value in values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"line {number} is no figure of --json: {line[:80]!r}") from None
    return found


def changes(figures: Sequence[Figure], former: Mapping[str, tuple[float, ...]]) -> list[Change]:
    """The changes of all figures that both have, in their order."""
    return [
        Change(
            name=figure.name,
            unit=figure.unit,
            before=(before := percentile(former[figure.name], 50)),
            now=figure.median,
            ratio=figure.median / before if before else None,
            moved=min(figure.values) > max(former[figure.name])
            or max(figure.values) < min(former[figure.name]),
        )
        for figure in figures
        if figure.name in former
    ]
