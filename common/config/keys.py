"""The keys of all settings, as files, variables and options name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache

from common.config.settings import Config
from common.spark_config import DEFAULT, PROFILES, profile_keys, profile_of

ENVIRONMENT_PREFIX = "ORCAFLOW_"
CONF_DIR_VARIABLE = "ORCAFLOW_CONF_DIR"

FILES: Mapping[str, tuple[str, ...]] = {
    "common.toml": ("", "database", "zookeeper", "command", "embedded", "streams"),
    "master.toml": ("master",),
    "worker.toml": ("worker", "spark", f"{PROFILES}.{DEFAULT}"),
    "api.toml": ("api", "oidc"),
}
"""The sections of each file; the section without a name is the head of the file."""


def known_keys(values: Mapping[str, object]) -> frozenset[str]:
    """Return all keys, including those of the profiles that `values` names."""
    known = frozenset(defaults())
    for key in values:
        profile = profile_of(key)
        if profile is not None and key not in known:
            known |= profile_keys(profile[0]) | ({key} if not profile[1] else frozenset())
    return known


@cache
def defaults() -> Mapping[str, object]:
    """Return the default of each setting; of profiles, those of the one that is always there."""
    return dict(flattened(Config()))


def flattened(owner: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield every setting of an owner with its full key, profiles included."""
    for item in fields(owner):  # type: ignore[arg-type]  # Always one of the classes of settings.
        value = getattr(owner, item.name)
        key = f"{prefix}{item.name}"
        if key == PROFILES:
            for name in sorted(value):
                yield from flattened(value[name], f"{key}.{name}.")
        elif is_dataclass(value):
            yield from flattened(value, f"{key}.")
        elif key != "origins":
            yield key, value
