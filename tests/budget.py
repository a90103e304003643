"""The time that tests take, by folder and by file, printed at the end of a run.

A part's seconds are counted twice: on the clock, and of the processor. The latter are those of the
test's process and of the children that it has waited for; a server that outlives the test is not in
them. Shared fixtures count for the test that asks for them first.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

SLOWEST_FILES = 5


@dataclass(slots=True)
class Spent:
    """Seconds of one part, and the number of its tests."""

    tests: int = 0
    wall: float = 0.0
    processor: float = 0.0

    def add(self, report: pytest.TestReport) -> None:
        self.tests += report.when == "call"
        self.wall += report.duration
        self.processor += getattr(report, "processor_seconds", 0.0)


class Budget:
    """A pytest plug-in: in each worker it measures, in the process that reports it adds up."""

    def __init__(self) -> None:
        self._since = 0.0
        self._files: dict[str, Spent] = defaultdict(Spent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _processor_seconds()
        # An attribute of a report reaches the process that reports, whichever worker made it.
        report.processor_seconds = now - self._since
        self._since = now
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._since = _processor_seconds()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._files[report.nodeid.partition("::")[0]].add(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if sum(spent.tests for spent in self._files.values()) < 2:
            return
        folders: dict[str, Spent] = defaultdict(Spent)
        for file, spent in self._files.items():
            folder = folders["/".join(file.split("/")[:2])]
            folder.tests += spent.tests
            folder.wall += spent.wall
            folder.processor += spent.processor
        terminalreporter.section("seconds by folder, and of the slowest files")
        for line in (*_lines(folders.items()), "", *_lines(self._files.items(), SLOWEST_FILES)):
            terminalreporter.write_line(line)


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _lines(parts: Iterable[tuple[str, Spent]], most: int | None = None) -> list[str]:
    slowest = sorted(parts, key=lambda part: -part[1].wall)[:most]
    return [
        f"{spent.wall:8.1f} s  {spent.processor:8.1f} s of processor  {spent.tests:5} tests  {name}"
        for name, spent in slowest
    ]
