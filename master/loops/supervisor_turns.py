"""The order in which the supervisors of a master get their turns: by project, one after another.

Pure. A turn is one bounded piece of work. A project gets its next turn after each other project
with work has had one, however many supervisors it has and however much work these have. So the
time until a turn depends on the number of projects alone. `master.loops.supervisor_loop` uses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping


class Turns:
    """The supervisors that wait for a turn, and the numbers of former turns."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[str]] = {}
        """The supervisors of each project, both in the order of their turns."""
        self._count = 0
        self._by_project: dict[int, int] = {}
        self._by_supervisor: dict[str, int] = {}

    @property
    def are_awaited(self) -> bool:
        """Return True if a supervisor waits."""
        return bool(self._waiting)

    def begin(self, ready: Mapping[str, int]) -> None:
        """Have only these supervisors wait, each with its project.

        The project with the oldest last turn is first. The same order applies within a project.
        """
        queues: dict[int, deque[str]] = {}
        for name in sorted(ready, key=lambda each: (self._by_supervisor.get(each, 0), each)):
            queues.setdefault(ready[name], deque()).append(name)
        order = sorted(queues, key=lambda each: (self._by_project.get(each, 0), each))
        self._waiting = {project: queues[project] for project in order}

    def take(self) -> str | None:
        """Return the supervisor with the next turn; None if no supervisor waits."""
        project = next(iter(self._waiting), None)
        if project is None:
            return None
        queue = self._waiting.pop(project)
        name = queue.popleft()
        if queue:
            self._waiting[project] = queue
        self._count += 1
        self._by_project[project] = self._by_supervisor[name] = self._count
        return name

    def again(self, name: str, project: int) -> None:
        """Have a supervisor wait for another turn."""
        self._waiting.setdefault(project, deque()).append(name)

    def forget(self, name: str) -> None:
        """Forget the turns of a supervisor that was released."""
        self._by_supervisor.pop(name, None)
