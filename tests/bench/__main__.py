"""`bin/bench [NAME …] [--runs N] [--json FILE]`: measures Orcaflow against its targets.

Strains take minutes, and run only if they are named.

Figures go to standard output as lines of JSON, progress to standard error. The exit code is 0 if
all targets are met, 1 if one is not, 2 for a name that is none.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.bench import (
    big,
    chain,
    engine,
    fan,
    fires,
    floor,
    idle,
    layered,
    spark,
    trigger,
    wide,
    yielding,
)
from tests.bench.figures import Figure
from tests.bench.stage import Stage, standing
from tests.bench.strains import burst, delayed, lost, soak

_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One measurement. Those with equal settings share a cluster."""

    measure: Callable[[Stage, int], list[Figure]]
    settings: Mapping[str, object] = field(default_factory=dict)


# The order matters: an idle cluster is measured after it has worked.
BENCHES: Mapping[str, Bench] = {
    "engine": Bench(measure=engine.measure),
    "floor": Bench(measure=floor.measure),
    "chain": Bench(measure=chain.measure),
    "fan": Bench(measure=fan.measure),
    "layered": Bench(measure=layered.measure),
    "trigger": Bench(measure=trigger.measure),
    "fires": Bench(measure=fires.measure),
    "idle": Bench(measure=idle.measure),
    "yielding": Bench(measure=yielding.measure, settings=yielding.SETTINGS),
    "wide": Bench(measure=wide.measure, settings=wide.SETTINGS),
    "spark": Bench(measure=spark.measure, settings=spark.SETTINGS),
    "big": Bench(measure=big.measure, settings=big.SETTINGS),
}

STRAINS: Mapping[str, Callable[[int], list[Figure]]] = {
    "burst": burst.measure,
    "delayed": delayed.measure,
    "lost": lost.measure,
    "soak": soak.measure,
}

_HELP = f"{', '.join(BENCHES)}; and, if they are named: {', '.join(STRAINS)}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    figures: list[Figure] = []
    names = [name for name in BENCHES if name in options.names or not options.names]
    while names:
        settings = BENCHES[names[0]].settings
        together = [name for name in names if BENCHES[name].settings == settings]
        names = [name for name in names if name not in together]
        _say(f"starting a cluster for {', '.join(together)}")
        with standing(settings) as stage:
            for name in together:
                figures += _measured(name, partial(BENCHES[name].measure, stage), options.runs)
    for name in STRAINS:
        if name in options.names:
            figures += _measured(name, STRAINS[name], options.runs)
    if options.json:
        options.json.write_text("".join(f"{figure.line()}\n" for figure in figures))
    missed = [figure.name for figure in figures if not figure.is_met]
    _say(f"missed: {', '.join(missed)}" if missed else "all targets are met")
    return 1 if missed else 0


def _measured(name: str, measure: Callable[[int], list[Figure]], runs: int) -> list[Figure]:
    load = os.getloadavg()[0]
    _say(f"{name} … (load average {load:.2f}: what else runs here disturbs)")
    began = time.monotonic()
    figures = measure(runs)
    for figure in figures:
        print(figure.line(), flush=True)
        _say(f"  {_line_of(figure)}")
    _say(f"{name} took {time.monotonic() - began:.1f} s")
    return figures


def _line_of(figure: Figure) -> str:
    text = f"{figure.name:24} {figure.median:10.2f} {figure.unit}"
    if figure.target is None:
        return text
    return f"{text}  ({figure.target}: {'met' if figure.is_met else 'MISSED'})"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measures a private cluster.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=_HELP)
    parser.add_argument("--runs", type=int, default=_RUNS, help="medians of so many")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in (*BENCHES, *STRAINS)]
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {_HELP}")
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    return options


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
