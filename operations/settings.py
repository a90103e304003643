"""Shows the settings in force, and where each came from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from common.config import DERIVED_KEYS, effective, load
from common.config import get as value_of
from common.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting in force. `value` is masked if it is a password, `origin` a file or a variable."""

    key: str
    value: str
    origin: str


def settings_in_force() -> list[Setting]:
    """Every setting."""
    return [
        Setting(key=key, value=value, origin=origin) for key, value, origin in effective(load())
    ]


def setting_value(key: str) -> str:
    """The value of one setting, passwords included; `NotFoundError` proposes another key."""
    config = load()
    try:
        return value_of(config, key)
    except KeyError:
        known = sorted({name for name, _, _ in effective(config)} | set(DERIVED_KEYS))
        near = difflib.get_close_matches(key, known, n=1)
        perhaps = f"; did you mean {near[0]}?" if near else "; see `orcaflow config show`"
        raise NotFoundError(f"there is no setting {key!r}{perhaps}") from None
