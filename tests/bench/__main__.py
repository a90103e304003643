"""`bin/bench [NAME …] [--runs N] [--json FILE] [--compare FILE]`: measures Orcaflow against its targets.

Strains and benches of scale take minutes, and run only if they are named; `scale` names most of the
latter, `api` whatever is about the api-server, `console` needs Chromium. What differs between machines
is measured first. `--compare` takes a file that `--json` wrote.

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
    comparing,
    datasets,
    drawing,
    engine,
    fan,
    fires,
    hand_overs,
    idle,
    layered,
    machine,
    path,
    python_chain,
    queue,
    resting_streams,
    spark,
    starts,
    store,
    streams,
    supervisors,
    topology,
    trigger,
    wide,
    yielding,
)
from tests.bench.figures import Figure
from tests.bench.front import console, logs, resting, watched
from tests.bench.front import history as front_history
from tests.bench.scale import history, members, waiting
from tests.bench.stage import Stage, standing
from tests.bench.strains import burst, delayed, full_volume, lost, loud, returns, soak

_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One measurement. Those with equal settings share a cluster."""

    measure: Callable[[Stage, int], list[Figure]]
    settings: Mapping[str, object] = field(default_factory=dict)
    quick: Callable[[Stage, int], list[Figure]] | None = None
    """A smaller one, that shows if it works."""


# The order matters: an idle cluster is measured after it has worked.
BENCHES: Mapping[str, Bench] = {
    "engine": Bench(measure=engine.measure),
    "drawing": Bench(measure=drawing.measure),
    "supervisors": Bench(measure=supervisors.measure),
    "chain": Bench(measure=chain.measure),
    "fan": Bench(measure=fan.measure),
    "layered": Bench(measure=layered.measure),
    "trigger": Bench(measure=trigger.measure),
    "path": Bench(measure=path.measure),
    "fires": Bench(measure=fires.measure),
    "python": Bench(measure=python_chain.measure),
    "store": Bench(measure=store.measure),
    "datasets": Bench(measure=datasets.measure),
    "queue": Bench(measure=queue.measure),
    "starts": Bench(measure=starts.measure),
    "api_server": Bench(
        measure=resting.measure, quick=partial(resting.measure, window_seconds=3.0)
    ),
    "api_events": Bench(measure=watched.events),
    "api_logs": Bench(measure=logs.measure, quick=partial(logs.measure, follow_seconds=5)),
    "idle": Bench(measure=idle.measure),
    "yielding": Bench(measure=yielding.measure, settings=yielding.SETTINGS),
    "wide": Bench(measure=wide.measure, settings=wide.SETTINGS),
    "spark": Bench(measure=spark.measure, settings=spark.SETTINGS),
    "streams": Bench(measure=streams.measure),
    "topology": Bench(measure=topology.measure),
    "hand_overs": Bench(measure=hand_overs.measure),
    "resting_streams": Bench(measure=resting_streams.measure, settings=resting_streams.SETTINGS),
    "big": Bench(measure=big.measure, settings=big.SETTINGS),
}

# These share no cluster, since each leaves much behind.
SCALE: Mapping[str, Bench] = {
    "history": Bench(measure=history.measure),
    "api_beside": Bench(measure=watched.beside, quick=partial(watched.beside, part=10)),
    "api_history": Bench(
        measure=front_history.measure,
        quick=partial(front_history.measure, rows=20_000, load_seconds=5.0),
    ),
    "console": Bench(
        measure=console.measure, quick=partial(console.measure, history=10, columns=3)
    ),
    "open": Bench(measure=waiting.open_runs, settings=waiting.SETTINGS),
    "held": Bench(measure=waiting.held, settings=waiting.SETTINGS),
    "dependents": Bench(measure=waiting.dependents, settings=waiting.SETTINGS),
}

STRAINS: Mapping[str, Callable[[int], list[Figure]]] = {
    "members": members.measure,
    "burst": burst.measure,
    "delayed": delayed.measure,
    "lost": lost.measure,
    "returns": returns.measure,
    "loud": loud.measure,
    "full_volume": full_volume.measure,
    "soak": soak.measure,
}

_NAMED_ONLY = (*SCALE, *STRAINS)
_TOGETHER: Mapping[str, Sequence[str]] = {
    "scale": (
        *(name for name in SCALE if name.partition("_")[0] not in ("api", "console")),
        "members",
    ),
    "api": [name for name in (*BENCHES, *SCALE) if name.startswith("api_")],
}
_HELP = f"{', '.join(BENCHES)}; and, if they are named: {', '.join(_NAMED_ONLY)}; " + "; ".join(
    f"{name} is {', '.join(names)}" for name, names in _TOGETHER.items()
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    figures = _measured("machine", lambda _: machine.measure(), 1)
    names = [name for name in BENCHES if name in options.names or not options.names]
    while names:
        settings = BENCHES[names[0]].settings
        together = [name for name in names if BENCHES[name].settings == settings]
        names = [name for name in names if name not in together]
        figures += _on_a_cluster({name: BENCHES[name] for name in together}, options)
    for name, bench in SCALE.items():
        if name in options.names:
            figures += _on_a_cluster({name: bench}, options)
    for name, measure in STRAINS.items():
        if name in options.names:
            figures += _measured(name, measure, options.runs)
    if options.json:
        options.json.write_text("".join(f"{figure.line()}\n" for figure in figures))
    for change in comparing.changes(figures, options.compare):
        _say(str(change))
    missed = [figure.name for figure in figures if not figure.is_met]
    _say(f"missed: {', '.join(missed)}" if missed else "all targets are met")
    return 1 if missed else 0


def _on_a_cluster(benches: Mapping[str, Bench], options: argparse.Namespace) -> list[Figure]:
    """Measure these one after the other on one cluster, whose settings they share."""
    _say(f"starting a cluster for {', '.join(benches)}")
    (settings,) = {frozenset(bench.settings.items()) for bench in benches.values()}
    figures: list[Figure] = []
    with standing(dict(settings)) as stage:
        for name, bench in benches.items():
            measure = bench.quick or bench.measure if options.quick else bench.measure
            figures += _measured(name, partial(measure, stage), options.runs)
    return figures


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
    text = f"{figure.name:32} {figure.median:10.2f} {figure.unit}"
    if len(figure.values) > 1:
        text += f"  [{min(figure.values):.2f}, {max(figure.values):.2f}]"
    if figure.target is None:
        return text
    return f"{text}  ({figure.target}: {'met' if figure.is_met else 'MISSED'})"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measures a private cluster.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=_HELP)
    parser.add_argument("--runs", type=int, default=_RUNS, help="medians of so many")
    parser.add_argument(
        "--quick", action="store_true", help="less of those that take long: do they work?"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--compare", type=_former, default={}, metavar="FILE", help="a file that --json wrote"
    )
    options = parser.parse_args(arguments)
    known = (*BENCHES, *_NAMED_ONLY, *_TOGETHER)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {_HELP}")
    for name, names in _TOGETHER.items():
        if name in options.names:
            options.names += names
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    return options


def _former(file: str) -> Mapping[str, tuple[float, ...]]:
    """The figures of an earlier run; argparse makes an error of what can't be read."""
    try:
        return comparing.former_values(Path(file).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"can't compare with {file}: {error}") from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
