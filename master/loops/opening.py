"""Makes runs in memory of their rows, and decides the first steps of new ones.

It reads and writes nothing: the run worker opens runs from the tables with it, the command loop has
the first step of a new run written in the transaction that makes the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from common.model.command_param import CommandParam
from common.model.instances import Ownership
from common.model.states import TaskDependType
from common.store.master.ports import LoadedRun, Step, UnreadableRun
from master.engine.advance import advance
from master.engine.events import RunOpened
from master.engine.load import load_run
from master.engine.run import ProcessRun
from master.graphs import GraphCache


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBuilder:
    """Builds runs; may be used by several threads. The settings are those of `load_run`."""

    graphs: GraphCache
    zone: ZoneInfo
    task_limit: int

    def build(self, loaded: LoadedRun) -> ProcessRun:
        """Build the run. Raises the errors of definitions, selections, zones and invariants."""
        process = loaded.process
        graph = self.graphs.graph(process.process_instance_json)
        return load_run(
            loaded.ownership,
            process,
            loaded.tasks,
            zone=self.zone,
            task_limit=self.task_limit,
            nodes=graph.nodes,
            dag=self.graphs.selection(
                process.process_instance_json,
                CommandParam.of_instance(process.command_param).start_node_names,
                TaskDependType(process.task_depend_type),
            ),
        )


class FirstSteps:
    """Decides the first steps of the new runs of one transaction, and keeps these runs."""

    def __init__(self, builder: RunBuilder, *, now: datetime) -> None:
        self.runs: dict[Ownership, ProcessRun] = {}
        self._builder = builder
        self._now = now

    def decide(self, loaded: LoadedRun) -> Step | None:
        """Open a new run; None if it is over at once, or can't be opened."""
        try:
            run = self._builder.build(loaded)
            decisions = tuple(advance(run, RunOpened(), now=self._now))
        except Exception:  # noqa: BLE001  # The run worker meets the same, tells it and ends the run.
            return None
        if not decisions or run.is_over:
            return None
        self.runs[loaded.ownership] = run
        return Step(ownership=loaded.ownership, decisions=decisions, at=self._now)


def under_way(loaded: LoadedRun | UnreadableRun) -> tuple[tuple[str, int], ...]:
    """Return the names and attempts of the tasks that have not ended."""
    if isinstance(loaded, UnreadableRun):
        return loaded.live
    return tuple((row.name, row.attempt) for row in loaded.tasks if not row.state.is_finished)
