"""Finds task types by name: the master's own, the built-in ones, and those of installed packages.

A module of `worker/tasks` is a built-in type; the type's name is the module's, in capital letters,
and the module's `TASK_TYPE` makes its launcher. A package adds a type as an entry point of the
group `orcaflow.tasks`, named as in definitions, whose value does the same. The maker's `spec` is
the type's specification. A module is imported when its type is asked for and never before, and
packages are looked through only for a name that is not built in, so that a command which looks at
SHELL tasks alone imports nothing of Spark's.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from common.errors import SchedulerError
from common.model.control_types import CONTROL_TYPES
from common.model.task_type import TaskTypeSpec

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP: Final = "orcaflow.tasks"
BUILT_IN_PACKAGE: Final = "worker.tasks"
_MAKER: Final = "TASK_TYPE"


class UnknownTaskTypeError(SchedulerError):
    """A task type can't be had. Fail what needs it with the text."""


class KnownTaskTypes(Mapping[str, TaskTypeSpec]):
    """The specifications of all types by name, each read when it is first asked for."""

    def __init__(self, built_in: Mapping[str, str]) -> None:
        """`built_in` has modules by the names of their types."""
        self._built_in = dict(built_in)
        self._specs: dict[str, TaskTypeSpec] = dict(CONTROL_TYPES)

    def __getitem__(self, name: str) -> TaskTypeSpec:
        spec = self._specs.get(name)
        if spec is None:
            if name not in self:
                raise KeyError(name)
            spec = self._specs[name] = self._read(name)
        return spec

    def __iter__(self) -> Iterator[str]:
        return iter((*CONTROL_TYPES, *self._built_in, *self._added))

    def __len__(self) -> int:
        return len(CONTROL_TYPES) + len(self._built_in) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return name in CONTROL_TYPES or name in self._built_in or name in self._added

    @property
    def built_in(self) -> tuple[str, ...]:
        """The names of the types that come with Orcaflow and that workers run."""
        return tuple(self._built_in)

    @cached_property
    def _added(self) -> Mapping[str, EntryPoint]:
        # Slow to import and to look through.
        from importlib.metadata import entry_points

        return {
            entry.name: entry
            for entry in entry_points(group=ENTRY_POINT_GROUP)
            if entry.name not in self._built_in and entry.name not in CONTROL_TYPES
        }

    def maker(self, name: str) -> Callable[[], Any]:
        """Return what makes a type's launcher. `UnknownTaskTypeError` if it can't be had."""
        module = self._built_in.get(name)
        if module is not None:
            made: Callable[[], Any] = getattr(import_module(module), _MAKER)
            return made
        entry = self._added.get(name)
        if entry is None:
            raise UnknownTaskTypeError(f"this worker knows no task type {name!r}")
        try:
            loaded: Callable[[], Any] = entry.load()
        except Exception as error:
            raise UnknownTaskTypeError(
                f"task type {name}: {entry.value} can't be loaded: {error}"
            ) from error
        return loaded

    def _read(self, name: str) -> TaskTypeSpec:
        try:
            spec = getattr(self.maker(name), "spec", None)
        except UnknownTaskTypeError as error:
            return TaskTypeSpec(name=name, problem=str(error))
        if spec is None:
            return TaskTypeSpec(name=name)
        if not isinstance(spec, TaskTypeSpec) or spec.name != name:
            return TaskTypeSpec(name=name, problem=f"its spec is not one of a task type {name}")
        return spec


@cache
def known_task_types() -> KnownTaskTypes:
    """Return the types that a definition may name. Looked up once in the life of a process."""
    return find_task_types()


def find_task_types() -> KnownTaskTypes:
    """Look the types up anew."""
    package = find_spec(BUILT_IN_PACKAGE)
    folders = package.submodule_search_locations if package is not None else None
    modules = sorted(each.name for each in pkgutil.iter_modules(folders or ()))
    return KnownTaskTypes({name.upper(): f"{BUILT_IN_PACKAGE}.{name}" for name in modules})


def task_type_spec(name: str) -> TaskTypeSpec:
    """Return the specification of a type; one with nothing but the name if nobody knows it."""
    known = known_task_types()
    return known[name] if name in known else TaskTypeSpec(name=name)
