"""Checks that a component emits what it has declared, wherever it runs. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from common.topology.components import DEFAULT, EmitError, Stream
from common.topology.types import OBJECT, TYPES, mistake_in


class Emitter(ABC):
    """Emits for a task of the component `component`; what it emits is as declared, or an error.

    Subclasses say where it goes to. That a number fits 64 bits is left to those which have a type
    for it, unless `checks_sizes`.
    """

    checks_sizes = False

    def __init__(self, component: str, streams: Mapping[str, Stream]) -> None:
        self._component = component
        self._streams = streams
        # What nearly all values are is seen without a call.
        self._usual = {
            name: tuple(_usual_class(each) for each in stream.types)
            for name, stream in streams.items()
        }

    def __call__(self, *values: Any, stream: str = DEFAULT) -> Sequence[int]:
        if self._found(stream).direct:
            raise EmitError(
                f"{self._component}: the stream {stream!r} is direct; emit by"
                " `emit.direct(task, …)`"
            )
        return self._emit(values, stream, None)

    def direct(self, task: int, *values: Any, stream: str = DEFAULT) -> Sequence[int]:
        if not self._found(stream).direct:
            raise EmitError(f"{self._component}: the stream {stream!r} is not direct")
        if isinstance(task, bool) or not isinstance(task, int):
            raise EmitError(f"{self._component}: a task is a number, not {task!r:.50}")
        return self._emit(values, stream, task)

    def _found(self, name: str) -> Stream:
        found = self._streams.get(name)
        if found is None:
            known = ", ".join(self._streams) or "none"
            raise EmitError(
                f"{self._component}: it declares no stream {name!r:.120}; it declares {known}"
            )
        return found

    def _emit(self, values: tuple[Any, ...], name: str, task: int | None) -> Sequence[int]:
        if tuple(map(type, values)) != self._usual[name] or self.checks_sizes:
            self._check(values, name)
        return self._send(values, name, task)

    def _check(self, values: tuple[Any, ...], name: str) -> None:
        stream = self._streams[name]
        if len(values) != len(stream.fields):
            raise EmitError(
                f"{self._component}: {len(values)} values emitted on {name!r}, which has"
                f" {len(stream.fields)} fields: {', '.join(stream.fields)}"
            )
        for field, type_name, value in zip(stream.fields, stream.types, values, strict=True):
            mistake = mistake_in(value, type_name)
            if mistake:
                raise EmitError(
                    f"{self._component}: the field {field!r} of the stream {name!r}: {mistake};"
                    f" emit a {type_name}, or declare the field as another"
                )

    @abstractmethod
    def _send(self, values: tuple[Any, ...], stream: str, task: int | None) -> Sequence[int]:
        """Send values that are as declared; `task` is that of a direct emission."""


def _usual_class(type_name: str) -> type | None:
    """Return the class whose values need no other check; none for those that always do."""
    if type_name in ("timestamp", OBJECT):
        return None
    return TYPES[type_name].classes[0]
