"""A supervisor's end of the conversation with a stream task, as a list of what it wants in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from common.model.streams.tasks import OrderKind, Orders, TaskReport, TaskStatus


@dataclass
class Supervisor:
    """Closes a sequence each time that a task has read up to the next of `stops`, and then ends it.

    It pauses the task, agrees with the offsets that are reported, and has it end there.
    """

    stops: list[Callable[[TaskReport], bool]]
    reports: list[TaskReport] = field(default_factory=list)
    given: Orders = field(default_factory=Orders)

    def tell(self, report: TaskReport) -> Orders | None:
        self._hear(report)
        return self.given

    def _hear(self, report: TaskReport) -> None:
        self.reports.append(report)
        if not self.stops or report.obeyed < self.given.version:
            return
        if report.state is TaskStatus.PAUSED and self.given.command is OrderKind.PAUSE:
            self.stops.pop(0)
            self._give(
                OrderKind.END,
                end=report.current,
                sequence=report.sequences[-1].id,
                finish=not self.stops,
            )
        elif report.state in (TaskStatus.READING, TaskStatus.PAUSED) and self.stops[0](report):
            self._give(OrderKind.PAUSE)

    def stop(self) -> None:
        self._give(OrderKind.STOP)

    def _give(self, command: OrderKind, **more: object) -> None:
        self.given = Orders(version=self.given.version + 1, command=command, **more)  # type: ignore[arg-type]
