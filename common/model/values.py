"""The decorator for values of which each step of a run makes some: events and decisions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

_Value = TypeVar("_Value")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[_Value]) -> type[_Value]:
    """Make a slotted, keyword-only dataclass that is frozen for the type checker alone.

    A class that is frozen at run time sets each field by a call, which takes four times as long.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
